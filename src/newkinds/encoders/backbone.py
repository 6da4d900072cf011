"""A network as a backbone: images → tokens, computed block by block where that can be; which of its blocks train."""

import re
from contextlib import AbstractContextManager
from functools import cached_property
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ..data.views import Preprocessing
from ..errors import NewkindsError
from .blocks import all_tokens, first_token
from .frozen_precision import computing_in
from .tokens import Tokens
from .tunings import Anatomy, LastBlocks, Tuning

FINAL_NORMS = ("norm", "fc_norm")  # timm's names; one of a ViT's two does nothing


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
        from timm.models.vision_transformer import VisionTransformer  # slow, but a network of timm's is there already

        return type(self.network).forward_features is VisionTransformer.forward_features

    @property
    def anatomy(self) -> Anatomy:
        """What a tuning must know of it."""
        blocks = len(self._blocks) if self.is_plain_vit else 0
        prefix = getattr(self.network, "num_prefix_tokens", 0)
        return Anatomy(self.name, self.dim, self.preprocessing.size, blocks, prefix, patch_size(self.network))

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
        if isinstance(features, Tensor) and features.ndim == 3 and gives_patch_tokens(self.network):
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


def gives_patch_tokens(network: nn.Module) -> bool:
    """Whether a network's tokens are prefix tokens, then one for each patch of the image, row by row."""
    return hasattr(network, "num_prefix_tokens") and patch_size(network) is not None


def patch_size(network: nn.Module) -> int | None:
    """Pixels along one side of a patch; None for networks that do not cut the image into patches."""
    patch_embed: Any = getattr(network, "patch_embed", None)
    return patch_embed.feat_ratio() if hasattr(patch_embed, "feat_ratio") else None
