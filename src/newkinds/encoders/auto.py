"""`--backbone auto`: the best backbone that is there."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..console import say, warn
from ..errors import NewkindsError
from ..files import user_path
from .backbones import TINY, weights_file
from .families import has_layer_scale
from .hub import THE_WORD, NoWord, cached_file
from .weights import read_tensors

AUTO = "auto"
VARIABLE = "NEWKINDS_BACKBONE"  # what auto stands for, if somebody says so
# the best first; on a CPU the small ones come before all large ones
SMALL = ("vit_small_patch14_dinov2", "vit_small_patch16_dinov3", "vit_small_patch16_224.dino")
LARGE = ("vit_base_patch14_dinov2", "vit_base_patch16_dinov3", "vit_base_patch16_224.dino")
OTHERS = (  # whose weight files are recognised too
    "vit_small_patch14_reg4_dinov2", "vit_base_patch14_reg4_dinov2", "vit_large_patch14_dinov2",
    "vit_large_patch14_reg4_dinov2", "vit_giant_patch14_dinov2", "vit_small_patch8_224.dino",
    "vit_base_patch8_224.dino",
)  # fmt: skip


def choose_backbone(
    weights: str | None, photographs: bool, device: torch.device, before_download: Callable[[], object] = lambda: None
) -> str:
    """The name of the backbone to take: that of the weight file, if one is given, else the best that is on this
    machine, else the first, if it may be downloaded. Drawn creatures have their own, which is bundled.

    `before_download` may refuse, before anybody is asked for permission.

    >>> choose_backbone("dinov2_vits14_pretrain.pth", photographs=True, device=torch.device("cpu"))
    'vit_small_patch14_dinov2'
    """
    if weights is not None:
        return backbone_of(user_path(weights))
    if named := os.environ.get(VARIABLE):
        return named
    if not photographs:
        return TINY
    wanted = (*SMALL, *LARGE) if device.type == "cpu" else (*LARGE, *SMALL)
    for name in wanted:
        if cached_file(_hub_id(name)) is not None:
            say(f"backbone: {name}, whose weights are on this machine")
            return name
    before_download()
    try:
        weights_file(wanted[0])
    except NoWord as error:
        offer = f"{THE_WORD}: {error.what} is downloaded once"
        raise NoWord(_none_here("Nothing is downloaded without your word.", offer), error.what) from None
    except NewkindsError as error:
        raise NewkindsError(_none_here(str(error), "rerun the same command there")) from None
    say(f"backbone: {wanted[0]}, just downloaded")
    return wanted[0]


def _none_here(why: str, with_a_network: str) -> str:
    return (
        f"photographs need a backbone that was trained on photographs, and there is none on this machine. {why}\n"
        f"What you can do:\n"
        f"  with a network:      {with_a_network}\n"
        "  with a weight file:  add --weights FILE   (DINO, DINOv2, DINOv3)\n"
        "  with neither:        add --backbone tiny  (bundled; knows drawn creatures only; expect little)"
    )


def warn_of_tiny(name: str, photographs: bool) -> None:
    if name == TINY and photographs:
        warn(
            "the backbone 'tiny' knows drawn creatures only: on photographs its categories mean little. "
            "Leave out --backbone for the best one that is available, or name a weight file by --weights."
        )


def backbone_of(file: Path) -> str:
    """Which backbone a weight file is of, by the shapes of its tensors."""
    import timm  # slow to import

    shapes = _traits(read_tensors(file))
    for name in (*SMALL, *LARGE, *OTHERS):
        with torch.device("meta"):  # shapes only
            if shapes and _traits(timm.create_model(name, num_classes=0).state_dict()) == shapes:
                say(f"backbone: {name}, by the shapes in {file.name}")
                return name
    raise NewkindsError(f"{file} does not tell which backbone it is of: name it by --backbone.")


def _traits(state: Mapping[str, Tensor]) -> dict[str, Any] | None:
    """What tells backbones apart: patch size and width, number of blocks, scales and registers."""
    projections = [value for name, value in state.items() if name.endswith("patch_embed.proj.weight")]
    depths = [int(name.split("blocks.")[1].split(".")[-4]) for name in state if name.endswith("attn.qkv.weight")]
    if not projections or not depths:
        return None
    return {
        "patches": tuple(projections[0].shape),
        "depth": max(depths) + 1,
        "scaled": has_layer_scale(state),
        "registers": any("reg" in name and "token" in name for name in state),
        "positions": any(name.endswith("pos_embed") for name in state),
    }


def _hub_id(name: str) -> str | None:
    import timm  # slow to import

    source = timm.get_pretrained_cfg(name)
    return source.hf_hub_id if source else None
