"""The seam between backbone and head. The encoder owns the organizer, so that no method knows whether there is one."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from ..data.batch import CachedSlots, CachedTokens, Pixels
from .backbone import Backbone
from .backbones import build_backbone
from .organizers import ORGANIZERS, Organizer
from .tokens import Encoded, Tokens


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

    def forward(
        self, inputs: Tensor | Pixels | CachedTokens | CachedSlots, details: bool = False, prompts: bool = False
    ) -> Encoded:
        """Of normalised images (B, 3, H, W), or of what a batch holds: pixels, cached tokens or cached slots.

        `prompts`: also what a tuning's extra tokens became.
        """
        if isinstance(inputs, CachedSlots):
            values = inputs.values.float()  # (B, 1 + S, D)
            return Encoded(self.organizer.read_slots(values[:, 0], values[:, 1:]))
        tokens = self.tokens(inputs, details or prompts or self.organizer.reads_patches)
        encoded = self.organizer.organize(tokens, details)
        return replace(encoded, prompts=tokens.prompts) if prompts else encoded

    def tokens(self, inputs: Tensor | Pixels | CachedTokens | CachedSlots, patches: bool = True) -> Tokens:
        """What the organizer is given; `patches`: False if it reads the class token alone."""
        assert not isinstance(inputs, CachedSlots), "slots cannot be turned back into tokens"
        if isinstance(inputs, CachedTokens):
            return self.backbone.trained_part(inputs.values.float(), patches)
        images = self.backbone.preprocessing.normalise(inputs.values) if isinstance(inputs, Pixels) else inputs
        return self.backbone(images, patches)


def frozen_encoder(**backbone: Any) -> Encoder:
    """A backbone of which nothing trains, with nothing behind it; the settings are those of `build_backbone`.

    >>> frozen_encoder(name="tiny")(images).feature.shape            # (B, 96)
    """
    built = build_backbone(**{**backbone, "train_blocks": 0})
    return Encoder(built, ORGANIZERS["none"](built.dim))
