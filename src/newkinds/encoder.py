"""The seam between backbone and head: tokens go in, one feature an image comes out.

The encoder owns the organizer, so that no method knows whether there is one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

if TYPE_CHECKING:
    from .backbones import Backbone
    from .organizers.base import Organizer


@dataclass(frozen=True)
class Tokens:
    """What a backbone gives for a batch of images, after its final norm."""

    cls: Tensor  # (B, D)
    patches: Tensor  # (B, N, D), row by row over the grid; N = 0 where nobody reads them
    grid: tuple[int, int]  # rows, columns; N = rows · columns


@dataclass(frozen=True)
class Encoded:
    """What an encoder gives: always the feature, the rest where it was asked for or exists."""

    feature: Tensor  # (B, D), what every head, bank and clustering sees
    tokens: Tensor | None = None  # (B, N, D) refined patch tokens, with details
    field: Tensor | None = None  # (B, N, M) share of each primitive (part, slot) in each token, with details
    grid: tuple[int, int] | None = None  # how the N tokens lie on the image, with details
    losses: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # an organizer's own, added to the host's


class Encoder(nn.Module):
    """Backbone ► organizer ► feature.

    >>> encoder = Encoder(build_backbone("tiny"), CPF(dim=96))
    >>> encoder(images).feature.shape            # (B, D)
    >>> encoder(images, details=True).field      # (B, N, M): where each primitive is active
    """

    def __init__(self, backbone: Backbone, organizer: Organizer) -> None:
        super().__init__()
        self.backbone = backbone
        self.organizer = organizer

    @property
    def dim(self) -> int:
        return self.backbone.dim

    def forward(self, inputs: Tensor, details: bool = False) -> Encoded:
        """Images (B, 3, H, W), or the tokens that enter the backbone's first trained block (B, T, D)."""
        return self.organizer.organize(self.backbone(inputs, details or self.organizer.reads_patches), details)
