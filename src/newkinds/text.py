"""Results as text for the terminal."""

from __future__ import annotations

from collections.abc import Sequence


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
