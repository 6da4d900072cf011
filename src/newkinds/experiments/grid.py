"""Grids of runs: data sets × methods × organizers × seeds, each run or gone on with, and what they came to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ..cluster.count import Count
from ..comparison import Column, Comparison, OverSeeds, Row
from ..console import say, warn
from ..errors import NewkindsError, unexpected
from ..evaluation.judge import evaluate
from ..methods import METHODS
from ..runs.run import FREE_TO_CHANGE, Run
from ..verbs.count import COUNT_BY, count_categories, read_count
from ..verbs.train import discover, require_same_settings

Settings = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    data: str  # a name for it; which images these are is in its settings
    method: str
    organizer: str  # its name, or that of one of VARIANTS
    seed: int

    def folder(self, out: Path) -> Path:
        return out / f"{self.data}-{self.method}-{self.organizer}-seed{self.seed}"

    def layers(self) -> Settings:
        """The settings that make it this cell and no other."""
        plain = {"organizer": {"name": self.organizer}}
        organizer = VARIANTS[self.organizer].settings if self.organizer in VARIANTS else plain
        return [{"method": {"name": self.method}}, organizer, {"train": {"seed": self.seed}}]

    def __str__(self) -> str:
        return f"{row_name(self.method, self.organizer)} on {self.data}, seed {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """What one run came to."""

    figures: dict[str, float | None]  # by the names of COLUMNS
    protocol: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)  # "train.lr" → 0.1, without the seed
    test: dict[str, float | None] | None = None  # ACCURACY on the official test images, where they were evaluated


@dataclass(frozen=True)
class Variant:
    """An organizer with settings that a table gives a row of its own."""

    title: str
    settings: dict[str, dict[str, Any]]


VARIANTS = {
    "cpf-without-alpha": Variant("CPF without alpha", {"organizer": {"name": "cpf", "learn_alpha": False}}),
    "cpf-without-prior": Variant("CPF without prior", {"organizer": {"name": "cpf", "use_prior": False}}),
    "cpf-without-data": Variant("CPF without data", {"organizer": {"name": "cpf", "use_data": False}}),
    "cpf-delta": Variant("CPF delta", {"organizer": {"name": "cpf", "readout": "delta"}}),
    "cpf-gated": Variant("CPF gated", {"organizer": {"name": "cpf", "readout": "gated"}}),
    "cpf-frozen": Variant(
        "CPF untrained", {"organizer": {"name": "cpf"}, "train": {"freeze_organizer": True}}
    ),
}

COLUMNS = {
    "all": Column("All", "%", "higher"),
    "old": Column("Old", "%", "higher"),
    "new": Column("New", "%", "higher"),
    "count": Column("count", counts=True),
    "count_error": Column("count error", "%", "lower"),
    "parameters": Column("params", "M", decimals=2),
    "seconds": Column("time", "s", decimals=0),
    "model_parameters": Column("params", "M", decimals=2),
    "epoch_seconds": Column("training epoch", "s", "lower", decimals=2),
    "inference_seconds": Column("inference", "s", "lower", decimals=2),
}
ACCURACY = ("all", "old", "new")
OF_ORGANIZER = ("train.freeze_organizer", "train.organizer_lr_ratio")  # settings that no host has
COMPARED = (*ACCURACY, "count", "count_error", "parameters", "seconds")


def grid(data: str, methods: Iterable[str], organizers: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """Every method with every organizer and seed, host by host."""
    return [Cell(data, method, organizer, seed) for method in methods for organizer in organizers for seed in seeds]


def run_all(
    cells: Sequence[Cell],
    out: Path,
    settings: Callable[[Cell], Settings],
    count_by: Callable[[Cell], str] | None = lambda _: COUNT_BY,
) -> dict[Cell, Outcome]:
    """Run the cells one after the other, or go on with them; one that fails is told of and does not stop the others.

    `settings` says for each cell all that the cell itself does not, the images' source among it.
    """
    outcomes = {}
    for place, cell in enumerate(cells, start=1):
        say(f"{cell} ({place} of {len(cells)})")
        try:
            outcomes[cell] = run_one(cell, out, settings(cell), count_by and count_by(cell))
        except NewkindsError as error:
            warn(f"{cell} failed: {error}")
        except Exception as error:  # out of memory, a full disk, a bug: the other cells may still succeed
            warn(f"{cell} failed: {unexpected(error)}")
    return outcomes


def run_one(cell: Cell, out: Path, settings: Settings, count_by: str | None = COUNT_BY) -> Outcome:
    """Train (or go on), assign, evaluate and, if asked to, count; what has been done already is not done again."""
    folder, layers = cell.folder(out), [*settings, *cell.layers()]
    run = Run(folder)
    outcome = read_outcome(folder)
    if outcome is None:
        discover(None, folder, settings=layers)
        evaluate(folder)
    else:
        require_same_settings(None, folder, settings=layers)
    count = None if count_by is None else _count_of(run)
    counted = count_by is None or (count is not None and count.method == count_by)
    if outcome is not None and counted:
        say(f"{folder} is finished already")
        return outcome
    if not counted:
        assert count_by is not None
        try:
            count_categories(folder, count_by)
        except NewkindsError as error:  # its accuracies stand nevertheless
            warn(f"the categories of {cell} cannot be counted: {error}")
    outcome = read_outcome(folder)
    assert outcome is not None  # all its files have just been written
    return outcome


def read_outcome(folder: Path) -> Outcome | None:
    """What a run came to, from its files alone; None if it has not been trained and evaluated to the end.

    An evaluation by another truth than the data set's own does not count.
    """
    run = Run(folder)
    if not all(run.path(name).is_file() for name in ("model.safetensors", "evaluation.json", "timing.json")):
        return None
    try:
        with safe_open(run.model_file, framework="pt"):
            evaluation = run.read_json("evaluation.json")
            return None if evaluation.get("truth") else _outcome(run, evaluation)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, SafetensorError) as error:
        reason = unexpected(error)
        raise NewkindsError(f"the run in {folder} is damaged ({reason}): delete it and run it again.") from None


def _outcome(run: Run, evaluation: dict[str, Any]) -> Outcome:
    record = run.read_json("protocol.json")
    count = _count_of(run)
    counted = None if count is None else count.answer
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
    protocol = {str(name): str(value) for name, value in evaluation["protocol"].items()}
    if not protocol:
        raise ValueError("its protocol is missing")
    if count is not None:
        protocol["counting"] = f"{count.method} on the trained features, by {count.score_is}"
    settings = {"split": record["split"], "weights": record["weights"]} | {
        f"{section}.{name}": value
        for section, values in run.config().as_dict().items()
        for name, value in (values.items() if isinstance(values, dict) else [("", values)])
        if (section, name) not in {*FREE_TO_CHANGE, ("train", "seed")}
    }
    return Outcome(figures, protocol, settings, None if test is None else _accuracies(test["metrics"]))


def _count_of(run: Run) -> Count | None:
    """What `count_categories` wrote, if it is there and whole."""
    if not run.path("count.json").is_file():
        return None
    try:
        return read_count(run)
    except NewkindsError as error:
        warn(str(error))
        return None


def comparable(outcomes: Mapping[Cell, Outcome], preferred: Collection[Cell] = ()) -> dict[Cell, Outcome]:
    """The runs that may stand in one table: a host and its organizers differ in the organizer alone, the runs of one
    row in the seed alone. Where they do not, those like the `preferred` ones stay, else those that most agree with;
    the others are named.
    """

    def of_host(setting: str) -> bool:
        return not setting.startswith("organizer.") and setting not in OF_ORGANIZER

    kept = _agreeing(outcomes, preferred, lambda cell: (cell.data, cell.method), of_host)
    return _agreeing(kept, preferred, lambda cell: (cell.data, cell.method, cell.organizer), lambda _: True)


def _agreeing(
    outcomes: Mapping[Cell, Outcome],
    preferred: Collection[Cell],
    group: Callable[[Cell], Hashable],
    counts: Callable[[str], bool],
) -> dict[Cell, Outcome]:
    """Of each group, the runs that have the settings (those that count) of the preferred ones, or of most."""
    groups: dict[Hashable, list[Cell]] = {}
    for cell in outcomes:
        groups.setdefault(group(cell), []).append(cell)
    kept = {}
    for cells in groups.values():
        settings = {c: {k: v for k, v in outcomes[c].settings.items() if counts(k)} for c in cells}
        candidates = [cell for cell in cells if cell in preferred] or cells
        model = max(candidates, key=lambda cell: list(settings.values()).count(settings[cell]))
        usual = settings[model]
        for cell, own in settings.items():
            if own == usual:
                kept[cell] = outcomes[cell]
                continue
            names = [name for name in {**usual, **own} if usual.get(name) != own.get(name)]
            said = ", ".join(f"{name} is {own.get(name)}, not {usual.get(name)}" for name in names)
            warn(f"{cell} has other settings than {model} ({said}): it is left out of the table.")
    return kept


def _accuracies(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """In percent."""
    shares = {part: metrics[f"acc_{part}"] for part in ACCURACY}
    if not all(share is None or (type(share) in (int, float) and 0 <= share <= 1) for share in shares.values()):
        raise ValueError(f"{shares} are not accuracies")
    return {part: None if share is None else 100.0 * share for part, share in shares.items()}


def compare(cells: Sequence[Cell], outcomes: Mapping[Cell, Outcome]) -> Comparison:
    """The plug-in table: each host alone, then with each organizer and the difference that makes."""
    rows: list[Row] = []
    for method in dict.fromkeys(cell.method for cell in cells):
        host = len(rows)
        for organizer in dict.fromkeys(cell.organizer for cell in cells):
            wanted = [cell for cell in cells if (cell.method, cell.organizer) == (method, organizer)]
            finished = {cell.seed: outcomes[cell].figures for cell in wanted if cell in outcomes}
            figures = [OverSeeds.of({seed: each[name] for seed, each in finished.items()}) for name in COMPARED]
            rows.append(Row(row_name(method, organizer), figures, base=host if len(rows) > host else None))
    finished_cells = {cell: outcomes[cell] for cell in cells if cell in outcomes}
    return Comparison([COLUMNS[name] for name in COMPARED], rows, protocol_of(finished_cells))


def row_name(method: str, organizer: str) -> str:
    """`SimGCD`, `SimGCD + CPF`."""
    host = METHODS[method].__name__
    if organizer == "none":
        return host
    return f"{host} + {VARIANTS[organizer].title if organizer in VARIANTS else organizer.upper()}"


def protocol_of(outcomes: Mapping[Cell, Outcome]) -> list[tuple[str, str]]:
    """One protocol for the runs of a table: where its rows differ, which has what."""
    of_row: dict[str, list[Mapping[str, str]]] = {}
    for cell, outcome in outcomes.items():
        of_row.setdefault(row_name(cell.method, cell.organizer), []).append(outcome.protocol)
    rows = {name: merged(protocols) for name, protocols in of_row.items()}
    lines = []
    for field_name in dict.fromkeys(name for row in rows.values() for name in row):
        rows_with: dict[str, list[str]] = {}
        for name, row in rows.items():
            rows_with.setdefault(row.get(field_name, "–"), []).append(name)
        differ = [f"{', '.join(names)}: {value}" for value, names in rows_with.items()]
        lines.append((field_name, " · ".join(differ) if len(rows_with) > 1 else next(iter(rows_with))))
    return lines


def merged(protocols: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """One protocol for several runs: where they differ, every value.

    >>> merged([{"split": "ab", "seed": "0"}, {"split": "ab", "seed": "1"}])
    {'split': 'ab', 'seed': '0; 1'}
    """
    names = dict.fromkeys(name for protocol in protocols for name in protocol)
    return {name: "; ".join(dict.fromkeys(p[name] for p in protocols if name in p)) for name in names}
