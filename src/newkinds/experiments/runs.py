"""Running the part of a table that is asked for, and collecting what there is."""

from __future__ import annotations

import glob
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from typing_extensions import Unpack

from ..console import warn
from ..data import load_table, source_of
from ..data.published import BENCHMARKS
from ..data.table import require_judgeable
from ..encoders.organizers import ORGANIZERS
from ..errors import NewkindsError, nearest, unexpected
from ..files import make_folder
from ..methods import METHODS
from ..runs.config import resolve
from ..runs.run import Run
from ..settings import find_recipe, read_recipe, recipe_names
from ..verbs.choices import Choices, layers_of
from ..verbs.count import COUNT_BY
from .grid import VARIANTS, Cell, Outcome, Settings, comparable, read_outcome, row_name, run_all
from .styles import STYLES
from .tables import TABLES, PaperTable

CELLS_SAY = (("data", "name"), ("data", "path"), ("method", "name"), ("organizer", "name"), ("train", "seed"))
Format = Literal["markdown", "latex", "csv"]
Sources = Mapping[str, Mapping[str, Any]]  # what a cell calls its data → the settings section `data`


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

    `table`: "fine", "coarse", "ablation", "count" or "cost" of the paper, or "plugin" for any `data`, also folders and
    CSV files. `methods`, `organizers`, `data`: all of the table's by default. Each cell follows its recipe, if there is
    one, over which `choices` (backbone, weights, data_root, settings …) win. Cells not run stay empty; one that fails
    is told of and does not stop the others.

    >>> from newkinds.experiments.runs import bench
    >>> print(bench("fine", "runs/fine", methods=["simgcd"], data=["cub"], seeds=[0, 1, 2]))
    """
    if table not in TABLES:
        raise NewkindsError(f"there is no table '{table}'.{nearest(table, TABLES)} There are: {', '.join(TABLES)}.")
    whole, folder = TABLES[table], Path(out)
    sources = _sources(whole, data)
    asked = replace(
        whole,
        data=tuple(sources),
        methods=_chosen("method", methods, whole.methods, METHODS),
        organizers=_chosen("organizer", organizers, whole.organizers, [*ORGANIZERS, *VARIANTS]),
    )
    cells: list[Cell] = []
    finished: Collection[Cell] = ()
    if only_collect:
        if not folder.is_dir():
            raise NewkindsError(f"there is no folder {folder}: nothing to collect.")
    else:
        _refuse_what_cells_say(choices)
        cells = asked.cells(_chosen_seeds(seeds))
        settings = partial(_settings, sources=sources, choices=choices)
        finished = run_all(_runnable(cells, settings), make_folder(folder), settings, _counted_by(whole))
    shown = replace(
        whole,
        data=tuple(dict.fromkeys([*whole.data, *asked.data])),
        methods=tuple(dict.fromkeys([*whole.methods, *asked.methods])),
        organizers=tuple(dict.fromkeys([*whole.organizers, *asked.organizers])),
    )
    if not whole.data:  # a table for any data has the rows that somebody asked for, now or before
        shown = replace(
            shown,
            methods=tuple(dict.fromkeys([*shown.methods, *METHODS])),
            organizers=tuple(dict.fromkeys([*shown.organizers, *ORGANIZERS, *VARIANTS])),
        )
    found = collect(shown, folder, sources, preferred=finished)
    if not whole.data:
        shown = shown.only({*cells, *found})
    return Benched(STYLES[style](shown, found), [str(cell) for cell in cells if cell not in finished])


def collect(
    table: PaperTable, out: Path, sources: Sources | None = None, preferred: Collection[Cell] = ()
) -> dict[Cell, Outcome]:
    """The finished runs of a table, of whatever seeds there are; what does not belong into it is named.

    Where runs have different settings, those like the `preferred` ones stay.
    """
    outcomes = {}
    for cell in table.cells([0]):
        beginning = replace(cell, seed=-1).folder(out).name.removesuffix("-1")
        for folder in sorted(out.glob(f"{glob.escape(beginning)}*")):
            seed = folder.name.rpartition("-seed")[2]
            if not seed.isdecimal() or seed != str(int(seed)):
                continue
            this = replace(cell, seed=int(seed))
            try:
                if (outcome := read_outcome(folder)) is not None:
                    _require_named_rightly(folder, this, (sources or {}).get(this.data, {"name": this.data}))
                    outcomes[this] = outcome
            except NewkindsError as error:
                warn(f"{folder} is left out of the table: {error}")
    return comparable(outcomes, preferred)


def _require_named_rightly(folder: Path, cell: Cell, source: Mapping[str, Any]) -> None:
    """A folder's name is not believed: what was run is in its settings."""
    settings = Run(folder).config().as_dict()
    for layer in [{"data": source}, *cell.layers()]:
        for section, values in layer.items():
            for name, value in values.items():
                there = settings[section].get(name)
                if there != value:
                    raise NewkindsError(
                        f"{folder} holds another run ({section}.{name} is {there!r} there, not {value!r})."
                    )


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
    given = choices.get("settings", {})
    for layer in [given] if isinstance(given, Mapping) else given:
        for section, name in CELLS_SAY:
            if name in layer.get(section, {}):
                raise NewkindsError(f"each cell has its own {section}.{name}: leave out --set {section}.{name}=….")


def _counted_by(table: PaperTable) -> Callable[[Cell], str] | None:
    """The estimator: where numbers are reported the one they were found with, that of the authors, else one for all."""
    if "count" not in table.measures:
        return None
    return lambda cell: "brent" if table.reports and cell.method == "gcd" else COUNT_BY


def _sources(table: PaperTable, data: Sequence[str] | None) -> dict[str, Mapping[str, Any]]:
    """What each data set of a table is called, and where it is."""
    if table.data:
        return {name: {"name": name} for name in _chosen("data set", data, table.data, BENCHMARKS)}
    if not data:
        raise NewkindsError(f"say which data the table {table.name} is for: --data FOLDER, CSV file or name.")
    sources: dict[str, Mapping[str, Any]] = {}
    for given in data:
        source = source_of(given)
        path = Path(source.get("path", source["name"]))
        name = path.stem if source["name"] == "csv" else path.name
        if sources.setdefault(name, source) != source:
            raise NewkindsError(f"two of the data are called '{name}': rename one, or give each a table of its own.")
    return sources


def _settings(cell: Cell, sources: Sources, choices: Choices) -> list[Mapping[str, Any]]:
    """The cell's recipe, if there is one, and what the user wants otherwise."""
    name = f"{cell.method}/{cell.data}"
    published = name in recipe_names() and "path" not in sources[cell.data]
    recipe = read_recipe(find_recipe(name)) if published else {}
    return [recipe, {"data": sources[cell.data]}, *layers_of(None, choices)]


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
                require_judgeable(load_table(config.data))
                tables[row.data] = ""
            except NewkindsError as error:
                tables[row.data] = str(error)
            except Exception as error:  # a folder one may not enter, a bug: the other data sets may still be read
                tables[row.data] = unexpected(error)
    for reason in [*wrong.values(), *(f"{name} is left out: {why}" for name, why in tables.items() if why)]:
        warn(reason)
    return [cell for cell in cells if replace(cell, seed=0) not in wrong and not tables[cell.data]]
