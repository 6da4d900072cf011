"""The paper's tables: the runs each needs, what the paper reports, and our figures beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from typing_extensions import Unpack

from .bench import ACCURACY, COLUMNS, Cell, Outcome, Settings, merged, read_outcome, row_name, run_all
from .comparison import Figure, difference, number
from .config import find_recipe, read_recipe, resolve
from .console import warn
from .data import load_table
from .errors import NewkindsError, nearest
from .files import csv_text, make_folder
from .pipeline import Choices, layers_of
from .tables import protocol_lines, text_table

HOSTS = ("simgcd", "legogcd", "cms", "selex")
FINE = ("cub", "aircraft", "cars")
UNLABELLED, TEST = "unlabelled", "test"  # what accuracies are of; the paper reports those of unlabelled images
EMPTY = ""  # a cell that was not run


@dataclass(frozen=True)
class PaperTable:
    """One table: a grid, and what is read off its runs."""

    name: str
    title: str
    data: tuple[str, ...]
    methods: tuple[str, ...]
    organizers: tuple[str, ...] = ("none", "cpf")
    measures: tuple[str, ...] = ACCURACY
    evaluated: str = UNLABELLED  # the images that were; nothing where the measures are not accuracies

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
    )
}

Format = Literal["markdown", "latex", "csv"]


def reported() -> dict[str, Any]:
    """The paper's figures: table → data set → method → organizer → measure."""
    return json.loads(resources.files("newkinds").joinpath("reported.json").read_text(encoding="utf-8"))


def bench(
    table: str,
    out: str | Path,
    *,
    methods: Sequence[str] | None = None,
    organizers: Sequence[str] | None = None,
    data: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    only_collect: bool = False,
    style: Format = "markdown",
    **choices: Unpack[Choices],
) -> str:
    """Run (or go on with) the part of a table that is asked for; the table, with all that has been run in `out`.

    `table`: "fine", "coarse", "ablation", "count" or "cost". `methods`, `organizers`, `data`: all of the table's by
    default. Each cell follows its recipe, over which `choices` (backbone, weights, data_root, settings …) win.
    Cells not run stay empty; one that fails is told of and does not stop the others.

    >>> from newkinds.paper import bench
    >>> print(bench("fine", "runs/fine", methods=["simgcd"], data=["cub"], seeds=[0, 1, 2]))
    """
    if table not in TABLES:
        raise NewkindsError(f"there is no table '{table}'.{nearest(table, TABLES)} There are: {', '.join(TABLES)}.")
    whole, folder = TABLES[table], Path(out)
    asked = replace(
        whole,
        data=tuple(data or whole.data),
        methods=tuple(methods or whole.methods),
        organizers=tuple(organizers or whole.organizers),
    )
    if not only_collect:
        settings = partial(_settings, choices=choices)
        run_all(_with_data(asked.cells(seeds), settings), make_folder(folder), settings)
    shown = replace(
        whole,
        data=tuple(dict.fromkeys([*whole.data, *asked.data])),
        methods=tuple(dict.fromkeys([*whole.methods, *asked.methods])),
        organizers=tuple(dict.fromkeys([*whole.organizers, *asked.organizers])),
    )
    return STYLES[style](shown, collect(shown, folder))


def collect(table: PaperTable, out: Path) -> dict[Cell, Outcome]:
    """The finished runs of a table, of whatever seeds there are."""
    outcomes = {}
    for cell in table.cells([0]):
        pattern = replace(cell, seed=-1).folder(out).name.removesuffix("-1") + "*"
        for folder in sorted(out.glob(pattern)):
            seed = folder.name.rpartition("-seed")[2]
            if seed.isdecimal() and (outcome := read_outcome(folder)) is not None:
                outcomes[replace(cell, seed=int(seed))] = outcome
    return outcomes


@dataclass(frozen=True)
class Entry:
    """One method on one data set: what the paper reports, what we found, and what the organizer changed."""

    data: str
    method: str
    organizer: str
    measure: str
    reported: float | None
    ours: Figure | None
    host: Figure | None  # ours, without an organizer


def entries(table: PaperTable, outcomes: Mapping[Cell, Outcome]) -> list[Entry]:
    """Every figure of a table, run or not, in the order of its rows."""
    paper = {} if table.evaluated == TEST else reported()[table.name]
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
    if table.evaluated == UNLABELLED and tested:
        parts.append((replace(table, evaluated=TEST), tested))
    return parts


def markdown(table: PaperTable, outcomes: Mapping[Cell, Outcome]) -> str:
    """A table a data set, one more where test images were evaluated, each with the protocol of its runs."""
    blocks = [f"# {table.title}"]
    for data in table.data:
        of_data = {cell: outcome for cell, outcome in outcomes.items() if cell.data == data}
        blocks.append(f"## {data}")
        for part, runs in with_test_images(table, of_data):
            blocks += ["On the test images:"] if part.evaluated == TEST else []
            blocks.append(text_table(*_sheet(part, data, runs)))
        protocol = merged([outcome.protocol for outcome in of_data.values()])
        blocks.append(protocol_lines(protocol) if protocol else "no run yet")
    return "\n\n".join(blocks)


def latex(table: PaperTable, outcomes: Mapping[Cell, Outcome]) -> str:
    """A tabular a data set, one more where test images were evaluated, with the protocol as comments."""
    blocks = []
    for data in table.data:
        of_data = {cell: outcome for cell, outcome in outcomes.items() if cell.data == data}
        protocol = merged([outcome.protocol for outcome in of_data.values()])
        for part, runs in with_test_images(table, of_data):
            header, rows = _sheet(part, data, runs)
            where = ", on the test images" if part.evaluated == TEST else ""
            lines = [f"% {table.title}: {data}{where}", *(f"% {name}: {value}" for name, value in protocol)]
            lines += [f"\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", "\\hline"]
            lines += [" & ".join(map(_tex, row)) + r" \\" for row in (header, *rows)]
            lines.insert(-len(rows), "\\hline")
            blocks.append("\n".join([*lines, "\\hline", "\\end{tabular}"]))
    return "\n\n".join(blocks)


def tidy_csv(table: PaperTable, outcomes: Mapping[Cell, Outcome]) -> str:
    """A line a figure, for those who make tables of their own."""
    columns = (
        "table", "data", "method", "organizer", "evaluated", "measure",
        "reported", "mean", "std", "seeds", "gain_over_host",
    )  # fmt: skip
    rows = [
        (
            table.name, entry.data, entry.method, entry.organizer, part.evaluated, entry.measure, entry.reported,
            entry.ours and entry.ours.mean, entry.ours and entry.ours.std, entry.ours.runs if entry.ours else 0,
            entry.ours.mean - entry.host.mean if entry.ours and entry.host else None,
        )
        for part, runs in with_test_images(table, outcomes)
        for entry in entries(part, runs)
    ]  # fmt: skip
    return csv_text(columns, rows).rstrip("\n")


STYLES: dict[str, Callable[[PaperTable, Mapping[Cell, Outcome]], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": tidy_csv,
}


def _sheet(
    table: PaperTable, data: str, outcomes: Mapping[Cell, Outcome]
) -> tuple[list[str], list[list[str]]]:
    """Header and rows for one data set: for each measure reported (if ever), ours and Δ, and how many seeds that is."""
    columns = [COLUMNS[measure] for measure in table.measures]
    reports = table.evaluated != TEST
    header = [""]
    for column in columns:
        header += [f"{column.title} reported", "ours", "Δ"] if reports else [f"{column.title} ours", "Δ"]
    rows: dict[tuple[str, str], list[str]] = {}
    for entry in entries(table, outcomes):
        if entry.data == data:
            column = COLUMNS[entry.measure]
            row = rows.setdefault((entry.method, entry.organizer), [row_name(entry.method, entry.organizer)])
            if reports:
                row.append(EMPTY if entry.reported is None else number(Figure(entry.reported), column))
            row += [
                EMPTY if entry.ours is None else number(entry.ours, column),
                difference(entry.ours, entry.host, column) if entry.ours and entry.host else EMPTY,
            ]
    seeds = [
        len([cell for cell in outcomes if (cell.data, cell.method, cell.organizer) == (data, *key)]) for key in rows
    ]
    return [*header, "seeds"], [[*row, str(n or EMPTY)] for row, n in zip(rows.values(), seeds, strict=True)]


def _figure(outcomes: Mapping[Cell, Outcome], row: Cell, measure: str) -> Figure | None:
    return Figure.of([o.figures[measure] for cell, o in outcomes.items() if replace(cell, seed=row.seed) == row])


def _settings(cell: Cell, choices: Choices) -> list[Mapping[str, Any]]:
    """The cell's recipe, and what the user wants otherwise."""
    return [read_recipe(find_recipe(f"{cell.method}/{cell.data}")), *layers_of(None, choices)]


def _with_data(cells: Sequence[Cell], settings: Callable[[Cell], Settings]) -> list[Cell]:
    """The cells whose data set is there; what is missing is said once, not for every cell."""
    missing = set()
    for data in dict.fromkeys(cell.data for cell in cells):
        first = next(cell for cell in cells if cell.data == data)
        try:
            load_table(resolve(*settings(first)).data)
        except NewkindsError as error:
            missing.add(data)
            warn(f"{data} is left out: {error}")
    return [cell for cell in cells if cell.data not in missing]


TEX = {"%": r"\%", "_": r"\_", "±": r"$\pm$", "Δ": r"$\Delta$", "\N{MINUS SIGN}": "$-$", "–": "--"}


def _tex(text: str) -> str:
    return "".join(TEX.get(character, character) for character in text)
