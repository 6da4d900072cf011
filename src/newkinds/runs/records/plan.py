"""`plan.json`: what `discover` and `tune` compared, how long it took, and why they chose what they did."""

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from .record import Record


@dataclass(frozen=True)
class CandidateScore:
    """One way to find the categories, and what the labelled images said about it."""

    name: str  # the identity of a candidate
    recipe: str = ""  # the name of what trains; empty: nothing is trained
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
class PlanRecord(Record):
    """How the way to find the categories was chosen; the same command continues from it."""

    FILE: ClassVar[str] = "plan.json"

    chosen: str  # the name of a candidate
    why: str = ""
    rule: str = ""
    splits: int = 0  # of the labelled images
    budget_seconds: float | None = None
    spent_seconds: float = 0.0
    step_seconds: float = 0.0  # of one step of training on class tokens, as it was measured
    asked: dict[str, str] = field(default_factory=dict)  # what the user named, by the full names of settings
    finished: bool = False
    candidates: list[CandidateScore] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)

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
