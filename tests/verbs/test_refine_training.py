"""Refining a run that was trained: its training is continued, judged by hidden labels, and taken only if it pays."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import newkinds
from conftest import TINY_TRAINING
from newkinds.data import load_table
from newkinds.discovery.categories import Discovery
from newkinds.discovery.finished import load
from newkinds.runs.config import resolve
from newkinds.runs.records import CandidateScore
from newkinds.runs.run import Run
from newkinds.search import search
from newkinds.search.search import JUDGED, Choice, choose
from newkinds.training.model import build_model
from newkinds.training.start import start_from

KilledAfterAnEpoch = Callable[[], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    head = {"method": {"projection_hidden": 32, "projection_dim": 16}}
    newkinds.discover("creatures", out, method="simgcd", assigner="sskmeans", settings=[TINY_TRAINING, head])
    return out


@pytest.fixture
def run(trained_once: Path, tmp_path: Path) -> Path:
    """In which one image was moved and two categories were merged."""
    run = Path(shutil.copytree(trained_once, tmp_path / "run"))
    found = Discovery.read(run)
    known, *_ = found.known
    image = next(m.path for m in found.members if m.given_label is None and m.category != known.name)
    found.move([image], known.name)
    found.merge([category.name for category in found.categories if category.is_new])
    return run


def moved(run: Path) -> tuple[str, str]:
    [member] = [member for member in Discovery.read(run).members if member.status == "moved"]
    return member.path, member.category


def test_without_time_the_weights_stay(run: Path) -> None:
    refined = newkinds.refine(run, time=0.01)
    before, after = (load_file(folder / "model.safetensors") for folder in (run, refined.run))
    encoder = [name for name in before if name.startswith("encoder.")]
    assert encoder
    assert all(torch.equal(before[name], after[name]) for name in encoder)
    record = Run(refined.run).read_json("refined.json")
    assert record["finished"]
    assert not any("training" in sentence for sentence in record["learnt"])
    path, name = moved(run)
    assert next(m.category for m in refined.members if m.path == path) == name


def test_prototypes_begin_with_the_categories_that_people_made(run: Path) -> None:
    refined = newkinds.refine(run, time=0.01)
    model, features = load(refined.run).model, load_file(refined.run / "features.safetensors")["features"]
    assert len(model.method.classifier.prototypes) == model.k == len(refined.categories)
    rows = torch.nn.functional.normalize(features, dim=1)
    own = model.method.classifier(rows).argmax(dim=1).tolist()
    agree = np.mean([category == member.category_id for category, member in zip(own, refined.members, strict=True)])
    assert agree > 0.7  # nearest means, in a space that is not whitened


def the_trained_one(scores: list[CandidateScore], favours_first: bool = True) -> Choice:
    return Choice(next((score for score in scores if score.trains), scores[0]), "training: so it is said")


def test_training_that_pays_is_taken(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "choose", the_trained_one)
    refined = newkinds.refine(run)
    before, after = (load_file(folder / "model.safetensors") for folder in (run, refined.run))
    block = "encoder.backbone.network.blocks.3.attn.qkv.weight"
    assert not torch.equal(before[block], after[block])
    record, settings = Run(refined.run).read_json("refined.json"), Run(refined.run).config()
    assert record["chosen"].startswith("training continued")
    assert record["learnt"][-1] == "training: so it is said"
    assert settings.train.start == str(run.resolve())
    assert (Run(refined.run).protocol().started_from or "").startswith("run: model.safetensors")
    assert settings.assigner["name"] == "continued"
    assert not (refined.run / ".next").exists()
    path, name = moved(run)
    again = load(refined.run)  # settings, weights and features fit each other
    assert next(m.category for m in refined.members if m.path == path) == name
    features = load_file(refined.run / "features.safetensors")["features"]
    unlabelled = [row for row, member in enumerate(refined.found_members) if member.given_label is None]
    found = [refined.found_members[row].category_id for row in unlabelled]
    assert again.model.assign(features[unlabelled]).category.tolist() == found
    table = load_table(settings.data)
    embedded = torch.stack([again.model.encoder.eval()(_pixels(again, table, row)).feature[0] for row in (0, 5)])
    assert torch.allclose(embedded, features[[0, 5]], atol=1e-4)  # of the weights that are written


def _pixels(loaded: newkinds.discovery.finished.LoadedRun, table: newkinds.data.Table, row: int) -> object:
    from newkinds.data.batch import Pixels

    preprocessing = loaded.model.encoder.backbone.preprocessing
    return Pixels(preprocessing.centre_view(preprocessing.resize(table.open(row)))[None])


def test_a_killed_training_goes_on(
    run: Path, killed_after_an_epoch: KilledAfterAnEpoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "choose", the_trained_one)
    with killed_after_an_epoch():
        newkinds.refine(run)
    folder = run.with_name("run-refined")
    assert not Run(folder).read_json("refined.json")["finished"]
    path, name = moved(run)
    first = Discovery.read(folder)  # a complete answer is there already
    assert next(m.category for m in first.members if m.path == path) == name
    refined = newkinds.refine(run)
    whole = newkinds.refine(run, out=run.with_name("whole"))
    assert refined.run == folder
    assert [m.category_id for m in refined.members] == [m.category_id for m in whole.members]
    said = Run(folder).read_json("refined.json")
    assert said["finished"]
    assert said["learnt"] == Run(whole.run).read_json("refined.json")["learnt"]


def test_training_is_taken_if_its_gain_is_significant() -> None:
    refitted = CandidateScore("refitted", scores=[0.5, 0.6, 0.4, 0.9, 0.9], state=JUDGED)
    for folds, pays in (([0.6, 0.7, 0.5], True), ([0.7, 0.6, 0.3], False), ([0.4, 0.5, 0.3], False)):
        trained = CandidateScore("continued", "training continued", trains=True, scores=folds, state=JUDGED)
        choice = choose([refitted, trained])
        assert (choice.candidate is trained) is pays
        assert f"{100 * (np.mean(folds) - 0.5):+.1f} ± " in choice.why


def test_an_organizer_keeps_what_it_has_learnt(tmp_path: Path) -> None:
    """It would look at tokens before training, and begin anew, if it came from nowhere."""
    parts = {
        "organizer": {"name": "cpf-parts", "train_field": True},
        "method": {"projection_hidden": 32, "projection_dim": 16},
    }
    newkinds.train("creatures", tmp_path / "first", settings=[TINY_TRAINING, parts])
    begins = {"train": {"start": str(tmp_path / "first"), "epochs": 1, "lr": 0.0}}
    newkinds.train("creatures", tmp_path / "next", settings=[TINY_TRAINING, parts, begins])
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("first", "next"))
    learnt = [name for name in before if name.startswith("encoder.organizer.")]
    assert learnt
    assert all(torch.equal(before[name], after[name]) for name in learnt)
    config = resolve(Run(tmp_path / "next").config().as_dict())
    model = build_model(config, load_table(config.data).known, 4)
    assert not model.begins_organized
    start_from(model, config)
    assert model.begins_organized
