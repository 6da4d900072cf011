"""Backbones by name: any of timm's with a weight file, the bundled tiny ViT, or ready-made vectors instead."""

import importlib.resources
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..data.views import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from ..errors import NewkindsError, nearest
from ..files import user_path
from ..settings import AtLeastOne
from .backbone import Backbone, ReadyMade, gives_patch_tokens, patch_size
from .families import FamilyChoice
from .frozen_precision import FrozenPrecision, frozen_dtype
from .hub import pretrained_file, size_of
from .tunings import TUNINGS
from .weights import load_weights as load_weight_file
from .weights import require_file

# timm is imported where it is used: it takes as long to import as torch, and what has features already needs no network
if TYPE_CHECKING:
    from timm.models.vision_transformer import VisionTransformer

TINY = "tiny"
VECTORS = "vectors"  # instead of a backbone: features that somebody else has made
TINY_SIZE = 64
TINY_PATCH = 8
TINY_MEAN = TINY_STD = (0.5, 0.5, 0.5)  # what scripts/pretrain_tiny.py trained it with
USUAL_SIZE = 224  # what the published runs use, also for ViTs that were finished at a larger size


def build_backbone(
    name: str = TINY,
    weights: str | None = None,
    train_blocks: int = 1,
    image_size: int | None = None,
    width: AtLeastOne | None = None,
    train_norm: bool = False,
    family: FamilyChoice = "auto",
    precision: FrozenPrecision = "auto",
    *,
    tuning: Mapping[str, Any] | None = None,
    load_weights: bool = True,
) -> Backbone:
    """A backbone by name: "tiny" (bundled) or any of timm's, with a tag after the dot (`vit_base_patch16_224.dino`).

    weights: a .safetensors or .pth file; without one, those of the name's tag, which also decides the normalisation.
    train_blocks: how many of the last blocks (ViT) or stages (CNN) train; 0 freezes all.
    image_size: pixels along one side; without it the native size, but 224 for ViTs with a larger one.
    width: how many numbers a vector has, for "vectors" alone: ready-made features in the place of images.
    train_norm: whether the final norm of a ViT trains with its last blocks.
    family: how it was pretrained, by which settings have their defaults (`families.py`); auto: by the weight file, else
        by the name; none: the published defaults. It changes nothing that is built here.
    precision: of blocks that never train; auto: bfloat16 on a CPU that multiplies it natively, else float32
        (`frozen_precision.py`). The bundled "tiny" is computed in float32 everywhere.
    tuning: the name and settings of what else trains, such as {"name": "prompts"}; by default nothing.
    load_weights: False builds the architecture alone, for weights that are put in afterwards.

    >>> build_backbone("vit_small_patch14_dinov2", weights="dinov2_vits14_pretrain.pth", train_blocks=2)
    """
    if image_size is not None and image_size < 1:
        raise NewkindsError(f"image_size={image_size} is not a size in pixels; give e.g. {USUAL_SIZE}.")
    if (name == VECTORS) != (width is not None):
        raise NewkindsError(f"backbone.width={width} does not fit the backbone '{name}': it is for ready-made vectors.")
    network: nn.Module
    if width is not None:
        network, preprocessing = ReadyMade(width), Preprocessing(1)
    else:
        network, preprocessing = _tiny(image_size) if name == TINY else _from_timm(name, image_size)
    dtype = torch.float32 if name == TINY else frozen_dtype(precision)
    backbone = Backbone(network, preprocessing, train_blocks, name, train_norm, dtype)
    if tuning is not None:
        settings = {setting: value for setting, value in tuning.items() if setting != "name"}
        backbone.tuning = TUNINGS[tuning["name"]](backbone.anatomy, **settings)
    if load_weights and width is None:
        load_weight_file(network, weights_file(name, weights))
    return backbone


def weights_file(name: str, weights: str | None = None) -> Path:
    """The file a backbone is loaded from: the given one, the bundled one, or timm's (downloaded once, if allowed)."""
    if weights is not None:
        return user_path(weights)
    if name == TINY:
        return Path(str(importlib.resources.files(__package__) / "bundled" / "tiny.safetensors"))
    import timm

    published = _timm_description(name)
    build = partial(timm.create_model, name, num_classes=published.get("num_classes", 0))
    return pretrained_file(name, published.get("hf_hub_id"), published.get("url"), size=partial(size_of, build))


def require_weights(name: str, weights: str | None = None) -> None:
    """Refuse a backbone whose weights are missing: they are looked for, or downloaded if that is allowed, not read."""
    if name != VECTORS:
        require_file(weights_file(name, weights))


def tiny_vit(image_size: int = TINY_SIZE) -> "VisionTransformer":
    """The bundled ViT: four convolutions make patches of 8 px, which helps a network this small, then 4 blocks."""
    from timm.layers import HybridEmbed
    from timm.models.vision_transformer import VisionTransformer
    from timm.models.vision_transformer_hybrid import ConvStem

    stem = ConvStem(depth=4, channels=(32, 64, 96, 96), stride=(2, 2, 2, 1), padding=1)
    embed = partial(HybridEmbed, backbone=stem, proj=False)
    layers: dict[str, Any] = {"norm_layer": partial(nn.LayerNorm, eps=1e-6), "embed_layer": embed}
    # Patches are single pixels of the stem's output, which is at an eighth of the image's size.
    return VisionTransformer(image_size, 1, embed_dim=96, depth=4, num_heads=3, num_classes=0, **layers)


@lru_cache
def width_of(name: str) -> int:
    """How many features a backbone gives, without its weights.

    >>> width_of("tiny")
    96
    """
    with torch.device("meta"):  # shapes only: neither memory nor random numbers are used
        return build_backbone(name, train_blocks=0, load_weights=False).dim


def _tiny(image_size: int | None) -> tuple[nn.Module, Preprocessing]:
    size = image_size or TINY_SIZE
    _check_size(TINY, size, TINY_PATCH)
    return tiny_vit(size), Preprocessing(size, mean=TINY_MEAN, std=TINY_STD)


def _from_timm(name: str, image_size: int | None) -> tuple[nn.Module, Preprocessing]:
    import timm

    published = _timm_description(name)
    size = image_size or _default_size(name, published["input_size"][-1])
    # timm's own rule: networks with a fixed input size take it as an argument, the others take any image.
    shape: dict[str, Any] = {"img_size": size} if published.get("fixed_input_size") else {}
    try:
        network = timm.create_model(name, num_classes=0, **shape)
    except Exception as error:  # each family checks its sizes in its own way
        raise NewkindsError(f"timm cannot build '{name}' for images of {size} pixels: {error}") from error
    _check_size(name, size, patch_size(network))
    mean, std = published.get("mean", IMAGENET_MEAN), published.get("std", IMAGENET_STD)
    return network, Preprocessing(size, mean=tuple(mean), std=tuple(std))


def _timm_description(name: str) -> dict[str, Any]:
    """What timm knows about the weights of a model: where they are, image size, mean and std."""
    import timm

    try:
        if not timm.is_model(name):
            raise RuntimeError("no such architecture")
        source = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        hint = nearest(name, [TINY, *timm.list_models(), *timm.list_pretrained()])
        raise NewkindsError(
            f"there is no backbone called '{name}'.{hint} `newkinds list backbones` shows some; "
            "any timm ViT or CNN works."
        ) from error
    return {"input_size": (3, USUAL_SIZE, USUAL_SIZE), **(source.to_dict() if source else {})}


def native_size(name: str) -> int:
    """The image size (px) at which a backbone was finished, which may be larger than the one it usually gets."""
    return TINY_SIZE if name == TINY else int(_timm_description(name)["input_size"][-1])


def _default_size(name: str, native: int) -> int:
    """The native size; 224 for plain ViTs that were finished at a larger one, such as DINOv2's 518."""
    if native <= USUAL_SIZE:
        return native
    import timm

    with torch.device("meta"):  # shapes only: neither memory nor random numbers are used
        outline = timm.create_model(name)
    patch = patch_size(outline)
    return USUAL_SIZE if gives_patch_tokens(outline) and patch and USUAL_SIZE % patch == 0 else native


def _check_size(name: str, size: int, patch: int | None) -> None:
    if patch and size % patch:
        below = size - size % patch
        choices = f"{below} or {below + patch}" if below else str(patch)
        raise NewkindsError(
            f"image_size={size} is not a multiple of the patch size {patch} of '{name}'; use {choices}."
        )
