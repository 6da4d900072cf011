"""Runs on classes of uneven sizes: a category has a known class's name only if labelled images of that class lie in it,
and labelled images are in their class, whatever assigns them."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import newkinds
from newkinds.cluster.metrics import accuracy_by_name
from newkinds.discovery.categories import Discovery
from newkinds.discovery.doubts import doubts_of, label_notes
from newkinds.discovery.finished import load
from newkinds.discovery.report.build import page_of
from newkinds.discovery.summary import discovery_text
from newkinds.naming import bears_name
from newkinds.runs.run import Run
from newkinds.verbs.estimator import CategoryDiscovery
from uneven import CLASSES, KNOWN, uneven

SHORT = {"train": {"epochs": 1, "batch_size": 64}}
SMALL = {  # heads; how a method assigns is its own
    "simgcd": {"projection_hidden": 16},
    "cms": {"projection_hidden": 16, "projection_dim": 16, "output_dim": 16, "max_rounds": 2},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vectors.npy, labels.csv and truth.csv; in this draw every assigner has a known name where it does not belong."""
    folder = tmp_path_factory.mktemp("uneven")
    embedding, truth, labels = uneven(seed=3)
    np.save(folder / "vectors.npy", embedding.numpy())
    given = [(row, label) for row, label in enumerate(labels.tolist()) if label >= 0]
    (folder / "labels.csv").write_text("row,label\n" + "".join(f"{row},flower{c:03d}\n" for row, c in given))
    (folder / "truth.csv").write_text("label\n" + "".join(f"flower{c:03d}\n" for c in truth))
    return folder


def discover(folder: Path, out: Path, **choices: Any) -> Discovery:
    labels = folder / "labels.csv"
    return newkinds.discover(folder / "vectors.npy", out, labels=labels, k=CLASSES, page=False, **choices)


@pytest.fixture(scope="module")
def ward(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "ward"
    discover(folder, out, method="frozen", assigner="ward")
    return out


def require_true_names(run: Path) -> None:
    """From the table alone: every labelled image is in its class, and every known name is earned."""
    with (run / "assignments.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    labels = Counter(row["given_label"] for row in rows if row["given_label"])
    assert all(row["category"] == row["given_label"] for row in rows if row["given_label"])
    names = {row["category_id"]: row["category"] for row in rows}
    by_model: dict[str, Counter[str]] = {}
    for row in (row for row in rows if row["given_label"]):
        place = names.get(row["model_category_id"] or row["category_id"], row["model_category_id"])
        by_model.setdefault(place, Counter())[row["given_label"]] += 1
    for name in labels:
        unlabelled = sum(row["category"] == name and not row["given_label"] for row in rows)
        inside = by_model.get(name, Counter())
        if unlabelled:
            assert bears_name(inside[name], inside.total(), labels[name]), name


@pytest.mark.parametrize("method", SMALL)
def test_methods_give_true_names(method: str, folder: Path, tmp_path: Path) -> None:
    discover(folder, tmp_path / "run", method=method, settings={**SHORT, "method": SMALL[method]})
    require_true_names(tmp_path / "run")


@pytest.mark.parametrize("assigner", ["kmeans", "sskmeans", "balanced"])
def test_assigners_give_true_names(assigner: str, ward: Path, tmp_path: Path) -> None:
    newkinds.assign(ward, assigner, out=tmp_path / "run", page=False)
    require_true_names(tmp_path / "run")


def test_what_the_model_would_say_is_told_beside_the_answer(ward: Path) -> None:
    require_true_names(ward)
    found, alone = Discovery.read(ward), load(ward).model
    assert len(found.found_categories) == alone.categories > CLASSES  # a known class has its labelled images alone
    notes = label_notes(found)
    homeless = [c for c in found.known if notes.get(c.id, "").startswith("It has its")]
    assert homeless
    for category in homeless:
        inside = [member for member in found.members if member.category_id == category.id]
        assert all(member.given_label == category.name for member in inside)
        assert f"{len(inside)} labelled image" in notes[category.id] or "one labelled image" in notes[category.id]
    doubts = doubts_of(found)
    assert doubts
    assert all(found.members[int(path[4:])].model_category_id == number for path, number in doubts.items())
    text = discovery_text(found)
    assert f"{len(doubts)} labelled image" in text
    assert f"{homeless[0].name}: It has its" in text
    page = page_of(Run(ward))
    assert {shown.caption for shown in page.doubts} == set(doubts)
    assert {row.name for row in page.categories if row.labels} == {found.category(number).name for number in notes}
    decided = next(iter(doubts))
    found.accept([decided])
    assert decided not in doubts_of(found)
    found.undo()


def test_names_are_judged_by_identity(ward: Path, folder: Path) -> None:
    metrics = newkinds.evaluate(ward, folder / "truth.csv")["metrics"]
    _, truth, _ = uneven(seed=3)
    judged = [(member.category, f"flower{truth[row]:03d}") for row, member in enumerate(Discovery.read(ward).members)
              if member.given_label is None]  # fmt: skip
    found = accuracy_by_name([t for _, t in judged], [c for c, _ in judged], [f"flower{c:03d}" for c in range(KNOWN)])
    got = [metrics[f"by_name_{part}"] for part in ("all", "old", "new", "precision", "recall")]
    assert got == pytest.approx([found.all, found.old, found.new, found.precision, found.recall])
    assert metrics["by_name_old"] < metrics["acc_old"] or metrics["by_name_new"] < metrics["acc_new"]


def test_the_estimator_keeps_labels_and_tells_doubts() -> None:
    embedding, _, labels = uneven(seed=3)
    X, y = embedding.numpy(), labels.numpy()
    found = CategoryDiscovery(CLASSES, assigner="ward", whiten="none").fit(X, y)
    labelled = y >= 0
    assert found.categories_[found.labels_[labelled]].tolist() == y[labelled].tolist()
    alone = found.predict(X)
    assert found.doubts_.tolist() == np.flatnonzero(labelled & (alone != found.labels_)).tolist()
    assert len(found.doubts_)
    assert found.n_categories_ == len(found.categories_) > CLASSES
    assert found.predict_proba(X).shape == (len(X), found.n_categories_)
    assert found.predict_proba(X).argmax(axis=1).tolist() == alone.tolist()


def test_truth_with_other_names_than_the_labels_is_told(
    ward: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newkinds.evaluate(ward, folder / "truth.csv")
    assert "in the truth" not in capsys.readouterr().err
    truth = (folder / "truth.csv").read_text()
    (tmp_path / "one.csv").write_text(truth.replace("flower003", "flower 3"))
    newkinds.evaluate(ward, tmp_path / "one.csv")
    said = capsys.readouterr().err
    assert f"only {KNOWN - 1} of {KNOWN} known classes occur in the truth. Not there: 'flower003'." in said
    assert "Its other names: 'flower 3', 'flower012'" in said
    (tmp_path / "all.csv").write_text(truth.replace("flower", "Blume "))
    metrics = newkinds.evaluate(ward, tmp_path / "all.csv")["metrics"]
    said = capsys.readouterr().err
    assert "no known class occurs in the truth." in said
    assert "'flower000'" in said
    assert "'Blume 000'" in said
    assert metrics["by_name_old"] is None
