"""Data and candidates that a search must live with: copies, constants, extremes of K, NaN."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import newkinds
from blobs import blobs
from conftest import save_image
from newkinds.assigners import ASSIGNERS, Assigner
from newkinds.discovery.categories import Discovery
from newkinds.errors import NewkindsError
from newkinds.runs.records import PlanRecord
from newkinds.runs.run import Run
from newkinds.search.clock import Clock
from newkinds.search.frozen_features import FrozenFeatures, frozen_ways
from newkinds.search.search import JUDGED, Search
from newkinds.search.ways import Features, Way, judge_of

Cli = Callable[..., tuple[int, str, str]]
KINDS, KNOWN, EACH = 6, 4, 16
IN_NO_TIME = "1s"  # a first answer comes all the same, and nothing is trained


def write(folder: Path, X: np.ndarray, labels: dict[int, str]) -> tuple[Path, Path]:
    np.save(folder / "vectors.npy", X.astype(np.float32))
    named = "".join(f"{row},{label}\n" for row, label in sorted(labels.items()))
    (folder / "labels.csv").write_text("row,label\n" + named)
    return folder / "vectors.npy", folder / "labels.csv"


def kinds(seed: int = 1) -> tuple[np.ndarray, dict[int, str]]:
    """Vectors of six kinds, the kind of row i is i % 6; labels of half of those of four kinds."""
    X, truth = blobs(n=KINDS * EACH, clusters=KINDS, dim=10, spread=0.3, seed=seed)
    return X, {row: f"kind {t}" for row, t in enumerate(truth) if t < KNOWN and row // KINDS % 2 == 0}


def pure(found: Discovery, rows: int = KINDS * EACH) -> bool:
    """Whether each of the first rows is in the one category of its kind."""
    places = {int(member.path.removeprefix("row-")): member.category_id for member in found.members}
    return len({(row % KINDS, places[row]) for row in range(rows)}) == KINDS == len({places[r] for r in range(rows)})


def test_a_constant_feature_changes_nothing(tmp_path: Path) -> None:
    X, labels = kinds()
    vectors, list_of_labels = write(tmp_path, np.column_stack([X, np.full(len(X), 0.5)]), labels)
    found = newkinds.discover(vectors, tmp_path / "run", labels=list_of_labels, time=IN_NO_TIME)
    assert pure(found)
    states = {score.state for score in PlanRecord.read(Run(tmp_path / "run")).candidates if not score.trains}
    assert states == {JUDGED}


def test_rows_that_are_all_equal_are_refused(tmp_path: Path, run_cli: Cli) -> None:
    vectors, _ = write(tmp_path, np.ones((40, 6)), {})
    status, _, err = run_cli("discover", vectors, "--out", tmp_path / "run")
    assert status == 1
    assert "all 40 vectors are equal, or multiples of each other" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("row", [0, KINDS - 1], ids=["labelled", "new"])
def test_a_thousand_copies_of_one_image_count_once(tmp_path: Path, run_cli: Cli, row: int) -> None:
    """They neither make all other images outliers, nor change how many categories there seem to be."""
    X, labels = kinds()
    vectors, list_of_labels = write(tmp_path, np.concatenate([X, np.repeat(X[row : row + 1], 1000, axis=0)]), labels)
    command = ("discover", vectors, "--labels", list_of_labels, "--out", tmp_path / "run", "--time", IN_NO_TIME)
    status, _, err = run_cli(*command)
    assert status == 0, err
    assert "duplicate: 1,000 images are the same as another" in err
    assert "outlier" not in err
    assert f"{KINDS} categories, {KINDS - KNOWN} of them new" in err
    found = Discovery.read(tmp_path / "run")
    assert pure(found)
    assert {member.category_id for member in found.members[len(X) :]} == {found.members[row].category_id}


@pytest.mark.parametrize("labelled", [False, True])
def test_as_many_categories_as_images_and_as_few_as_there_can_be(tmp_path: Path, labelled: bool) -> None:
    X, labels = kinds()
    labels = labels if labelled else {}
    vectors, list_of_labels = write(tmp_path, X, labels)
    named = {"labels": list_of_labels} if labelled else {}
    known = KNOWN if labelled else 0
    most, least = known + len(X) - len(labels), max(known, 1)
    for k in (most, least):
        found = newkinds.discover(vectors, tmp_path / f"{k}", k=k, time=IN_NO_TIME, **named)
        assert len(found.categories) >= k
        assert len(found.members) == len(X)
        assert all(0 <= member.confidence <= 1 for member in found.members)
    assert (len(found.known), len(found.new)) == ((KNOWN, 0) if labelled else (0, 1))
    with pytest.raises(NewkindsError, match=f"--k {most + 1} is too large: .* at most {most} categories"):
        newkinds.discover(vectors, tmp_path / "more", k=most + 1, time=IN_NO_TIME, **named)


# -- candidates that fail ----------------------------------------------------------------------------------------------

TARGETS = np.repeat(np.arange(KINDS), 8)
ROWS = torch.nn.functional.normalize(torch.from_numpy(blobs(n=48, clusters=KINDS, dim=10, seed=2)[0]).float(), dim=1)
ROWS = ROWS[torch.arange(48).reshape(8, KINDS).T.reshape(-1)]  # in the order of the targets


class Broken(FrozenFeatures):
    """Features that are NaN in one image of the second split."""

    def features(self, split, number: int) -> Features:  # type: ignore[no-untyped-def, override]
        rows = self.rows[split.rows].clone()
        if number == 1:
            rows[0, 0] = torch.nan
        return Features(rows)


def nan_of_half(assigner: object, rows: Tensor) -> Tensor:
    scores = torch.zeros(len(rows), KINDS)
    scores[::2] = torch.nan
    return scores


def no_solution(assigner: object, rows: Tensor, labels: Tensor) -> None:
    torch.linalg.cholesky(-torch.eye(2))


def test_nan_ends_a_candidate_with_a_sentence_and_not_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ASSIGNERS["kmeans"], "forward", nan_of_half)
    monkeypatch.setattr(ASSIGNERS["ward"], "fit", no_solution)
    search = Search(judge_of(TARGETS, seed=0, categories=6), Clock(3600.0))
    search.compare(FrozenFeatures(ROWS), [Way("kmeans"), Way("ward"), Way("balanced")])
    search.compare(Broken(ROWS, "broken"), [Way("balanced")])
    assert search.state_of("frozen features, kmeans").startswith("stopped: the assigner gives ")
    assert search.state_of("frozen features, ward").startswith("stopped: it failed (")
    assert search.state_of("broken, balanced") == "stopped: its features of 1 of 48 images are NaN or infinite"
    assert search.choose().candidate.name == "frozen features, balanced"


def test_if_every_candidate_fails_the_first_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ASSIGNERS["kmeans"], "forward", nan_of_half)
    search = Search(judge_of(TARGETS, seed=0, categories=6), Clock(3600.0))
    search.compare(FrozenFeatures(ROWS), [Way("kmeans")])
    with pytest.raises(NewkindsError, match=r"no candidate could be judged\. frozen features, kmeans stopped: the ass"):
        search.choose()


def test_a_candidate_that_is_rejected_leaves_the_others() -> None:
    search = Search(judge_of(TARGETS, seed=0, categories=6), Clock(3600.0))
    search.compare(FrozenFeatures(ROWS), [Way("balanced"), Way("sskmeans")])
    first = search.choose().candidate
    search.reject(first, "NaN")
    second = search.choose().candidate
    assert {first.name, second.name} == {"frozen features, balanced", "frozen features, sskmeans"}
    assert search.state_of(first.name) == "stopped: NaN"
    silent = Search(judge_of(np.full(48, -1), seed=0, categories=6), Clock(3600.0))
    silent.compare(FrozenFeatures(ROWS), [Way("balanced"), Way("sskmeans")])
    silent.reject(silent.choose().candidate, "NaN")
    assert silent.choose().candidate.name == "frozen features, sskmeans"


@pytest.mark.parametrize("labelled", [False, True])
def test_what_gives_nan_on_all_images_is_replaced_by_the_next_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labelled: bool
) -> None:
    """The ways that were judged best, and without labels the default, fail where nothing is hidden any more."""
    X, labels = kinds()
    vectors, list_of_labels = write(tmp_path, X, labels if labelled else {})
    default = frozen_ways()[0].assigner
    works = ASSIGNERS[default].forward

    def forward(assigner: Assigner, rows: Tensor) -> Tensor:
        scores = works(assigner, rows)
        return torch.full_like(scores, torch.nan) if len(rows) == len(X) else scores

    monkeypatch.setattr(ASSIGNERS[default], "forward", forward)
    named = {"labels": list_of_labels} if labelled else {}
    found = newkinds.discover(vectors, tmp_path / "run", k=KINDS, time=IN_NO_TIME, **named)
    record = PlanRecord.read(Run(tmp_path / "run"))
    states = {score.name: score.state for score in record.candidates}
    assert states[f"frozen features, {frozen_ways()[0]}"].startswith("stopped: the assigner gives 96 of 96 images no")
    assert Way.of(Run(tmp_path / "run").settings()).assigner != default
    assert record.finished
    assert pure(found)


# -- copies of labelled images -----------------------------------------------------------------------------------------


def test_an_unlabelled_copy_of_a_labelled_image_is_in_its_class(photos: Path, tmp_path: Path) -> None:
    """Green pictures that are labelled red: the model would put them elsewhere, labels and copies stay."""
    for i in range(2):
        odd = save_image(photos / "red" / f"odd{i}.png", (40, 200, 40))
        (photos / "unlabeled" / f"copy{i}.png").write_bytes(odd.read_bytes())
    (photos / "green" / "two.png").write_bytes((photos / "red" / "0.png").read_bytes())
    (photos / "unlabeled" / "two.png").write_bytes((photos / "red" / "0.png").read_bytes())  # labels contradict
    found = newkinds.discover(photos, tmp_path / "run", k=3, time=IN_NO_TIME)
    category = {member.path: member for member in found.members}
    assert [category[f"unlabeled/copy{i}.png"].category for i in range(2)] == ["red", "red"]
    assert category["unlabeled/copy0.png"].given_label is None
    again = newkinds.predict(tmp_path / "run", photos / "unlabeled" / "copy0.png")
    assert again[0].category == "red"
    model = category["red/0.png"].model_category_id
    assert category["unlabeled/two.png"].category_id == (category["red/0.png"].category_id if model is None else model)


def test_corrections_are_said_to_be_carried_over_only_if_there_are_any(tmp_path: Path, run_cli: Cli) -> None:
    X, _ = kinds()
    vectors, _ = write(tmp_path, X, {})
    command = ("discover", vectors, "--out", tmp_path / "run", "--k", KINDS, "--time", IN_NO_TIME)
    assert run_cli(*command)[0] == 0
    for rows in (80, 70):
        np.save(vectors, X[:rows].astype(np.float32))
        status, _, err = run_cli(*command)
        assert status == 0, err
        assert "the earlier result is kept." in err
        assert ("names and corrections are carried over" in err) == (rows == 70)
        Discovery.read(tmp_path / "run").accept(["row-00000"])
