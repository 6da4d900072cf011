"""What every method promises with every organizer and backbone; a new one is tested by being registered."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

import newkinds
from conftest import TINY_TRAINING, save_image, small_heads
from covering import some_of, spread
from newkinds.data import load_table
from newkinds.data.batch import Batch
from newkinds.data.loader import TrainingBatches
from newkinds.data.table import Table
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.encoders.tunings import TUNINGS
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS, Progress, Step
from newkinds.methods.simgcd import SimGCD
from newkinds.runs.config import Config, resolve
from newkinds.runs.run import Run
from newkinds.settings import settings_of
from newkinds.training.loop import gatherer
from newkinds.training.model import Model, build_model
from newkinds.training.teacher import Teacher

TRAINED = [name for name in METHODS if METHODS[name].trains]
methods = pytest.mark.parametrize("method", TRAINED)
# No method knows organizers (tested below), so each meets one of them, in turns, and each organizer a method.
PAIRS = spread(TRAINED, [list(ORGANIZERS)])


def settings_for(method: str) -> list[dict[str, Any]]:
    """A small and slow training with small heads; second stages without their first, turns of one step."""
    small = {
        "method": small_heads(method, output_dim=1024, projection_hidden=128),
        "train": {"lr": 0.005, "tuning_lr_ratio": 1.0},
    }
    start = {"train": {"start": "none"}} if METHODS[method].starts_from else {}
    return [TINY_TRAINING, small, start, in_tuning(method, alternate=1)]


def in_tuning(method: str, **settings: Any) -> dict[str, Any]:
    """Those of the settings that the method's own tuning has."""
    name = METHODS[method].tuning_defaults.get("name", "blocks")
    have = settings_of(TUNINGS[name])
    return {"tuning": {setting: value for setting, value in settings.items() if setting in have}}


def config_for(method: str, organizer: str) -> Config:
    names = {"data": {"name": "creatures"}, "method": {"name": method}, "organizer": {"name": organizer}}
    return resolve(names, *settings_for(method))


def all_at_once(model: Model, table: Table) -> Batch:
    """As many images as there are, in the method's views; the same each time. What the method gathers is gathered."""
    preprocessing, size = model.encoder.backbone.preprocessing, len(table)
    batches = TrainingBatches(table, preprocessing, size, seed=7, workers=0, plan=model.method.views)
    torch.manual_seed(0)
    model.method.on_epoch_start(0, gatherer(model, table, batches, epoch=0))
    (batch,) = batches(1)
    return batch


def loss_on(model: Model, batch: Batch) -> torch.Tensor:
    """Of the first epoch."""
    if model.teacher is None and model.method.teacher_momentum(Progress(0, 2)) is not None:
        model.teacher = Teacher(model.encoder, model.method)
    model.method.eval()
    model.encoder.organizer.train()  # with the losses of its own
    return model(batch, Progress(0, 2))["loss"]


def test_every_method_and_every_organizer_occurs() -> None:
    assert {method for method, _ in PAIRS} == set(TRAINED)
    of_organizer = {name: {method for method, organizer in PAIRS if organizer == name} for name in ORGANIZERS}
    assert all(of_organizer.values())


@pytest.mark.parametrize(("method", "organizer"), some_of(product(TRAINED, ORGANIZERS), PAIRS))
def test_a_run_keeps_all_promises(
    method: str, organizer: str, tmp_path: Path, killed_after_an_epoch: Callable[[], AbstractContextManager[None]]
) -> None:
    """One test, because they share their trainings."""
    config = config_for(method, organizer)
    table = load_table(config.data)

    # gradients reach all that trains
    model = build_model(config, table.known, 4)
    before = loss_on(model, all_at_once(model, table))
    for parameter in model.encoder.organizer.parameters():
        if not parameter.any():  # nothing goes through a map that starts at zero
            torch.nn.init.normal_(parameter, std=1e-3)
    loss_on(model, all_at_once(model, table)).backward()
    reached = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert {name for name, p in model.named_parameters() if p.requires_grad} == reached

    # every image gets a category, and the losses are finite
    choices = {"method": method, "organizer": organizer, "settings": settings_for(method)}
    found = newkinds.discover("creatures", tmp_path / "run", page=False, **choices)
    assert all(torch.isfinite(torch.tensor(row["loss"])) for row in Run(found.run).metrics())
    assert len(found.members) == 32

    # what was saved is loaded: the same categories, some for features and an image never seen, and a lower loss
    loaded = newkinds.load(found.run)
    assert loaded.discover(table, page=False).members == found.members
    unseen = torch.randn(5, loaded.model.encoder.dim, generator=torch.Generator().manual_seed(0))
    assignment = loaded.model.assign(unseen)
    assert ((assignment.confidence >= 0) & (assignment.confidence <= 1)).all()
    assert ((assignment.category >= 0) & (assignment.category < loaded.model.categories)).all()
    assert len(loaded.predict(save_image(tmp_path / "never-seen.png"))) == 1
    assert loss_on(loaded.model, all_at_once(loaded.model, table)) < before
    assert torch.isfinite(before)

    # a run that is killed ends with the same bits
    killed = Run(tmp_path / "killed")
    with killed_after_an_epoch():
        newkinds.train("creatures", killed.folder, **choices)
    assert not killed.model_file.exists()
    newkinds.train("creatures", killed.folder, **choices)
    assert killed.model_file.read_bytes() == Run(found.run).model_file.read_bytes()


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


BACKBONES = ("test_vit.r160_in1k", "test_resnet.r160_in1k")
ON_BACKBONES = [*zip(TRAINED, cycle(BACKBONES), strict=False)]  # in turns
ON_BACKBONES += [(name, backbone) for name in TRAINED if METHODS[name].reads_prompts for backbone in BACKBONES]


@pytest.mark.parametrize(("method", "backbone"), some_of(product(TRAINED, BACKBONES), ON_BACKBONES))
def test_every_method_runs_on_other_backbones(method: str, backbone: str, tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    torch.manual_seed(0)
    save_file(timm.create_model(backbone, num_classes=0).state_dict(), weights)
    smaller = {"backbone": {"image_size": 64}, "organizer": {"heads": 8}}
    settings = [*settings_for(method), in_tuning(method, where="frame"), smaller]  # a CNN has no patches
    choices = {"method": method, "organizer": "cpf", "backbone": backbone, "weights": weights, "settings": settings}
    if "resnet" in backbone and METHODS[method].reads_prompts:
        with pytest.raises(NewkindsError, match=r"plain ViT, which the backbone .* is not: choose a ViT"):
            newkinds.discover("creatures", tmp_path / "run", **choices)
        return
    assert len(newkinds.discover("creatures", tmp_path / "run", **choices).members) == 32


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
    batch = all_at_once(model, table)
    loss = loss_on(model, replace(batch, labels=torch.full_like(batch.labels, -1)))
    loss.backward()
    assert torch.isfinite(loss)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert any(gradient.any() for gradient in gradients)
    assert all(gradient.isfinite().all() for gradient in gradients)
