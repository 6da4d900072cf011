"""Heads on image features: projections for contrastive losses."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..assigners.prototypes import PrototypeClassifier

__all__ = ["Perceptron", "ProjectionHead", "UnitProjectionHead", "project"]

ROWS_AT_ONCE = 4096  # whose hidden activations are held when the whole training set is embedded


class Perceptron(nn.Sequential):
    """Linear layers with GELU between, which start small: `hidden_layers` of the same width, then `out`."""

    def __init__(self, dim: int, hidden: int, out: int, hidden_layers: int) -> None:
        widths = pairwise([dim, *[hidden] * hidden_layers, out])
        layers = [layer for width, next_width in widths for layer in (nn.Linear(width, next_width), nn.GELU())]
        super().__init__(*layers[:-1])
        for layer in self:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)


class NormalisedPerceptron(nn.Sequential):
    """Two linear layers, which start as PyTorch's do; BatchNorm and ReLU between: in training, rows see each other."""

    def __init__(self, dim: int, hidden: int, out: int) -> None:
        super().__init__(nn.Linear(dim, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, out))


class ProjectionHead(Perceptron):
    """Feature → embedding for contrastive losses: three linear layers with GELU between, no normalisation."""

    def __init__(self, dim: int, hidden: int = 2048, out: int = 256) -> None:
        super().__init__(dim, hidden, out, hidden_layers=2)


class UnitProjectionHead(nn.Module):
    """Feature → point on the unit sphere: a projection, and its cosines with learnable directions (DINO's head)."""

    def __init__(self, dim: int, hidden: int = 2048, bottleneck: int = 256, out: int = 65536) -> None:
        super().__init__()
        self.projection = ProjectionHead(dim, hidden, bottleneck)
        self.directions = PrototypeClassifier(bottleneck, 0, out)

    def forward(self, features: Tensor) -> Tensor:
        return F.normalize(self.directions(self.projection(features)), dim=1)  # (n, out)


@torch.no_grad()
def project(head: nn.Module, features: Tensor) -> Tensor:
    """What a head makes of any number of features (n, D), wherever these are kept: of each by itself, also while it
    trains."""
    device, training = next(head.parameters()).device, head.training
    head.eval()
    try:
        return torch.cat([head(rows.to(device).float()) for rows in features.split(ROWS_AT_ONCE)])
    finally:
        head.train(training)
