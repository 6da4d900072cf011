"""The paper's tables, and one for any data: the runs each needs, what is reported, and our figures beside it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from ..comparison import OverSeeds
from .grid import ACCURACY, COMPARED, Cell, Outcome

HOSTS = ("simgcd", "legogcd", "cms", "selex")
FINE = ("cub", "aircraft", "cars")
TRAINING_IMAGES, TEST_IMAGES = "unlabelled", "test"  # the images that are judged; the paper: unlabelled


@dataclass(frozen=True)
class PaperTable:
    """One table: a grid, and what is read off its runs."""

    name: str
    title: str
    data: tuple[str, ...]  # empty: whatever data is named
    methods: tuple[str, ...]
    organizers: tuple[str, ...] = ("none", "cpf")
    measures: tuple[str, ...] = ACCURACY
    evaluated: str = TRAINING_IMAGES  # the images that were; nothing where the measures are not accuracies

    @property
    def reports(self) -> bool:
        """Whether the paper has such a table."""
        return self.evaluated != TEST_IMAGES and self.name in reported()

    def only(self, cells: Collection[Cell]) -> PaperTable:
        """The table without the methods and organizers that none of these cells has."""
        methods, organizers = {cell.method for cell in cells}, {cell.organizer for cell in cells}
        return replace(
            self,
            methods=tuple(name for name in self.methods if name in methods),
            organizers=tuple(name for name in self.organizers if name in organizers),
        )

    def cells(self, seeds: Sequence[int]) -> list[Cell]:
        return [
            Cell(data, method, organizer, seed)
            for data in self.data
            for method in self.methods
            for organizer in self.organizers
            for seed in seeds
        ]


TABLES = {
    table.name: table
    for table in (
        PaperTable("fine", "Fine-grained data sets", FINE, ("gcd", *HOSTS)),
        PaperTable("coarse", "Coarse data sets", ("cifar10", "cifar100", "imagenet100"), ("gcd", *HOSTS)),
        PaperTable(
            "ablation",
            "What of CPF matters",
            FINE,
            ("simgcd",),
            ("none", "patches", "cpf", "cpf-without-alpha", "cpf-without-prior", "cpf-without-data"),
        ),
        PaperTable(
            "count",
            "How many categories",
            ("cifar100", "imagenet100", "cub", "cars"),
            ("gcd", "cms"),
            measures=("count", "count_error"),
            evaluated="",
        ),
        PaperTable(
            "cost",
            "What CPF costs",
            ("cub",),
            ("simgcd",),
            measures=("model_parameters", "epoch_seconds", "inference_seconds"),
            evaluated="",
        ),
        PaperTable("plugin", "Hosts and what is plugged into them", (), HOSTS, measures=COMPARED),
    )
}


@cache
def reported() -> dict[str, Any]:
    """The paper's figures: table → data set → method → organizer → measure."""
    return json.loads(resources.files(__package__).joinpath("reported.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Entry:
    """One method on one data set: what the paper reports, what we found, and what the organizer changed."""

    data: str
    method: str
    organizer: str
    measure: str
    reported: float | None
    ours: OverSeeds | None
    host: OverSeeds | None  # ours, without an organizer

    @property
    def gain(self) -> OverSeeds | None:
        """What the organizer changed, seed by seed."""
        return self.ours.minus(self.host) if self.ours and self.host else None


def entries(table: PaperTable, outcomes: Mapping[Cell, Outcome]) -> list[Entry]:
    """Every figure of a table, run or not, in the order of its rows."""
    paper = reported()[table.name] if table.reports else {}
    found = []
    for row in table.cells([0]):
        for measure in table.measures:
            said = paper.get(row.data, {}).get(row.method, {}).get(row.organizer, {}).get(measure)
            ours = _figure(outcomes, row, measure)
            host = _figure(outcomes, replace(row, organizer="none"), measure) if row.organizer != "none" else None
            found.append(Entry(row.data, row.method, row.organizer, measure, said, ours, host))
    return found


def with_test_images(
    table: PaperTable, outcomes: Mapping[Cell, Outcome]
) -> list[tuple[PaperTable, Mapping[Cell, Outcome]]]:
    """The table, and if runs were evaluated on test images too, the same table of those runs on those images."""
    tested = {cell: replace(run, figures=run.test) for cell, run in outcomes.items() if run.test is not None}
    parts: list[tuple[PaperTable, Mapping[Cell, Outcome]]] = [(table, outcomes)]
    if table.evaluated == TRAINING_IMAGES and tested:
        parts.append((replace(table, evaluated=TEST_IMAGES, measures=ACCURACY), tested))
    return parts


def _figure(outcomes: Mapping[Cell, Outcome], row: Cell, measure: str) -> OverSeeds | None:
    runs = {cell.seed: outcome for cell, outcome in outcomes.items() if replace(cell, seed=row.seed) == row}
    return OverSeeds.of({seed: run.figures[measure] for seed, run in runs.items()})
