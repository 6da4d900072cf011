"""Names for parts that people add: one line registers a class, and other packages add theirs by entry points."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from .console import say, warn
from .errors import NewkindsError, nearest, note_outside, reason_of
from .source_code import NOTEBOOK, checksum_of_code

T = TypeVar("T", bound=Callable[..., Any])
_origin: ContextVar[str | None] = ContextVar("origin", default=None)


@contextmanager
def registering_from(origin: str) -> Iterator[None]:
    """What is registered meanwhile comes from a plugin file or another package."""
    token = _origin.set(origin)
    try:
        yield
    finally:
        _origin.reset(token)


class Registry(Generic[T]):
    """A dictionary of classes or functions by name; those of other packages are loaded on first use.

    >>> METHODS = Registry("method")                       # entry points: newkinds.methods
    >>> @METHODS.register("simgcd")
    ... class SimGCD: ...
    >>> METHODS["simgcd"] is SimGCD
    True
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}
        self._origins: dict[str, str | None] = {}
        self._codes: dict[str, str] = {}  # of parts that are not ours: the checksum of what was imported
        self._not_loaded: list[EntryPoint] | None = None  # None: not looked for yet

    def register(self, name: str) -> Callable[[T], T]:
        def add(entry: T) -> T:
            if name in self._entries:
                if not _is_defined_again(self._entries[name], entry):
                    raise ValueError(f"two {self.kind}s are called '{name}'")
                say(f"the {self.kind} '{name}' is replaced: {entry.__module__}.{entry.__qualname__} was defined again")
            ours = entry.__module__.partition(".")[0] == __package__  # maybe imported by a plugin just now
            if not ours:
                note_outside(entry.__module__)
            self._origins[name] = None if ours else _origin.get() or f"the module {entry.__module__}"
            self._entries[name] = entry
            if not ours and entry.__module__ != NOTEBOOK:  # now, for the file may be edited while this process runs
                self._codes[name] = checksum_of_code(entry, _origin.get())
            return entry

        return add

    def code(self, name: str) -> str | None:
        """A checksum of the code of a part that a plugin, package or notebook brought; None: it is ours."""
        if self.origin(name) is None:
            return None
        return self._codes.get(name) or checksum_of_code(self._entries[name])

    def own_modules(self) -> set[str]:
        """The modules of newkinds that have parts of this kind."""
        return {entry.__module__ for name, entry in self._entries.items() if self.origin(name) is None}

    def origin(self, name: str) -> str | None:
        """The plugin file, package or module that brought a part; None: newkinds itself."""
        return self._origins.get(name)

    def registered_from(self, origin: str) -> list[str]:
        """The names of the parts that a plugin file, package or module brought."""
        return sorted(name for name, of_name in self._origins.items() if of_name == origin and name in self._entries)

    def __getitem__(self, name: str) -> T:
        if name not in self:
            hint = nearest(name, self) or f" There are: {', '.join(self)}."
            raise NewkindsError(f"there is no {self.kind} called '{name}'.{hint}")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:
            self._load(lambda point: point.name == name)
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._load(lambda point: True)
        return iter(sorted(self._entries))

    def _load(self, wanted: Callable[[EntryPoint], bool]) -> None:
        """Load entry points, each once. One that is broken or takes another's name is reported and left out."""
        if self._not_loaded is None:
            self._not_loaded = list(entry_points(group=f"newkinds.{self.kind.replace(' ', '')}s"))
        for point in [point for point in self._not_loaded if wanted(point)]:
            self._not_loaded.remove(point)
            package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
            try:
                if point.name not in self._entries:
                    note_outside(point.module)
                    with registering_from(package):
                        entry = point.load()
                        if point.name not in self._entries:  # else its module has registered it
                            self.register(point.name)(entry)
                if self._origins[point.name] != package:
                    raise NewkindsError("the name is taken.")
            except Exception as error:
                warn(f"the {self.kind} '{point.name}' of the package {package} is left out: {reason_of(error)}")


def _is_defined_again(earlier: Callable[..., Any], now: Callable[..., Any]) -> bool:
    """Whether a part takes the place of an earlier one because its code was run again: the cell of a notebook, in which
    it may also have got another name, or a module that is reloaded."""
    if now.__module__ != earlier.__module__:
        return False
    return now.__module__ == "__main__" or now.__qualname__ == earlier.__qualname__
