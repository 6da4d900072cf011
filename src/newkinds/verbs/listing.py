"""What there is to choose from."""

from __future__ import annotations

from typing import Any

from ..assigners import ASSIGNERS
from ..cluster.count import COUNTERS
from ..data import DATASETS
from ..encoders.backbones import known_backbones
from ..encoders.organizers import ORGANIZERS
from ..methods import METHODS
from ..registry import Registry
from ..settings import recipe_names


def listing(kind: str | None = None) -> str:
    """What there is to choose from, with a line each."""
    sections = {
        "methods": _described(METHODS),
        "organizers": _described(ORGANIZERS),
        "assigners": _described(ASSIGNERS),
        "backbones": known_backbones(),
        "datasets": _described(DATASETS),
        "counters": _described(COUNTERS),
        "recipes": _recipes(),
    }
    blocks = []
    for name in sections if kind is None else [kind]:
        width = max(len(entry) for entry, _ in sections[name])
        lines = [f"  {entry.ljust(width)}  {text}".rstrip() for entry, text in sections[name]]
        blocks.append("\n".join([name, *lines]))
    return "\n\n".join(blocks)


def _described(registry: Registry[Any]) -> list[tuple[str, str]]:
    """Name → the first line of its description, and where it is from, if that is not newkinds."""
    described = []
    for name in registry:
        summary = (registry[name].__doc__ or "").strip().split("\n")[0]
        origin = registry.origin(name)
        described.append((name, summary if origin is None else f"{summary} (from {origin})".strip()))
    return described


def _recipes() -> list[tuple[str, str]]:
    """The names of the recipes, a line for each method."""
    of_method: dict[str, list[str]] = {}
    for name in recipe_names():
        of_method.setdefault(name.split("/")[0], []).append(name)
    return [(method, ", ".join(names)) for method, names in of_method.items()]
