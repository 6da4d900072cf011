"""What Python code does, as a checksum: comments, docstrings and layout do not change it, nor does Python's version."""

import ast
import hashlib
import inspect
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

INSTALLED = ("site-packages", "dist-packages")
UNSAID = ("ctx", "kind", "type_comment")  # fields of a syntax tree that follow from others
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NOTEBOOK = "__main__"
PLAIN = (bool, int, float, complex, str, bytes, type(None))
DIGITS = 16


def checksum_of_code(part: Callable[..., Any], origin: str | None = None) -> str:
    """The code behind a class or function: its file, those that this imports from the same folder or package, and the
    plugin file that brought it (`origin`). In a notebook or script: it alone, and what it uses of what is there."""
    files = files_of_code(part, origin)
    return checksum_of_files(files) if files else _short("\n".join(sorted(_in_memory(part))))


def files_of_code(part: Callable[..., Any], origin: str | None = None) -> set[Path]:
    """The files of `checksum_of_code`; none for a notebook or script."""
    if part.__module__ == NOTEBOOK:
        return set()
    files = [file for file in (_file_of(part.__module__), origin and Path(origin)) if file and file.is_file()]
    return {found for file in files for found in files_with_imports([file], *_whose(file))}


def checksum_of_files(files: Iterable[Path]) -> str:
    """Of what Python files do; where they lie and in which order they are named does not count."""
    return _short("\n".join(sorted(f"{file.name} {_of_file(file)}" for file in {*files})))


def files_with_imports(files: Iterable[Path], root: Path, may_follow: Callable[[Path], bool]) -> set[Path]:
    """Files, and those below `root` that they import, directly or not, if these may be followed. Nothing is run."""
    found: set[Path] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += [other for other in _imports(file, root) if may_follow(other)]
    return found


def _whose(file: Path) -> tuple[Path, Callable[[Path], bool]]:
    """The folder in which imports of a file begin, and which of the files there belong to it."""
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    package = file.relative_to(root).parts[0]
    installed = root.name in INSTALLED  # beside the files of all others

    def belongs(other: Path) -> bool:
        top = other.relative_to(root).parts[0]
        return top == package or not (installed or top == __package__)

    return root, belongs


def _imports(file: Path, root: Path) -> Iterator[Path]:
    """The files below `root` that a file imports, wherever in it."""
    package = file.parent.relative_to(root).parts if file.is_relative_to(root) else ()
    for node in ast.walk(_parsed(_content(file)) or ast.Module([], [])):
        if isinstance(node, ast.Import):
            wanted = [tuple(name.name.split(".")) for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            module = (*above, *(node.module.split(".") if node.module else ()))
            wanted = [module, *((*module, name.name) for name in node.names)]
        else:
            continue
        for parts in filter(None, wanted):
            place = root.joinpath(*parts)
            yield from filter(Path.is_file, (place.with_name(f"{place.name}.py"), place / "__init__.py"))


def _file_of(module: str) -> Path | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file) if file and file.endswith(".py") else None


def _of_file(file: Path) -> str:
    content = _content(file)
    tree = _parsed(content)
    return _short(content if tree is None else "\n".join(_spelled(tree)))


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # beside the part, and not for us to read: it was not imported either
        return b""


def _parsed(source: bytes | str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _spelled(tree: ast.AST) -> Iterator[str]:
    """A syntax tree in words that are the same in all versions of Python."""
    waiting: list[Any] = [tree]  # a stack, for expressions may be deeper than Python can call itself
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.AST):
            yield f"({type(node).__name__}"
            waiting.append(_Word(")"))
            for name, value in reversed([*ast.iter_fields(node)]):
                if name == "body" and isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node, False) is not None:
                    value = value[1:]
                if value not in (None, []) and name not in UNSAID:
                    waiting += [value, _Word(name)]
        elif isinstance(node, list):
            waiting += reversed(node)
        else:
            yield node if isinstance(node, _Word) else repr(node)


class _Word(str):
    """A word of ours, not a value of the code."""


def _in_memory(part: Any) -> set[str]:
    """The code of a part that is in no file, and of what else it uses of the same notebook or script, or of files of
    the user's that this imports."""
    said: set[str] = set()
    seen: set[int] = set()
    waiting = [part]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        module = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None)
        if module != part.__module__:
            file = _file_of(str(module))
            if file is not None and _is_users(file):
                said.add(checksum_of_files(files_with_imports([file], *_whose(file))))
            continue
        said.add(_said_of(thing))
        if inspect.isclass(thing):
            waiting += [*thing.__bases__, *map(_bare, vars(thing).values())]
            said |= _constants(vars(thing))
        elif isinstance(thing, FunctionType):
            used = {name: thing.__globals__[name] for name in _names(thing.__code__) if name in thing.__globals__}
            said |= _constants(used)
            waiting += used.values()
    return said


def _is_users(file: Path) -> bool:
    """Whether a file is neither of Python, nor of an installed package, nor ours."""
    places = [Path(sysconfig.get_path("stdlib")), Path(__file__).parent]
    return not {*INSTALLED} & {*file.parts} and not any(file.is_relative_to(place) for place in places)


def _constants(values: Mapping[str, Any]) -> set[str]:
    told = {name: _plain(value) for name, value in values.items() if not name.startswith("__")}
    return {f"{name} = {value}" for name, value in told.items() if value is not None}


def _plain(value: Any) -> str | None:
    """A number, a text or a collection of these in words that are the same in every process; None: anything else."""
    if isinstance(value, PLAIN):
        return repr(value)
    items = [*value.items()] if isinstance(value, dict) else value
    if not isinstance(items, (tuple, list, set, frozenset)):
        return None
    told = [_plain(item) for item in items]
    if None in told:
        return None
    in_order = sorted(map(str, told)) if isinstance(value, (set, frozenset)) else map(str, told)
    return f"{type(value).__name__}({', '.join(in_order)})"


def _said_of(thing: Any) -> str:
    """The source of a function, or of a class if Python knows it; else what it was compiled to."""
    try:
        tree = _parsed(textwrap.dedent(inspect.getsource(thing)))
        if tree is not None:
            return "\n".join(_spelled(tree))
    except (OSError, TypeError):
        pass
    if not isinstance(thing, FunctionType):
        return str(getattr(thing, "__qualname__", ""))
    return repr((_compiled(thing.__code__), _plain(thing.__defaults__), _plain(thing.__kwdefaults__)))


def _compiled(code: CodeType) -> tuple[Any, ...]:
    constants = [_compiled(value) if isinstance(value, CodeType) else _plain(value) for value in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, constants


def _names(code: CodeType) -> set[str]:
    """Names that a function uses, and those in it."""
    inner = [_names(value) for value in code.co_consts if isinstance(value, CodeType)]
    return {*code.co_names}.union(*inner)


def _bare(member: Any) -> Any:
    """The function of a method, whatever its kind."""
    return getattr(member, "__func__", None) or getattr(member, "fget", None) or member


def _short(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:DIGITS]
