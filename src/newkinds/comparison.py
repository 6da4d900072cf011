"""Runs side by side: figures with their spread over seeds, differences from the host, the protocol beneath."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .text import protocol_lines, text_table

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
class OverSeeds:
    """What some runs that differ in their seed came to."""

    of_seed: Mapping[int, float]

    @classmethod
    def of(cls, values: Mapping[int, float | None]) -> OverSeeds | None:
        """None where a run has no such value, or there is no run.

        >>> figure = OverSeeds.of({0: 60.0, 1: 62.0, 2: 64.0})
        >>> figure.mean, figure.std, figure.runs
        (62.0, 2.0, 3)
        """
        known = {seed: value for seed, value in values.items() if value is not None and math.isfinite(value)}
        return cls(known) if known and len(known) == len(values) else None

    @property
    def mean(self) -> float:
        return statistics.fmean(self.of_seed.values())

    @property
    def std(self) -> float | None:
        """Of the sample (n - 1); none for a single run."""
        return statistics.stdev(self.of_seed.values()) if self.runs > 1 else None

    @property
    def runs(self) -> int:
        return len(self.of_seed)

    def minus(self, base: OverSeeds) -> OverSeeds | None:
        """Seed by seed, for the seeds that both have: runs with the same seed began alike and saw the same batches."""
        common = [seed for seed in self.of_seed if seed in base.of_seed]
        return OverSeeds.of({seed: self.of_seed[seed] - base.of_seed[seed] for seed in common})


@dataclass
class Row:
    """The figures of one method, one a column."""

    name: str
    figures: list[OverSeeds | None]
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


def number(figure: OverSeeds | None, column: Column) -> str:
    """`61.2` or `61.2 ± 1.3`, with the column's decimals and a true minus sign; a dash where nothing was measured."""
    if figure is None:
        return "–"
    decimals = 0 if column.counts and figure.mean.is_integer() and not figure.std else column.decimals
    spread = "" if figure.std is None else f" ± {figure.std:,.{decimals}f}"
    mean = round(figure.mean, decimals) + 0.0  # + 0.0: no negative zero
    return f"{mean:,.{decimals}f}".replace("-", MINUS) + spread


def difference(figure: OverSeeds | None, base: OverSeeds | None, column: Column) -> str:
    """`+1.2` or `+1.2 ± 0.4`: the mean and spread of what changed, seed by seed; always signed."""
    text = number(figure.minus(base) if figure and base else None, column)
    return text if text.startswith((MINUS, "–")) else f"+{text}"


def verdict(figure: OverSeeds | None, base: OverSeeds | None, column: Column) -> str:
    """One of "better", "worse" and "" (no change beyond the spread, no good direction, or not measured)."""
    gain = figure.minus(base) if figure and base else None
    if figure is None or base is None or gain is None or column.better is None:
        return ""
    if abs(gain.mean) <= max(each.std or 0.0 for each in (figure, base, gain)):
        return ""
    change = round(gain.mean, column.decimals) * (1 if column.better == "higher" else -1)
    return "better" if change > 0 else "worse" if change < 0 else ""
