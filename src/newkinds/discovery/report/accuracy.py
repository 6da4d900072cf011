"""What an evaluation and a count left in a run, as far as it is about what the page shows."""

from dataclasses import dataclass

from ...category_count import Count
from ...runs.directory import K_AUTO, RunDirectory
from ...runs.records import FIGURES_SHOWN, Evaluation, EvaluationState, Figures, read_count
from ..categories import Discovery
from ..editlog import fingerprint

BY_NAME = ("all", "old", "new", "precision")
JUDGED_BY = ("evaluated", "metric", "selection")  # of the protocol, what belongs to the figures


@dataclass(frozen=True)
class AccuracyRow:
    """Accuracy (shares in [0, 1]) on some images; None of an empty split."""

    name: str
    all: float | None
    old: float | None
    new: float | None
    nmi: float | None
    ari: float | None
    # with names taken at their word: Old without a match, New matched among what is left; precision of known names
    by_name: tuple[float | None, ...] = (None, None, None, None)


@dataclass(frozen=True)
class AccuracyTable:
    """What `newkinds eval` found, as far as it is about what the page shows."""

    rows: list[AccuracyRow]
    note: str  # what it is not about; empty: nothing is missing
    protocol: list[tuple[str, str]]


def read_number(run: RunDirectory) -> Count | None:
    """How many categories were estimated: by `--k auto`, else by `newkinds count` later."""
    return next((read_count(run, name) for name in (K_AUTO, "count") if run.path(f"{name}.json").is_file()), None)


def read_accuracy(run: RunDirectory, discovery: Discovery) -> AccuracyTable | None:
    """The figures in `evaluation.json` that are about the present state: none of another assignment, and none with
    corrections that are no longer those in force."""
    evaluation = Evaluation.find(run)
    return None if evaluation is None else _accuracy(evaluation, discovery)


def state_of(discovery: Discovery) -> EvaluationState:
    """What an evaluation is about: the assignments as the model made them, and how many edits had been made."""
    of = fingerprint((member.path, member.category_id) for member in discovery.found_members)
    return EvaluationState(of, discovery.revision)


def _accuracy(evaluation: Evaluation, discovery: Discovery) -> AccuracyTable:
    now, then = state_of(discovery), evaluation.state
    again = "Run newkinds eval again."
    if then.assignments != now.assignments:
        return AccuracyTable([], f"Other categories were found since these images were evaluated. {again}", [])
    by_model = evaluation.metrics if evaluation.as_found is None else evaluation.as_found
    rows, note = [_accuracy_row("as the model found them", by_model)], ""
    protocol = [(name, value) for name, value in evaluation.protocol.items() if name in JUDGED_BY]
    if then.edits != now.edits:
        since = now.edits - then.edits
        were = "edit was" if since == 1 else "edits were"
        note = f"{since} {were} made since, which these figures do not know of. {again}"
        protocol = [(name, value) for name, value in protocol if name != "evaluated" or evaluation.as_found is None]
    elif evaluation.as_found is not None:
        rows.append(_accuracy_row("with corrections by hand", evaluation.metrics))
    if evaluation.test is not None:
        rows.append(_accuracy_row("test images, by the model", evaluation.test.metrics))
    return AccuracyTable(rows, note, protocol)


def _accuracy_row(name: str, metrics: Figures) -> AccuracyRow:
    matched = {key.removeprefix("acc_"): metrics[key] for key in FIGURES_SHOWN}
    return AccuracyRow(name, **matched, by_name=tuple(metrics.get(f"by_name_{key}") for key in BY_NAME))
