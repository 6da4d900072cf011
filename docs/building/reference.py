"""The Python reference: every public name of newkinds, from its docstring."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from types import ModuleType
from typing import Annotated, Any, get_origin

import newkinds

FOLDER = "reference"
BELOW = ["data.splits"]  # modules that people import, and that are not names of newkinds itself


def reference_pages() -> dict[str, str]:
    """`reference/newkinds.rst` for the names of newkinds itself, and one page for each of its modules."""
    public = {name: getattr(newkinds, name) for name in newkinds.__all__ if name != "__version__"}
    modules = sorted([name for name, value in public.items() if inspect.ismodule(value)] + BELOW)
    own = [f"newkinds.{name}" for name, value in public.items() if not inspect.ismodule(value)]
    pages = {"newkinds": _page("newkinds", newkinds, own)}
    for name in modules:
        module = importlib.import_module(f"newkinds.{name}")
        pages[f"newkinds.{name}"] = _page(
            f"newkinds.{name}", module, [f"newkinds.{name}.{n}" for n in public_names(module)]
        )
    index = ["Python reference", "=" * 16, "", ".. toctree::", "", *(f"   {name}" for name in pages)]
    pages["index"] = "\n".join(index) + "\n"
    return {f"{FOLDER}/{name}.rst": text for name, text in pages.items()}


def public_names(module: ModuleType) -> list[str]:
    """What a module says it offers, else the functions and classes that it defines."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__ and callable(value)
    ]


def _page(title: str, module: ModuleType, names: list[str]) -> str:
    parts = [title, "=" * len(title), "", *as_rst(inspect.getdoc(module) or ""), ""]
    for name in names:
        where, _, last = name.rpartition(".")
        value = getattr(importlib.import_module(where), last)
        kind = "class" if inspect.isclass(value) else "function" if inspect.isroutine(value) else "data"
        parts += [f".. auto{kind}:: {name}", *(["   :members:"] if kind == "class" else []), ""]
    return "\n".join(parts)


def as_rst(text: str) -> list[str]:
    """Lines of a docstring, which is plain text with `code` and >>> examples, as reStructuredText."""
    text = re.sub(r"^(\w+)\n-{3,}\n((?:.+\n?)+)", _section, text, flags=re.MULTILINE)
    pieces = re.split(r"(^ *>>>.*?(?:\n\s*\n|\Z)|`[^`\n]+`)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(_piece(piece) for piece in pieces).splitlines()


def _section(found: re.Match[str]) -> str:
    """Parameters or Attributes of an estimator, as scikit-learn writes them (`name : what it is`), as a list."""
    title, lines = found[1], re.sub(r"\n\s+", " ", found[2].rstrip("\n")).splitlines()
    items = [re.sub(r"^(.+?) : ", r"- `\1`: ", line) for line in lines]
    return "\n".join([f".. rubric:: {title}", "", *items, ""])


def _piece(piece: str) -> str:
    if piece.lstrip().startswith(">>>"):
        return piece
    if re.fullmatch(r"`[^`\n]+`", piece):
        return rf"\ `{piece}`\ "
    return re.sub(r"([*|\\]|_\b)", r"\\\1", piece)


def docstring_as_rst(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """autodoc's event: the lines are changed in place."""
    lines[:] = as_rst("\n".join(lines))


def signature_as_written(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """autodoc's event: `init: str | ArrayLike`, not all that ArrayLike stands for. None: as autodoc makes it."""
    if dataclasses.is_dataclass(obj):
        return f"({_fields_as_written(obj)})", None
    function = _parsed(obj.__init__ if inspect.isclass(obj) else inspect.unwrap(obj))
    if not isinstance(function, ast.FunctionDef):
        return None
    given = function.args
    places = given.posonlyargs or given.args
    if places and places[0].arg in ("self", "cls"):
        del places[0]
    says = ast.unparse(function.returns) if function.returns and not inspect.isclass(obj) else None
    return f"({ast.unparse(given)})", says


def _fields_as_written(dataclass: Any) -> str:
    written = {}
    for parent in reversed(dataclass.__mro__):
        lines = getattr(_parsed(parent), "body", [])
        written |= {ast.unparse(line.target): line for line in lines if isinstance(line, ast.AnnAssign)}
    parts = []
    for field in dataclasses.fields(dataclass):
        if field.init:
            parts += ["*"] if field.kw_only and "*" not in parts else []
            says = ast.unparse(written[field.name].annotation).removeprefix("'").removesuffix("'")
            default = written[field.name].value
            parts.append(f"{field.name}: {says}" + (f" = {ast.unparse(default)}" if default else ""))
    return ", ".join(parts)


def _parsed(obj: Any) -> ast.AST | None:
    """The syntax of a class or function, numbers with a range as numbers; None if it has no source."""
    try:
        written = ast.parse(textwrap.dedent(inspect.getsource(obj))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    return _PlainTypes(vars(importlib.import_module(obj.__module__))).visit(written)


class _PlainTypes(ast.NodeTransformer):
    """`rank: Count` becomes `rank: int`, if Count is a whole number of at least 1."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        meant = self.names.get(node.id)
        return ast.Name(meant.__origin__.__name__) if get_origin(meant) is Annotated else node
