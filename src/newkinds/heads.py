"""Heads on image features: the projection for contrastive losses and the prototype classifier."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .precision import full_precision


class ProjectionHead(nn.Sequential):
    """Feature → embedding for contrastive losses: three linear layers with GELU between, no normalisation.

    >>> ProjectionHead(768)(torch.randn(4, 768)).shape
    torch.Size([4, 256])
    """

    def __init__(self, dim: int, hidden: int = 2048, out: int = 256) -> None:
        super().__init__(
            nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, out)
        )
        for layer in self:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)


class PrototypeClassifier(nn.Module):
    """Cosine between a feature and one learnable prototype a category: logits in [-1, 1].

    This is what a bias-free linear layer under weight normalisation with its magnitude fixed at one
    computes. Normalising the prototypes says so directly, and leaves no frozen magnitude in the state.

    >>> PrototypeClassifier(768, categories=200)(torch.randn(4, 768)).shape
    torch.Size([4, 200])
    """

    def __init__(self, dim: int, categories: int) -> None:
        super().__init__()
        self.prototypes = nn.Parameter(torch.empty(categories, dim))  # (K, D)
        # As nn.Linear starts. The output knows only directions, but a longer prototype turns more slowly.
        nn.init.uniform_(self.prototypes, -1 / math.sqrt(dim), 1 / math.sqrt(dim))

    def forward(self, features: Tensor) -> Tensor:
        with full_precision(features) as x:  # (n, D): cosines are divided by small temperatures later
            prototypes = F.normalize(self.prototypes.to(x.dtype), dim=1)
            return F.normalize(x, dim=1) @ prototypes.T  # (n, K)
