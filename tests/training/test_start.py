"""Training that begins with the weights of a finished run: what is taken over, what is said, what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import newkinds
from conftest import TINY_TRAINING
from newkinds.data import load_table
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS
from newkinds.runs.config import Config, resolve
from newkinds.runs.run import Run
from newkinds.training.model import AFTER_TRAINING, Model, build_model
from newkinds.training.start import require_first_stage, start_from

SMALL_HEAD = {"method": {"projection_hidden": 32, "projection_dim": 16}}
TUNED = {"tuning": {"alternate": 1}, "train": {"lr": 0.01, "tuning_lr_ratio": 1.0}}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of SimGCD, the first stage of SPTNet."""
    out = tmp_path_factory.mktemp("runs") / "first"
    newkinds.train("creatures", out, settings=[TINY_TRAINING, SMALL_HEAD])
    return out


def config_of(method: str, start: Path | str | None, **sections: Any) -> Config:
    names = {"data": {"name": "creatures"}, "method": {"name": method}}
    head = SMALL_HEAD if "projection_dim" in METHODS[method].Config.__dataclass_fields__ else {}
    return resolve(names, TINY_TRAINING, head, {"train": {"start": start and str(start)}}, sections)


def built(config: Config, k: int = 4, known: list[str] | None = None) -> Model:
    return build_model(config, known or load_table(config.data).known, k)


def started(config: Config, **model: Any) -> tuple[Model, Model]:
    """A model with and without its start."""
    with_start = built(config, **model)
    start_from(with_start, config)
    return with_start, built(config, **model)


# --- what is taken over --------------------------------------------------------------------------------------


def test_a_second_stage_begins_with_all_that_fits(first: Path, capfd: pytest.CaptureFixture[str]) -> None:
    there = load_file(first / "model.safetensors")
    model, fresh = started(config_of("sptnet", first))
    said = " ".join(capfd.readouterr().err.split())
    assert f"starting from {first}: 19 of 21 trained tensors; without a start there: encoder.backbone.tuning" in said
    here = model.state_dict()
    shared = {name for name in here if name in there and not name.startswith(AFTER_TRAINING)}
    assert {"method.classifier.prototypes", "method.projection.0.weight"} <= shared
    assert all(torch.equal(here[name], there[name]) for name in shared)
    assert not torch.equal(here["method.projection.0.weight"], fresh.state_dict()["method.projection.0.weight"])
    assert not model.calibration.fitted  # it is found after training


def test_what_has_no_place_or_another_shape_starts_afresh(first: Path, capfd: pytest.CaptureFixture[str]) -> None:
    there = load_file(first / "model.safetensors")
    for config, k, head in [(config_of("mugcd", first), 5, "method.classifier"), (config_of("gcd", first), 4, "head")]:
        model, fresh = started(config, k=k)
        said = " ".join(capfd.readouterr().err.split())
        assert f"without a start there: method.{head.removeprefix('method.')}" in said
        block = "encoder.backbone.network.blocks.3.attn.qkv.weight"
        assert torch.equal(model.state_dict()[block], there[block])
        assert not torch.equal(fresh.state_dict()[block], there[block])
        same = [name for name, _ in model.method.named_parameters() if name != "classifier.prototypes"]
        assert all(torch.equal(model.method.get_parameter(n), fresh.method.get_parameter(n)) for n in same)


def test_centres_that_were_found_after_training_are_not_a_start(tmp_path: Path) -> None:
    newkinds.train("creatures", tmp_path / "first", assigner="sskmeans", settings=[TINY_TRAINING, SMALL_HEAD])
    config = config_of("mugcd", tmp_path / "first", assigner={"name": "sskmeans"})
    assert load_file(tmp_path / "first" / "model.safetensors")["assigner.centres"].any()
    model, _ = started(config)
    assert model.assigner is not None
    assert not model.assigner.get_buffer("centres").any()


def test_frozen_blocks_that_the_first_stage_trained_are_taken_over_too(tmp_path: Path) -> None:
    deep = {"backbone": {"train_blocks": 2}}
    newkinds.train("creatures", tmp_path / "first", settings=[TINY_TRAINING, SMALL_HEAD, deep])
    model, fresh = started(config_of("mugcd", tmp_path / "first"))
    name = "encoder.backbone.network.blocks.2.mlp.fc1.weight"
    assert not model.get_parameter(name).requires_grad
    assert not torch.equal(model.state_dict()[name], fresh.state_dict()[name])


@pytest.mark.parametrize("start", ["none", None])
def test_without_a_start_the_weights_are_those_of_the_backbones_file(start: str | None) -> None:
    model, fresh = started(config_of("mugcd", start))
    there = fresh.state_dict()
    assert all(torch.equal(value, there[name]) for name, value in model.state_dict().items())


# --- two runs, one after the other ----------------------------------------------------------------------------


def test_the_run_records_its_start_and_a_killed_one_ends_with_the_same_bits(
    first: Path, tmp_path: Path, killed_after_an_epoch: Callable[[], AbstractContextManager[None]]
) -> None:
    def train(folder: str) -> bytes:
        settings = [TINY_TRAINING, SMALL_HEAD, TUNED]
        newkinds.train("creatures", tmp_path / folder, method="sptnet", start=first, settings=settings)
        return Run(tmp_path / folder).model_file.read_bytes()

    whole = train("whole")
    with killed_after_an_epoch():
        train("killed")
    assert train("killed") == whole
    assert "| started from | first" in (tmp_path / "whole" / "README.md").read_text()
    assert Run(tmp_path / "whole").read_json("protocol.json")["started_from"].startswith("first: model.safetensors")
    shutil.move(first, tmp_path / "elsewhere")  # a finished run does not need it
    try:
        assert train("whole") == whole
    finally:
        shutil.move(tmp_path / "elsewhere", first)


def test_resuming_is_refused_if_the_first_stage_changed(
    tmp_path: Path, killed_after_an_epoch: Callable[[], AbstractContextManager[None]]
) -> None:
    def first_stage(seed: int) -> None:
        shutil.rmtree(tmp_path / "first", ignore_errors=True)
        newkinds.train("creatures", tmp_path / "first", seed=seed, settings=[TINY_TRAINING, SMALL_HEAD])

    def second_stage() -> None:
        newkinds.train("creatures", tmp_path / "run", method="mugcd", start=tmp_path / "first", settings=TINY_TRAINING)

    first_stage(seed=0)
    with killed_after_an_epoch():
        second_stage()
    first_stage(seed=1)
    with pytest.raises(NewkindsError, match=r"first, from which .*run starts, changed since: restore it or choose"):
        second_stage()
    first_stage(seed=0)
    second_stage()


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].starts_from])
def test_a_second_stage_without_its_first(method: str, tmp_path: Path) -> None:
    first = METHODS[method].starts_from
    sentence = rf"{method} is a second stage, which starts from a run of {first}: train that first .*add --start FIRST"
    with pytest.raises(NewkindsError, match=sentence):
        newkinds.train("creatures", tmp_path / "run", method=method, settings=TINY_TRAINING)
    assert not (tmp_path / "run").exists()
    require_first_stage(config_of(method, "none"))
    require_first_stage(config_of(method, None, train={"epochs": 0}))  # the frozen baseline needs no first stage


def test_a_first_stage_with_another_backbone(first: Path) -> None:
    config = config_of("mugcd", first)
    config.backbone["name"] = "vit_small_patch14_dinov2"
    with pytest.raises(NewkindsError, match="trained with the backbone tiny, not vit_small_patch14_dinov2: start from"):
        start_from(built(config_of("mugcd", first)), config)


def test_a_first_stage_that_knows_other_classes(first: Path) -> None:
    config = config_of("mugcd", first)
    with pytest.raises(NewkindsError, match="knows other classes: start from a run on the same labelled images"):
        start_from(built(config, known=["owl", "crow"]), config)


def test_a_first_stage_that_is_not_there_or_not_finished(
    tmp_path: Path, killed_after_an_epoch: Callable[[], AbstractContextManager[None]]
) -> None:
    def second_stage() -> None:
        newkinds.train("creatures", tmp_path / "run", method="mugcd", start=tmp_path / "first", settings=TINY_TRAINING)

    with pytest.raises(NewkindsError, match=r"first is not a run directory: it has no config\.yaml"):
        second_stage()
    with killed_after_an_epoch():
        newkinds.train("creatures", tmp_path / "first", settings=[TINY_TRAINING, SMALL_HEAD])
    with pytest.raises(NewkindsError, match="first is not finished: finish it first"):
        second_stage()
    assert not (tmp_path / "run").exists()


def test_a_damaged_first_stage(first: Path, tmp_path: Path) -> None:
    shutil.copytree(first, tmp_path / "first")
    model_file = tmp_path / "first" / "model.safetensors"
    model_file.write_bytes(model_file.read_bytes()[:-1] + b"?")
    config = config_of("mugcd", tmp_path / "first")
    with pytest.raises(NewkindsError, match="damaged or was changed by hand"):
        start_from(built(config), config)
