"""What an evaluation and a count left in a run, as far as it is about what the page shows."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...category_count import Count
from ...errors import NewkindsError
from ...runs.directory import K_AUTO, RunDirectory
from ...runs.records import read_count
from ..categories import Discovery
from ..editlog import fingerprint

T = TypeVar("T")
EVALUATION = "evaluation.json"
JUDGED_BY = ("evaluated", "metric", "selection")  # of the protocol, what belongs to the figures


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


def read_number(run: RunDirectory) -> Count | None:
    """How many categories were estimated: by `--k auto`, else by `newkinds count` later."""
    return next((read_count(run, name) for name in (K_AUTO, "count") if run.path(f"{name}.json").is_file()), None)


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


def _read(run: RunDirectory, name: str, parse: Callable[[Any], T]) -> T | None:
    if not run.path(name).is_file():
        return None
    try:
        return parse(run.read_json(name))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise _damaged(run, name) from None


def _damaged(run: RunDirectory, name: str) -> NewkindsError:
    return NewkindsError(f"{run.path(name)} is damaged: delete it, and the page is made without it.")


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(float(value)) else float(value)
