"""Weight files whose tensors have the right names and shapes, but hold no weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from timm.models.resnet import resnet18
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

import newkinds
from newkinds.encoders.backbones import weights_file
from newkinds.encoders.weights import load_weights, read_tensors
from newkinds.errors import NewkindsError


def small_vit(size: int = 32) -> VisionTransformer:
    return VisionTransformer(img_size=size, patch_size=8, embed_dim=24, depth=1, num_heads=3, num_classes=0)


def spoilt(name: str, value: Tensor, file: Path) -> Path:
    state = small_vit().state_dict()
    save_file({**state, name: value.expand_as(state[name]).clone()}, file)
    return file


@pytest.mark.parametrize("name", ["norm.weight", "pos_embed", "patch_embed.proj.weight"])
@pytest.mark.parametrize("kind", [torch.int64, torch.int8, torch.bool])
@pytest.mark.parametrize("size", [32, 48])  # another grid: position embeddings are resized
def test_whole_numbers_are_not_weights(tmp_path: Path, name: str, kind: torch.dtype, size: int) -> None:
    file = spoilt(name, torch.ones((), dtype=kind), tmp_path / "w.safetensors")
    with pytest.raises(NewkindsError, match=rf"tensor {name} in .*w\.safetensors holds whole numbers \({kind}\)"):
        load_weights(small_vit(size), file)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_no_numbers_are_named(tmp_path: Path, value: float) -> None:
    file = spoilt("blocks.0.mlp.fc1.bias", torch.tensor(value), tmp_path / "w.safetensors")
    with pytest.raises(NewkindsError, match=r"tensor blocks\.0\.mlp\.fc1\.bias in .* holds values that are NaN"):
        load_weights(small_vit(), file)


def test_counters_of_batches_stay_whole_numbers(tmp_path: Path) -> None:
    save_file(resnet18(num_classes=0).state_dict(), tmp_path / "w.safetensors")
    load_weights(resnet18(num_classes=0), tmp_path / "w.safetensors")


def test_the_learning_rate_is_not_blamed_for_damaged_weights(photos: Path, tmp_path: Path) -> None:
    state = read_tensors(weights_file("tiny"))
    name = next(name for name in state if name.endswith("norm1.weight"))
    state[name][0] = float("nan")
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(NewkindsError, match=rf"tensor {name} in .*w\.safetensors holds values that are NaN"):
        newkinds.train(photos, tmp_path / "run", k=3, weights=tmp_path / "w.safetensors")
    assert not (tmp_path / "run").exists()
