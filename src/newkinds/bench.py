"""Grids of runs: methods × organizers × seeds, each run or gone on with, and what they came to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .comparison import Column, Comparison, Figure, Row
from .console import say, warn
from .errors import NewkindsError
from .evaluation import evaluate
from .methods import METHODS
from .pipeline import count_categories, train

Settings = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    data: str
    method: str
    organizer: str
    seed: int

    def folder(self, out: Path) -> Path:
        return out / f"{self.data}-{self.method}-{self.organizer}-seed{self.seed}"

    def __str__(self) -> str:
        return f"{row_name(self.method, self.organizer)} on {self.data}, seed {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """What one run came to."""

    figures: dict[str, float | None]  # by the names of COLUMNS
    protocol: dict[str, str]


COLUMNS = {
    "all": Column("All", "%", "higher"),
    "old": Column("Old", "%", "higher"),
    "new": Column("New", "%", "higher"),
    "count": Column("K̂"),
    "count_error": Column("|K̂ − K| / K", "%", "lower"),
    "parameters": Column("params", "M", decimals=2),
    "seconds": Column("time", "s", decimals=0),
}


def grid(data: str, methods: Iterable[str], organizers: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """Every method with every organizer and seed, host by host."""
    return [Cell(data, method, organizer, seed) for method in methods for organizer in organizers for seed in seeds]


def run_all(cells: Sequence[Cell], out: Path, settings: Callable[[Cell], Settings]) -> dict[Cell, Outcome]:
    """Run the cells one after the other, or go on with them; one that fails is told of and left out."""
    outcomes = {}
    for place, cell in enumerate(cells, start=1):
        say(f"{cell} ({place} of {len(cells)})")
        try:
            outcomes[cell] = run_one(cell, out, settings(cell))
        except NewkindsError as error:
            warn(f"{cell} failed and is left out: {error}")
    return outcomes


def run_one(cell: Cell, out: Path, settings: Settings) -> Outcome:
    """Train (or go on), assign, evaluate and count."""
    layers = [*settings, {"train": {"seed": cell.seed}}]
    loaded = train(cell.data, cell.folder(out), method=cell.method, organizer=cell.organizer, settings=layers)
    evaluation = evaluate(cell.folder(out))
    metrics = evaluation["metrics"]
    counted = count_categories(cell.folder(out)).answer
    categories = loaded.model.k
    figures: dict[str, float | None] = {
        part: None if (value := metrics[f"acc_{part}"]) is None else 100 * value for part in ("all", "old", "new")
    }
    figures |= {
        "count": counted,
        "count_error": 100 * abs(counted - categories) / categories,
        "parameters": sum(p.numel() for p in loaded.model.encoder.parameters()) / 1e6,
        "seconds": sum(row["seconds"] for row in loaded.run.metrics()),
    }
    return Outcome(figures, evaluation["protocol"])


def compare(cells: Sequence[Cell], outcomes: Mapping[Cell, Outcome]) -> Comparison:
    """The plug-in table: each host alone, then with each organizer and the difference that makes."""
    rows: list[Row] = []
    for method in dict.fromkeys(cell.method for cell in cells):
        host = len(rows)
        for organizer in dict.fromkeys(cell.organizer for cell in cells):
            wanted = [cell for cell in cells if (cell.method, cell.organizer) == (method, organizer)]
            finished = [outcomes[cell].figures for cell in wanted if cell in outcomes]
            figures = [Figure.of([each[name] for each in finished]) for name in COLUMNS]
            rows.append(Row(row_name(method, organizer), figures, base=host if len(rows) > host else None))
    protocols = [outcomes[cell].protocol for cell in cells if cell in outcomes]
    return Comparison(list(COLUMNS.values()), rows, merged(protocols))


def row_name(method: str, organizer: str) -> str:
    """`SimGCD`, `SimGCD + CPF`."""
    host = METHODS[method].__name__
    return host if organizer == "none" else f"{host} + {organizer.upper()}"


def merged(protocols: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    """One protocol for several runs: where they differ, every value.

    >>> merged([{"split": "ab", "seed": "0"}, {"split": "ab", "seed": "1"}])
    [('split', 'ab'), ('seed', '0; 1')]
    """
    names = dict.fromkeys(name for protocol in protocols for name in protocol)
    return [(name, "; ".join(dict.fromkeys(p[name] for p in protocols if name in p))) for name in names]
