"""Weight files that do not fit, are damaged, would run code, or hold no weights are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models.resnet import resnet18
from torch import Tensor

import newkinds
from newkinds.encoders import backbones
from newkinds.encoders.backbones import build_backbone, weights_file
from newkinds.encoders.weights import load_weights, read_tensors
from newkinds.errors import NewkindsError
from weight_files import parity_state, saved, small_vit


def test_another_architecture_is_named(tmp_path: Path) -> None:
    file = saved(parity_state(), tmp_path / "small.safetensors")
    with pytest.raises(NewkindsError) as caught:
        build_backbone("tiny", weights=str(file))
    message = str(caught.value)
    assert str(file) in message
    wanted = set(backbones.tiny_vit().state_dict())
    counted = {name for name in wanted if not name.endswith("num_batches_tracked")}  # counters may be absent
    missing = counted - set(parity_state())
    assert f"{len(missing)} of {len(wanted)} tensors are missing (patch_embed.backbone.0.conv.weight," in message
    assert "cls_token is (1, 1, 24), not (1, 1, 96)" in message
    assert "newkinds list backbones" in message


def test_a_cnn_file_for_a_vit(tmp_path: Path) -> None:
    file = saved(timm.create_model("test_resnet").state_dict(), tmp_path / "resnet.pth")
    with pytest.raises(NewkindsError, match=r"69 of 72 tensors are missing .*; 90 are unknown"):
        build_backbone("tiny", weights=str(file))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"depth": 3}, r"unknown to the backbone \(blocks.2"),
        ({"init_values": 0.1}, r"unknown to the backbone \(blocks.0.ls1.gamma"),
        ({"patch_size": 4}, r"patch_embed.proj.weight is \(24, 3, 4, 4\), not \(24, 3, 8, 8\)"),
        ({"reg_tokens": 4, "no_embed_class": True}, "reg_token"),
    ],
)
def test_nothing_is_adapted_in_silence(tmp_path: Path, source: dict[str, Any], reason: str) -> None:
    file = saved(small_vit(**source).state_dict(), tmp_path / "other.pth")
    with pytest.raises(NewkindsError, match=reason):
        load_weights(small_vit(), file)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match=r"there is no weight file .*nowhere\.pth"):
        build_backbone("tiny", weights=str(tmp_path / "nowhere.pth"))
    with pytest.raises(NewkindsError, match="is a folder"):
        build_backbone("tiny", weights=str(tmp_path))


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("keep", [0, 1, 1000])
def test_truncated_file(tmp_path: Path, suffix: str, keep: int) -> None:
    file = saved(parity_state(), tmp_path / f"weights{suffix}")
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(NewkindsError, match=rf"weights\{suffix} is damaged or not a weight file; download or copy"):
        load_weights(small_vit(), file)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_web_page_instead_of_weights(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"weights{suffix}"
    file.write_text("<!doctype html><html><body>Please sign in</body></html>")
    with pytest.raises(NewkindsError, match="is damaged or not a weight file"):
        load_weights(small_vit(), file)


class RunsCode:
    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.victim,))


def test_code_in_a_pickle_is_not_run(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    file = saved({**parity_state(), "extra": RunsCode(victim)}, tmp_path / "evil.pth")
    with pytest.raises(NewkindsError, match=r"holds more than tensors .* could run code"):
        load_weights(small_vit(), file)
    assert not victim.exists()


@pytest.mark.parametrize("content", [{"epoch": 3}, [torch.ones(2)], torch.ones(2)])
def test_no_tensors_inside(tmp_path: Path, content: Any) -> None:
    with pytest.raises(NewkindsError, match="holds no named tensors"):
        load_weights(small_vit(), saved(content, tmp_path / "notes.pt"))


# ------------------------------------------------------------------- right names and shapes, but no weights
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
        newkinds.train(photos, tmp_path / "run", k=3, backbone="tiny", weights=tmp_path / "w.safetensors")
    assert not (tmp_path / "run").exists()
