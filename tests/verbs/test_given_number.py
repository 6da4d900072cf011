"""`--k` as somebody gives it: what the images say beside it, and that this changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import newkinds
from blobs import blobs
from newkinds.discovery.categories import Discovery
from newkinds.discovery.promise import promises_of
from newkinds.runs.records import PlanRecord
from newkinds.runs.run import Run
from newkinds.search import trainings
from newkinds.verbs import count

Cli = Callable[..., tuple[int, str, str]]
KINDS, KNOWN, EACH = 8, 4, 24


@pytest.fixture(scope="module")
def species(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vectors.npy and labels.csv: eight kinds that are easily told apart, four of them known by ten images each."""
    folder = tmp_path_factory.mktemp("species")
    X, truth = blobs(n=KINDS * EACH, clusters=KINDS, dim=16, spread=0.4, seed=3)
    np.save(folder / "vectors.npy", X.astype(np.float32))
    labelled = [(row, kind) for row, kind in enumerate(truth) if kind < KNOWN and row < 10 * KINDS]
    (folder / "labels.csv").write_text("row,label\n" + "".join(f"{row},kind {kind}\n" for row, kind in labelled))
    return folder


@pytest.fixture
def find(
    species: Path, tmp_path: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Path, str, str]]:
    """`discover` on them, without trainings: the run, and what it printed and said."""
    monkeypatch.setattr(trainings, "TRAININGS", ())

    def discover(*options: object, out: str = "run") -> tuple[Path, str, str]:
        vectors, labels = species / "vectors.npy", species / "labels.csv"
        status, printed, said = run_cli("discover", vectors, "--labels", labels, "--out", tmp_path / out, *options)
        assert status == 0, said
        return tmp_path / out, printed, " ".join(said.split())

    return discover


def test_a_category_that_an_update_opened_was_not_judged(
    find: Callable[..., tuple[Path, str, str]], tmp_path: Path
) -> None:
    run, _, _ = find("--k", str(KINDS))
    before = dict(promises_of(Discovery.read(run)))
    stranger = np.random.default_rng(0).normal(size=16)
    np.save(tmp_path / "more.npy", (9 * stranger + np.random.default_rng(1).normal(size=(40, 16))).astype(np.float32))
    after = newkinds.update(run, tmp_path / "more.npy")
    assert len(after.found_categories) == KINDS + 1
    assert f"That holds only if there are {KINDS} kinds" in before["pipeline"]
    assert dict(promises_of(after))["pipeline"] == before["pipeline"]


def test_too_small_a_number_is_doubted(find: Callable[..., tuple[Path, str, str]]) -> None:
    run, printed, said = find("--k", "5")
    seen = PlanRecord.read(Run(run)).number_seen
    assert seen is not None
    assert (seen.given, seen.answer) == (5, KINDS)
    looks_like = f"{KINDS} kinds ({seen.low} to {seen.high})"
    assert f"you said 5 kinds (--k); these images look like {looks_like}, known and new together." in said
    assert "With too few, images of new kinds are put into known classes, and look certain there." in said
    assert "leave out --k" in said
    assert "That holds only if there are 5 kinds, known and new together, as you said" in printed
    promised = dict(promises_of(Discovery.read(run)))
    assert promised["number"].startswith(f"You said 5, but the images look like {KINDS} kinds")
    assert "You said 5, but the images look like" in (run / "report.html").read_text()
    assert "no room" not in said
    _, printed, said = find("--k", "5")
    assert "is finished already" in said
    assert "You said 5, but the images look like" in printed


def test_as_many_categories_as_known_classes_are_warned_of(find: Callable[..., tuple[Path, str, str]]) -> None:
    _, _, said = find("--k", "4")
    assert "4 classes are known, and 4 categories, known and new together, leave no room for a new one" in said
    assert "you said 4 kinds" in said


def test_a_number_that_fits_is_not_doubted(find: Callable[..., tuple[Path, str, str]]) -> None:
    run, _, said = find("--k", str(KINDS))
    assert "warning" not in said
    assert dict(promises_of(Discovery.read(run)))["number"].startswith(f"You said {KINDS}, which fits the images")


def test_looking_changes_nothing_and_is_left_out_where_it_would_cost_much(
    find: Callable[..., tuple[Path, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, _, _ = find("--k", "6", out="looked")
    monkeypatch.setattr(count, "COUNT_SECONDS", 1e6)
    monkeypatch.setattr(count, "estimate_number", lambda *_: pytest.fail("it would cost much"))
    other, _, said = find("--k", "6", out="other")
    assert "you said" not in said
    assert PlanRecord.read(Run(other)).number_seen is None
    for file in ("assignments.csv", "categories.json"):
        assert (looked / file).read_bytes() == (other / file).read_bytes()
