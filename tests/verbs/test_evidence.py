"""The trials of a training calibrate what is trained on all images: for the chosen way, also after an interruption."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import newkinds
from conftest import Killed
from newkinds.assigners.calibration import HeldOutImages, fit_curve
from newkinds.assigners.resplit import resplits
from newkinds.assigners.whitening import Whitening
from newkinds.discovery.finished import load
from newkinds.errors import NewkindsError
from newkinds.runs.directory import EVIDENCE
from newkinds.runs.records import CandidateScore, PlanRecord, Reliability
from newkinds.runs.run import Run
from newkinds.search import search, trainings
from newkinds.search.evidence import TrialEvidence
from newkinds.search.search import JUDGED, Choice
from newkinds.search.ways import Way
from newkinds.verbs import discover
from planning import ADAPTER, shorten

DATA = {"data": {"categories": 10, "per_category": 12}}


def chooser(ending: str) -> Callable[..., Choice]:
    """Chooses the trained candidate whose name ends so; before there is one, the first."""

    def choose(scores: Sequence[CandidateScore], favours_first: bool = True) -> Choice:
        trained = [s for s in scores if s.trains and s.state == JUDGED and s.name.endswith(ending)]
        return Choice((trained or list(scores))[0], "for this test")

    return choose


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan that was killed after its trials, before the training on all images."""
    out = tmp_path_factory.mktemp("evidence") / "run"

    def killed(*given: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        shorten(patch, ADAPTER)
        patch.setattr(search, "choose", chooser("own assigner"))
        patch.setattr(discover, "_train_chosen", killed)
        with pytest.raises(Killed):
            newkinds.discover("creatures", out, settings=DATA)
    return out


@pytest.fixture
def resumed(judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which the same command will go on with; a trial would be an error."""
    shorten(monkeypatch, ADAPTER)
    monkeypatch.setattr(trainings.TrainedFeatures, "features", None)
    return shutil.copytree(judged, tmp_path / "run")


@pytest.mark.parametrize("way", ["own assigner", "pim"])
def test_the_evidence_of_the_chosen_way_is_what_calibrates_it(
    way: str, resumed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "choose", chooser(way))
    newkinds.discover("creatures", resumed, settings=DATA)
    run = Run(resumed)
    chosen = PlanRecord.read(run).chosen
    assert chosen.endswith(way)
    evidence = TrialEvidence.read(run).of(chosen)
    assert evidence is not None
    record = Reliability.read(run)
    assert "A model was trained on each split" in record.note
    assert "seen in training" not in record.note
    assert record.images == sum(len(part.correct) for part in evidence)
    calibration = load(resumed).model.calibration
    fitted = (calibration.offset.item(), calibration.slope.item(), calibration.fall.item())
    assert fitted == pytest.approx(fit_curve(evidence), rel=1e-4)


def test_without_the_file_a_stand_in_calibrates_and_the_note_says_so(
    resumed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "choose", chooser("own assigner"))
    Run(resumed).remove(EVIDENCE)
    newkinds.discover("creatures", resumed, settings=DATA)
    assert "seen in training" in Reliability.read(Run(resumed)).note


def test_each_trained_candidate_that_was_judged_has_evidence_of_every_split(judged: Path) -> None:
    run = Run(judged)
    trained = [score for score in PlanRecord.read(run).candidates if score.trains]
    assert len(trained) > 2
    kept = TrialEvidence.read(run)
    for score in trained:
        parts = kept.of(score.name)
        assert parts is not None
        assert len(parts) == len(score.scores)
    assert kept.of("frozen features, em") is not None, "a frozen answer is calibrated by its splits, too"


# -- the evidence itself ---------------------------------------------------------------------------------------------


def test_evidence_is_that_of_the_way_and_is_read_as_it_was_kept(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    truth = np.arange(48) % 6
    rows = F.normalize(torch.randn(6, 8, generator=generator)[truth] + torch.randn(48, 8, generator=generator), dim=1)
    kept = TrialEvidence()
    splits = resplits(truth, 2, np.random.RandomState(0))
    ways = [Way("own"), Way("balanced", 0.5)]
    for number, split in enumerate(splits):
        for way in ways:
            found = torch.from_numpy(split.truth)[torch.randperm(48, generator=generator)]
            kept.watch("adapter", rows, number)(way, split, found)
            whitening = None
            if way.whiten != "none":
                whitening = Whitening(0.5)
                whitening.fit(rows, torch.from_numpy(split.labels))
            expected = HeldOutImages.of(rows, found, split, whitening)
            own = kept.of(f"adapter, {way}")
            assert own is not None
            assert np.allclose(own[number].silhouette, expected.silhouette, atol=1e-4)
            assert np.allclose(own[number].unlike, expected.unlike, atol=1e-4)
            assert (own[number].correct == expected.correct).all()
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    kept.write(run)
    again = TrialEvidence.read(run)
    for way in ways:
        before, after = kept.of(f"adapter, {way}"), again.of(f"adapter, {way}")
        assert before is not None
        assert after is not None
        for one, other in zip(before, after, strict=True):
            assert np.array_equal(one.silhouette, other.silhouette)  # every bit: a plan that goes on gives the same
            assert np.array_equal(one.unlike, other.unlike)
            assert np.array_equal(one.correct, other.correct)
    kept.watch("adapter", rows, 0)(ways[0], splits[0], torch.from_numpy(splits[0].truth))
    begun_again = kept.of(f"adapter, {ways[0]}")
    assert begun_again is not None
    assert len(begun_again) == 1
    TrialEvidence().write(run)  # a plan for other images
    assert not run.path(EVIDENCE).exists()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    run.write(EVIDENCE, "candidate,split,silhouette,unlike,correct\na,0,0.5 x,1 1,1 1\n")
    with pytest.raises(NewkindsError, match=r"evidence\.csv is damaged .* delete it"):
        TrialEvidence.read(run)
