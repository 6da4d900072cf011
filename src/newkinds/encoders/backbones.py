"""Backbones: timm names and local weight files → tokens; which blocks train; the bundled tiny ViT."""

import importlib.resources
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ..data.views import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from ..errors import NewkindsError, nearest
from ..files import user_path
from ..settings import AtLeastOne
from .blocks import all_tokens, first_token
from .families import FamilyChoice
from .frozen_precision import FrozenPrecision, computing_in, frozen_dtype
from .hub import pretrained_file, size_of
from .tokens import Tokens
from .tunings import TUNINGS, Anatomy, LastBlocks, Tuning
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
FINAL_NORMS = ("norm", "fc_norm")  # timm's names; one of a ViT's two does nothing
USUAL_SIZE = 224  # what the published runs use, also for ViTs that were finished at a larger size


class Backbone(nn.Module):
    """A timm network that gives tokens, of which the last `train_blocks` blocks are trained.

    Everything else stays frozen: patch and position embeddings, class token, and, unless `train_norm`, the final norm.
    The network is always in evaluation mode: no dropout, and the BatchNorms of a CNN keep their statistics. The blocks
    of a plain ViT that never train multiply in `dtype`; what they give has the type of what they are given.

    >>> tokens = build_backbone("tiny")(images)        # images (B, 3, 64, 64)
    >>> tokens.cls.shape, tokens.patches.shape, tokens.grid
    (torch.Size([B, 96]), torch.Size([B, 64, 96]), (8, 8))
    """

    def __init__(
        self,
        network: Any,
        preprocessing: Preprocessing,
        train_blocks: int = 0,
        name: str = "unnamed",
        train_norm: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.network = network  # any of timm's, which have names in common but no class
        self.name = name
        self.preprocessing = preprocessing
        self.train_blocks = train_blocks
        self.dim: int = network.num_features
        self.has_class_token = any(name.endswith("cls_token") for name, _ in network.named_parameters())
        train_last_blocks(network, train_blocks, train_norm)
        self.tuning: Tuning = LastBlocks(self.anatomy)
        self.dtype = dtype if self.is_plain_vit else torch.float32  # convolutions gain nothing from less
        self.eval()

    @property
    def is_plain_vit(self) -> bool:
        """Whether its blocks can be computed one by one."""
        if isinstance(self.network, ReadyMade):
            return False
        from timm.models.vision_transformer import VisionTransformer

        return type(self.network).forward_features is VisionTransformer.forward_features

    @property
    def anatomy(self) -> Anatomy:
        """What a tuning must know of it."""
        blocks = len(self._blocks) if self.is_plain_vit else 0
        prefix = getattr(self.network, "num_prefix_tokens", 0)
        return Anatomy(self.name, self.dim, self.preprocessing.size, blocks, prefix, _patch_size(self.network))

    @property
    def is_fixed(self) -> bool:
        """Whether nothing of it trains."""
        return not self.train_blocks and not any(True for _ in self.tuning.parameters())

    def has_frozen_part(self, patches: bool = True) -> bool:
        """Whether what never changes in training can be computed by itself, once, and kept.

        What a network that does not train gives can be kept, whatever the network is.
        """
        return (self.is_plain_vit and self.tuning.first > 0) or self.is_fixed

    @property
    def why_not_cached(self) -> str:
        """The reason, if there is no frozen part."""
        if self.is_plain_vit:
            return "what trains changes the image or the first block, so nothing of the backbone can be cached"
        kind = type(self.network).__name__
        return f"the frozen part of {kind} cannot be computed apart from its trained one, so it cannot be cached"

    def forward(self, images: Tensor, patches: bool = True) -> Tokens:
        """Normalised images (B, 3, H, W) → tokens; with `patches=False` patch tokens may be missing (N = 0)."""
        images = self.tuning.images(images)
        if self.is_plain_vit:
            return self._through(0, self._first_tokens(images), patches)
        features = self.network.forward_features(images)
        if isinstance(self.network, ReadyMade):
            return Tokens(features, features[:, None][:, :0], (0, 0))
        if isinstance(features, Tensor) and features.ndim == 4:
            return self._tokens_of_map(features)
        if isinstance(features, Tensor) and features.ndim == 3 and _is_plain_vit(self.network):
            return self._tokens_of_sequence(features)
        raise NewkindsError(
            f"the backbone {type(self.network).__name__} gives neither a feature map nor the tokens of "
            "a plain ViT; choose another one (`newkinds list backbones`)."
        )

    def frozen_part(self, images: Tensor, patches: bool = True) -> Tensor:
        """The tokens (B, T, D) that enter the first trained block, or leave the last: they never change in training.

        If no block trains and nobody reads patches, that is the class token after the final norm (B, 1, D). Of a
        network whose blocks cannot be computed one by one, a CNN for example, it is all that it gives: the class token,
        then the patches.
        """
        if self.is_fixed and not patches:
            return self(images, patches=False).cls[:, None]
        if not self.is_plain_vit:
            tokens = self(images)
            return torch.cat([tokens.cls[:, None], tokens.patches], dim=1)
        sequence = self._first_tokens(images)
        with self._in_frozen_precision(images):
            for block in self._blocks[: self.frozen_blocks]:
                sequence = block(sequence)
        return sequence.to(images.dtype)

    def trained_part(self, sequence: Tensor, patches: bool = True) -> Tokens:
        """What `forward` gives, from the tokens (B, T, D) that `frozen_part` gave."""
        if sequence.shape[1] == 1 and self.is_fixed:  # the class token, after the final norm
            return Tokens(sequence[:, 0], sequence[:, 1:], (0, 0))
        if not self.is_plain_vit:
            return Tokens(sequence[:, 0], sequence[:, 1:], self._grid_of_map)
        return self._through(self.frozen_blocks, sequence, patches)

    def sequence_shape(self, patches: bool = True) -> tuple[int, int]:
        """T, D of what `frozen_part` gives."""
        if self.is_fixed and not patches:
            return 1, self.dim
        if not self.is_plain_vit:
            rows, columns = self._grid_of_map
            return 1 + rows * columns, self.dim
        rows, columns = self.network.patch_embed.grid_size
        return self.network.num_prefix_tokens + rows * columns, self.network.embed_dim

    def frozen_digest(self) -> str:
        """Of the weights that never train, on which `frozen_part` depends."""
        digest = sha256()
        trained = {name for name, parameter in self.network.named_parameters() if parameter.requires_grad}
        for name, value in self.network.state_dict().items():
            if name not in trained:
                digest.update(name.encode())
                digest.update(value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    @cached_property
    def _grid_of_map(self) -> tuple[int, int]:
        """Rows and columns of patches, found by one image, as networks that are no plain ViT do not tell them."""
        size = self.preprocessing.size
        device = next(self.network.parameters()).device
        with torch.inference_mode():
            return self(torch.zeros(1, 3, size, size, device=device)).grid

    @property
    def _blocks(self) -> list[nn.Module]:
        return list(self.network.blocks)

    @property
    def changing_blocks(self) -> int:
        """How many of the last blocks depend on something that trains; of a network that is no plain ViT, train."""
        return len(self._blocks) - self.frozen_blocks if self.is_plain_vit else self.train_blocks

    @property
    def frozen_blocks(self) -> int:
        """How many of the first blocks depend on nothing that trains."""
        return min(len(self._blocks) - self.train_blocks, self.tuning.first)

    def _in_frozen_precision(self, values: Tensor) -> AbstractContextManager[object]:
        """For what depends on nothing that trains: not the first tokens, if the first block does, nor float64."""
        rounds = self.frozen_blocks > 0 and values.dtype is torch.float32
        return computing_in(self.dtype if rounds else torch.float32, values.device)

    def _first_tokens(self, images: Tensor) -> Tensor:
        network = self.network
        with self._in_frozen_precision(images):
            tokens = network._pos_embed(network.patch_embed(images))
            return network.norm_pre(network.patch_drop(tokens)).to(images.dtype)

    def _through(self, start: int, sequence: Tensor, patches: bool) -> Tokens:
        """The rest of `network.forward_features` from block `start` on; the first token alone if that is all."""
        whole = patches or not self.has_class_token
        blocks, tuning = self._blocks, self.tuning
        for number in range(start, len(blocks)):
            compute = all_tokens if whole or number + 1 < len(blocks) else first_token
            if number < self.frozen_blocks:
                with self._in_frozen_precision(sequence):
                    sequence = compute(blocks[number], sequence).to(sequence.dtype)
            elif number < tuning.first:
                sequence = compute(blocks[number], sequence)
            else:
                sequence = tuning.through(number, blocks[number], compute, tuning.enter(number, sequence))
        if not whole:
            return self._tokens_of_sequence(self.network.norm(sequence[:, :1]))
        return self._tokens_of_sequence(self.network.norm(sequence), tuning.extra)

    def _tokens_of_sequence(self, sequence: Tensor, extra: int = 0) -> Tokens:
        """(B, P + extra + N, D): class token and registers, if any, a tuning's tokens, then the patches row by row."""
        prefix = self.network.num_prefix_tokens
        prompts, patches = sequence[:, prefix : prefix + extra], sequence[:, prefix + extra :]  # (B, … , D)
        cls = sequence[:, 0] if self.has_class_token else patches.mean(1)  # (B, D)
        # Networks made for mean pooling have their final norm here instead of inside forward_features.
        norm = getattr(self.network, "fc_norm", nn.Identity())
        return Tokens(norm(cls), norm(patches), self.network.patch_embed.grid_size, norm(prompts) if extra else None)

    def _tokens_of_map(self, features: Tensor) -> Tokens:
        """(B, D, h, w), or (B, h, w, D) if timm says so."""
        if getattr(self.network, "output_fmt", "NCHW") == "NHWC":
            features = features.permute(0, 3, 1, 2)
        patches = features.flatten(2).transpose(1, 2)  # (B, h·w, D)
        return Tokens(patches.mean(1), patches, (features.shape[2], features.shape[3]))

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode, also if training mode is requested (see the class)."""
        return super().train(False)


class ReadyMade(nn.Module):
    """In the place of a network: vectors (B, D) that somebody else has made are the features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_features = width

    def forward_features(self, vectors: Tensor) -> Tensor:
        return vectors


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


def blocks_of(network: nn.Module) -> list[nn.Module]:
    """What `train_blocks` counts: blocks of a ViT or stages of a CNN, by timm's names for them; empty if unknown."""
    children = dict(network.named_children())
    for name in ("blocks", "stages", "layers"):
        if isinstance(children.get(name), nn.Sequential | nn.ModuleList):
            return list(children[name].children())
    return [child for name, child in children.items() if re.fullmatch(r"(layer|stage|s)\d+", name)]


def train_last_blocks(network: nn.Module, count: int, with_norm: bool = False) -> None:
    """Freeze everything but the last `count` blocks and, if these train and it shall too, the norm behind them."""
    network.requires_grad_(False)
    blocks = blocks_of(network)
    if not 0 <= count <= len(blocks):
        allowed = f"0 to {len(blocks)}" if blocks else "only 0, because its blocks cannot be told apart"
        raise NewkindsError(f"train_blocks={count} does not fit this backbone; it allows {allowed}.")
    trained = blocks[len(blocks) - count :]
    if count and with_norm:
        trained += [norm for name, norm in network.named_children() if name in FINAL_NORMS]
    for part in trained:
        part.requires_grad_(True)


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
    _check_size(name, size, _patch_size(network))
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
    patch = _patch_size(outline)
    return USUAL_SIZE if _is_plain_vit(outline) and patch and USUAL_SIZE % patch == 0 else native


def _is_plain_vit(network: nn.Module) -> bool:
    """Prefix tokens, then one token for each patch of the image, row by row."""
    return hasattr(network, "num_prefix_tokens") and _patch_size(network) is not None


def _patch_size(network: nn.Module) -> int | None:
    """Pixels along one side of a patch; None for networks that do not cut the image into patches."""
    patch_embed: Any = getattr(network, "patch_embed", None)
    return patch_embed.feat_ratio() if hasattr(patch_embed, "feat_ratio") else None


def _check_size(name: str, size: int, patch: int | None) -> None:
    if patch and size % patch:
        below = size - size % patch
        choices = f"{below} or {below + patch}" if below else str(patch)
        raise NewkindsError(
            f"image_size={size} is not a multiple of the patch size {patch} of '{name}'; use {choices}."
        )
