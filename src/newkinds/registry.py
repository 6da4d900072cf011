"""Names for things people add: one line registers a class, a duplicate is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from .errors import NewkindsError, nearest

T = TypeVar("T", bound=Callable[..., Any])


class Registry(Generic[T]):
    """A dictionary of classes or functions by name.

    >>> METHODS = Registry("method")
    >>> @METHODS.register("simgcd")
    ... class SimGCD: ...
    >>> METHODS["simgcd"] is SimGCD
    True
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"two {self.kind}s are called '{name}'")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            hint = nearest(name, self._entries) or f" There are: {', '.join(sorted(self._entries))}."
            raise NewkindsError(f"there is no {self.kind} called '{name}'.{hint}")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))
