"""Runs side by side: figures with their spread over seeds, differences from the host, the protocol beneath."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .tables import protocol_lines, text_table

MINUS = "\N{MINUS SIGN}"


@dataclass
class Column:
    """A measured quantity; `better` says which way is good, so that differences can be coloured."""

    name: str
    unit: str = ""
    better: Literal["higher", "lower"] | None = None
    decimals: int = 1
    counts: bool = False  # whole numbers, but for their means

    @property
    def title(self) -> str:
        return f"{self.name} {self.unit}".strip()


@dataclass(frozen=True)
class Figure:
    """What some runs that differ in their seed came to."""

    mean: float
    std: float | None = None  # of the sample (n - 1); none for a single run
    runs: int = 1

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Figure | None:
        """None where a run has no such value, or there is no run.

        >>> Figure.of([60.0, 62.0, 64.0])
        Figure(mean=62.0, std=2.0, runs=3)
        """
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known or len(known) < len(values):
            return None
        std = statistics.stdev(known) if len(known) > 1 else None
        return cls(statistics.fmean(known), std, len(known))


@dataclass
class Row:
    """The figures of one method, one a column."""

    name: str
    figures: list[Figure | None]
    base: int | None = None  # number of the row that it is compared with


@dataclass
class Comparison:
    """A table of runs. Rows with a base are followed by their difference from it.

    Without rows only the protocol is shown.
    """

    columns: list[Column]
    rows: list[Row]
    protocol: list[tuple[str, str]]  # all that must be known to judge the figures
    note: str = ""

    def text(self) -> str:
        """For the terminal: the table, what to think of it, and the protocol."""
        lines = []
        for row in self.rows:
            lines.append([row.name, *(number(f, c) for f, c in zip(row.figures, self.columns, strict=True))])
            if row.base is not None:
                base = self.rows[row.base].figures
                gains = [difference(f, b, c) for f, b, c in zip(row.figures, base, self.columns, strict=True)]
                lines.append(["Δ", *gains])
        table = text_table(["", *(column.title for column in self.columns)], lines)
        return "\n\n".join(filter(None, [table, self.note, protocol_lines(self.protocol)]))


def number(figure: Figure | None, column: Column) -> str:
    """`61.2` or `61.2 ± 1.3`, with the column's decimals and a true minus sign; a dash where nothing was measured."""
    if figure is None:
        return "–"
    decimals = 0 if column.counts and figure.mean.is_integer() and not figure.std else column.decimals
    spread = "" if figure.std is None else f" ± {figure.std:,.{decimals}f}"
    return f"{figure.mean:,.{decimals}f}".replace("-", MINUS) + spread


def difference(figure: Figure | None, base: Figure | None, column: Column) -> str:
    """The mean minus the base's, always signed."""
    if figure is None or base is None:
        return "–"
    gain = round(figure.mean - base.mean, column.decimals) + 0.0  # + 0.0: no negative zero
    text = number(Figure(gain), column)
    return text if text.startswith(MINUS) else f"+{text}"


def verdict(figure: Figure | None, base: Figure | None, column: Column) -> str:
    """One of "better", "worse" and "" (no change beyond the spread, no good direction, or not measured)."""
    if figure is None or base is None or column.better is None:
        return ""
    if abs(figure.mean - base.mean) <= max(figure.std or 0.0, base.std or 0.0):
        return ""
    gain = round(figure.mean - base.mean, column.decimals) * (1 if column.better == "higher" else -1)
    return "better" if gain > 0 else "worse" if gain < 0 else ""
