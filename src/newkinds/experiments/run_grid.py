"""Grids of runs: data sets × methods × organizers × seeds, each run or resumed, and their results."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, get_args

from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open

from ..assigners import ASSIGNERS
from ..cluster.count import Count
from ..comparison import Column
from ..console import say, warn
from ..encoders.organizers import ORGANIZERS
from ..encoders.organizers.cpf import Readout
from ..encoders.organizers.patches import ClassToken
from ..errors import Busy, NewkindsError, reason_of
from ..evaluation.judge import evaluate
from ..files import make_folder
from ..methods import METHODS
from ..ownership import CELL_LOCK, require_lock
from ..runs.records import Evaluation, Timing, read_count
from ..runs.run import FREE_TO_CHANGE, Run
from ..settings import flat
from ..training.watching import Watcher
from ..verbs.assign import CHANGED as ASSIGNING
from ..verbs.assign import assign
from ..verbs.count import count_categories
from ..verbs.discover import discover
from ..verbs.train import require_same_settings
from .tasks import Call, InTurn, Pool, Queue, Task, Worked

Settings = Sequence[Mapping[str, Any]]
READOUTS = get_args(Readout)
SIZES = range(4, 25, 4)  # primitives and heads, as in the paper's figure
FROZEN: dict[str, dict[str, Any]] = {"train": {"freeze_organizer": True}}  # random and never trained
COUNTED_BY = "ward"  # published for trained features, and the same in all tables


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    data: str  # a name for it; which images these are is in its settings
    method: str
    organizer: str  # its name, or that of one of VARIANTS
    seed: int = 0

    @property
    def row(self) -> "Cell":
        """What the runs of one row have in common: all but the seed."""
        return replace(self, seed=0)

    @property
    def host(self) -> "Cell":
        """The row that this one is compared with; a baseline has none but itself."""
        return self.row if self.is_baseline else replace(self, seed=0, organizer="none")

    @property
    def variant(self) -> dict[str, dict[str, Any]]:
        return VARIANTS.get(self.organizer, {"organizer": {"name": self.organizer}})

    @property
    def is_quoted(self) -> bool:
        """Whether there is no such method here, so that it cannot be run: only what others reported is known of it."""
        return self.method not in METHODS

    @property
    def is_baseline(self) -> bool:
        """Whether an assigner alone finds the categories in features of the backbone."""
        return not (self.is_quoted or METHODS[self.method].trains) and self.variant["organizer"]["name"] == "none"

    @property
    def is_assigned(self) -> bool:
        """Whether another assigner finds the categories in what its host has learnt."""
        return "assigner" in self.variant and not self.is_baseline

    @property
    def first_stage(self) -> "Cell | None":
        """The run that a second stage starts from: with the same organizer and seed; assigners change no training."""
        first = METHODS[self.method].starts_from
        return replace(self, method=first, organizer="none" if self.is_assigned else self.organizer) if first else None

    @property
    def before(self) -> "Cell | None":
        """The run that must be finished before this one."""
        return replace(self, organizer="none") if self.is_assigned else self.first_stage

    @property
    def title(self) -> str:
        """`SimGCD`, `SimGCD + CPF`, `SimGCD + CPF parts`, `SimGCD + CPF without prior`, `frozen + kmeans whitened`."""
        name, *variant = self.organizer.split("-")
        if name not in ORGANIZERS and self.organizer not in VARIANTS:  # an organizer of others whose name has a dash
            name = self.organizer
            variant = []
        plugged = " ".join([name if "assigner" in self.variant else name.upper(), *variant])
        method = None if self.is_quoted else METHODS[self.method]
        host = method.__name__ if method and method.trains else self.method
        return host if name == "none" else f"{host} + {plugged}"

    def folder(self, out: Path) -> Path:
        return out / f"{self.data}-{self.method}-{self.organizer}-seed{self.seed}"

    def layers(self, out: Path | None = None) -> Settings:
        """The settings that make it this cell and no other; among runs in `out`, also where a second stage starts."""
        train: dict[str, Any] = {"seed": self.seed}
        if out is not None and self.first_stage is not None:
            train["start"] = str(self.first_stage.folder(out))
        return [{"method": {"name": self.method}, "train": train}, self.variant]

    def __str__(self) -> str:
        return f"{self.title} on {self.data}, seed {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """The result of one run."""

    figures: dict[str, float | None]  # by the names of COLUMNS
    protocol: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)  # "train.lr" → 0.1, except those that change no result
    test: dict[str, float | None] | None = None  # ACCURACY on the official test images, if they were evaluated


VARIANTS: dict[str, dict[str, dict[str, Any]]] = {  # organizers with settings that have their own rows
    "cpf-without-alpha": {"organizer": {"name": "cpf", "learn_alpha": False}},
    "cpf-without-prior": {"organizer": {"name": "cpf", "use_prior": False}},
    "cpf-without-data": {"organizer": {"name": "cpf", "use_data": False}},
    **{f"cpf-{readout}": {"organizer": {"name": "cpf", "readout": readout}} for readout in READOUTS},
    "cpf-parts-trained": {"organizer": {"name": "cpf-parts", "train_field": True}},
    "cpf-random-parts": {"organizer": {"name": "cpf-parts", "start": "random"}},
    "cpf-attention-without-codebook": {"organizer": {"name": "cpf-attention", "codebook": False}},
    "cpf-attention-without-field": {"organizer": {"name": "cpf-attention", "field": False}},
    "cpf-full-phi": {"organizer": {"name": "cpf", "phi_rank": None}},
    **{
        f"cpf-M{primitives}-H{heads}": {"organizer": {"name": "cpf", "primitives": primitives, "heads": heads}}
        for primitives, heads in product(SIZES, SIZES)
    },
    "coge-release": {"organizer": {"name": "coge", "variant": "release"}},
    "coge-release-frozen": {"organizer": {"name": "coge", "variant": "release"}, **FROZEN},  # so it is released
    "parts-with-class": {"organizer": {"name": "parts", "keep_class": True}},
}
for _name in (name for name in ORGANIZERS if not issubclass(ORGANIZERS[name], ClassToken)):  # those with parameters
    VARIANTS[f"{_name}-frozen"] = {"organizer": {"name": _name}, **FROZEN}
for _name in (name for name in ASSIGNERS if ASSIGNERS[name].begins):  # no organizer, another assigner
    VARIANTS[_name] = {"organizer": {"name": "none"}, "assigner": {"name": _name}}
    VARIANTS[f"{_name}-whitened"] = {**VARIANTS[_name], "embedding": {"whiten": "auto"}}

COLUMNS = {column.measure: column for column in (
    Column("all", "All", "%", "higher"),
    Column("old", "Old", "%", "higher"),
    Column("new", "New", "%", "higher"),
    Column("by_name_old", "Old by name", "%", "higher"),
    Column("by_name_precision", "precision of names", "%", "higher"),
    Column("count", "count", counts=True),
    Column("count_error", "count error", "%", "lower"),
    Column("parameters", "params", "M", decimals=2),
    Column("seconds", "time", "s", decimals=0),
    Column("model_parameters", "params", "M", decimals=2),
    Column("epoch_seconds", "training epoch", "s", "lower", decimals=2),
    Column("inference_seconds", "inference", "s", "lower", decimals=2),
)}  # fmt: skip
ACCURACY = ("all", "old", "new")
OF_SEED = ("train.seed", "train.start")  # settings in which the runs of a row differ
# settings that no host has
OF_ORGANIZER = ("organizer.", "assigner.", "embedding.", "train.freeze_organizer", "train.organizer_lr_ratio")
NAMED = ("by_name_old", "by_name_precision")  # without a match of known names, which published tables do not have
COMPARED = (*ACCURACY, *NAMED, "count", "count_error", "parameters", "seconds")


def run_all(
    cells: Sequence[Cell], out: Path, settings: Callable[[Cell], Settings],
    count_by: Callable[[Cell], str | None] = lambda _: COUNTED_BY, watchers: Sequence[Watcher] = (),
    pool: Pool | None = None, wait: bool = True,
) -> Worked:  # fmt: skip
    """Run the cells one after the other, or as the `pool` does, or resume them, and before each what it starts from;
    one that fails is reported and does not stop the others, one that another process is at comes last (see `Queue`).
    `settings`: for each cell all that the cell itself does not say; `count_by`: its estimator of categories, if any."""

    def call(cell: Cell) -> Call:
        return partial(run_one, cell, out, settings(cell), count_by(cell), watchers)

    tasks = []
    for cell in with_what_comes_before(cells):
        needs = () if cell.before is None else (cell.before,)
        tasks.append(Task(cell, partial(call, cell), needs, cell.folder(out).name))
    return Queue(tasks, pool or InTurn(), wait).work_off()


def with_what_comes_before(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, and before each the runs that it starts from, whether these are among them or not."""
    ordered: dict[Cell, None] = {}
    for cell in cells:
        line = [cell]
        while (before := line[0].before) is not None:
            line.insert(0, before)
        ordered |= dict.fromkeys(line)
    return list(ordered)


def run_one(
    cell: Cell, out: Path, settings: Settings, count_by: str | None = COUNTED_BY, watchers: Sequence[Watcher] = ()
) -> Outcome:
    """Train (or resume), assign, evaluate and, if requested, count; what is done already is not done again.
    What it starts from is there already. If another process is at it, that is said by `Busy`."""
    folder, layers = cell.folder(out), [*settings, *cell.layers(out)]
    done = read_outcome(folder)
    if done is not None:
        require_same_settings(None, folder, settings=layers)
        if not _lacks_count(folder, count_by):
            say(f"{folder} is finished already")
            return done
    Run(folder).refuse_other_contents()
    with claimed_cell(folder):
        if read_outcome(folder) is None:
            _find_categories(cell, out, settings, watchers)
            evaluate(folder)
        if count_by and _lacks_count(folder, count_by):
            try:
                count_categories(folder, count_by)
            except NewkindsError as error:  # its accuracies still count
                warn(f"the categories of {cell} cannot be counted: {error}")
    outcome = read_outcome(folder)
    assert outcome is not None  # all its files have just been written
    return outcome


@contextmanager
def claimed_cell(folder: Path) -> Iterator[None]:
    """One process at a time works on a cell, from its training to its count; a killed one leaves it free."""
    lock = FileLock(require_lock(make_folder(folder) / CELL_LOCK))
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        raise Busy(f"another process is working on {folder}: wait for it.") from None
    except OSError as error:
        raise NewkindsError(f"cannot write in {folder}: {error.strerror or error}.") from error
    with held:
        yield


def _find_categories(cell: Cell, out: Path, settings: Settings, watchers: Sequence[Watcher]) -> None:
    """Train and assign, or only assign what another run has learnt."""
    folder, layers = cell.folder(out), [*settings, *cell.layers(out)]
    if cell.is_baseline or cell.is_assigned:
        source = cell.before.folder(out) if cell.before else _frozen_features(cell, out, settings)
        named_first = (cell.variant, *layers)  # an assigner's name forgets the settings of another
        chosen = [{section: layer[section] for section in ASSIGNING if section in layer} for layer in named_first]
        assign(source, out=folder, seed=cell.seed, page=False, settings=chosen)
    else:
        discover(None, folder, page=False, watchers=watchers, settings=layers)


def _lacks_count(folder: Path, count_by: str | None) -> bool:
    """Whether categories are to be counted that have not been, in this way."""
    if count_by is None:
        return False
    count = _count_of(Run(folder))
    return count is None or count.method != count_by


def _frozen_features(cell: Cell, out: Path, settings: Settings) -> Path:
    """The run from which all baselines of a data set are made, so that its images are embedded once."""
    folder, layers = out / f"{cell.data}-{cell.method}", [*settings, *Cell(cell.data, cell.method, "none").layers()]
    if not _has_features(folder):
        with claimed_cell(folder):
            if not _has_features(folder):
                discover(None, folder, page=False, settings=layers)
    require_same_settings(None, folder, settings=layers)
    return folder


def _has_features(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("features.safetensors", "assignments.csv"))


def read_outcome(folder: Path) -> Outcome | None:
    """The result of a run, from its files alone; None if it has not been trained and evaluated to the end, by the
    data set's own truth."""
    run = Run(folder)
    if not all((folder / name).is_file() for name in ("model.safetensors", "evaluation.json", "timing.json")):
        return None
    damaged: Path | str = run.model_file
    try:
        with safe_open(run.model_file, framework="pt"):
            damaged = "the run"
            evaluation = Evaluation.read(run)
            return None if evaluation.truth else _outcome(run, evaluation)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, SafetensorError) as error:
        raise NewkindsError(f"{damaged} is damaged ({reason_of(error)}): delete {folder} and run it again.") from None


def _outcome(run: Run, evaluation: Evaluation) -> Outcome:
    record, count = run.protocol(), _count_of(run)
    sizes, categories = record.parameters, record.categories
    counted = None if count is None else count.answer
    config, seconds = run.config(), [row["seconds"] for row in run.metrics()]
    if len(seconds) != config.train.epochs:
        raise ValueError(f"metrics.jsonl has {len(seconds)} epochs, not {config.train.epochs}")
    figures = _accuracies(evaluation.metrics) | {
        "count": counted,
        "count_error": None if categories is None or counted is None else 100 * abs(counted - categories) / categories,
        "parameters": (sizes["backbone"] + sizes.get("tuning", 0) + sizes["organizer"]) / 1e6,
        "model_parameters": sum(sizes.values()) / 1e6,
        "seconds": sum(seconds),
        "epoch_seconds": sum(seconds) / len(seconds) if seconds else None,
        "inference_seconds": Timing.read(run).embedding_seconds,
    }
    protocol = dict(evaluation.protocol)
    if not protocol:
        raise ValueError("its protocol is missing")
    if count is not None:
        protocol["counting"] = f"{count.method} on the trained features, by {count.score_is}"
    settings = {"split": record.split, "weights": record.weights, **flat(config.as_dict())}
    if settings["train.start"] is not None:  # where all runs lie changes nothing
        settings["train.start"] = Path(settings["train.start"]).name
    settings = {name: value for name, value in settings.items() if name not in FREE_TO_CHANGE}
    return Outcome(
        figures, protocol, settings, None if evaluation.test is None else _accuracies(evaluation.test.metrics)
    )


def _count_of(run: Run) -> Count | None:
    """What `count_categories` wrote, if it is there and whole."""
    if not run.path("count.json").is_file():
        return None
    try:
        return read_count(run)
    except NewkindsError as error:
        warn(str(error))
        return None


def require_run_of(cell: Cell, outcome: Outcome, source: Mapping[str, Any]) -> None:
    """A folder's name is not believed: what was run is in its settings."""
    for layer in [{"data": source}, *cell.layers(Path())]:
        for name, value in flat(layer).items():
            there = outcome.settings.get(name)
            if there != value:
                raise NewkindsError(f"it holds another run ({name} is {there!r} there, not {value!r}).")


def comparable(outcomes: Mapping[Cell, Outcome], preferred: Collection[Cell] = ()) -> dict[Cell, Outcome]:
    """The runs that may stand in one table: a host and its organizers differ in the organizer alone, the runs of one
    row in the seed alone (and both in the run that a second stage starts from: see `require_run_of`). Else those like
    the `preferred` ones, or like most, stay, and the others are named."""
    kept = dict(outcomes)
    for free in ((*OF_SEED, *OF_ORGANIZER), OF_SEED):
        groups: dict[Cell, list[Cell]] = {}
        for cell in kept:
            groups.setdefault(cell.host if OF_ORGANIZER[0] in free else cell.row, []).append(cell)
        for cells in groups.values():
            settings = {}
            for cell in cells:
                of_cell = kept[cell].settings.items()
                settings[cell] = {name: value for name, value in of_cell if not name.startswith(free)}
            candidates = [cell for cell in cells if cell in preferred] or cells
            model = max(candidates, key=lambda cell: list(settings.values()).count(settings[cell]))
            usual = settings[model]
            for cell, own in settings.items():
                if own != usual:
                    names = [name for name in {**usual, **own} if usual.get(name) != own.get(name)]
                    said = ", ".join(f"{name} is {own.get(name)}, not {usual.get(name)}" for name in names)
                    warn(f"{cell} has other settings than {model} ({said}): it is left out of the table.")
                    del kept[cell]
    return kept


def _accuracies(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """In percent."""
    shares = {part: metrics[f"acc_{part}"] for part in ACCURACY}
    shares |= {name: metrics.get(name) for name in NAMED}  # not in runs evaluated by earlier versions
    if not all(share is None or (type(share) in (int, float) and 0 <= share <= 1) for share in shares.values()):
        raise ValueError(f"{shares} are not accuracies")
    return {part: None if share is None else 100.0 * share for part, share in shares.items()}
