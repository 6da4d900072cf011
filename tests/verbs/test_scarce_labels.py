"""No label at all, labels of one to three classes, one or two of each: an answer, and what it can promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import newkinds
from blobs import blobs
from conftest import save_image
from newkinds.discovery.categories import Discovery
from newkinds.discovery.promise import promises_of
from newkinds.errors import NewkindsError
from newkinds.runs.records import PlanRecord
from newkinds.runs.run import Run

Cli = Callable[..., tuple[int, str, str]]
KINDS, EACH = 6, 20


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vectors.npy: 120 texts of six kinds that are easily told apart, and truth.csv."""
    folder = tmp_path_factory.mktemp("vectors")
    X, truth = blobs(n=KINDS * EACH, clusters=KINDS, dim=10, spread=0.3, seed=1)
    np.save(folder / "vectors.npy", X.astype(np.float32))
    (folder / "truth.csv").write_text("label\n" + "".join(f"kind {t}\n" for t in truth))
    return folder


def label(vectors: Path, out: Path, per_kind: Sequence[int]) -> Path:
    """A list that labels so many rows of the first kinds."""
    named = [(kind + KINDS * i, kind) for kind, images in enumerate(per_kind) for i in range(images)]
    out.write_text("row,label\n" + "".join(f"{row},kind {kind}\n" for row, kind in sorted(named)))
    return out


def right(found: Discovery) -> int:
    """Images that are in the largest category of their kind."""
    kinds = Counter((int(member.path.removeprefix("row-")) % KINDS, member.category_id) for member in found.members)
    return sum(max(n for (kind, _), n in kinds.items() if kind == wanted) for wanted in range(KINDS))


@pytest.fixture(scope="module")
def unlabelled(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "unlabelled"
    newkinds.discover(vectors / "vectors.npy", out)
    return out


def test_without_labels_categories_are_found_and_the_page_says_what_that_is_worth(unlabelled: Path) -> None:
    found = Discovery.read(unlabelled)
    assert not found.known
    assert (len(found.new), right(found)) == (KINDS, KINDS * EACH)
    record = PlanRecord.read(Run(unlabelled))
    assert (record.finished, record.splits, record.chosen) == (True, 0, record.candidates[0].name)  # the default
    said = dict(promises_of(found))
    assert said["labels"].startswith("No image has a label: categories are groups of images that look alike")
    assert said["pipeline"].startswith("Not judged. The default: fewer than 4 classes")
    assert said["pipeline"].endswith("these may be split and small ones joined.")
    assert said["confidence"].startswith("Not calibrated")
    assert said["number"].startswith("A guess from the shape of the data alone: between ")
    page = (unlabelled / "report.html").read_text()
    assert all(sentence.split(":")[0] in page for sentence in said.values())
    assert f"<h1>{KINDS} categories</h1>" in page
    assert "120 images, none of which has a label" in page
    assert "your labels" not in page
    assert "Known classes: none" in (unlabelled / "README.md").read_text()


def test_every_verb_copes_with_a_run_without_labels(
    unlabelled: Path, vectors: Path, tmp_path: Path, run_cli: Cli
) -> None:
    status, out, err = run_cli("eval", unlabelled, "--truth", vectors / "truth.csv")
    assert status == 0, err
    assert "100.0" in out
    assert newkinds.predict(unlabelled, vectors / "vectors.npy")[0].is_new
    for words in (
        ("check", vectors / "vectors.npy"),
        ("report", unlabelled),
        ("diagnose", unlabelled, "--features-only"),
        ("figures", unlabelled),
        ("assign", unlabelled, "--assigner", "sskmeans", "--whiten", "--out", tmp_path / "again"),
        ("export", unlabelled, "--to", "csv", "--out", tmp_path / "table.csv"),
        ("discover", vectors / "vectors.npy", "--out", unlabelled),
    ):
        status, out, err = run_cli(*words)
        assert status == 0, (words, err)
    assert "is finished already" in err
    assert "what this can promise:\n  labels      No image has a label" in out


def test_count_without_labels_is_a_guess_from_the_shape_and_says_so(
    unlabelled: Path, vectors: Path, run_cli: Cli
) -> None:
    for source in (unlabelled, vectors / "vectors.npy"):
        status, out, err = run_cli("count", source)
        assert status == 0, err
        assert out.startswith(f"{KINDS} categories: 0 known and {KINDS} new (shape;")
        assert "No image has a label" in out
    status, _, err = run_cli("count", vectors / "vectors.npy", "--by", "ward")  # judges by labels alone
    assert status == 1
    assert "none of the images has a label" in err


def test_accepted_categories_become_labels_of_a_refined_run(vectors: Path, tmp_path: Path, run_cli: Cli) -> None:
    found = newkinds.discover(vectors / "vectors.npy", tmp_path / "run")
    for number in (0, 1):
        found.accept([member.path for member in found.members if member.category_id == number])
    status, out, err = run_cli("count", tmp_path / "run")
    assert status == 0, err
    assert out.startswith(f"{KINDS} categories: 0 known, 2 accepted and {KINDS - 2} new (combined;")
    status, out, err = run_cli("refine", tmp_path / "run")
    assert status == 0, err
    assert "to name     new-1, new-2: labelled by you, and so known from here on, but without a name" in out
    refined = Discovery.read(tmp_path / "run-refined")
    assert (len(refined.known), len(refined.new), right(refined)) == (2, KINDS - 2, KINDS * EACH)
    assert dict(promises_of(refined))["labels"] == "40 labelled images of 2 known classes, 20 of each."


def test_what_trains_needs_labels_and_says_so(vectors: Path, tmp_path: Path) -> None:
    for verb in (newkinds.train, newkinds.discover):
        with pytest.raises(NewkindsError, match=r"none of the 120 .* training learns from labels: .* needs no label\."):
            verb(vectors / "vectors.npy", tmp_path / "run", method="simgcd", k=KINDS)
    found = newkinds.discover(vectors / "vectors.npy", tmp_path / "run", method="frozen")  # nothing trains
    assert right(found) == KINDS * EACH
    assert "pipeline" not in dict(promises_of(found))  # it was named


def test_a_folder_of_loose_photos(tmp_path: Path, run_cli: Cli) -> None:
    for name, colour in {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}.items():
        for i in range(6):
            save_image(tmp_path / "photos" / f"{name}{i}.png", colour)
    status, _, err = run_cli("discover", tmp_path / "photos", "--out", tmp_path / "run", "--k", "3")
    assert status == 0, err
    assert "3. no training: fewer than 4 classes with two labelled images" in err
    assert "all not tried: fewer than 4" in err
    found = Discovery.read(tmp_path / "run")
    assert (len(found.new), sum(category.size for category in found.new)) == (3, 18)
    assert "number" not in dict(promises_of(found))  # it was given
    status, _, err = run_cli("export", tmp_path / "run", "--to", "folders", "--out", tmp_path / "sorted")
    assert status == 0, err
    assert sorted(folder.name for folder in (tmp_path / "sorted").iterdir() if folder.is_dir()) == [
        "new-1", "new-2", "new-3",
    ]  # fmt: skip


@pytest.mark.parametrize("per_kind", [(7,), (7, 7, 7), (1, 1, 1, 1), (5, 1, 1, 1)])
def test_labels_by_which_nothing_can_be_judged(vectors: Path, tmp_path: Path, per_kind: tuple[int, ...]) -> None:
    labels = label(vectors, tmp_path / "labels.csv", per_kind)
    found = newkinds.discover(vectors / "vectors.npy", tmp_path / "run", labels=labels, k=KINDS)
    record = PlanRecord.read(Run(tmp_path / "run"))
    assert (record.splits, record.chosen) == (0, record.candidates[0].name)  # the default
    assert (len(found.known), right(found)) == (len(per_kind), KINDS * EACH)
    names = {member.category for member in found.members if member.path in ("row-00000", "row-00006")}
    assert names == {"kind 0"}
    said = dict(promises_of(found))
    classes = f"{len(per_kind)} known class{'' if len(per_kind) == 1 else 'es'}"
    assert said["labels"].startswith(f"{sum(per_kind)} labelled images of {classes}")
    assert said["labels"].endswith("How images of one class differ is not known.") == (max(per_kind) == 1)
    assert said["pipeline"].startswith("Not judged.")
    assert said["confidence"].startswith("Not calibrated")


def test_two_labels_of_each_class_are_judged(vectors: Path, tmp_path: Path) -> None:
    labels = label(vectors, tmp_path / "labels.csv", (2, 2, 2, 2))
    found = newkinds.discover(vectors / "vectors.npy", tmp_path / "run", labels=labels, time="5s")
    record = PlanRecord.read(Run(tmp_path / "run"))
    states = {candidate.name: candidate.state for candidate in record.candidates}
    assert states["frozen features, em"] == "judged"
    assert right(found) == KINDS * EACH
    said = dict(promises_of(found))
    assert said["labels"] == "8 labelled images of 4 known classes, 2 of each."
    assert said["pipeline"].startswith("Chosen by cross-validation on your labels (4 splits): ")
    believed = f"That holds only if there are {len(found.found_categories)} kinds, as estimated"
    assert (believed in said["pipeline"]) == ("number" in said)
    assert "of which there are only 8" in said["confidence"]


def test_another_assigner_was_not_chosen_by_the_plan(unlabelled: Path, tmp_path: Path) -> None:
    """`plan.json` stays in a run whose categories are found again: what it chose is not what is there."""
    copy = tmp_path / "run"
    copy.mkdir()
    for file in unlabelled.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    assert "pipeline" in dict(promises_of(Discovery.read(copy)))
    found = newkinds.assign(copy, "kmeans")
    assert (copy / "plan.json").read_bytes() == (unlabelled / "plan.json").read_bytes()
    assert "pipeline" not in dict(promises_of(found))
