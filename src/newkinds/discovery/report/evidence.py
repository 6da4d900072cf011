"""What other steps left in a run about how the answer was chosen and how far it can be trusted: the plan, the count,
the calibration, the findings of the data check. Each file may be missing; then the page is silent about it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...counted import Count
from ...errors import NewkindsError
from ...runs.counted import K_AUTO, read_count
from ...runs.directory import RunDirectory
from ...settings import flat
from ..categories import Discovery
from ..editlog import fingerprint

T = TypeVar("T")
EVALUATION = "evaluation.json"
JUDGED_BY = ("evaluated", "metric", "selection")  # of the protocol, what belongs to the figures


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
class JudgedRow:
    """Accuracy (shares in [0, 1]) on some images; None of an empty split."""

    name: str
    all: float | None
    old: float | None
    new: float | None
    nmi: float | None
    ari: float | None


@dataclass(frozen=True)
class Judged:
    """What `newkinds eval` found, as far as it is about what the page shows."""

    rows: list[JudgedRow]
    note: str  # what it is not about; empty: nothing is missing
    protocol: list[tuple[str, str]]


@dataclass(frozen=True)
class Finding:
    """What a check says about one image, or about all of them (then `path` is empty)."""

    path: str
    check: str
    sentence: str


def read_plan(run: RunDirectory) -> Plan | None:
    return _read(run, "plan.json", _plan)


def read_number(run: RunDirectory) -> Count | None:
    """How many categories were estimated: by `--k auto`, else by `newkinds count` later."""
    return next((read_count(run, name) for name in (K_AUTO, "count") if run.path(f"{name}.json").is_file()), None)


def read_calibration(run: RunDirectory) -> Calibration | None:
    return _read(run, "calibration.json", _calibration)


def read_judged(run: RunDirectory, discovery: Discovery) -> Judged | None:
    """The figures in `evaluation.json` that are about the present state: none of another assignment, and none with
    corrections that are no longer those in force."""
    return _read(run, EVALUATION, lambda record: _judged(record, discovery))


def state_of(discovery: Discovery) -> dict[str, Any]:
    """What an evaluation is about: the assignments as the model made them, and how many edits had been made."""
    of = fingerprint((member.path, member.category_id) for member in discovery.found_members)
    return {"assignments": of, "edits": discovery.revision}


def _judged(record: Any, discovery: Discovery) -> Judged:
    now = state_of(discovery)
    then = {"assignments": now["assignments"], "edits": 0, **(record.get("state") or {})}  # once, nothing was edited
    again = "Run newkinds eval again."
    if then["assignments"] != now["assignments"]:
        return Judged([], f"Other categories were found since these images were evaluated. {again}", [])
    as_found, metrics = record.get("as_found"), record["metrics"]
    rows, note = [_judged_row("as the model found them", metrics if as_found is None else as_found)], ""
    protocol = [(str(name), str(value)) for name, value in record["protocol"].items() if name in JUDGED_BY]
    if then["edits"] != now["edits"]:
        since = now["edits"] - then["edits"]
        were = "edit was" if since == 1 else "edits were"
        note = f"{since} {were} made since, which these figures do not know of. {again}"
        protocol = [(name, value) for name, value in protocol if name != "evaluated" or as_found is None]
    elif as_found is not None:
        rows.append(_judged_row("with corrections by hand", metrics))
    if (test := record.get("test")) is not None:
        rows.append(_judged_row("test images, by the model", test["metrics"]))
    return Judged(rows, note, protocol)


def _judged_row(name: str, metrics: Any) -> JudgedRow:
    figures = [_number(metrics[key]) for key in ("acc_all", "acc_old", "acc_new", "nmi", "ari")]
    return JudgedRow(name, *figures)


def read_findings(run: RunDirectory) -> list[Finding]:
    """The rows of `check.csv`."""
    if not run.path("check.csv").is_file():
        return []
    try:
        return [Finding(row["path"], row["check"], row["sentence"]) for row in run.read_table("check.csv")]
    except KeyError:
        raise _damaged(run, "check.csv") from None


def _read(run: RunDirectory, name: str, parse: Callable[[Any], T]) -> T | None:
    if not run.path(name).is_file():
        return None
    try:
        return parse(run.read_json(name))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise _damaged(run, name) from None


def _damaged(run: RunDirectory, name: str) -> NewkindsError:
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
