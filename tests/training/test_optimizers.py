"""An optimizer of the organizer's own: its rate, decay, warm-up and clipping, and that a killed run resumes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from torch.optim import SGD, AdamW

from newkinds.data import load_table
from newkinds.data.batch import Batch, Pixels
from newkinds.methods.base import Progress
from newkinds.runs.config import Config, TrainConfig, resolve
from newkinds.runs.run import Run
from newkinds.training.loop import fit
from newkinds.training.model import Model, build_model
from newkinds.training.optimizers import build_optimizer, parameter_groups
from newkinds.training.steps import step

SMALL = {"name": "creatures", "categories": 4, "per_category": 17}
OWN = {"lr": 0.1, "organizer_optimizer": "adamw", "organizer_lr_ratio": 0.01}


def config_with(**train: object) -> Config:
    return resolve({"data": SMALL, "organizer": {"name": "adapter"}, "train": {"batch_size": 32, **train}})


def model_of(config: Config) -> Model:
    return build_model(config, load_table(config.data).known, 4)


def test_the_organizer_has_its_own_optimizer_and_the_rest_sgd() -> None:
    config = config_with(**OWN).train
    model = model_of(config_with(**OWN))
    optimizer = build_optimizer(parameter_groups(model, config), config)
    assert [type(part) for part in optimizer.parts] == [SGD, AdamW]
    mine = {id(p) for group in optimizer.parts[1].param_groups for p in group["params"]}
    assert mine == {id(p) for p in model.encoder.organizer.parameters()}
    optimizer.set_lr(0.5, organizer=0.25)
    assert {group["lr"] for group in optimizer.parts[0].param_groups} == {0.5}
    assert {group["lr"] for group in optimizer.parts[1].param_groups} == {0.5 * 0.01 * 0.25}
    assert {group["weight_decay"] for group in optimizer.parts[1].param_groups} == {0.05, 0.0}


def test_without_an_organizer_there_is_one_optimizer() -> None:
    config = resolve({"data": SMALL, "train": OWN})
    optimizer = build_optimizer(parameter_groups(model_of(config), config.train), config.train)
    assert len(optimizer.parts) == 1


@pytest.mark.parametrize(("given", "expected"), [({}, 5e-5), ({"organizer_decay": 0.2}, 0.2)])
def test_decay_of_the_organizer(given: dict, expected: float) -> None:
    groups = parameter_groups(model_of(config_with()), TrainConfig(**given))
    decays = {group["name"]: group["weight_decay"] for group in groups}
    assert decays["organizer"] == expected
    assert decays["head"] == 5e-5


def test_clipping_bounds_the_step_of_the_organizer_alone() -> None:
    moved = {}
    for clip in (0.0, 1e-3):
        config = config_with(organizer_clip=clip, organizer_decay=0.0)
        model = model_of(config)
        optimizer = build_optimizer(parameter_groups(model, config.train), config.train)
        optimizer.set_lr(1.0)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        pixels = torch.randint(256, (8, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        labels = torch.tensor([0, 1, -1, -1])
        step(model, Batch(Pixels(pixels), labels, torch.arange(4)), Progress(0, 2), optimizer)
        moved[clip] = {name: (p - before[name]).norm().item() for name, p in model.named_parameters()}
    organizer = [name for name in moved[0.0] if name.startswith("encoder.organizer")]
    assert sum(moved[1e-3][name] ** 2 for name in organizer) ** 0.5 == pytest.approx(1e-3, rel=0.05)
    assert sum(moved[0.0][name] ** 2 for name in organizer) ** 0.5 > 2e-3
    assert moved[1e-3]["method.projection.0.weight"] == pytest.approx(moved[0.0]["method.projection.0.weight"])


def test_a_killed_run_ends_as_an_uninterrupted_one(
    tmp_path: Path, killed_after_an_epoch: Callable[[], AbstractContextManager[None]]
) -> None:
    config = config_with(**OWN, epochs=2, organizer_warmup=1, organizer_clip=1.0)
    table = load_table(config.data)
    states = {}
    for name in ("whole", "resumed"):
        run = Run(tmp_path / name)
        run.begin(config)
        if name == "resumed":
            with killed_after_an_epoch():
                fit(model_of(config), table, config.train, run)
        states[name] = fit(model_of(config), table, config.train, run).model.state_dict()
    for name, value in states["whole"].items():
        assert torch.equal(states["resumed"][name], value), name
