"""What finished runs found, from their files alone, and which of them may stand in one table."""

import glob
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from ..cluster.count import Count
from ..comparison import Column
from ..console import warn
from ..discovery.collapse import COLLAPSED, largest_share
from ..errors import NewkindsError, reason_of
from ..runs.code import CODE, START, as_settings, code_of, differing_code
from ..runs.records import Evaluation, Protocol, Timing, Tuned, read_count
from ..runs.run import FREE_TO_CHANGE, Run
from ..settings import flat
from .cells import Cell

COLUMNS = {column.measure: column for column in (
    Column("all", "All", "%", "higher"),
    Column("old", "Old", "%", "higher"),
    Column("new", "New", "%", "higher"),
    Column("by_name_old", "Old by name", "%", "higher"),
    Column("by_name_precision", "precision of names", "%", "higher"),
    Column("count", "count", counts=True),
    Column("count_error", "count error", "%", "lower"),
    Column("parameters", "params", "M", decimals=2, is_constant=True),
    Column("seconds", "time", "s", decimals=0, is_paired=False),
    Column("model_parameters", "params", "M", decimals=2, is_constant=True),
    Column("epoch_seconds", "training epoch", "s", "lower", decimals=2),
    Column("inference_seconds", "inference", "s", "lower", decimals=2),
)}  # fmt: skip
ACCURACY = ("all", "old", "new")
CLASSES = "classes"
OF_TASK = ("split", CLASSES, f"{CODE}newkinds", f"{CODE}data")  # what all runs of a data set have in common
OF_SEED = ("train.seed", "train.start")  # settings in which the runs of a row differ
# settings that no host has
OF_ORGANIZER = (
    "organizer.", "assigner.", "embedding.", "train.freeze_organizer", "train.organizer_lr_ratio", "tuned.",
    *(f"{CODE}{of_start}{section}" for of_start in ("", START) for section in ("organizer", "assigner")),
)  # fmt: skip
NAMED = ("by_name_old", "by_name_precision")  # without a match of known names, which published tables do not have
COMPARED = (*ACCURACY, *NAMED, "count", "count_error", "parameters", "seconds")


def describe_classes(known: int, categories: object) -> str:
    """`100 known of 200`"""
    return f"{known} known of {categories}"


@dataclass(frozen=True)
class Outcome:
    """The result of one run."""

    figures: dict[str, float | None]  # by the names of COLUMNS
    protocol: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)  # "train.lr" → 0.1, except those that change no result
    is_of_present_code: bool = True
    changed_plugins: tuple[str, ...] = ()  # sections whose part is a plugin's that is loaded now and has changed since
    test: dict[str, float | None] | None = None  # ACCURACY on the official test images, if they were evaluated
    largest_share: float | None = None  # of the unlabelled images, in the category that has most of them

    @property
    def has_collapsed(self) -> bool:
        """Whether nearly all images are in one category."""
        return self.largest_share is not None and self.largest_share >= COLLAPSED


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
    record, count = run.protocol(), count_of(run)
    sizes, categories = record.parameters, record.categories
    counted = None if count is None else count.answer
    there, seconds = run.settings_as_written(), [row["seconds"] for row in run.metrics()]
    if len(seconds) != there["train"]["epochs"]:
        raise ValueError(f"metrics.jsonl has {len(seconds)} epochs, not {there['train']['epochs']}")
    figures = _accuracies(evaluation.metrics) | {
        "count": counted,
        "count_error": None if categories is None or counted is None else 100 * abs(counted - categories) / categories,
        "parameters": (sizes["backbone"] + sizes.get("tuning", 0) + sizes["organizer"]) / 1e6,
        "model_parameters": sum(sizes.values()) / 1e6,
        "seconds": sum(seconds),
        "epoch_seconds": sum(seconds) / len(seconds) if seconds else None,
        "inference_seconds": Timing.read(run).embedding_seconds,
    }
    protocol = _without_places(evaluation.protocol, there["data"], record)
    if not protocol:
        raise ValueError("its protocol is missing")
    if count is not None:
        protocol["counting"] = f"{count.method} on the trained features, by {count.score_is}"
    settings = {"split": record.split, "weights": record.weights, **flat(there)}
    settings[CLASSES] = describe_classes(record.known_classes, there["k"])
    settings |= as_settings(record.code, run.folder.name)
    if settings["train.start"] is not None:  # where all runs lie changes nothing
        settings["train.start"] = Path(settings["train.start"]).name
    settings = {name: value for name, value in settings.items() if name not in FREE_TO_CHANGE}
    if (tuned := Tuned.find(run)) is not None:
        settings |= _settings_of_tuned(tuned, settings)
    unknown = run.missing_parts()  # of the code of parts that are not loaded nobody can tell whether it has changed
    differing = [] if unknown else differing_code(record.code, code_of(run.config()))
    return Outcome(
        figures,
        protocol,
        settings,
        is_of_present_code=not (unknown or differing),
        changed_plugins=tuple(section for section in differing if section in record.outside),
        test=None if evaluation.test is None else _accuracies(evaluation.test.metrics),
        largest_share=_largest_share(run),
    )


def _without_places(protocol: Mapping[str, str], data: Mapping[str, Any], record: Protocol) -> dict[str, str]:
    """The protocol with the names of data and plugins instead of where they lie: tables are published, and a path
    tells who made the runs."""
    places = [value for value in data.values() if isinstance(value, str) and Path(value).is_absolute()]
    places += [part.origin for part in record.outside.values() if Path(part.origin).is_absolute()]
    named = dict(protocol)
    for place in sorted(places, key=len, reverse=True):  # a path may be the beginning of another
        named = {field: value.replace(place, Path(place).name or place) for field, value in named.items()}
    return named


def _settings_of_tuned(tuned: Tuned, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the rows of a table must have in common is the rule: among which values a setting was chosen. What it chose
    is the row's own."""
    of_rule: dict[str, Any] = {}
    for full_name in tuned.chosen.values:
        section, *_, last = full_name.split(".")  # method.simgcd.memax_weight waits for simgcd
        name = f"{section}.{last}"
        values = dict.fromkeys(str(one.values.get(full_name)) for one in tuned.tried)
        of_rule[f"tuned.{name}"] = settings.get(name)
        of_rule[name] = f"one of {', '.join(values)}, chosen on labelled images"
    return of_rule


def _largest_share(run: Run) -> float | None:
    """How many of the unlabelled images the largest category has; None if that is not known."""
    if not run.path("assignments.csv").is_file():
        return None
    rows = run.read_table("assignments.csv", ("given_label", "category_id"))
    return largest_share(row["category_id"] for row in rows if not row["given_label"])


def count_of(run: Run) -> Count | None:
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


def collect(
    rows: Iterable[Cell], out: Path, sources: Mapping[str, Mapping[str, Any]] | None = None,
    preferred: Collection[Cell] = (), differs: Callable[[Cell], str] | None = None, told: Collection[Cell] = (),
    seeds: Collection[int] | None = None,
) -> "Sorted":  # fmt: skip
    """The finished runs of some rows, of all seeds found or of these `seeds`; runs that do not belong in the table are
    named.
    `sources`: where each data set is. If runs have different settings, those like the `preferred` ones stay.
    `differs`: how the settings of a run differ from those that are asked for, in words; empty if they do not.
    `told`: runs of which people have been told why they do not belong."""
    outcomes: dict[Cell, Outcome] = {}
    refused: dict[Cell, Refused] = {}
    for row in rows:
        beginning = row.folder(out).name.removesuffix("0")
        for folder in sorted(out.glob(f"{glob.escape(beginning)}*")):
            seed = folder.name.removeprefix(beginning)
            if not seed.isdecimal() or seed != str(int(seed)) or (seeds is not None and int(seed) not in seeds):
                continue
            cell = replace(row, seed=int(seed))
            try:
                if (outcome := read_outcome(folder)) is not None:
                    require_run_of(cell, outcome, (sources or {}).get(cell.data, {"name": cell.data}))
                    if outcome.changed_plugins:  # also if there is no other run of its row
                        reason = f"it has {_other_code(outcome.changed_plugins)} than there is now"
                        refused[cell] = Refused(reason, outcome)
                    elif differs is not None and (differing := differs(cell)):
                        refused[cell] = Refused(f"it has other settings than asked for ({differing})", outcome)
                    else:
                        outcomes[cell] = outcome
            except NewkindsError as error:
                said = str(error).replace(str(folder), folder.name)  # tables are published: where runs lie is not
                refused[cell] = Refused(f"in {folder.name}, {said}".removesuffix("."))
    found, left_out = comparable(outcomes, preferred)
    for cell, run in {**refused, **left_out}.items():
        if cell not in told:
            warn(f"{cell} is left out of the table: {run.reason}.")
    return Sorted(found, {**refused, **left_out})


class Refused(NamedTuple):
    """Why a run may not stand in a table, and what it found, if that can be read."""

    reason: str
    outcome: Outcome | None = None


class Sorted(NamedTuple):
    """Runs that may stand in one table, and others."""

    found: dict[Cell, Outcome]
    left_out: dict[Cell, Refused]


def comparable(outcomes: Mapping[Cell, Outcome], preferred: Collection[Cell] = ()) -> Sorted:
    """The runs that may stand in one table: all have the same task and code of newkinds, a host and its organizers
    differ in the organizer alone, the runs of one row in the seed alone (and both in the run that a second stage starts
    from: see `require_run_of`). Else those like the `preferred` ones stay, or like those of the present code, or like
    most, and the others are named."""
    kept = dict(outcomes)
    left_out = {}
    levels: list[tuple[Callable[[Cell], object], Callable[[str], bool]]] = [
        (lambda cell: cell.data, lambda name: name in OF_TASK),
        (lambda cell: cell.host, lambda name: not name.startswith((*OF_SEED, *OF_ORGANIZER))),
        (lambda cell: cell.row, lambda name: not name.startswith(OF_SEED)),
    ]
    for group_of, is_compared in levels:
        groups: dict[object, list[Cell]] = {}
        for cell in kept:
            groups.setdefault(group_of(cell), []).append(cell)
        for cells in groups.values():
            settings = {}
            for cell in cells:
                of_cell = kept[cell].settings.items()
                settings[cell] = {name: value for name, value in of_cell if is_compared(name)}
            present = [cell for cell in cells if kept[cell].is_of_present_code]
            candidates = [cell for cell in cells if cell in preferred] or present or cells
            model = max(candidates, key=lambda cell: list(settings.values()).count(settings[cell]))
            for cell, own in settings.items():
                if own != settings[model]:
                    reason = f"it has {_what_differs(own, settings[model])} than {model}"
                    left_out[cell] = Refused(reason, kept.pop(cell))
    return Sorted(kept, left_out)


def _what_differs(own: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """`other settings (train.lr is 0.3, not 0.1)`, `other code (of the method)`, `other categories (4 known of 6 …`."""
    names = [name for name in {**usual, **own} if usual.get(name) != own.get(name)]
    if CLASSES in names:
        return f"other categories ({own.get(CLASSES)}, not {usual.get(CLASSES)})"
    code = [name.removeprefix(CODE) for name in names if name.startswith(CODE)]
    if "newkinds" in code:
        return f"other code (newkinds {own.get(f'{CODE}newkinds')}, not {usual.get(f'{CODE}newkinds')})"
    said = [f"{name} is {own.get(name)}, not {usual.get(name)}" for name in names if not name.startswith(CODE)]
    kinds = [f"other settings ({', '.join(said)})"] if said else []
    kinds += [_other_code(code)] if code else []
    return " and ".join(kinds)


def _other_code(sections: Iterable[str]) -> str:
    """`other code (of the method and the organizer)`"""
    return f"other code (of the {' and the '.join(sections)})"


def _accuracies(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """In percent."""
    shares = {part: metrics[f"acc_{part}"] for part in ACCURACY}
    shares |= {name: metrics.get(name) for name in NAMED}  # not in runs evaluated by earlier versions
    if not all(share is None or (type(share) in (int, float) and 0 <= share <= 1) for share in shares.values()):
        raise ValueError(f"{shares} are not accuracies")
    return {part: None if share is None else 100.0 * share for part, share in shares.items()}
