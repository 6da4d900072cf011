"""One type per file of a run, with its reader and its writer: used by whoever writes a file and whoever shows it. Those
that tell how a result came from an earlier one are in `changes.py`.

Nothing here needs torch."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, ClassVar, NamedTuple

from typing_extensions import Self

from ..category_count import Count, plot
from ..errors import NewkindsError
from ..files import csv_text
from .directory import FORMAT, TUNED, RunDirectory
from .typed_json import Unfit, value_of


class Record:
    """One file of a run.

    >>> PlanRecord.read(RunDirectory("runs/photos")).chosen
    """

    FILE: ClassVar[str]
    ADVICE: ClassVar[str] = "delete it, and the page is made without it"  # what to do if it is damaged

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        """What the run's file says; an error if it is missing or damaged."""
        content = run.read_json(cls.FILE)
        try:
            return cls.of_json(content)
        except Unfit as error:
            raise NewkindsError(f"{run.path(cls.FILE)} is damaged ({error}): {cls.ADVICE}.") from None

    @classmethod
    def of_json(cls, content: Any) -> Self:
        """What `as_json` gave, or what was read; Unfit if it is anything else."""
        return value_of(content, cls, "")

    @classmethod
    def find(cls, run: RunDirectory) -> Self | None:
        """Like `read`, but None if there is no such file."""
        return cls.read(run) if run.path(cls.FILE).is_file() else None

    def as_json(self) -> dict[str, Any]:
        """What is written."""
        assert is_dataclass(self)
        return asdict(self)

    def write(self, run: RunDirectory) -> None:
        run.write_json(self.FILE, self.as_json())


# -- plan.json: what `discover` and `tune` compared, how long it took, and why they chose what they did ---------------


@dataclass(frozen=True)
class CandidateScore:
    """One way to find the categories, and what the labelled images said about it."""

    name: str  # the identity of a candidate
    training: str = ""  # the name of what trains; empty: nothing is trained
    settings: dict[str, Any] = field(default_factory=dict)
    trains: bool = False
    scores: list[float] = field(default_factory=list)  # on the hidden labelled images, one per split, in [0, 1]
    old: float | None = None  # means
    new: float | None = None
    seconds: float = 0.0
    state: str = "not tried yet"  # "judged", "stopped: why" or "not tried: why"

    @property
    def score(self) -> float | None:
        """The mean over the splits."""
        return sum(self.scores) / len(self.scores) if self.scores else None

    @property
    def error(self) -> float | None:
        """The standard error of that mean."""
        return standard_error(self.scores)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "score": self.score, "error": self.error}


@dataclass(frozen=True)
class Stage:
    """A part of the work, and how long it took."""

    name: str
    seconds: float
    at: float = 0.0  # seconds after the beginning, when it ended


@dataclass(frozen=True)
class NumberSeen:
    """How many categories the images look like, beside the number that somebody gave."""

    given: int
    answer: int
    low: int
    high: int

    @property
    def fits(self) -> bool:
        """Whether the given number lies in the interval."""
        return self.low <= self.given <= self.high

    @property
    def looks_like(self) -> str:
        """`8 kinds (7 to 9)`"""
        return f"{self.answer} kinds ({self.low} to {self.high})"


@dataclass(frozen=True)
class PlanRecord(Record):
    """How the way to find the categories was chosen; the same command continues from it."""

    FILE: ClassVar[str] = "plan.json"

    chosen: str  # the name of a candidate
    why: str = ""
    rule: str = ""
    splits: int = 0  # of the labelled images
    budget_seconds: float | None = None
    spent_seconds: float = 0.0
    images: str = ""  # a digest of the images and labels that it is about
    asked: dict[str, str] = field(default_factory=dict)  # what the user named, by the full names of settings
    finished: bool = False
    candidates: list[CandidateScore] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    number_seen: NumberSeen | None = None  # if somebody gave a number, and it was cheap to look

    @property
    def ranked(self) -> list[CandidateScore]:
        """The candidates, the best first, those without a score last."""
        return sorted(self.candidates, key=lambda one: (one.score is None, -(one.score or 0.0)))

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "candidates": [candidate.as_json() for candidate in self.candidates]}


def standard_error(values: list[float]) -> float | None:
    """Of the mean of values; None of fewer than two."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return (variance / len(values)) ** 0.5


# -- calibration.json -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReliabilityBin:
    """Held-out labelled images whose confidence lies between `low` and `high`; there is at least one."""

    low: float
    high: float
    images: int
    confidence: float  # their mean
    correct: float  # share of them


@dataclass(frozen=True)
class Reliability(Record):
    """How far confidence can be trusted."""

    FILE: ClassVar[str] = "calibration.json"

    bins: list[ReliabilityBin]
    images: int
    note: str = ""
    error: float | None = None  # expected calibration error


# -- check.csv --------------------------------------------------------------------------------------------------------


class Finding(NamedTuple):
    """What a check says about one image, or about all of them (then `path` is empty)."""

    path: str
    check: str
    score: float | None  # the larger, the worse; None: of all of them
    sentence: str


class Findings:
    """The rows of `check.csv`."""

    FILE = "check.csv"

    @classmethod
    def read(cls, run: RunDirectory) -> list[Finding]:
        """What the run's table says; nothing if there is none."""
        if not run.path(cls.FILE).is_file():
            return []
        try:
            return [_finding(row) for row in run.read_table(cls.FILE, Finding._fields)]
        except ValueError:
            damage = f"{run.path(cls.FILE)} is damaged (a score in it is not a number)"
            raise NewkindsError(f"{damage}: delete it, and the page is made without it.") from None

    @classmethod
    def write(cls, findings: Sequence[Finding], run: RunDirectory) -> None:
        run.write(cls.FILE, cls.text(findings))

    @staticmethod
    def text(findings: Sequence[Finding]) -> str:
        """The table, for wherever it is kept."""
        return csv_text(Finding._fields, [["" if cell is None else cell for cell in one] for one in findings])


def _finding(row: dict[str, Any]) -> Finding:
    return Finding(row["path"], row["check"], float(row["score"]) if row["score"] else None, row["sentence"])


# -- count.json, k_auto.json ------------------------------------------------------------------------------------------


def write_count(count: Count, run: RunDirectory, name: str) -> None:
    """The estimate, and its curve as a picture."""
    run.write(f"{name}.png", plot(count))
    run.write_json(f"{name}.json", asdict(count))


def read_count(run: RunDirectory, name: str = "count") -> Count:
    """What `count_categories` (or `--k auto`) wrote into a run."""
    content = run.read_json(f"{name}.json")
    try:
        count: Count = value_of(content, Count, "")
        if count.answer not in dict(count.curve):
            raise Unfit("its curve has no score of its answer")
        return count
    except Unfit as error:
        raise NewkindsError(f"{run.path(name)}.json is damaged ({error}): delete it to count again.") from None


# -- protocol.json ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutsidePart:
    """A method, an organizer … that a plugin or another package brought."""

    name: str
    origin: str  # a file or a package
    checksum: str | None = None  # of a file

    @property
    def how_to_load(self) -> str:
        return f"add --plugin {self.origin}" if self.checksum else "install or import it"


@dataclass(frozen=True)
class RunCode:
    """Which code made a run: runs of different code are not averaged."""

    version: str  # of newkinds
    shared: str  # checksum of what all runs use of newkinds
    parts: dict[str, str] = field(default_factory=dict)  # section → checksum of what the run alone chose: its method …
    commit: str = ""  # for people, if newkinds runs from its repository
    changed: bool = False  # training went on with other code than it began with


@dataclass(frozen=True)
class Protocol(Record):
    """What stands beside every figure of a run."""

    FILE: ClassVar[str] = "protocol.json"
    ADVICE: ClassVar[str] = "restore it from a copy, or choose another --out and train again"

    images: int
    labelled: int
    known_classes: int
    categories: int | None  # what the data set says, which the run may not have been told
    split: str  # checksum of images and labels
    caveat: str | None  # why the split is not the published one
    class_list: str | None
    parameters: dict[str, int]  # of each part of the model
    trains: list[str]  # which of them train, and how fast
    weights: str  # of the backbone, with a checksum
    started_from: str | None
    outside: dict[str, OutsidePart]  # by section
    versions: str
    device: str
    date: str
    code: RunCode | None = None  # None: of a run that is older than this record
    format: int = FORMAT  # of the run directory


# -- tuned.json: which settings were chosen before the training, and how ----------------------------------------------


@dataclass(frozen=True)
class Tried:
    """Values of settings, and All in percent of a training with them; None: it diverged."""

    values: dict[str, Any]
    score: float | None

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


@dataclass(frozen=True)
class Tuned(Record):
    """Settings that were chosen on the labelled images alone, split again: see `data.splits.for_tuning`."""

    FILE: ClassVar[str] = TUNED
    ADVICE: ClassVar[str] = "delete it, and run newkinds bench again"

    chosen: Tried
    tried: list[Tried]

    def sentence(self) -> str:
        """What was chosen, among what."""
        scores = [f"{one}: {'diverged' if one.score is None else f'{one.score:.1f}'}" for one in self.tried]
        return f"{self.chosen}, by All on the labelled images alone, split again ({'; '.join(scores)})"


# -- timing.json ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing(Record):
    """How long all images took to embed."""

    FILE: ClassVar[str] = "timing.json"
    ADVICE: ClassVar[str] = "delete it, and run newkinds discover again"

    embedding_seconds: float
    images: int


# -- evaluation.json --------------------------------------------------------------------------------------------------

Figures = dict[str, float | None]  # shares by the names of metrics; None: of an empty split
FIGURES_SHOWN = ("acc_all", "acc_old", "acc_new", "nmi", "ari")


@dataclass(frozen=True)
class EvaluationState:
    """What an evaluation is about: figures are not shown with other assignments or later edits."""

    assignments: str  # fingerprint of what the model found
    edits: int  # that had been made, undone ones too


@dataclass(frozen=True)
class HeldOutEvaluation:
    """Figures on a benchmark's test images."""

    evaluated: int  # images
    metrics: Figures
    model: str  # checksum of the model that assigned them
    images: str  # checksum of images and classes


@dataclass(frozen=True)
class Evaluation(Record):
    """What `newkinds eval` found."""

    FILE: ClassVar[str] = "evaluation.json"
    ADVICE: ClassVar[str] = "delete it, and run newkinds eval again"

    evaluated: int  # unlabelled images
    metrics: Figures
    as_found: Figures | None  # by the model alone, if people corrected what it found
    truth: str | None  # what was judged by, if it is not the data set's own
    test: HeldOutEvaluation | None
    state: EvaluationState
    protocol: dict[str, str]

    @classmethod
    def of_json(cls, content: Any) -> Self:
        record = super().of_json(content)
        of_test = None if record.test is None else record.test.metrics
        for name, figures in (("metrics", record.metrics), ("as_found", record.as_found), ("test.metrics", of_test)):
            missing = [] if figures is None else [key for key in FIGURES_SHOWN if key not in figures]
            if missing:
                raise Unfit(f"it does not say '{name}.{missing[0]}'")
        return record
