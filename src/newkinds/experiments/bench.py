"""`newkinds bench`: run the requested part of a table, and print all of it that has been run."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from typing_extensions import Unpack

from ..console import say, warn
from ..data import load_table, source_of
from ..data.published import BENCHMARKS
from ..data.table import require_judgeable
from ..encoders.backbones import require_weights, width_of
from ..encoders.organizers import ORGANIZERS
from ..errors import NewkindsError, nearest, reason_of
from ..files import make_folder
from ..methods import METHODS
from ..runs.config import Config, resolve
from ..training.watching import Watcher
from ..verbs.choices import Choices
from ..verbs.layers import resolve_layers
from .cells import VARIANTS, Cell, Settings, with_what_comes_before
from .comparison_pictures import draw_comparisons
from .earlier_code import set_aside, set_aside_trials
from .outcomes import collect
from .paper import TABLES, PaperTable, comparisons
from .results import Benched
from .row_settings import RowSettings
from .run_grid import describe_other_settings, run_all
from .side_by_side import SideBySide
from .styles import STYLES
from .tasks import InTurn, Pool, Worked
from .tuning import RowTuning
from .unloaded import UnloadedRuns, find_unloaded


def bench(
    table: str, out: str | Path, *, methods: Sequence[str] | None = None, organizers: Sequence[str] | None = None,
    data: Sequence[str] | None = None, baselines: Sequence[str] | None = None, seeds: Sequence[int] | None = None,
    against: str = "none", only_collect: bool = False, again: bool = False,
    style: Literal["markdown", "latex", "csv"] = "markdown",
    per_method: Mapping[str, Mapping[str, Any]] | None = None, watchers: Sequence[Watcher] = (), jobs: int = 1,
    wait: bool = True, tune: Mapping[str, Sequence[Any]] | None = None, **choices: Unpack[Choices],
) -> Benched:  # fmt: skip
    """Run (or resume) the requested part of a table; returns the table with all that has been run in `out`, as text and
    as numbers.

    `table`: "fine", "coarse", "count" or "cost" of the paper; for any `data`, also folders and CSV files, "ablation"
    and "sensitivity", which are also drawn, "plugin", or "all": every system in a small size. `methods`, `organizers`,
    `data`, `baselines`: all of the table's by default; `baselines=["none"]` leaves out those rows of frozen features,
    which need no training; rows stand in the order in which they are named, and of what is named no others are shown.
    They are compared with what is `against` them:
    that organizer in the same host (by default none: the host alone), that method with the same organizer
    ("simgcd"), or one row ("simgcd+cpf"). Each cell follows its recipe, if there is one, over which `choices`
    (backbone, weights, data_root, settings …) win, and over
    these what `per_method` has for the rows of one method: {"simgcd": {"train": {"lr": 0.3}}}; a second
    stage starts from the cell of its first, which is run too. Cells not run stay empty; one that fails is reported and
    does not stop the others. `watchers` (`newkinds.Watcher`) look on in every training, one after the other.
    `seeds`: 0 by default; with `only_collect` all that are finished, or those that are named.
    `jobs`: so many cells at once, each in a process of its own. A cell that another command is at in `out` is passed
    over and comes last; `wait=False` leaves it to that command.
    A run that other code made than there is now is not mixed with others; `again` runs it again, and keeps what is
    there in `out/earlier-code`. `tune`: {"train.lr": [0.1, 0.3, 1]} chooses one of the values for each row, by
    trainings on labelled images alone.

    >>> from newkinds.experiments.bench import bench
    >>> found = bench("fine", "runs/fine", methods=["simgcd"], data=["cub"], seeds=[0, 1, 2])
    >>> print(found.text)
    >>> found.row("simgcd", "cpf")["new"].gain.interval
    """
    (table,) = _chosen("table", [table], TABLES)
    whole, folder = replace(TABLES[table], against=against), Path(out)
    sources = _sources(whole, data)
    shown_data = tuple(sources) if whole.any_data else whole.data
    unloaded = find_unloaded(folder, shown_data)
    there = unloaded.rows if only_collect else []  # what is not loaded can be shown, but not run
    known_methods = _each_once(METHODS, (row.method for row in there))
    known_organizers = _each_once(ORGANIZERS, VARIANTS, (row.organizer for row in there))
    _require_comparable(against, known_methods, known_organizers, unloaded)
    asked = replace(
        whole, data=tuple(sources),
        methods=_chosen(
            "method", methods or [name for name in whole.systems if name in METHODS], known_methods, unloaded
        ),
        organizers=_chosen("organizer", organizers or whole.organizers, known_organizers, unloaded),
        also=() if organizers else whole.also, baselines=_chosen_baselines(baselines, whole),
    )  # fmt: skip
    cells: list[Cell] = []
    worked = Worked()
    differs: Callable[[Cell], str] | None = None
    if seeds is not None and (not seeds or min(seeds) < 0):
        raise NewkindsError(f"seeds are whole numbers from 0 on, not {list(seeds)}.")
    if only_collect:
        if not folder.is_dir():
            raise NewkindsError(f"there is no folder {folder}: nothing to collect.")
    else:
        settings = RowSettings(whole, sources, choices, per_method or {})
        settings.require_sound()
        cells = _possible(
            with_what_comes_before(asked.cells(dict.fromkeys((0,) if seeds is None else seeds))), settings
        )
        _announce(settings, cells)
        if jobs < 1:
            raise NewkindsError(f"--jobs is a number of processes, at least 1, not {jobs}.")
        runnable = _runnable(cells, settings, folder)
        tuning = RowTuning(tune or {}, folder, settings)
        tuning.require_sound([cell.row for cell in runnable])
        if again:
            set_aside(cells, folder)
            set_aside_trials(tuning.folders(runnable), folder)
        with _pool(jobs, make_folder(folder), spread=choices.get("device") is None) as pool:
            worked = run_all(runnable, folder, settings, whole.counted_by, watchers, pool, wait, tuning)
        untuned = {cell.row for cell in runnable if not tuning.trials(cell)}  # of others each run has its own settings
        differs = partial(_describe_difference, untuned, worked.finished, folder, settings)
    widest = replace(
        whole, data=shown_data,
        methods=_each_once(_ordered(_after_first_stages(methods or ())), whole.systems, METHODS),
        organizers=_each_once(_ordered(organizers or ()), whole.organizers, ORGANIZERS, VARIANTS),
        baselines=_each_once(_ordered((baselines and asked.baselines) or ()), whole.baselines),
    )  # fmt: skip
    is_named = _names_row(asked, bool(methods), bool(organizers), baselines is not None)
    unloaded.tell()
    every = list(dict.fromkeys([*widest.cells(), *unloaded.rows]))
    named = [row for row in every if is_named(row)]
    bases = {base for row in named for base in (row.host, widest.base_of(row))}
    read = [row for row in every if row in named or row in bases]
    shown_seeds = seeds if only_collect else None  # what is run joins all that is there
    found, left_out = collect(read, folder, sources, worked.finished, differs, told=worked.failed, seeds=shown_seeds)
    wanted = {cell.row for cell in (*cells, *found)}
    rows = [row for row in every if (row in wanted and row in named) or whole.reports(row)]
    shown = comparisons(widest, found, rows, left_out)
    if against != "none" and found and not any(row.compared for each in shown for row in each.rows):
        warn(f"nothing is compared with {against}: no run of it is in {folder}, with the same seeds as the others.")
    busy = [str(cell) for cell in worked.busy]
    kept_apart = [str(cell) for cell in cells if cell in worked.kept_apart]
    ended = {*worked.finished, *worked.busy, *worked.kept_apart}
    failed = [str(cell) for cell in cells if cell not in ended]
    pictures: list[Path] = []
    if whole.picture:  # of differences inside each host
        drawn = shown if whole.compares_inside_hosts else comparisons(replace(widest, against="none"), found, rows)
        pictures = draw_comparisons(drawn, folder, whole.picture)
    return Benched(STYLES[style](shown), failed, pictures, busy, [str(cell) for cell in left_out], shown, kept_apart)


def _names_row(asked: PaperTable, methods: bool, organizers: bool, baselines: bool) -> Callable[[Cell], bool]:
    """Whether a row is one of those that are asked for, or that these start from; of what the user did not name
    (`methods`, `organizers`, `baselines`) all is."""
    rows = with_what_comes_before(asked.cells())
    hosts = [row for row in rows if not row.is_baseline]
    of_method = {row.method for row in hosts}
    # hosts that are not loaded stand here alone, whatever organizers are asked for
    of_organizer = {row.organizer for row in hosts if not row.is_quoted} | {*asked.organizers}

    def is_named(row: Cell) -> bool:
        if row.is_baseline:
            return not baselines or row in rows
        return (not methods or row.method in of_method) and (not organizers or row.organizer in of_organizer)

    return is_named


def _describe_difference(
    rows: Collection[Cell], finished: Collection[Cell], out: Path, settings: Callable[[Cell], Settings], cell: Cell
) -> str:
    """How a run of these rows that is not among the finished ones differs from what is asked for."""
    is_asked = cell.row in rows and cell not in finished
    return describe_other_settings(cell, out, settings(cell)) if is_asked else ""


def _pool(jobs: int, out: Path, spread: bool) -> AbstractContextManager[Pool]:
    """Who runs the cells; `spread` over several GPUs."""
    return nullcontext(InTurn()) if jobs == 1 else SideBySide(jobs, out, spread)


def _each_once(*names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain(*names)))


def _ordered(names: Sequence[str]) -> Sequence[str]:
    """Names that stand in an order: one alone stays where its table has it."""
    return names if len(names) > 1 else ()


def _after_first_stages(methods: Sequence[str]) -> list[str]:
    """The methods, and before each that of its first stage, which is run too."""
    return [cell.method for cell in with_what_comes_before([Cell("", method, "none") for method in methods])]


def _chosen(
    kind: str, names: Sequence[str], known: Iterable[str], unloaded: UnloadedRuns | None = None
) -> tuple[str, ...]:
    """The names, each once; a wrong one is an error before anything is run."""
    for name in names:
        if name not in known:
            if unloaded is not None and (hint := unloaded.hint(name)):
                raise NewkindsError(f"there is no {kind} '{name}'.{hint}")
            said = f"there is no {kind} '{name}'.{nearest(name, known)}" if name else f"no {kind} is named."
            raise NewkindsError(said if said.endswith("?") else f"{said} There are: {', '.join(known)}.")
    return _each_once(names)


def _require_comparable(
    against: str, methods: Sequence[str], organizers: Sequence[str], unloaded: UnloadedRuns
) -> None:  # fmt: skip
    """Refuse what no row can be compared with."""
    method, plus, organizer = against.partition("+")
    if plus:
        _chosen("method", [method], methods, unloaded)
        _chosen("organizer", [organizer], organizers, unloaded)
    else:
        _chosen("organizer or method", [against], [*organizers, *methods], unloaded)


def _chosen_baselines(names: Sequence[str] | None, table: PaperTable) -> tuple[str, ...]:
    if names is None or list(names) == ["all"]:
        return table.baselines
    assigners = [name for name, settings in VARIANTS.items() if "assigner" in settings]
    return () if list(names) == ["none"] else _chosen("baseline", names, assigners)


def _sources(table: PaperTable, data: Sequence[str] | None) -> dict[str, Mapping[str, Any]]:
    """What each data set of a table is called, and where it is."""
    if not table.any_data or (not data and table.data):
        return {name: {"name": name} for name in _chosen("data set", data or table.data, BENCHMARKS)}
    if not data:
        raise NewkindsError(f"say which data the table {table.name} is for: --data FOLDER, CSV file or name.")
    sources: dict[str, Mapping[str, Any]] = {}
    for given in data:
        source = source_of(given)
        path = Path(source.get("path", source["name"]))
        name = path.stem if source["name"] == "csv" else path.name
        if sources.setdefault(name, source) != source:
            raise NewkindsError(f"two data sources are called '{name}': rename one, or give each its own table.")
    return sources


def _announce(settings: RowSettings, cells: Sequence[Cell]) -> None:
    """Say which packages are missing and what is done instead, and which settings are for no row of the table."""
    said = {}
    for cell in cells:
        for extra in settings.missing_extras(cell):
            host, missing = METHODS[cell.method].__name__, f"{extra.package} is not installed"
            instead = f"{host} has method.{extra.setting}={extra.instead} instead of the published {extra.value}"
            said[host, extra] = f"{missing} (pip install 'newkinds[{extra.package}]'): {instead}, unless you name one."
    for sentence in said.values():
        say(sentence)
    for name in settings.unused({cell.method for cell in cells}):
        warn(f"the settings for {name} alone are of no use: it is not among the methods of this table.")


def _possible(cells: Sequence[Cell], settings: Callable[[Cell], Settings]) -> list[Cell]:
    """The cells without the rows that would be another row once more, or that the backbone has no room for."""
    rows: dict[str, Cell] = {}  # data and settings → the first row that has them
    widths: dict[str, int] = {}  # backbone → its width
    left_out: dict[Cell, str] = {}
    for row in dict.fromkeys(cell.row for cell in cells):
        layers = [*settings(row), *row.layers()]
        try:
            config = resolve(*layers)
            heads, backbone = config.organizer.get("heads"), str(config.backbone)
            if heads and backbone not in widths:
                widths[backbone] = width_of(resolve_layers(layers).backbone["name"])
        except Exception:  # found again, and reported, where all settings are checked
            continue
        same = rows.setdefault(f"{row.data}: {config}", row)
        if same != row:
            left_out[row] = f"{row.title} on {row.data} is left out: its settings are those of {same.title}."
        elif heads and widths[backbone] % heads:
            said = f"they do not divide its {widths[backbone]} features"
            left_out[row] = f"{heads} heads are left out on {row.data}: {said}."
    for reason in dict.fromkeys(left_out.values()):
        say(reason)
    return [cell for cell in cells if cell.row not in left_out]


def _runnable(cells: Sequence[Cell], settings: Callable[[Cell], Settings], out: Path) -> list[Cell]:
    """The cells whose settings are right, whose data can be read and whose weights are there; what is wrong is reported
    once, before any run."""
    wrong: dict[object, str] = {}  # a row, a data set or a backbone → what is wrong with it, "" for nothing
    blocked = set()
    _require_a_sound_row({cell.row: [*settings(cell.row), *cell.row.layers()] for cell in cells})
    untrained = {cell.row for cell in cells if not (cell.folder(out) / "model.safetensors").is_file()}
    for row in dict.fromkeys(cell.row for cell in cells):
        layers = [*settings(row), *row.layers()]
        if _note_wrong(wrong, row, f"{row.title} on {row.data} is left out", partial(resolve, *layers)):
            blocked.add(row)
            continue
        config = resolve(*layers)
        backbone = (config.backbone["name"], config.backbone["weights"])
        with_it = f"all with the backbone {backbone[0]} is left out"
        if _note_wrong(wrong, row.data, f"{row.data} is left out", partial(_require_data, config)) or (
            row in untrained and _note_wrong(wrong, backbone, with_it, partial(_require_weights, layers))
        ):
            blocked.add(row)
    return [cell for cell in cells if cell.row not in blocked]


def _require_a_sound_row(layers_of_row: Mapping[Cell, Settings]) -> None:
    """Refuse settings that no row accepts; baselines take of the settings what they need."""
    reasons: dict[str, None] = {}  # each once
    for row, layers in layers_of_row.items():
        try:
            resolve(*layers)
        except NewkindsError as error:
            reasons[str(error)] = None
        else:
            if not row.is_baseline:
                return
    if reasons:
        raise NewkindsError(f"no row can have these settings: {' '.join(reasons)}")


def _note_wrong(wrong: dict[object, str], what: object, about: str, check: Callable[[], object]) -> str:
    """What a check finds wrong with something, which is checked and reported once."""
    if what not in wrong:
        wrong[what] = ""
        try:
            check()
        except Exception as error:  # also a folder one may not enter, a bug: the others may still be run
            wrong[what] = f"{about}: {reason_of(error)}"
            warn(wrong[what])
    return wrong[what]


def _require_data(config: Config) -> None:
    require_judgeable(load_table(config.data))


def _require_weights(layers: Settings) -> None:
    backbone = resolve_layers(layers).backbone
    require_weights(backbone["name"], backbone["weights"])
