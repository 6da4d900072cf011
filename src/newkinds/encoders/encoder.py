"""The seam between backbone and head. The encoder owns the organizer, so that no method knows whether there is one."""

from torch import Tensor, nn

from ..data.batch import CachedTokens, Pixels
from .backbones import Backbone
from .organizers.base import Organizer
from .tokens import Encoded


class Encoder(nn.Module):
    """Backbone ► organizer ► feature.

    >>> encoder = Encoder(build_backbone("tiny"), CPF(dim=96))
    >>> encoder(images).feature.shape            # (B, D)
    >>> encoder(images, details=True).field      # (B, N, M): where each primitive is active
    """

    def __init__(self, backbone: Backbone, organizer: Organizer) -> None:
        super().__init__()
        self.backbone, self.organizer = backbone, organizer

    @property
    def dim(self) -> int:
        return self.backbone.dim

    def forward(self, inputs: Tensor | Pixels | CachedTokens, details: bool = False) -> Encoded:
        """Of normalised images (B, 3, H, W), or of what a batch holds: pixels or cached tokens."""
        patches = details or self.organizer.reads_patches
        if isinstance(inputs, CachedTokens):
            return self.organizer.organize(self.backbone.trained_part(inputs.values.float(), patches), details)
        images = self.backbone.preprocessing.normalise(inputs.values) if isinstance(inputs, Pixels) else inputs
        return self.organizer.organize(self.backbone(images, patches), details)
