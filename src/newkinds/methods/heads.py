"""Heads on image features: projections for contrastive losses."""

import torch.nn.functional as F
from torch import Tensor, nn

from ..assigners.prototypes import PrototypeClassifier


class ProjectionHead(nn.Sequential):
    """Feature → embedding for contrastive losses: three linear layers with GELU between, no normalisation."""

    def __init__(self, dim: int, hidden: int = 2048, out: int = 256) -> None:
        super().__init__(
            nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, out)
        )
        for layer in self:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)


class UnitProjectionHead(nn.Module):
    """Feature → point on the unit sphere: a projection, and its cosines with learnable directions (DINO's head)."""

    def __init__(self, dim: int, hidden: int = 2048, bottleneck: int = 256, out: int = 65536) -> None:
        super().__init__()
        self.projection = ProjectionHead(dim, hidden, bottleneck)
        self.directions = PrototypeClassifier(bottleneck, 0, out)

    def forward(self, features: Tensor) -> Tensor:
        return F.normalize(self.directions(self.projection(features)), dim=1)  # (n, out)
