"""The loop: what is trained, with which rates, and that a killed run loses nothing."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.optim import SGD

import newkinds
from conftest import TINY_TRAINING
from newkinds.config import TrainConfig, resolve
from newkinds.device import Precision
from newkinds.encoder import Encoded
from newkinds.errors import NewkindsError
from newkinds.methods import Batch, Progress
from newkinds.model import Model, build_model
from newkinds.run import Run
from newkinds.schedules import cosine_lr
from newkinds.train import parameter_groups, step, trainable_parameters


def small_model(organizer: str = "cpf", **train: object) -> Model:
    config = resolve({"data": {"name": "creatures"}, "organizer": {"name": organizer}, "train": train})
    return build_model(config, ["a", "b"], 4)


def some_batch(labels: list[int]) -> Batch:
    generator = torch.Generator().manual_seed(0)
    views = torch.randn(2 * len(labels), 3, 64, 64, generator=generator)
    return Batch(views, torch.tensor(labels), torch.arange(len(labels)))


def test_parameter_groups_follow_the_hosts_rule() -> None:
    model = small_model()
    groups = parameter_groups(model, TrainConfig(weight_decay=1e-4, organizer_lr_ratio=0.5))
    by_id = {id(p): (g["weight_decay"], g["lr_ratio"]) for g in groups for p in g["params"]}
    trainable = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    assert len(by_id) == len(trainable)
    for name, parameter in trainable:
        decay, ratio = by_id[id(parameter)]
        assert decay == (0.0 if name.endswith(".bias") or parameter.ndim == 1 else 1e-4), name
        assert ratio == (0.5 if "organizer" in name else 1.0), name
    everything = parameter_groups(model, TrainConfig(decay_biases=True))
    assert {g["weight_decay"] for g in everything} == {5e-5}


def test_only_the_last_block_organizer_and_head_are_trained() -> None:
    trained = {n for n, p in small_model().named_parameters() if p.requires_grad}
    backbone = {n for n in trained if ".backbone." in n}
    assert backbone
    assert all("blocks.5." in name for name in backbone)
    assert any(n.startswith("encoder.organizer.") for n in trained)
    assert any(n.startswith("method.") for n in trained)


def test_an_organizer_that_would_learn_nothing_is_refused(tmp_path: Path) -> None:
    model = small_model()
    assert "organizer" in trainable_parameters(model)
    model.encoder.organizer.requires_grad_(False)
    with pytest.raises(NewkindsError, match="freeze_organizer"):
        trainable_parameters(model)
    assert "organizer 0 of" in trainable_parameters(model, allow_frozen_organizer=True)
    assert "organizer 0 of 0" in trainable_parameters(small_model("none"))


def test_a_frozen_organizer_stays_at_its_start(tmp_path: Path) -> None:
    settings = [TINY_TRAINING, {"train": {"freeze_organizer": True}}]
    loaded = newkinds.train("creatures", tmp_path / "run", organizer="cpf", settings=settings)
    start = build_model(loaded.config, loaded.model.known, loaded.model.k)
    for (name, before), after in zip(
        start.encoder.organizer.named_parameters(), loaded.model.encoder.organizer.parameters(), strict=True
    ):
        assert torch.equal(before, after), name


def test_hosts_with_and_without_organizer_start_from_the_same_head() -> None:
    heads = [small_model(name).method.state_dict() for name in ("none", "cpf")]
    assert all(torch.equal(heads[0][key], heads[1][key]) for key in heads[0])


@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [-1, -1, -1, -1], [0, 0, 1, 1], [0, -1, -1, -1]])
def test_a_step_with_any_mix_of_labels_is_finite_and_learns(labels: list[int]) -> None:
    model = small_model()
    optimizer = SGD(parameter_groups(model, TrainConfig()), lr=0.01)
    before = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
    losses = step(
        model, some_batch(labels), Progress(0, 10), optimizer, Precision("float32", torch.device("cpu"))
    )
    assert all(torch.isfinite(value) for value in losses.values())
    assert all(torch.isfinite(p).all() for p in model.parameters())
    changed = {n for n, p in model.named_parameters() if n in before and not torch.equal(p, before[n])}
    assert any(n.startswith("encoder.organizer.") for n in changed)


def test_auxiliary_losses_of_an_organizer_are_added() -> None:
    model = small_model("none")
    organize = model.encoder.organizer.organize
    weight = torch.nn.Parameter(torch.tensor(2.0))

    def with_loss(tokens: object, details: bool = False) -> Encoded:
        return Encoded(organize(tokens, details).feature, losses={"tidiness": 3 * weight})  # type: ignore[arg-type]

    model.encoder.organizer.organize = with_loss  # type: ignore[assignment,method-assign]
    optimizer = SGD([weight], lr=0.0)
    losses = step(
        model, some_batch([0, -1]), Progress(0, 10), optimizer, Precision("float32", torch.device("cpu"))
    )
    assert losses["tidiness"] == 6
    assert weight.grad == 3
    terms = model.method.loss(some_batch([0, -1]), model.encoder(some_batch([0, -1]).views).feature, Progress(0, 10))
    torch.testing.assert_close(losses["loss"], terms["loss"] + 6)


def test_metrics_hold_a_row_an_epoch_with_the_cosine_rate(trained_run: Path) -> None:
    rows = [json.loads(line) for line in (trained_run / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1]
    assert [row["lr"] for row in rows] == [cosine_lr(e, 2, 0.1) for e in (0, 1)]
    assert {"loss", "seconds", "info_nce"} <= rows[0].keys()


def test_bfloat16_trains(tmp_path: Path) -> None:
    settings = [TINY_TRAINING, {"train": {"precision": "bfloat16", "epochs": 1}}]
    newkinds.train("creatures", tmp_path / "run", organizer="cpf", settings=settings)
    assert Run(tmp_path / "run").metrics()[0]["loss"] < 100


def test_evaluation_during_training_is_written_but_chooses_nothing(tmp_path: Path) -> None:
    settings = [TINY_TRAINING, {"train": {"eval_every": 1}}]
    watched = newkinds.train("creatures", tmp_path / "a", settings=settings)
    plain = newkinds.train("creatures", tmp_path / "b", settings=TINY_TRAINING)
    assert all(0 <= row["acc_new"] <= 1 for row in Run(tmp_path / "a").metrics())
    for (name, a), b in zip(watched.model.state_dict().items(), plain.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_a_loss_that_explodes_is_an_error_that_keeps_the_epochs_before(tmp_path: Path) -> None:
    settings = [TINY_TRAINING, {"train": {"lr": 1e30}}]
    with pytest.raises(NewkindsError, match=r"lower the learning rate \(train.lr is 1e\+30\)"):
        newkinds.train("creatures", tmp_path / "run", settings=settings)
    assert not (tmp_path / "run" / "model.safetensors").exists()


# -- interruption ------------------------------------------------------------------------------------------

EPOCHS = 5
COMMAND = (
    "train creatures --organizer cpf --device cpu --set data.categories=4 --set data.per_category=16 "
    f"--set train.batch_size=16 --set train.epochs={EPOCHS}"
).split()


def start(out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "newkinds", *COMMAND, "--out", str(out)], stderr=subprocess.DEVNULL
    )


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_at_any_moment_the_same_command_ends_with_the_same_model(tmp_path: Path) -> None:
    assert start(tmp_path / "whole").wait(timeout=300) == 0
    out = tmp_path / "killed"
    kills = 0
    for epochs_to_wait_for in (0, 1, 3):  # before the first checkpoint, after it, and later
        process = start(out)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            rows = (out / "metrics.jsonl").read_text().count("\n") if (out / "metrics.jsonl").exists() else 0
            if (out / "config.yaml").exists() and rows >= epochs_to_wait_for:
                break
            time.sleep(0.005)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 2
    assert not (out / "model.safetensors").exists()
    assert start(out).wait(timeout=300) == 0
    assert digest(out / "model.safetensors") == digest(tmp_path / "whole" / "model.safetensors")
    whole, pieces = (
        [{k: v for k, v in row.items() if k != "seconds"} for row in Run(folder).metrics()]
        for folder in (tmp_path / "whole", out)
    )
    assert whole == pieces
    assert len(whole) == EPOCHS


def test_a_run_with_other_settings_is_not_continued(trained_run: Path) -> None:
    with pytest.raises(NewkindsError, match=r"train.epochs is 2 there and 3 here"):
        newkinds.train("creatures", trained_run, organizer="cpf", settings=[TINY_TRAINING, {"train": {"epochs": 3}}])


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NewkindsError, match="not empty and holds no run"):
        newkinds.train("creatures", tmp_path, settings=TINY_TRAINING)
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


def test_changed_images_are_not_mixed_into_an_old_run(photos: Path, tmp_path: Path) -> None:
    out, settings = tmp_path / "run", {"train": {"epochs": 1}}
    newkinds.train(photos, out, k=3, settings=settings)
    (out / "model.safetensors").unlink()
    (photos / "loose.png").unlink()
    with pytest.raises(NewkindsError, match="images or labels changed"):
        newkinds.train(photos, out, k=3, settings=settings)


def test_a_damaged_checkpoint_is_named(photos: Path, tmp_path: Path) -> None:
    out, settings = tmp_path / "run", {"train": {"epochs": 1}}
    newkinds.train(photos, out, k=3, settings=settings)
    (out / "model.safetensors").unlink()
    (out / "train_state.pt").write_bytes(b"half of it")
    with pytest.raises(NewkindsError, match=r"train_state\.pt is damaged"):
        newkinds.train(photos, out, k=3, settings=settings)
