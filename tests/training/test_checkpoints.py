"""Weights of single epochs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import newkinds
from conftest import SMALL_HEAD, TINY_TRAINING
from newkinds.data import load_table
from newkinds.training.checkpoints import HeldOut, hold_out
from newkinds.training.loop import Diverged
from newkinds.training.model import Model

SETTINGS = [TINY_TRAINING, SMALL_HEAD, {"train": {"epochs": 3}}]


def test_weights_stay_every_so_many_epochs_and_training_starts_from_them(tmp_path: Path) -> None:
    run = tmp_path / "run"
    newkinds.train("creatures", run, settings=[*SETTINGS, {"train": {"keep_every": 1}}])
    kept = sorted(file.name for file in run.glob("checkpoint-*"))
    assert kept == [f"checkpoint-{epoch:04d}.safetensors" for epoch in (1, 2, 3)]
    weights = [load_file(run / name) for name in kept]
    name = "method.classifier.prototypes"
    assert not torch.equal(weights[0][name], weights[2][name])
    assert torch.equal(weights[2][name], load_file(run / "model.safetensors")[name])
    further = newkinds.train(
        "creatures",
        tmp_path / "further",
        start=run / kept[1],
        settings=[*SETTINGS, {"train": {"epochs": 1, "lr": 0.0}}],
    )
    assert torch.equal(further.model.state_dict()[name], weights[1][name])


def test_the_model_is_that_of_the_epoch_that_is_best_on_labels_it_never_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, prototypes = iter([0.2, 0.9, 0.5]), []

    def judge(self: HeldOut, model: Model, features: torch.Tensor) -> float:
        prototypes.append(model.state_dict()["method.classifier.prototypes"].clone())
        return next(scores)

    monkeypatch.setattr(HeldOut, "judge", judge)
    run = tmp_path / "run"
    newkinds.train("creatures", run, settings=[*SETTINGS, {"train": {"keep_best": True}}])
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["held_out"] for row in rows] == [0.2, 0.9, 0.5]
    assert torch.equal(load_file(run / "model.safetensors")["method.classifier.prototypes"], prototypes[1])


def test_epochs_that_know_no_label_are_not_called_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(HeldOut, "judge", lambda *_: 0.0)
    newkinds.train("creatures", tmp_path / "run", settings=[*SETTINGS, {"train": {"keep_best": True}}])
    assert "no epoch finds any of the held-out labels" in " ".join(capfd.readouterr().err.split())


def test_what_diverges_in_the_first_epoch_has_no_epochs_before(tmp_path: Path) -> None:
    with pytest.raises(Diverged) as raised:
        newkinds.train("creatures", tmp_path / "run", settings=[*SETTINGS, {"train": {"lr": 1e9}}])
    assert "diverged in epoch 1 (loss" in str(raised.value)
    assert "The epochs before" not in str(raised.value)


def test_held_out_labels_are_a_fifth_of_each_class_and_judge_by_name() -> None:
    table = load_table({"name": "creatures"})
    shown, held_out = hold_out(table, seed=0)
    assert shown.known == table.known
    assert (shown.targets[held_out.rows] == -1).all()
    assert (table.targets[held_out.rows] == held_out.classes).all()
    for label in range(len(table.known)):
        of_class = int((table.targets == label).sum())
        assert int((held_out.classes == label).sum()) == round(0.2 * of_class)
    assert shown.truth == table.truth

    class Guesses:
        def assign(self, features: torch.Tensor) -> object:
            return type("assigned", (), {"category": torch.zeros(len(features), dtype=torch.long)})

    share = held_out.judge(Guesses(), torch.zeros(len(table), 2))  # type: ignore[arg-type]
    assert share == pytest.approx(np.mean(held_out.classes == 0))
