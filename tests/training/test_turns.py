"""A tuning that alternates with all else: who trains in a step, and that those who wait are left as they are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch

import newkinds
from conftest import TINY_TRAINING
from newkinds.data import load_table
from newkinds.data.batch import Batch, Pixels
from newkinds.methods import Progress
from newkinds.runs.config import Config, resolve
from newkinds.runs.run import Run
from newkinds.training.model import Model, build_model
from newkinds.training.optimizers import Optimizers, build_optimizer, describe_groups, parameter_groups
from newkinds.training.steps import step, take_turns

TUNING = "encoder.backbone.tuning"
SETTINGS = {
    "method": {"name": "sptnet", "projection_hidden": 32, "projection_dim": 16},
    "organizer": {"name": "adapter"},
    "train": {"start": "none", "lr": 0.01, "tuning_lr_ratio": 5.0, "weight_decay": 1e-3},
}


def config_of(**sections: Any) -> Config:
    return resolve({"data": {"name": "creatures"}, "tuning": {"alternate": 2}}, TINY_TRAINING, SETTINGS, sections)


def model_of(config: Config) -> Model:
    model = build_model(config, load_table(config.data).known, 4)
    for parameter in model.encoder.organizer.parameters():
        if not parameter.any():  # nothing goes through a map that starts at zero
            torch.nn.init.constant_(parameter, 0.01)
    return model


def batch(seed: int) -> Batch:
    pixels = torch.randint(256, (8, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return Batch(Pixels(pixels), torch.tensor([0, 1, -1, -1]), torch.arange(4))


def state_of(model: Model, optimizer: Optimizers) -> dict[str, tuple[torch.Tensor, dict[str, torch.Tensor]]]:
    """Each weight that trains, and what its optimizer keeps for it."""
    kept = {parameter: values for part in optimizer.parts for parameter, values in part.state.items()}
    return {
        name: (parameter.detach().clone(), {key: v.clone() for key, v in kept.get(parameter, {}).items()})
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }


@pytest.mark.parametrize("organizer", ["sgd", "adamw"])
def test_one_part_trains_and_the_other_waits_with_its_weights_and_momentum(organizer: str) -> None:
    config = config_of(train={"organizer_optimizer": organizer, "organizer_clip": 1.0})
    model = model_of(config)
    optimizer = build_optimizer(parameter_groups(model, config.train), config.train)
    optimizer.set_lr(config.train.lr)
    before = state_of(model, optimizer)
    tuned = {name for name in before if name.startswith(TUNING)}
    assert tuned == {f"{TUNING}.patches", f"{TUNING}.frame"}
    for number in range(8):
        step(model, batch(number), Progress(number // 4, 2, number % 4, steps=4), optimizer)
        after = state_of(model, optimizer)
        moved = {name for name in after if not torch.equal(after[name][0], before[name][0])}
        train = tuned if number // 2 % 2 == 0 else after.keys() - tuned
        assert moved == train, f"step {number}"
        for name in after.keys() - train:
            old, new = before[name][1], after[name][1]
            assert old.keys() == new.keys(), "waiting begins no momentum"
            assert all(torch.equal(old[key], new[key]) for key in old)
        assert after.keys() == before.keys(), "all want gradients again"
        before = after
    assert all(kept for _, kept in before.values()), "all have had their turn"


def test_without_turns_all_trains_at_once() -> None:
    config = config_of(tuning={"alternate": 0})
    model = model_of(config)
    optimizer = build_optimizer(parameter_groups(model, config.train), config.train)
    before = state_of(model, optimizer)
    step(model, batch(0), Progress(0, 1), optimizer)
    after = state_of(model, optimizer)
    assert [name for name in after if torch.equal(after[name][0], before[name][0])] == []


@pytest.mark.parametrize(("number", "waits"), [(0, "method"), (2, TUNING)])
def test_all_want_gradients_again_after_an_error(number: int, waits: str) -> None:
    model = model_of(config_of())
    tuning = model.encoder.backbone.tuning
    wanted = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    progress = Progress(0, 1, number, steps=4)
    with take_turns(model, progress):
        assert tuning.now == ("tuning" if number == 0 else "rest")
        waiting = {n for n, p in model.named_parameters() if wanted[n] and not p.requires_grad}
        assert all(name.startswith(TUNING) == (waits == TUNING) for name in waiting)
        assert any(name.startswith(waits) for name in waiting)
    with pytest.raises(KeyboardInterrupt), take_turns(model, progress):
        raise KeyboardInterrupt
    assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == wanted
    assert tuning.now == "all"


def test_the_tuning_has_its_own_rate_and_decay() -> None:
    config = config_of(train={"tuning_decay": 0.5})
    groups = {group["name"]: group for group in parameter_groups(model_of(config), config.train)}
    assert (groups["tuning"]["lr_ratio"], groups["tuning"]["weight_decay"]) == (5.0, 0.5)
    assert (groups["head"]["lr_ratio"], groups["head"]["weight_decay"]) == (1.0, 1e-3)
    assert "tuning: 24,576 parameters, lr 0.05, decay 0.5" in describe_groups(list(groups.values()), config.train.lr)
    as_all = config_of(train={"tuning_decay": None})
    groups = {group["name"]: group for group in parameter_groups(model_of(as_all), as_all.train)}
    assert groups["tuning"]["weight_decay"] == 1e-3


def test_a_checkpoint_holds_also_what_waited(
    tmp_path: Path, killed_after_an_epoch: Callable[[], AbstractContextManager[None]]
) -> None:
    """With turns of one step and two steps per epoch, the prompts wait in the last one; of four, the others do."""
    for alternate, waits in [(1, TUNING), (4, "method")]:
        run = Run(tmp_path / waits)
        settings = [TINY_TRAINING, SETTINGS, {"tuning": {"alternate": alternate}}]
        with killed_after_an_epoch():
            newkinds.train("creatures", run.folder, settings=settings)
        state = run.load_state()
        assert state is not None
        model = model_of(config_of())
        assert state["model"].keys() == model.changing_state().keys()
        assert {f"{TUNING}.patches", "method.classifier.prototypes"} <= state["model"].keys()
        assert state["model"][f"{TUNING}.frame"].any(), "which starts at zero"
        prototypes = state["model"]["method.classifier.prototypes"]
        assert torch.equal(prototypes, model.method.classifier.prototypes) == (waits == "method")
