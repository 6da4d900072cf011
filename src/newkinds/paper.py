"""The paper's tables: the runs each needs, what the paper reports, and our figures beside it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from typing_extensions import Unpack

from .bench import (
    ACCURACY,
    COLUMNS,
    VARIANTS,
    Cell,
    Outcome,
    Settings,
    comparable,
    merged,
    protocol_of,
    read_outcome,
    row_name,
    run_all,
)
from .comparison import Figure, difference, number
from .config import find_recipe, read_recipe, resolve
from .console import warn
from .data import load_table
from .data.benchmarks import BENCHMARKS
from .errors import NewkindsError, nearest
from .files import csv_text, make_folder
from .methods import METHODS
from .organizers import ORGANIZERS
from .pipeline import COUNT_BY, Choices, layers_of
from .run import Run
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


@dataclass(frozen=True)
class Benched:
    """A table, and what of it could not be run."""

    text: str
    failed: list[str]

    def __str__(self) -> str:
        return self.text


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
) -> Benched:
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
        data=_chosen("data set", data, whole.data, BENCHMARKS),
        methods=_chosen("method", methods, whole.methods, METHODS),
        organizers=_chosen("organizer", organizers, whole.organizers, [*ORGANIZERS, *VARIANTS]),
    )
    failed = []
    if only_collect:
        if not folder.is_dir():
            raise NewkindsError(f"there is no folder {folder}: nothing to collect.")
    else:
        _refuse_what_cells_say(choices)
        cells = asked.cells(_chosen_seeds(seeds))
        settings = partial(_settings, choices=choices)
        count_by = _counted_by if "count" in whole.measures else None
        outcomes = run_all(_runnable(cells, settings), make_folder(folder), settings, count_by)
        failed = [str(cell) for cell in cells if cell not in outcomes]
    shown = replace(
        whole,
        data=tuple(dict.fromkeys([*whole.data, *asked.data])),
        methods=tuple(dict.fromkeys([*whole.methods, *asked.methods])),
        organizers=tuple(dict.fromkeys([*whole.organizers, *asked.organizers])),
    )
    return Benched(STYLES[style](shown, collect(shown, folder)), failed)


def collect(table: PaperTable, out: Path) -> dict[Cell, Outcome]:
    """The finished runs of a table, of whatever seeds there are; what does not belong into it is named."""
    outcomes = {}
    for cell in table.cells([0]):
        pattern = replace(cell, seed=-1).folder(out).name.removesuffix("-1") + "*"
        for folder in sorted(out.glob(pattern)):
            seed = folder.name.rpartition("-seed")[2]
            if not seed.isdecimal():
                continue
            this = replace(cell, seed=int(seed))
            try:
                if (outcome := read_outcome(folder)) is not None:
                    _require_named_rightly(folder, this)
                    outcomes[this] = outcome
            except NewkindsError as error:
                warn(f"{folder} is left out of the table: {error}")
    return comparable(outcomes)


def _require_named_rightly(folder: Path, cell: Cell) -> None:
    """A folder's name is not believed: what was run is in its settings."""
    settings = Run(folder).config().as_dict()
    for layer in [{"data": {"name": cell.data}}, *cell.layers()]:
        for section, values in layer.items():
            for name, value in values.items():
                there = settings[section].get(name)
                if there != value:
                    raise NewkindsError(
                        f"{folder} holds another run ({section}.{name} is {there!r} there, not {value!r})."
                    )


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
        protocol = _protocol(table, of_data)
        blocks.append(protocol_lines(protocol) if protocol else "no run yet")
    return "\n\n".join(blocks)


def latex(table: PaperTable, outcomes: Mapping[Cell, Outcome]) -> str:
    """A tabular a data set, one more where test images were evaluated, with the protocol as comments."""
    blocks = []
    for data in table.data:
        of_data = {cell: outcome for cell, outcome in outcomes.items() if cell.data == data}
        protocol = _protocol(table, of_data)
        for part, runs in with_test_images(table, of_data):
            header, rows = _sheet(part, data, runs)
            where = ", on the test images" if part.evaluated == TEST else ""
            lines = [f"% {table.title}: {data}{where}"]
            lines += [f"% {name}: {' '.join(value.split())}" for name, value in protocol]
            lines += [f"\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", "\\hline"]
            lines += [" & ".join(map(_tex, row)) + r" \\" for row in (header, *rows)]
            lines.insert(-len(rows), "\\hline")
            blocks.append("\n".join([*lines, "\\hline", "\\end{tabular}"]))
    return "\n\n".join(blocks)


def _protocol(table: PaperTable, outcomes: Mapping[Cell, Outcome]) -> list[tuple[str, str]]:
    """What stands beneath a table: nothing about accuracies or counts where it shows none."""
    silent = set() if table.evaluated else {"evaluated", "metric"}
    silent |= set() if "count" in table.measures else {"counting"}
    return [(name, value) for name, value in protocol_of(outcomes) if name not in silent]


def tidy_csv(table: PaperTable, outcomes: Mapping[Cell, Outcome]) -> str:
    """A line a figure, with the protocol of its runs, for those who make tables of their own."""
    columns = (
        "table", "data", "method", "organizer", "evaluated", "measure",
        "reported", "mean", "std", "seeds", "gain_over_host",
    )  # fmt: skip
    protocols = {
        row: merged([outcome.protocol for cell, outcome in outcomes.items() if replace(cell, seed=0) == row])
        for row in table.cells([0])
    }
    fields = list(dict.fromkeys(name for protocol in protocols.values() for name in protocol))
    rows = [
        (
            table.name, entry.data, entry.method, entry.organizer, part.evaluated, entry.measure, entry.reported,
            entry.ours and entry.ours.mean, entry.ours and entry.ours.std, entry.ours.runs if entry.ours else 0,
            entry.ours.mean - entry.host.mean if entry.ours and entry.host else None,
            *(protocols[Cell(entry.data, entry.method, entry.organizer, 0)].get(name, "") for name in fields),
        )
        for part, runs in with_test_images(table, outcomes)
        for entry in entries(part, runs)
    ]  # fmt: skip
    return csv_text([*columns, *(f"protocol: {name}" for name in fields)], rows).rstrip("\n")


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
    seeds = Counter((cell.method, cell.organizer) for cell in outcomes if cell.data == data)
    for entry in entries(table, outcomes):
        if entry.data == data:
            column, key = COLUMNS[entry.measure], (entry.method, entry.organizer)
            row = rows.setdefault(key, [row_name(*key)])
            if reports:
                row.append(EMPTY if entry.reported is None else number(Figure(float(entry.reported)), column))
            row += [
                number(entry.ours, column) if key in seeds else EMPTY,
                difference(entry.ours, entry.host, column) if entry.ours and entry.host else EMPTY,
            ]
    return [*header, "seeds"], [[*row, str(seeds[key] or EMPTY)] for key, row in rows.items()]


def _figure(outcomes: Mapping[Cell, Outcome], row: Cell, measure: str) -> Figure | None:
    return Figure.of([o.figures[measure] for cell, o in outcomes.items() if replace(cell, seed=row.seed) == row])


def _chosen(
    kind: str, given: Sequence[str] | None, default: tuple[str, ...], allowed: Iterable[str]
) -> tuple[str, ...]:
    """The names that were given, each once, or the table's; a wrong one is an error before anything is run."""
    names = default if given is None else tuple(dict.fromkeys(given))
    known = list(allowed)
    if not names or "" in names:
        raise NewkindsError(f"no {kind} is named. There are: {', '.join(known)}.")
    for name in names:
        if name not in known:
            raise NewkindsError(f"there is no {kind} '{name}'.{nearest(name, known)} There are: {', '.join(known)}.")
    return names


def _chosen_seeds(seeds: Sequence[int]) -> list[int]:
    if not seeds or min(seeds) < 0:
        raise NewkindsError(f"seeds are whole numbers from 0 on, not {list(seeds)}.")
    return list(dict.fromkeys(seeds))


def _refuse_what_cells_say(choices: Choices) -> None:
    for name in ("recipe", "method", "organizer"):
        if choices.get(name) is not None:
            raise NewkindsError(
                f"each cell has its own {name}: choose methods, organizers and data sets of the table, and single "
                "settings by --set."
            )


def _counted_by(cell: Cell) -> str:
    """The estimator of the method's authors, with which the reported numbers were found."""
    return "brent" if cell.method == "gcd" else COUNT_BY


def _settings(cell: Cell, choices: Choices) -> list[Mapping[str, Any]]:
    """The cell's recipe, and what the user wants otherwise."""
    return [read_recipe(find_recipe(f"{cell.method}/{cell.data}")), *layers_of(None, choices)]


def _runnable(cells: Sequence[Cell], settings: Callable[[Cell], Settings]) -> list[Cell]:
    """The cells whose settings are right and whose data set is there; what is wrong is said once, before any is run."""
    wrong: dict[Cell, str] = {}  # by the cell without its seed
    tables: dict[str, str] = {}  # data set → why it cannot be read
    for row in dict.fromkeys(replace(cell, seed=0) for cell in cells):
        try:
            config = resolve(*settings(row), *row.layers())
        except NewkindsError as error:
            wrong[row] = f"{row_name(row.method, row.organizer)} on {row.data} cannot be run: {error}"
            continue
        if row.data not in tables:
            try:
                load_table(config.data)
                tables[row.data] = ""
            except NewkindsError as error:
                tables[row.data] = f"{row.data} is left out: {error}"
    for reason in [*wrong.values(), *filter(None, tables.values())]:
        warn(reason)
    return [cell for cell in cells if replace(cell, seed=0) not in wrong and not tables[cell.data]]


TEX = {"%": r"\%", "_": r"\_", "±": r"$\pm$", "Δ": r"$\Delta$", "\N{MINUS SIGN}": "$-$", "–": "--"}


def _tex(text: str) -> str:
    return "".join(TEX.get(character, character) for character in text)
