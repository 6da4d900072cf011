"""The Python reference: every public name of newkinds, from its docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from types import ModuleType
from typing import Any

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
    pieces = re.split(r"(^ *>>>.*?(?:\n\s*\n|\Z)|`[^`\n]+`)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(_piece(piece) for piece in pieces).splitlines()


def _piece(piece: str) -> str:
    if piece.lstrip().startswith(">>>"):
        return piece
    if re.fullmatch(r"`[^`\n]+`", piece):
        return rf"\ `{piece}`\ "
    return re.sub(r"([*|\\]|_\b)", r"\\\1", piece)


def docstring_as_rst(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """autodoc's event: the lines are changed in place."""
    lines[:] = as_rst("\n".join(lines))
