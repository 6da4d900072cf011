"""A small published ViT and files of its weights, as tests of backbones and weights need them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

PARITY = np.load(Path(__file__).with_name("numbers") / "tiny_vit.npz")
State = dict[str, Tensor]


def small_vit(size: int = 32, **changes: Any) -> VisionTransformer:
    """The architecture of the parity case: patches of 8, 2 blocks of width 24."""
    layout: dict[str, Any] = {"patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 0}
    return VisionTransformer(img_size=size, **{**layout, **changes})


def parity_state() -> State:
    return {name[6:]: torch.from_numpy(PARITY[name]) for name in PARITY if name.startswith("param.")}


def prefixed(prefix: str, state: State) -> State:
    return {prefix + name: value for name, value in state.items()}


def saved(content: Any, file: Path) -> Path:
    if file.suffix == ".safetensors":
        save_file({name: value.contiguous() for name, value in content.items()}, file)
    else:
        torch.save(content, file)
    return file


def assert_same_state(network: torch.nn.Module, expected: State) -> None:
    state = network.state_dict()
    assert set(state) == set(expected)
    for name, value in state.items():
        assert value.dtype == expected[name].dtype
        assert torch.equal(value, expected[name]), name
