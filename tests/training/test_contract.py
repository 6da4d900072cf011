"""What every method promises with every organizer and backbone; a new one is tested by being registered."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

import newkinds
from conftest import TINY_TRAINING, save_image
from newkinds.data import load_table
from newkinds.data.batch import Batch, Pixels
from newkinds.data.loader import TrainingBatches
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.encoders.tokens import Encoded
from newkinds.files import make_folder
from newkinds.methods import METHODS, Progress, Step
from newkinds.methods.simgcd import SimGCD
from newkinds.runs.config import Config, TrainConfig, resolve
from newkinds.runs.run import Run
from newkinds.training.loop import fit, gatherer
from newkinds.training.model import Model, build_model

methods = pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].trains])
organizers = pytest.mark.parametrize("organizer", list(ORGANIZERS))


def settings_for(method: str) -> list[dict[str, Any]]:
    """A small training; heads that are made for millions of images are made smaller."""
    small = {"output_dim": 1024}
    have = {field.name for field in fields(METHODS[method].Config)}
    return [TINY_TRAINING, {"method": {name: value for name, value in small.items() if name in have}}]


def config_for(method: str, organizer: str) -> Config:
    names = {"data": {"name": "creatures"}, "method": {"name": method}, "organizer": {"name": organizer}}
    return resolve(names, *settings_for(method))


def loss_on(model: Model, config: Config) -> torch.Tensor:
    """The loss of the first epoch on all images in fixed views: batches differ more than two epochs achieve."""
    table = load_table(config.data)
    preprocessing = model.encoder.backbone.preprocessing
    batches = TrainingBatches(table, preprocessing, len(table), seed=7, workers=0)
    torch.manual_seed(0)
    model.method.on_epoch_start(0, gatherer(model, table, batches, epoch=0))
    (batch,) = batches.of_all_rows(epoch=1, views=2)
    model.method.eval()
    model.encoder.organizer.train()  # with the losses of its own
    return model(batch, Progress(0, 2))["loss"]


@organizers
@methods
def test_gradients_reach_all_that_trains_and_two_epochs_lower_the_loss(
    method: str, organizer: str, tmp_path: Path
) -> None:
    config = config_for(method, organizer)
    table = load_table(config.data)
    model = build_model(config, table.known, 4)
    before = loss_on(model, config)
    for parameter in model.encoder.organizer.parameters():
        if not parameter.any():  # nothing goes through a map that starts at zero
            torch.nn.init.normal_(parameter, std=1e-3)
    loss_on(model, config).backward()
    reached = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert {name for name, p in model.named_parameters() if p.requires_grad} == reached

    fit(model, table, TrainConfig(epochs=2, batch_size=16, lr=0.005), Run(make_folder(tmp_path / "run")))
    after = loss_on(model, config)
    assert torch.isfinite(before)
    assert after < before


@organizers
@methods
def test_a_run_saves_loads_and_predicts(method: str, organizer: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = newkinds.discover("creatures", run, method=method, organizer=organizer, settings=settings_for(method))
    assert all(torch.isfinite(torch.tensor(row["loss"])) for row in Run(run).metrics())
    assert len(found.members) == 32

    loaded = newkinds.load(run)
    again = newkinds.discover("creatures", run, method=method, organizer=organizer, settings=settings_for(method))
    assert [m.category for m in again.members] == [m.category for m in found.members]
    features = torch.randn(5, loaded.model.encoder.dim, generator=torch.Generator().manual_seed(0))
    assignment = loaded.model.assign(features)
    assert ((assignment.confidence >= 0) & (assignment.confidence <= 1)).all()
    assert ((assignment.category >= 0) & (assignment.category < loaded.model.k)).all()
    assert len(loaded.predict(save_image(tmp_path / "never-seen.png"))) == 1


@organizers
@methods
def test_an_interrupted_run_ends_as_an_uninterrupted_one(
    method: str, organizer: str, tmp_path: Path, killed_after_an_epoch: Callable[[], AbstractContextManager[None]]
) -> None:
    def train(folder: str) -> bytes:
        newkinds.train(
            "creatures", tmp_path / folder, method=method, organizer=organizer, settings=settings_for(method)
        )
        return Run(tmp_path / folder).model_file.read_bytes()

    uninterrupted = train("one")
    with killed_after_an_epoch():
        train("two")
    assert not Run(tmp_path / "two").model_file.exists()
    assert train("two") == uninterrupted


class Averaging(SimGCD):
    """As methods with a teacher are: an averaged copy of the head, and a queue of features, both used in the loss."""

    queue: torch.Tensor

    def __init__(self, config: SimGCD.Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        self.teacher = deepcopy(self.projection).requires_grad_(False)
        self.register_buffer("queue", torch.zeros(8, dim))

    def loss(self, step: Step) -> dict[str, torch.Tensor]:
        features = step.encoded.feature
        terms = super().loss(step)
        drift = (self.projection(features) - self.teacher(features.detach()).detach()).square().mean()
        terms["loss"] = terms["loss"] + drift + features.mean() * self.queue.mean()
        with torch.no_grad():
            for averaged, now in zip(self.teacher.parameters(), self.projection.parameters(), strict=True):
                averaged.lerp_(now, 0.1)
            self.queue.copy_(torch.cat([features.detach(), self.queue])[:8])
        return terms


def test_averaged_copies_and_queues_survive_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_after_an_epoch: Callable[[], AbstractContextManager[None]]
) -> None:
    monkeypatch.setitem(METHODS._entries, "averaging", Averaging)

    def train(folder: str) -> dict[str, torch.Tensor]:
        newkinds.train("creatures", tmp_path / folder, method="averaging", settings=TINY_TRAINING)
        return load_file(Run(tmp_path / folder).model_file)

    uninterrupted = train("one")
    with killed_after_an_epoch():
        train("two")
    state = Run(tmp_path / "two").load_state()
    assert state is not None
    assert {"method.queue", "method.teacher.0.weight"} <= state["model"].keys()
    assert not any("blocks.0." in name for name in state["model"]), "frozen weights come from their file"
    resumed = train("two")
    assert [name for name, value in uninterrupted.items() if not torch.equal(value, resumed[name])] == []


@methods
@pytest.mark.parametrize("backbone", ["test_vit.r160_in1k", "test_resnet.r160_in1k"])
def test_every_method_runs_on_other_backbones(method: str, backbone: str, tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    torch.manual_seed(0)
    save_file(timm.create_model(backbone, num_classes=0).state_dict(), weights)
    found = newkinds.discover(
        "creatures",
        tmp_path / "run",
        method=method,
        organizer="cpf",
        backbone=backbone,
        weights=weights,
        settings=[*settings_for(method), {"backbone": {"image_size": 64}, "organizer": {"heads": 8}}],
    )
    assert len(found.members) == 32


@methods
def test_a_method_says_what_it_is_and_where_it_comes_from(method: str) -> None:
    module = __import__(METHODS[method].__module__, fromlist=["_"])
    assert len((METHODS[method].__doc__ or "").strip().splitlines()) > 2
    assert "20" in (module.__doc__ or ""), "the year of a publication"
    source = Path(module.__file__ or "").read_text(encoding="utf-8").lower()
    assert "organizer" not in source
    assert "cpf" not in source


@methods
def test_a_batch_without_labels_has_a_finite_loss(method: str) -> None:
    config = config_for(method, "none")
    table = load_table(config.data)
    model = build_model(config, table.known, 4)
    loss_on(model, config)  # gathers what the method needs of the whole set
    features = torch.randn(8, model.encoder.dim, generator=torch.Generator().manual_seed(0), requires_grad=True)
    batch = Batch(Pixels(torch.empty(0)), labels=torch.full((4,), -1), index=torch.arange(4))
    loss = model.method.loss(Step(batch, Encoded(features), Progress(0, 2)))["loss"]
    loss.backward()
    assert torch.isfinite(loss)
    assert features.grad is not None
    assert features.grad.isfinite().all()
