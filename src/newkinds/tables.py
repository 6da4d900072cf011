"""Results as text for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .backbones import known_backbones
from .cache_files import CacheEntry, gigabytes
from .config import recipe_names
from .count import COUNTERS, Count
from .data import DATASETS
from .discovery import Discovery
from .methods import METHODS
from .organizers import ORGANIZERS
from .registry import Registry

CURVE_SHOWN = 8  # numbers of categories, of those a count has tried

METRIC_NAMES = {
    "acc": "ACC (v2, one match)",
    "acc_v1": "ACC (v1, two matches)",
    "acc_balanced": "ACC (v2, class-balanced)",
}


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown that is aligned to be read as it is; all columns but the first are flush right.

    >>> print(text_table(["", "All"], [["host", "61.2"]]))
    |      |  All |
    |------|-----:|
    | host | 61.2 |
    """
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2)] + ["-" * (w + 1) + ":" for w in widths[1:]]) + "|"
    return "\n".join([line(columns), rule, *map(line, rows)])


def percent(share: float | None) -> str:
    """`0.612` → "61.2"; a split without images is a dash."""
    return "–" if share is None else f"{100 * share:.1f}"


def protocol_lines(protocol: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in protocol)
    return "\n".join(f"{name.ljust(width)}  {' '.join(value.split())}" for name, value in protocol)


def evaluation_table(evaluation: dict[str, Any]) -> str:
    """All, Old and New for each accuracy, NMI and ARI, the same on test images where there are, then the protocol."""
    tables = [_metrics_table("unlabelled training images, %", evaluation["metrics"])]
    if evaluation["test"] is not None:
        tables.append(_metrics_table("test images, %", evaluation["test"]["metrics"]))
    return "\n\n".join([*tables, protocol_lines(list(evaluation["protocol"].items()))])


def _metrics_table(title: str, metrics: Mapping[str, float | None]) -> str:
    rows = [
        [title, *(percent(metrics[f"{name}_{part}"]) for part in ("all", "old", "new"))]
        for name, title in METRIC_NAMES.items()
    ]
    rows += [[name.upper(), percent(metrics[name]), "", ""] for name in ("nmi", "ari")]
    return text_table([title, "All", "Old", "New"], rows)


def discovery_summary(discovery: Discovery) -> str:
    """New categories with their sizes, and where to look."""
    rows = [[c.name, str(c.size), f"{c.confidence:.2f}"] for c in discovery.new]
    table = text_table(["new category", "images", "confidence"], rows) if rows else "no new category has members"
    return (
        f"{table}\n\n{len(discovery.members)} images assigned ({len(discovery.known)} known categories, "
        f"{len(discovery.new)} new), {len(discovery.skipped)} passed over\n"
        f"look at {discovery.run / 'report.html'}; tables in {discovery.run / 'assignments.csv'}"
    )


def count_summary(count: Count) -> str:
    """The answer, and the best of the curve it was chosen from."""
    best = sorted(count.curve, key=lambda point: (point[0] != count.answer, -point[1], point[0]))[:CURVE_SHOWN]
    rows = [[f"{k}{' *' if k == count.answer else ''}", percent(score)] for k, score in sorted(best)]
    tied = [k for k, score in count.curve if score == count.score]
    lines = [
        f"{count.answer} categories: {count.known} known and {count.new} new "
        f"({count.method}; {len(count.curve)} numbers tried)",
        text_table(["best of them", f"{count.score_is} %"], rows),
    ]
    if len(tied) > 1:
        lines.append(f"{len(tied)} numbers from {min(tied)} to {max(tied)} are equally good; * is the answer.")
    return "\n\n".join(lines)


def cache_listing(entries: Sequence[CacheEntry], where: str) -> str:
    """Caches and their sizes, and the sum."""
    rows = [[e.key, e.about, f"{e.images:,}", str(e.views), gigabytes(e.bytes), e.made] for e in entries]
    total = f"{len(entries)} cache(s), {gigabytes(sum(e.bytes for e in entries))}, {where}"
    return f"{text_table(['key', 'of', 'images', 'views', 'size', 'made'], rows)}\n\n{total}" if entries else total


def listing(kind: str | None = None) -> str:
    """What there is to choose from, with a line each."""
    sections = {
        "methods": _described(METHODS),
        "organizers": _described(ORGANIZERS),
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
    return [(name, (registry[name].__doc__ or "").strip().split("\n")[0]) for name in registry]


def _recipes() -> list[tuple[str, str]]:
    """The names of the recipes, a line for each method."""
    of_method: dict[str, list[str]] = {}
    for name in recipe_names():
        of_method.setdefault(name.split("/")[0], []).append(name)
    return [(method, ", ".join(names)) for method, names in of_method.items()]
