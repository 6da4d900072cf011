"""How good a run is: All / Old / New on its unlabelled images and on test images, if true classes are known; once under
the best match of categories with classes, and once with names taken at their word."""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..cluster import metrics
from ..console import keep_quiet, warn
from ..data import load_table, source_of
from ..data.spellings import refuse_two_spellings
from ..data.splits import split_checksum
from ..data.table import Table
from ..data.vectors import NAME as READY_MADE
from ..data.vectors import true_table
from ..discovery.categories import Discovery
from ..discovery.edits import POOL
from ..discovery.finished import ensure_assigned, load
from ..discovery.kinds import Member
from ..discovery.report.accuracy import state_of
from ..discovery.report.build import PAGE, write_card, write_page
from ..errors import NewkindsError
from ..files import checksum
from ..runs.config import Config
from ..runs.protocol import describe_protocol
from ..runs.records import Evaluation, Figures, HeldOutEvaluation
from ..runs.run import Run
from ..text import percent, plural, protocol_lines, text_table
from ..training.embedding import Embedded, embed
from ..training.model import Model

_FROZEN: dict[str, Embedded] = {}  # the latest test images of a run that trained nothing: a table has many of these
BY_NAME, TITLE_BY_NAME = "by_name", "by name (Old without a match)"
MOST_NAMED = 5  # classes in a warning
TITLES = {"acc": "ACC (v2, one match)", "acc_v1": "ACC (v1, two matches)", "acc_balanced": "ACC (v2, class-balanced)"}


def evaluate(run: str | Path, truth: str | Path | None = None) -> dict[str, Any]:
    """Accuracy of a run on its unlabelled images, if their true classes are known.

    `truth`: a folder with one sub-folder per class, or a CSV file with path and label (or truth), naming the
    same images; not needed for data sets that have their own. Nothing is trained or chosen by it.
    The test images of a data set that has some (`Table.test`) are assigned and scored as well ("test"); those of a
    benchmark if all of them are available.
    """
    opened = Run(run)
    ensure_assigned(opened)
    given = table_with_truth(opened.config(), truth)
    found = Discovery.read(opened.folder)
    if truth is not None:  # else labels and true classes are from one place, which was looked at
        classes = given.truth if given.truth is not None else given.labels
        refuse_two_spellings([*classes, *(member.given_label for member in found.members)], f"{truth} and the labels")
    edits = len(found.corrections().in_force)
    if truth is not None:
        warn_of_unmatched(found.found_members, given)
    result, judged = _on_unlabelled(found, found.members, given, opened, by_own_truth=truth is None)
    evaluated = f"{judged:,} unlabelled training images"
    as_found = None
    if edits:
        with keep_quiet():  # of the same images, warnings were given above
            as_found, _ = _on_unlabelled(found, found.found_members, given, opened, by_own_truth=truth is None)
        evaluated += f", with {edits} correction{'' if edits == 1 else 's'} by hand, which may be why they are right"
    if truth is not None:
        evaluated += f", judged by {Path(truth).name} (split {split_checksum(given)})"
    test = None
    if truth is None and given.test is not None:
        test, which = _on_test_images(opened, given.test)
        evaluated += f"; {which}"
    evaluation = Evaluation(
        evaluated=judged,
        metrics=result,
        as_found=as_found,
        truth=None if truth is None else str(truth),
        test=test,
        state=state_of(found),
        protocol=dict(describe_protocol(opened, evaluated)),
    )
    try:
        evaluation.write(opened)
    except NewkindsError as error:  # a run that may only be read can be judged as well
        warn(f"the result is not kept: {error}")
    else:
        _show_on_page(opened)
    return evaluation.as_json()


def _show_on_page(run: Run) -> None:
    """Render page and card again, if the run has a page; the figures do not depend on it."""
    if not run.path(PAGE).is_file():
        return
    try:
        write_page(run)
        write_card(run)
    except NewkindsError as error:
        warn(f"{run.path(PAGE)} does not show these figures: {error}")


def _on_unlabelled(
    found: Discovery, members: Sequence[Member], given: Table, run: Run, by_own_truth: bool
) -> tuple[Figures, int]:
    """All metrics on the unlabelled images of an assigned run, as found or as people see them (`members`), and how many
    of them have a true class in `given`.

    Images that are junk are in no category, and are not judged; those that are not placed yet are never right.
    """
    unlabelled = [member for member in members if member.given_label is None]
    kept = [member for member in unlabelled if member.status != "junk"]
    if len(kept) < len(unlabelled):
        warn(f"{plural(len(unlabelled) - len(kept), 'junk image')} left out of the evaluation.")
    truth_of = true_classes([member.path for member in kept], given)
    true = [truth_of[member.path] for member in kept if member.path in truth_of]
    predicted = [member.category_id for member in kept if member.path in truth_of]
    missing = len(kept) - len(true)
    if not true and kept and not by_own_truth:
        raise NewkindsError(
            f"what --truth names has no true class of the unlabelled images in {run.folder}, such as {kept[0].path}: "
            "they are looked for by path, or else by file name."
        )
    if not true:
        raise NewkindsError(
            f"no true class is known for the unlabelled images in {run.folder}: give them with --truth."
        )
    if missing:
        first = next(member.path for member in kept if member.path not in truth_of)
        left_out = f"{plural(missing, 'unlabelled image')} without a true class left out of the evaluation"
        warn(f"{left_out}{': ' if missing == 1 else ', such as '}{first}.")
    # a benchmark says which classes are known, even if none of a class's images kept its label
    known = given.known if by_own_truth else {member.given_label for member in members} - {None}
    labels = {number: label for label, number in found.class_ids(run.about_model().get("known", [])).items()}
    if run.config().data.get("refines"):  # what people called a category is no claim about the names in a truth
        classes = set(truth_of.values())
        labels = {number: label for number, label in labels.items() if label in classes}
    return score(true, predicted, known, labels), len(true)


def warn_of_unmatched(members: Sequence[Member], given: Table) -> None:
    """Say which known classes do not occur among the true ones: if these are called otherwise there, their images are
    judged as if they were of new classes."""
    known = {member.given_label for member in members if member.given_label is not None}
    true = {name for name in (given.truth if given.truth is not None else given.labels) if name is not None}
    missing = sorted(known - true)
    if not missing:
        return
    found = len(known) - len(missing)
    which = f"only {found} of {len(known)} known classes occur" if found else "no known class occurs"
    others = sorted(true - known)
    warn(
        f"{which} in the truth. Not there: {_listed(missing)}. Its other names: {_listed(others) or 'none'}. "
        "Images of a class that is called otherwise there are judged as New: use the names of the labels."
    )


def _listed(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:MOST_NAMED]) + more


def known_accuracy(run: Run) -> Figures | None:
    """All, Old and New of a run, as `evaluate` found them or by its images' own truth; None if it has not assigned its
    images, or if their true classes are not known. Nothing is written."""
    if not run.path("assignments.csv").is_file():
        return None
    if (evaluation := Evaluation.find(run)) is not None:
        metrics = evaluation.metrics
    else:
        table = load_table(run.config().data)
        if all(label or not true for label, true in zip(table.labels, table.truth or [], strict=False)):
            return None
        found = Discovery.read(run.folder)
        metrics, _ = _on_unlabelled(found, found.members, table, run, by_own_truth=True)
    return {part: metrics[f"acc_{part}"] for part in ("all", "old", "new")}


def _on_test_images(run: Run, read: Callable[[], Table]) -> tuple[HeldOutEvaluation | None, str]:
    """Figures on the test images of a data set, and which images these are, or why there are none."""
    config = run.config()
    if config.data.get("tune"):
        return None, "not on test images: settings are being chosen"
    try:
        table = read()
    except NewkindsError as error:
        return None, f"not on test images: {str(error).rstrip('.')}"
    of_model, of_images = checksum(run.model_file), split_checksum(replace(table, labels=table.truth or []))
    test = _earlier_test_figures(run)
    if test is None or (test.evaluated, test.model, test.images) != (len(table), of_model, of_images):
        model = load(run.folder).model
        backbone = f"{config.backbone} {of_images}"  # all that features depend on if nothing is trained
        frozen = not config.train.epochs and config.organizer["name"] == "none"
        embedded = _FROZEN.get(backbone) if frozen else None
        embedded = embedded or embed(model.encoder, table, model.device)
        if frozen:
            _FROZEN.clear()
            _FROZEN[backbone] = embedded
        test = HeldOutEvaluation(len(embedded.rows), _judge_assignment(model, table, embedded), of_model, of_images)
        if embedded.skipped:
            first = embedded.skipped[0]
            warn(f"{plural(len(embedded.skipped), 'test image')} skipped; the first is {first.path}: {first.reason}")
    if not test.evaluated:
        return None, f"not on test images: none of {len(table):,} can be read"
    unread = f" of {len(table):,}, the others cannot be read" if test.evaluated < len(table) else ""
    return test, f"{test.evaluated:,} test images{unread}"


def _earlier_test_figures(run: Run) -> HeldOutEvaluation | None:
    """What an earlier evaluation found on test images, if there was one."""
    try:
        return Evaluation.read(run).test
    except NewkindsError:
        return None


def _judge_assignment(model: Model, table: Table, embedded: Embedded) -> Figures:
    """All metrics of the assignment of the images that could be read, against the table's truth."""
    true = [str((table.truth or [])[row]) for row in embedded.rows]
    labels = dict(enumerate(model.known))
    return score(true, model.assign(embedded.features).category.tolist(), table.known, labels)


def score(
    true: Sequence[str], predicted: Sequence[int], known: Iterable[str | None], labels: Mapping[int, str]
) -> Figures:
    """All metrics of categories by their ids; None, and a warning, if a split is empty. What is not placed yet is never
    right.

    `labels`: the class that a category claims to be, by its id; others are new.
    """
    known = set(known)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = metrics.score_clustering(true, predicted, known, np.array(predicted) != POOL)
    for message in caught:
        warn(str(message.message))
    claimed = [None if number == POOL else labels.get(number, number) for number in predicted]
    by_name = metrics.accuracy_by_name(true, claimed, known | set(labels.values()))
    parts = ("all", "old", "new", "precision", "recall")
    result |= {f"{BY_NAME}_{part}": getattr(by_name, part) for part in parts}
    return {name: None if math.isnan(value) else value for name, value in result.items()}


def score_unlabelled(model: Model, features: Tensor, table: Table) -> Figures:
    """All/Old/New of the unlabelled images whose truth is known, for the curve in metrics.jsonl; by the features (n, D)
    of all images of the table."""
    truth = table.truth or [None] * len(table)
    judged = [i for i, label in enumerate(table.labels) if label is None and truth[i] is not None]
    if not judged:
        return {}  # nothing is known to judge by
    result = _judge_assignment(model, table, Embedded(features[judged], judged, []))
    return {name: value for name, value in result.items() if name in ("acc_all", "acc_old", "acc_new")}


def table_with_truth(config: Config, truth: str | Path | None) -> Table:
    """The table that says what the images really show: the given one, or the data set's own."""
    if truth is not None and config.data["name"] == READY_MADE:
        return true_table(config.data, truth)
    given = load_table(config.data if truth is None else _source_of_truth(config, truth))
    if truth is None and given.truth is None:
        raise NewkindsError("the true classes of these images are not known: give them with --truth FOLDER or CSV.")
    return given


def _source_of_truth(config: Config, truth: str | Path) -> dict[str, Any]:
    """The `data` section of the true classes; which folder names a class is as for the run's own images."""
    source = source_of(truth)
    if source["name"] == "folder" and config.data.get("class_folder") is not None:
        source["class_folder"] = config.data["class_folder"]
    return source


def all_true(paths: Sequence[str], labels: Sequence[str | None], given: Table) -> list[str]:
    """The true class of every image: its label, else what `given` says, or an error that names one without."""
    refuse_two_spellings([*labels, *(given.truth if given.truth is not None else given.labels)], "labels and truth")
    truth_of = true_classes([path for path, label in zip(paths, labels, strict=True) if label is None], given)
    truth_of |= {path: label for path, label in zip(paths, labels, strict=True) if label is not None}
    missing = [path for path in paths if path not in truth_of]
    if missing:
        raise NewkindsError(
            f"the true class of {len(missing)} image(s) is not known, such as {missing[0]}: "
            "add them to what --truth names."
        )
    return [truth_of[path] for path in paths]


def true_classes(paths: Sequence[str], given: Table) -> dict[str, str]:
    """Path → true class, as far as it is known.

    Each image is found by its path, or else by its file name: a folder that was sorted has other paths. A name that
    could mean several images is an error, unless paths fit for others: then these images are only left out.
    """
    classes = given.truth if given.truth is not None else given.labels
    by_path = {path: label for path, label in zip(given.paths, classes, strict=True) if label is not None}
    wanted: dict[str, list[str]] = {}  # name → images that are not there by their path
    for path in paths:
        if path not in by_path:
            wanted.setdefault(Path(path).name, []).append(path)
    there = by_path.keys() & set(paths)
    named: dict[str, set[str]] = {}  # name → classes of what has it, and is none of the images that are there
    for path, label in by_path.items():
        if path not in there and Path(path).name in wanted:
            named.setdefault(Path(path).name, set()).add(label)
    for name, meant in named.items():
        if len(wanted[name]) == len(meant) == 1:
            by_path[wanted[name][0]] = meant.pop()
        elif not there:
            raise NewkindsError(
                f"several images are called {name}, so their true classes cannot be told apart by name: "
                "give the same paths as in the run, e.g. in a CSV file with path and label."
            )
    return by_path


def evaluation_table(evaluation: dict[str, Any]) -> str:
    """All, Old and New for each accuracy, NMI and ARI, the same on test images if available, then the protocol."""
    tables = [_metrics_table("unlabelled training images, %", evaluation["metrics"])]
    if evaluation.get("as_found") is not None:
        tables.append(_metrics_table("before corrections by hand, %", evaluation["as_found"]))
    if evaluation["test"] is not None:
        tables.append(_metrics_table("test images, %", evaluation["test"]["metrics"]))
    return "\n\n".join([*tables, protocol_lines(list(evaluation["protocol"].items()))])


def _metrics_table(title: str, metrics: Mapping[str, float | None]) -> str:
    rows = [
        [title, *(percent(metrics[f"{name}_{part}"]) for part in ("all", "old", "new"))]
        for name, title in TITLES.items()
    ]
    if f"{BY_NAME}_all" in metrics:  # not in evaluations of earlier versions
        rows.append([TITLE_BY_NAME, *(percent(metrics[f"{BY_NAME}_{part}"]) for part in ("all", "old", "new"))])
        rows.append(["precision of known names", "", percent(metrics[f"{BY_NAME}_precision"]), ""])
        rows.append(["recall of known names", "", percent(metrics[f"{BY_NAME}_recall"]), ""])
    rows += [[name.upper(), percent(metrics[name]), "", ""] for name in ("nmi", "ari")]
    return text_table([title, "All", "Old", "New"], rows)
