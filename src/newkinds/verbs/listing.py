"""What there is to choose from."""

import posixpath
from itertools import groupby
from typing import Any

from ..assigners import ASSIGNERS
from ..checks import CHECKS
from ..cluster.count import COUNTERS
from ..data import DATASETS
from ..discovery.export import EXPORTS
from ..encoders.backbones import known_backbones
from ..encoders.organizers import ORGANIZERS
from ..encoders.tunings import TUNINGS
from ..methods import METHODS
from ..registry import Registry
from ..settings import recipe_names


def listing(kind: str | None = None) -> str:
    """What there is to choose from, one line each."""
    sections = {
        "methods": _described(METHODS),
        "organizers": _described(ORGANIZERS),
        "tunings": _described(TUNINGS),
        "assigners": _described(ASSIGNERS),
        "backbones": known_backbones(),
        "datasets": _described(DATASETS),
        "checks": _described(CHECKS),
        "counters": _described(COUNTERS),
        "exports": _described(EXPORTS),
        "recipes": [(method, ", ".join(names)) for method, names in groupby(recipe_names(), posixpath.dirname)],
    }
    blocks = []
    for name in sections if kind is None else [kind]:
        width = max(len(entry) for entry, _ in sections[name])
        lines = [f"  {entry.ljust(width)}  {text}".rstrip() for entry, text in sections[name]]
        blocks.append("\n".join([name, *lines]))
    return "\n\n".join(blocks)


def _described(registry: Registry[Any]) -> list[tuple[str, str]]:
    """Name → the first line of its description, and where it is from, if that is not newkinds."""
    summary = {name: (registry[name].__doc__ or "").strip().split("\n")[0] for name in registry}
    origin = {name: f" (from {registry.origin(name)})" if registry.origin(name) else "" for name in registry}
    return [(name, summary[name] + origin[name]) for name in registry]
