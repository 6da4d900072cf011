"""Larger images before any training: compared like any other candidate, and free if they were embedded before."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import newkinds
from newkinds.data.table import readable, table_of_pixels
from newkinds.encoders.backbones import build_backbone
from newkinds.runs.records import PlanRecord
from newkinds.runs.run import Run
from newkinds.search import trainings
from newkinds.verbs import stages
from newkinds.verbs.plan import untried_sizes_text
from planning import ADAPTER, shorten

DATA: dict[str, Any] = {"data": {"categories": 10, "per_category": 12}}


@pytest.fixture
def two_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundled backbone at 16 px first, which tells little, and at 32 px, its own size; nothing is trained."""
    monkeypatch.setattr(stages, "TINY", "")
    monkeypatch.setattr(stages, "SIZES", (16, 32))
    monkeypatch.setattr(stages, "SHARE_OF_PASS", 0.0)
    monkeypatch.setattr(trainings, "TRAININGS", ())


def discover(out: Path, settings: dict[str, Any] = DATA, **choices: Any) -> PlanRecord:
    newkinds.discover("creatures", out, backbone="tiny", settings=settings, **choices)
    return PlanRecord.read(Run(out))


@pytest.mark.usefixtures("two_sizes")
def test_the_larger_size_is_compared_and_becomes_the_result(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    record = discover(tmp_path / "run")
    score = {candidate.name: candidate.score for candidate in record.candidates}
    assert score["frozen features at 16 px, em"] is not None
    assert score["frozen features at 32 px, em"] is not None
    best = max(score, key=lambda name: score[name] or 0.0)
    assert "at 32 px" in best
    assert "at 32 px" in record.chosen
    run = Run(tmp_path / "run")
    assert run.config().backbone["image_size"] == 32
    assert [stage.name for stage in record.stages][-2:] == ["a better answer", "compare trainings"]
    assert "at 32 px" in run.path("report.html").read_text()
    capfd.readouterr()
    assert discover(tmp_path / "run") == record
    assert "is finished already" in capfd.readouterr().err


@pytest.mark.usefixtures("two_sizes")
def test_without_time_for_it_the_first_answer_stays_and_more_time_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Trainings, for which there was no time either, do not stand in the way."""
    others = {"data": {**DATA["data"], "seed": 7}}  # what was embedded by another test would be free
    shorten(monkeypatch, ADAPTER)
    monkeypatch.setattr(trainings, "STEP_SECONDS", 10.0)
    with monkeypatch.context() as patch:
        patch.setattr(
            stages, "seconds_per_image", lambda *_: 3.0
        )  # at its largest size, so about 22 s for all at 16 px
        short = discover(tmp_path / "run", others, time="60s")
    states = {candidate.name: candidate.state for candidate in short.candidates}
    assert states["adapter on class tokens at 16 px"].startswith("not tried: needs about")
    assert states["frozen features at 32 px, em"].startswith("not tried: needs about")
    assert Run(tmp_path / "run").config().backbone["image_size"] == 16
    said = untried_sizes_text(Run(tmp_path / "run"))
    assert re.match(r"images of 32 px, .* not tried: that needs .* are left \(--time \d+m would do for it\)\. ", said)
    capfd.readouterr()
    longer = discover(tmp_path / "run", others, time="1h")
    assert "at 32 px" in longer.chosen
    assert untried_sizes_text(Run(tmp_path / "run")) == ""
    assert re.search(r"since the first answer: .*; \d+ of 120 images changed their category", capfd.readouterr().err)
    config = Run(tmp_path / "run").config()
    assert config.backbone["image_size"] == 32
    assert config.assigner["name"] in longer.chosen


@pytest.mark.usefixtures("two_sizes")
def test_a_size_that_is_named_is_taken_and_without_labels_the_largest_that_fits(tmp_path: Path) -> None:
    named = discover(tmp_path / "named", {**DATA, "backbone": {"image_size": 16}})
    assert not any("at 32 px" in candidate.name for candidate in named.candidates)
    few = discover(tmp_path / "few", {"data": {"categories": 6, "per_category": 8}})
    assert few.splits == 0, "three labelled classes are too few to judge by"
    assert few.chosen == "frozen features at 32 px, em"


def test_sizes_beyond_the_usual_one_are_considered_if_the_backbone_knows_them() -> None:
    """DINOv2 was finished at 518 px and DINO at 224; small pictures are not enlarged, and attention costs more."""
    vit = {"name": "vit_small_patch14_dinov2", "load_weights": False}
    dino = {"name": "vit_small_patch16_224.dino", "load_weights": False}
    photos = table_of_pixels("photo", np.zeros((3, 160, 200, 3), np.uint8), ["a", "b", "c"])
    icons = table_of_pixels("icon", np.zeros((3, 32, 32, 3), np.uint8), ["a", "b", "c"])
    sizes = {
        (name, kind): stages._useful_sizes(build_backbone(**how), readable(table, contents=True))
        for name, how in (("dinov2", vit), ("dino", dino))
        for kind, table in (("photos", photos), ("icons", icons))
    }
    assert sizes["dinov2", "photos"] == [112, 168, 224, 336]
    assert sizes["dino", "photos"] == [112, 160, 224]
    assert sizes["dinov2", "icons"] == sizes["dino", "icons"] == [112]
    assert 4.8 < 1 / stages._times(0.5) < 7.4
    assert 2.5 < stages._times(1.5) < 3
