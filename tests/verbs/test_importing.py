"""A checkpoint of SimGCD's code, built here by the names that it gives its tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import newkinds
from conftest import TINY_TRAINING
from newkinds.encoders.backbones import build_backbone
from newkinds.errors import NewkindsError
from newkinds.runs.config import resolve
from newkinds.training.model import Model, build_model

SETTINGS: list[dict[str, Any]] = [TINY_TRAINING, {"backbone": {"name": "tiny"}, "method": {"projection_hidden": 32}}]


def simgcd_checkpoint(model: Model, file: Path, **changes: Tensor) -> Path:
    """As its authors save it: a sequence of backbone and head, the optimizer's state, the epoch."""
    head = model.method.state_dict()
    prototypes = head["classifier.prototypes"]
    state = {f"0.{name}": value for name, value in model.encoder.backbone.network.state_dict().items()}
    state |= {f"1.mlp.{name.split('.', 1)[1]}": value for name, value in head.items() if name.startswith("projection.")}
    state |= {"1.last_layer.weight_g": torch.ones(len(prototypes), 1), "1.last_layer.weight_v": prototypes, **changes}
    momentum = {0: {"momentum_buffer": torch.zeros(2)}}
    torch.save({"model": state, "optimizer": {"state": momentum, "param_groups": [{"lr": 0.1}]}, "epoch": 200}, file)
    return file


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    newkinds.discover("creatures", run, method="simgcd", settings=SETTINGS)
    return run


def test_an_imported_run_assigns_as_the_model_it_was_made_of(
    trained: Path, tmp_path: Path, run_cli: Callable[..., tuple[int, str, str]]
) -> None:
    model = newkinds.load(trained).model
    file = simgcd_checkpoint(model, tmp_path / "model_best.pt")
    small = ["--set", "data.categories=4", "--set", "data.per_category=8", "--set", "method.projection_hidden=32"]
    out = tmp_path / "imported"
    status, _, said = run_cli("import", str(file), "creatures", "--out", str(out), "--backbone", "tiny", *small)
    assert status == 0, said
    found = newkinds.Discovery.read(out)
    assert [m.category_id for m in found.members] == [m.category_id for m in newkinds.Discovery.read(trained).members]
    for (name, imported), original in zip(
        newkinds.load(out).model.method.named_parameters(), model.method.parameters(), strict=True
    ):
        assert torch.equal(imported, original), name
    backbone = build_backbone("tiny", weights=str(file))  # --weights takes it as well
    assert all(
        torch.equal(value, model.encoder.backbone.network.state_dict()[name])
        for name, value in backbone.network.state_dict().items()
    )


def test_training_starts_from_it_and_what_does_not_fit_is_said(tmp_path: Path) -> None:
    config = resolve({"data": {"name": "creatures"}}, *SETTINGS)
    model = build_model(config, ["a", "b"], 4)
    file = simgcd_checkpoint(model, tmp_path / "model.pt")
    with pytest.raises(NewkindsError, match="give --k 4"):
        newkinds.train("creatures", tmp_path / "run", start=file, k=6, settings=SETTINGS)
    with pytest.raises(NewkindsError, match="GCD has not: choose --method simgcd"):
        newkinds.train("creatures", tmp_path / "run", start=file, method="gcd", settings=SETTINGS)
    odd = simgcd_checkpoint(model, tmp_path / "odd.pt", **{"1.last_layer.weight_g": torch.full((4, 1), 3.0)})
    with pytest.raises(NewkindsError, match="other lengths than 1"):
        newkinds.train("creatures", tmp_path / "run", start=odd, settings=SETTINGS)
    assert not (tmp_path / "run").exists()
    torch.save({"model": {"0.norm.weight": torch.ones(2)}}, tmp_path / "bare.pt")
    with pytest.raises(NewkindsError, match="no head of SimGCD"):
        newkinds.train("creatures", tmp_path / "run", start=tmp_path / "bare.pt", settings=SETTINGS)
    newkinds.train("creatures", tmp_path / "run", start=file, epochs=1, settings=SETTINGS)
