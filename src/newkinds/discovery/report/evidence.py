"""What other steps left in a run about how the answer was chosen and how far it can be trusted: the plan, the count,
the calibration, the findings of the data check. Each file may be missing; then the page is silent about it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...cluster.count import Count
from ...errors import NewkindsError
from ...runs.counted import read_count
from ...runs.protocol import K_AUTO
from ...runs.run import Run
from ...settings import flat

T = TypeVar("T")


@dataclass(frozen=True)
class Candidate:
    """One way to find the categories, and what the labelled images said about it."""

    name: str
    settings: str
    score: float | None  # shares in [0, 1]
    old: float | None
    new: float | None
    error: float | None  # standard error of the score
    seconds: float | None
    state: str  # "judged", "stopped: why" or "not tried: why"
    chosen: bool


@dataclass(frozen=True)
class Plan:
    """How the way to find the categories was chosen."""

    chosen: str
    why: str
    rule: str
    candidates: list[Candidate]  # the best first, those without a score last
    stages: list[tuple[str, float]]  # name, seconds
    budget_seconds: float | None
    splits: int | None


@dataclass(frozen=True)
class Bin:
    """Labelled held-out images whose confidence lies between `low` and `high`."""

    low: float
    high: float
    images: int
    confidence: float  # their mean
    correct: float  # share of them


@dataclass(frozen=True)
class Calibration:
    """Whether images with a confidence of 80 % are right in 80 % of the cases."""

    bins: list[Bin]  # those with images
    error: float | None  # expected calibration error
    images: int
    note: str


@dataclass(frozen=True)
class Finding:
    """What a check says about one image, or about all of them (then `path` is empty)."""

    path: str
    check: str
    sentence: str


def read_plan(run: Run) -> Plan | None:
    return _read(run, "plan.json", _plan)


def read_number(run: Run) -> Count | None:
    """How many categories were estimated: by `--k auto`, else by `newkinds count` later."""
    return next((read_count(run, name) for name in (K_AUTO, "count") if run.path(f"{name}.json").is_file()), None)


def read_calibration(run: Run) -> Calibration | None:
    return _read(run, "calibration.json", _calibration)


def read_findings(run: Run) -> list[Finding]:
    """The rows of `check.csv`."""
    if not run.path("check.csv").is_file():
        return []
    try:
        return [Finding(row["path"], row["check"], row["sentence"]) for row in run.read_table("check.csv")]
    except KeyError:
        raise _damaged(run, "check.csv") from None


def _read(run: Run, name: str, parse: Callable[[Any], T]) -> T | None:
    if not run.path(name).is_file():
        return None
    try:
        return parse(run.read_json(name))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise _damaged(run, name) from None


def _damaged(run: Run, name: str) -> NewkindsError:
    return NewkindsError(f"{run.path(name)} is damaged: delete it, and the page is made without it.")


def _plan(record: Any) -> Plan:
    candidates = [_candidate(entry, record["chosen"]) for entry in record["candidates"]]
    return Plan(
        chosen=str(record["chosen"]),
        why=str(record.get("why", "")),
        rule=str(record.get("rule", "")),
        candidates=sorted(candidates, key=lambda c: (c.score is None, -(c.score or 0))),
        stages=[(str(stage["name"]), float(stage["seconds"])) for stage in record.get("stages", [])],
        budget_seconds=_number(record.get("budget_seconds")),
        splits=record.get("splits"),
    )


def _candidate(entry: Any, chosen: str) -> Candidate:
    figure = {name: _number(entry.get(name)) for name in ("score", "old", "new", "error", "seconds")}
    settings = ", ".join(f"{name}={value}" for name, value in flat(entry.get("settings", {})).items())
    state = str(entry.get("state", ""))
    return Candidate(str(entry["name"]), settings, **figure, state=state, chosen=entry["name"] == chosen)


def _calibration(record: Any) -> Calibration:
    bins = [
        Bin(float(b["low"]), float(b["high"]), int(b["images"]), float(b["confidence"]), float(b["correct"]))
        for b in record["bins"]
        if b["images"]
    ]
    return Calibration(bins, _number(record.get("error")), int(record["images"]), str(record.get("note", "")))


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(float(value)) else float(value)
