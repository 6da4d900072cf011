"""Grids of runs: data sets × methods × organizers × seeds, each run or gone on with, and what they came to."""

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
from .pipeline import count_categories, discover, require_same_settings
from .run import Run

Settings = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    data: str
    method: str
    organizer: str  # its name, or that of one of ABLATIONS
    seed: int

    def folder(self, out: Path) -> Path:
        return out / f"{self.data}-{self.method}-{self.organizer}-seed{self.seed}"

    def layers(self) -> Settings:
        """The settings that make it this cell and no other."""
        return [
            {"method": {"name": self.method}},
            {"organizer": ABLATIONS.get(self.organizer, {"name": self.organizer})},
            {"train": {"seed": self.seed}},
        ]

    def __str__(self) -> str:
        return f"{row_name(self.method, self.organizer)} on {self.data}, seed {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """What one run came to."""

    figures: dict[str, float | None]  # by the names of COLUMNS
    protocol: dict[str, str]
    test: dict[str, float | None] | None = None  # ACCURACY on the official test images, where they were evaluated


ABLATIONS: dict[str, dict[str, Any]] = {
    "cpf-without-alpha": {"name": "cpf", "learn_alpha": False},
    "cpf-without-prior": {"name": "cpf", "use_prior": False},
    "cpf-without-data": {"name": "cpf", "use_data": False},
}

COLUMNS = {
    "all": Column("All", "%", "higher"),
    "old": Column("Old", "%", "higher"),
    "new": Column("New", "%", "higher"),
    "count": Column("count"),
    "count_error": Column("count error", "%", "lower"),
    "parameters": Column("params", "M", decimals=2),
    "seconds": Column("time", "s", decimals=0),
    "model_parameters": Column("params", "M", decimals=2),
    "epoch_seconds": Column("training epoch", "s", "lower", decimals=2),
    "inference_seconds": Column("inference", "s", "lower", decimals=2),
}
ACCURACY = ("all", "old", "new")
COMPARED = (*ACCURACY, "count", "count_error", "parameters", "seconds")


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
    """Train (or go on), assign, evaluate and count; what has been done already is not done again."""
    folder, layers = cell.folder(out), [*settings, *cell.layers()]
    evaluated = read_outcome(folder) is not None
    if evaluated:
        require_same_settings(cell.data, folder, settings=layers)
    else:
        discover(cell.data, folder, settings=layers)
        evaluate(folder)
    if evaluated and Run(folder).path("count.json").is_file():
        say(f"{folder} is finished already")
    else:
        try:
            count_categories(folder)
        except NewkindsError as error:  # its accuracies stand nevertheless
            warn(f"the categories of {cell} cannot be counted: {error}")
    outcome = read_outcome(folder)
    assert outcome is not None  # all its files have just been written
    return outcome


def read_outcome(folder: Path) -> Outcome | None:
    """What a run came to, from its files alone; None if it has not been trained and evaluated to the end."""
    run = Run(folder)
    if not all(run.path(name).is_file() for name in ("model.safetensors", "evaluation.json", "timing.json")):
        return None
    evaluation, record = run.read_json("evaluation.json"), run.read_json("protocol.json")
    counted = run.read_json("count.json")["answer"] if run.path("count.json").is_file() else None
    categories = record["categories"]
    seconds = [row["seconds"] for row in run.metrics()]
    sizes = record["parameters"]
    test = evaluation.get("test")  # runs that were evaluated by earlier versions have no word on it
    figures = _accuracies(evaluation["metrics"]) | {
        "count": counted,
        "count_error": None if categories is None or counted is None else 100 * abs(counted - categories) / categories,
        "parameters": (sizes["backbone"] + sizes["organizer"]) / 1e6,
        "model_parameters": sum(sizes.values()) / 1e6,
        "seconds": sum(seconds),
        "epoch_seconds": sum(seconds) / len(seconds),
        "inference_seconds": run.read_json("timing.json")["embedding_seconds"],
    }
    return Outcome(figures, evaluation["protocol"], None if test is None else _accuracies(test["metrics"]))


def _accuracies(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """In percent."""
    return {part: None if (value := metrics[f"acc_{part}"]) is None else 100 * value for part in ACCURACY}


def compare(cells: Sequence[Cell], outcomes: Mapping[Cell, Outcome]) -> Comparison:
    """The plug-in table: each host alone, then with each organizer and the difference that makes."""
    rows: list[Row] = []
    for method in dict.fromkeys(cell.method for cell in cells):
        host = len(rows)
        for organizer in dict.fromkeys(cell.organizer for cell in cells):
            wanted = [cell for cell in cells if (cell.method, cell.organizer) == (method, organizer)]
            finished = [outcomes[cell].figures for cell in wanted if cell in outcomes]
            figures = [Figure.of([each[name] for each in finished]) for name in COMPARED]
            rows.append(Row(row_name(method, organizer), figures, base=host if len(rows) > host else None))
    protocols = [outcomes[cell].protocol for cell in cells if cell in outcomes]
    return Comparison([COLUMNS[name] for name in COMPARED], rows, merged(protocols))


def row_name(method: str, organizer: str) -> str:
    """`SimGCD`, `SimGCD + CPF`."""
    host = METHODS[method].__name__
    name, _, without = organizer.partition("-without-")
    plugged = "" if name == "none" else f" + {name.upper()}"
    return host + plugged + (f" without {without}" if without else "")


def merged(protocols: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    """One protocol for several runs: where they differ, every value.

    >>> merged([{"split": "ab", "seed": "0"}, {"split": "ab", "seed": "1"}])
    [('split', 'ab'), ('seed', '0; 1')]
    """
    names = dict.fromkeys(name for protocol in protocols for name in protocol)
    return [(name, "; ".join(dict.fromkeys(p[name] for p in protocols if name in p))) for name in names]
