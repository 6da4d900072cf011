"""Runs side by side: figures with their spread over seeds, and paired differences from the host. Needs no torch."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .errors import NewkindsError

MINUS = "\N{MINUS SIGN}"
COLLAPSED = "†"
OF_COLLAPSED = f"{COLLAPSED} Collapsed, with nearly all images in one category"
HOST = "the host"
SPREAD = "Figures: mean ± standard deviation over seeds."
DIFFERENCE = "Δ: difference from {base}"
PAIRED = ", paired seed by seed: mean ± standard error, and its 95 % interval (Student's t)"


@dataclass(frozen=True)
class Column:
    """A measured quantity; `better` says which way is good, so that differences can be judged."""

    measure: str  # its name in CSV files
    name: str
    unit: str = ""
    better: Literal["higher", "lower"] | None = None
    decimals: int = 1
    counts: bool = False  # whole numbers, except for their means
    group: str = ""  # columns of one data set, beside others
    is_paired: bool = True  # whether runs with the same seed have more in common than others: not what a clock says
    is_constant: bool = False  # whether it is the same for all seeds, so that no spread is worth a word

    @property
    def title(self) -> str:
        return f"{self.name} {self.unit}".strip()


@dataclass(frozen=True)
class OverSeeds:
    """The figures of runs that differ only in their seed."""

    of_seed: Mapping[int, float]

    @classmethod
    def of(cls, values: Mapping[int, float | None]) -> "OverSeeds | None":
        """None if a run has no such value, or there is no run.

        >>> figure = OverSeeds.of({0: 60.0, 1: 62.0, 2: 64.0})
        >>> figure.mean, figure.std, figure.runs
        (62.0, 2.0, 3)
        """
        known = {seed: value for seed, value in values.items() if value is not None and math.isfinite(value)}
        return cls(known) if known and len(known) == len(values) else None

    @property
    def runs(self) -> int:
        return len(self.of_seed)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.of_seed.values())

    @property
    def std(self) -> float | None:
        """Of the sample (n - 1); none for a single run."""
        return statistics.stdev(self.of_seed.values()) if self.runs > 1 else None

    @property
    def error(self) -> float | None:
        """The standard error of the mean; none for a single run."""
        return None if self.std is None else self.std / math.sqrt(self.runs)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the mean, by Student's t with n - 1 degrees of freedom; none for one run."""
        if not self.error:  # equal by chance, which says nothing about how far apart others would be
            return None
        from scipy.special import stdtrit  # slow to import, and not needed for a table of single runs

        half = float(stdtrit(self.runs - 1, 0.975)) * self.error
        return self.mean - half, self.mean + half

    def minus(self, base: "OverSeeds") -> "OverSeeds | None":
        """Seed by seed, for the seeds that both have: runs with the same seed start alike and see the same batches."""
        common = [seed for seed in self.of_seed if seed in base.of_seed]
        return OverSeeds.of({seed: self.of_seed[seed] - base.of_seed[seed] for seed in common})


@dataclass(frozen=True)
class Entry:
    """One figure of a row: what we found, what it is compared with, and what the paper reports."""

    column: Column
    ours: OverSeeds | None
    base: OverSeeds | None = None  # of the row that this one is compared with
    reported: float | None = None

    @property
    def gain(self) -> OverSeeds | None:
        """What changed from the base, seed by seed."""
        return self.ours.minus(self.base) if self.ours and self.base else None

    @property
    def text(self) -> str:
        """`61.2`, or `61.2 ± 1.3` with the standard deviation over seeds; a dash if nothing was measured."""
        return "–" if self.ours is None else self._with_spread(self.ours, self.ours.std)

    @property
    def change(self) -> str:
        """`+1.2`, or `+1.2 ± 0.4` with the standard error; always signed."""
        gain = self.gain
        if gain is None:
            return "–"
        return self._with_spread(gain, gain.error if self.column.is_paired else None, sign="+")

    @property
    def gain_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the gain; none for a single seed, or if seeds pair nothing."""
        return self.gain.interval if self.gain and self.column.is_paired else None

    @property
    def interval(self) -> str:
        """`[−0.3, +2.7]`: the 95 % interval of the gain; nothing for a single seed."""
        gain, ends = self.gain, self.gain_interval
        if gain is None or ends is None:
            return ""
        low, high = (self._rounded(end, gain, sign="+") for end in ends)
        return f"[{low}, {high}]"

    @property
    def verdict(self) -> str:
        """ "better" or "worse" if the 95 % interval excludes 0; else "", also if no direction is good."""
        ends = self.gain_interval
        if not ends or self.column.better is None or ends[0] <= 0 <= ends[1]:
            return ""
        return "better" if (ends[0] > 0) == (self.column.better == "higher") else "worse"

    def _with_spread(self, figure: OverSeeds, spread: float | None, sign: str = "") -> str:
        mean = self._rounded(figure.mean, figure, sign)
        if self.column.is_constant and not spread:
            return mean
        return mean if spread is None else f"{mean} ± {self._rounded(spread, figure)}"

    def _rounded(self, value: float, figure: OverSeeds, sign: str = "") -> str:
        """With the decimals that suit the figure it belongs to, and a true minus sign."""
        column = self.column
        decimals = 0 if column.counts and figure.mean.is_integer() and not figure.std else column.decimals
        return f"{round(value, decimals) + 0.0:{sign},.{decimals}f}".replace("-", MINUS)  # + 0.0: no negative zero


@dataclass(frozen=True)
class Row:
    """What one row is, and its figures, one per column."""

    name: str
    entries: list[Entry]
    runs: int = 1
    protocol: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)  # in CSV files: "method" → "simgcd", "organizer" → …
    collapsed: Mapping[int, float] = field(default_factory=dict)  # seeds → share of the images that one category has

    def __getitem__(self, measure: str) -> Entry:
        """The figure of a measure: `row["new"].ours.mean`."""
        found = {entry.column.measure: entry for entry in self.entries}
        if measure not in found:
            raise NewkindsError(f"{self.name} has no measure '{measure}'. There are: {', '.join(found)}.")
        return found[measure]

    @property
    def compared(self) -> bool:
        return any(entry.gain is not None for entry in self.entries)

    def significant_differences(self, base: str = HOST) -> str:
        """One sentence: which differences from the base are significant; nothing for a single seed."""
        if not any(entry.interval for entry in self.entries):
            return ""
        sure = [f"{entry.column.name} {entry.verdict} ({entry.change})" for entry in self.entries if entry.verdict]
        return f"{self.name} against {base}: {', '.join(sure) or 'no difference is significant'}."


@dataclass(frozen=True)
class LeftOut:
    """A run that is there and does not belong in the table."""

    name: str
    reason: str
    seed: int
    parts: Mapping[str, str]
    figures: Mapping[str, float | None] = field(default_factory=dict)  # none if it cannot be read


@dataclass
class Comparison:
    """A table of runs. Without rows only the protocol is shown."""

    rows: list[Row]
    protocol: list[tuple[str, str]]  # all that must be known to judge the figures
    note: str = ""
    title: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)  # in CSV files: "table", "data", "evaluated"
    base: str = HOST  # what rows are compared with
    left_out: list[LeftOut] = field(default_factory=list)
    averages: list[Row] = field(default_factory=list)  # of gains, over hosts

    @property
    def columns(self) -> list[Column]:
        return [entry.column for entry in self.rows[0].entries] if self.rows else []

    @property
    def legend(self) -> str:
        """What ± and Δ mean, if they are in the table."""
        has_spread = any(row.runs > 1 for row in self.rows)
        said = [SPREAD] if has_spread else []
        if any(row.runs and row.compared for row in self.rows):
            said.append(f"{DIFFERENCE.format(base=self.base)}{PAIRED if has_spread else ''}.")
        return " ".join(said)

    @property
    def said_below(self) -> list[str]:
        """What stands beneath the table."""
        fallen = []
        for row in self.rows:
            shares = [f"seed {seed} ({100 * share:.0f} %)" for seed, share in sorted(row.collapsed.items())]
            fallen += [f"{row.name}: {', '.join(shares)}"] if shares else []
        collapsed = f"{OF_COLLAPSED}: {'; '.join(fallen)}."
        names_of: dict[str, list[str]] = {}
        for run in self.left_out:
            names_of.setdefault(run.reason, []).append(run.name)
        left_out = "Left out of the table: " + " ".join(f"{'; '.join(names_of[why])}: {why}." for why in names_of)
        return [
            said
            for said in (self.legend, collapsed if fallen else "", self.note, left_out if self.left_out else "")
            if said
        ]


def merge_protocols(protocols: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """One protocol for several runs; if they differ, every value.

    >>> merge_protocols([{"split": "ab", "seed": "0"}, {"split": "ab", "seed": "1"}])
    {'split': 'ab', 'seed': '0; 1'}
    """
    values: dict[str, dict[str, None]] = {}
    for protocol in protocols:
        for name, value in protocol.items():
            values.setdefault(name, {})[value] = None
    return {name: "; ".join(each) for name, each in values.items()}


def shared_protocol(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """One protocol for the rows of a table; if they differ, which row has what."""
    lines = []
    for name in merge_protocols(row.protocol for row in rows):
        rows_with: dict[str, list[str]] = {}
        for row in filter(lambda row: row.protocol, rows):
            rows_with.setdefault(row.protocol.get(name, "–"), []).append(row.name)
        differ = [f"{', '.join(names)}: {value}" for value, names in rows_with.items()]
        lines.append((name, " · ".join(differ) if len(differ) > 1 else next(iter(rows_with))))
    return lines
