"""The averaged teacher: what it averages, what it sees, that it survives a kill and is not part of a finished run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import newkinds
from conftest import TINY_TRAINING
from newkinds.data import load_table
from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.encoder import Encoder
from newkinds.encoders.tokens import Encoded
from newkinds.files import make_folder
from newkinds.methods import METHODS, Progress, Step
from newkinds.methods.simgcd import SimGCD
from newkinds.runs.config import Config, resolve
from newkinds.runs.run import Run
from newkinds.training.embedding import embed
from newkinds.training.loop import fit, put_teacher_in_place
from newkinds.training.model import Model, build_model
from newkinds.training.optimizers import build_optimizer, parameter_groups
from newkinds.training.steps import step
from newkinds.training.teacher import Teacher

SECOND = {"train": {"start": "none", "lr": 0.05}}


def config_of(name: str = "mugcd", **sections: Any) -> Config:
    names = {"data": {"name": "creatures"}, "method": {"name": name}, "organizer": {"name": "adapter"}}
    return resolve(names, TINY_TRAINING, SECOND, sections)


def model_of(config: Config) -> Model:
    return build_model(config, load_table(config.data).known, 4)


def batch(seed: int, for_teacher: bool = True) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    pixels = [Pixels(torch.randint(256, (4, 3, 64, 64), dtype=torch.uint8, generator=generator)) for _ in range(2)]
    return Batch(pixels[0], torch.tensor([0, 1, -1, -1]), torch.arange(4), pixels[1] if for_teacher else None)


def trained_weights(model: Model) -> dict[str, torch.Tensor]:
    parts = {"encoder": model.encoder, "method": model.method}
    return {
        f"{part}.{name}": value.detach().clone()
        for part, module in parts.items()
        for name, value in module.named_parameters()
        if value.requires_grad
    }


def test_it_is_the_average_over_the_steps_of_all_that_trains() -> None:
    config = config_of()
    model = model_of(config)
    model.teacher = Teacher(model.encoder, model.method)
    optimizer = build_optimizer(parameter_groups(model, config.train), config.train)
    average = {name: value.tolist() for name, value in trained_weights(model).items() if value.ndim == 1}
    whole = trained_weights(model)
    for number in range(4):
        progress = Progress(0, epochs=1, step=number, steps=4)
        step(model, batch(seed=number), progress, optimizer)
        keep = model.method.teacher_momentum(progress)
        assert keep is not None
        now = trained_weights(model)
        whole = {name: keep * value + (1 - keep) * now[name] for name, value in whole.items()}
        for name, values in average.items():  # the same, number by number
            average[name] = [keep * a + (1 - keep) * b for a, b in zip(values, now[name].tolist(), strict=True)]
    found = {name.replace("/", "."): value for name, value in model.teacher.named_buffers()}
    assert found.keys() == whole.keys(), "weights that stay frozen are not kept twice"
    assert not any("blocks.0." in name for name in found)
    for name, value in found.items():
        torch.testing.assert_close(value, whole[name])
        assert not torch.equal(value, now[name])
        if name in average:
            assert value.tolist() == pytest.approx(average[name], abs=1e-6)


def test_it_sees_its_own_views_with_its_own_weights_and_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(config_of())
    model.teacher = Teacher(model.encoder, model.method)
    before = deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.02 * torch.randn(parameter.shape))
    taught: list[torch.Tensor] = []
    loss = model.method.loss

    def recorded(given: Any) -> dict[str, torch.Tensor]:
        taught.append(given.taught)
        return loss(given)

    monkeypatch.setattr(model.method, "loss", recorded)
    model.eval()
    for one in (batch(0), batch(0, for_teacher=False)):
        model(one, Progress(0, 1))
        expected = before.method.classifier(before.eval().encoder(one.for_teacher or one.inputs).feature)
        torch.testing.assert_close(taught[-1], expected)
        assert not taught[-1].requires_grad
    assert not torch.allclose(taught[0], taught[1])


def test_changing_places_twice_changes_nothing_and_once_hands_over() -> None:
    model = model_of(config_of())
    model.teacher = Teacher(model.encoder, model.method)
    averaged = trained_weights(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) if parameter.requires_grad else 0)
    latest = trained_weights(model)
    with put_teacher_in_place(model):
        here = trained_weights(model)
        assert all(torch.equal(here[name], averaged[name]) for name in here)
    with pytest.raises(KeyboardInterrupt), put_teacher_in_place(model):
        raise KeyboardInterrupt
    here = trained_weights(model)
    assert all(torch.equal(here[name], latest[name]) for name in here)
    model.teacher.change_places()
    here = trained_weights(model)
    assert all(torch.equal(here[name], averaged[name]) for name in here)


@pytest.mark.parametrize("who", ["teacher", "student"])
def test_evaluations_while_training_judge_the_model_that_is_kept(who: str, tmp_path: Path) -> None:
    config = config_of(method={"assign_by": who}, train={"eval_every": 1})
    model, table, seen = model_of(config), load_table(config.data), []

    def evaluate(model: Model, features: torch.Tensor) -> dict[str, float | None]:
        seen.append(model.method.classifier.prototypes.detach().clone())
        of_the_model = embed(model.encoder, table, model.device, config.train.batch_size).features
        torch.testing.assert_close(features, of_the_model)
        return {}

    fit(model, table, config.train, Run(make_folder(tmp_path / "run")), evaluate)
    assert len(seen) == 2
    assert torch.equal(seen[-1], model.method.classifier.prototypes)
    assert not torch.equal(seen[0], seen[1])


def test_an_evaluated_epoch_embeds_the_images_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encode, embedded = Encoder.forward, []

    def count_and_encode(encoder: Encoder, inputs: Any, **options: Any) -> Encoded:
        encoded = encode(encoder, inputs, **options)
        if not encoder.training:
            embedded.append(len(encoded.feature))
        return encoded

    monkeypatch.setattr(Encoder, "forward", count_and_encode)
    settings = [TINY_TRAINING, {"method": {"output_dim": 64, "projection_hidden": 32}, "train": {"eval_every": 1}}]
    newkinds.train("creatures", tmp_path / "run", method="gcd", settings=settings)
    assert len(Run(tmp_path / "run").metrics()) == 2
    assert sum(embedded) == 3 * 32  # after each epoch, and to find the categories in the end


def test_a_checkpoint_holds_it_and_the_finished_run_does_not(
    tmp_path: Path, killed_after_an_epoch: Callable[[], AbstractContextManager[None]]
) -> None:
    run = Run(tmp_path / "run")

    def train() -> None:
        newkinds.train("creatures", run.folder, method="mugcd", settings=[TINY_TRAINING, SECOND])

    with killed_after_an_epoch():
        train()
    state = run.load_state()
    assert state is not None
    kept = {name for name in state["model"] if name.startswith("teacher.")}
    assert "teacher.method/classifier/prototypes" in kept
    assert any(not torch.equal(state["model"][name], state["model"][name[8:].replace("/", ".")]) for name in kept)
    train()
    assert not any("teacher" in name for name in load_file(run.model_file))


class Steady(SimGCD):
    """SimGCD that also stays near its average, which sees the same two views and follows every second step."""

    def teacher_momentum(self, progress: Progress) -> float | None:
        return None if progress.step % 2 else 0.5

    def teach(self, encoded: Encoded) -> torch.Tensor:
        return encoded.feature

    def loss(self, step: Step) -> dict[str, torch.Tensor]:
        terms = super().loss(step)
        drift = (step.encoded.feature - step.taught).square().mean()
        return {**terms, "loss": terms["loss"] + drift, "drift": drift}


def test_without_views_of_its_own_it_sees_the_students_and_none_leaves_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(METHODS._entries, "steady", Steady)
    config = config_of("steady")
    model = model_of(config).eval()
    model.teacher = Teacher(model.encoder, model.method)
    optimizer = build_optimizer(parameter_groups(model, config.train), config.train)
    drifts, averages = [], []
    for number in range(3):
        both = Pixels(batch(seed=number).inputs.values.repeat(2, 1, 1, 1))
        one = replace(batch(seed=number, for_teacher=False), inputs=both)
        drifts.append(step(model, one, Progress(0, epochs=1, step=number, steps=3), optimizer)["drift"].item())
        averages.append(model.teacher.get_buffer("method/classifier/prototypes").clone())
    assert drifts[0] == 0, "it begins as the student"
    assert drifts[1] > 0
    assert torch.equal(averages[0], averages[1])
    assert not torch.equal(averages[1], averages[2])


def test_a_method_that_cannot_teach_says_so() -> None:
    model = model_of(config_of("simgcd"))
    assert model.method.teacher_momentum(Progress(0, 1)) is None
    with pytest.raises(NotImplementedError, match="SimGCD has no teacher"):
        Teacher(model.encoder, model.method)(batch(0).inputs)
