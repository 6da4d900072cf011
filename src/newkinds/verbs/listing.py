"""What there is to choose from. Parts of newkinds itself are read off its source code, so that no torch is imported."""

import ast
import posixpath
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ..encoders.known_backbones import known_backbones
from ..registry import Registry
from ..settings import recipe_names

PACKAGE = Path(__file__).parents[1]
Lines = list[tuple[str, str]]  # name, description


class Parts(NamedTuple):
    """Where parts of one kind are registered."""

    module: str  # in the package
    registry: str  # its name there
    has_torch: bool = True  # so that it is not imported for a list


PARTS = {
    "methods": Parts("methods", "METHODS"),
    "organizers": Parts("encoders.organizers", "ORGANIZERS"),
    "tunings": Parts("encoders.tunings", "TUNINGS"),
    "assigners": Parts("assigners", "ASSIGNERS"),
    "datasets": Parts("data", "DATASETS", has_torch=False),
    "checks": Parts("checks", "CHECKS"),
    "counters": Parts("cluster.count", "COUNTERS"),
    "exports": Parts("discovery.export", "EXPORTS", has_torch=False),
}
KINDS = (
    "methods", "organizers", "tunings", "assigners", "backbones", "datasets", "checks", "counters", "exports",
    "recipes",
)  # fmt: skip


def listing(kind: str | None = None) -> str:
    """What there is to choose from, one line each."""
    blocks = []
    for name in KINDS if kind is None else [kind]:
        lines = lines_of(name)
        width = max(len(entry) for entry, _ in lines)
        blocks.append("\n".join([name, *(f"  {entry.ljust(width)}  {text}".rstrip() for entry, text in lines)]))
    return "\n\n".join(blocks)


def lines_of(kind: str) -> Lines:
    """The names of one kind, each with the first line of its description."""
    if kind == "backbones":
        return known_backbones()
    if kind == "recipes":
        return [(method, ", ".join(names)) for method, names in groupby(recipe_names(), posixpath.dirname)]
    parts = PARTS[kind]
    is_imported = f"{__package__.partition('.')[0]}.{parts.module}" in sys.modules  # a plugin may have added some
    if not parts.has_torch or is_imported or entry_points(group=f"newkinds.{kind}"):
        return registered(parts)
    return sorted(read_off(parts))


def registered(parts: Parts) -> Lines:
    """What is in the registry, and where it is from, if that is not newkinds."""
    registry: Registry[Any] = getattr(import_module(f"..{parts.module}", __package__), parts.registry)
    summary = {name: first_line(registry[name].__doc__) for name in registry}
    origin = {name: f" (from {registry.origin(name)})" if registry.origin(name) else "" for name in registry}
    return [(name, summary[name] + origin[name]) for name in registry]


def read_off(parts: Parts) -> Iterator[tuple[str, str]]:
    """What stands below `@REGISTRY.register("name")` in the files of a room."""
    for file in (PACKAGE / parts.module.replace(".", "/")).rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        if f"@{parts.registry}.register(" not in source:
            continue
        for part in ast.parse(source).body:
            for decorator in getattr(part, "decorator_list", ()):
                match decorator:
                    case ast.Call(ast.Attribute(ast.Name(registry), "register"), [ast.Constant(str(name))]):
                        if registry == parts.registry and isinstance(part, ast.ClassDef | ast.FunctionDef):
                            yield name, first_line(ast.get_docstring(part))


def first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0]
