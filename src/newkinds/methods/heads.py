"""Heads on image features: projections for contrastive losses, and categories as prototypes or centres."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..cluster.neighbours import ENTRIES_AT_ONCE
from ..errors import NewkindsError
from ..precision import full_precision

NOT_CLUSTERED = (
    "this method finds its categories by clustering after the last epoch, which has not happened yet: "
    "finish the training first."
)


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
            prototypes = self.prototypes.to(x.dtype)
            lengths = prototypes.norm(dim=1).clamp(min=1e-12)  # (K,)
            # The products are divided, not the prototypes: of these there may be 65,536.
            return F.normalize(x, dim=1) @ prototypes.T / lengths  # (n, K)


class UnitProjectionHead(nn.Module):
    """Feature → point on the unit sphere: a projection, and its cosines with many learnable directions.

    Linear layers and a last one under weight normalisation, as in DINO's head. What comes out has a length
    of one, so that dot products are cosines.

    >>> UnitProjectionHead(768, out=65536)(torch.randn(4, 768)).shape
    torch.Size([4, 65536])
    """

    def __init__(self, dim: int, hidden: int = 2048, bottleneck: int = 256, out: int = 65536) -> None:
        super().__init__()
        self.projection = ProjectionHead(dim, hidden, bottleneck)
        self.directions = PrototypeClassifier(bottleneck, out)

    def forward(self, features: Tensor) -> Tensor:
        return F.normalize(self.directions(self.projection(features)), dim=1)  # (n, out)


class CentreClassifier(nn.Module):
    """Categories as fixed centres that clustering has found: a feature belongs to the nearest one.

    >>> classifier = CentreClassifier(768, categories=200)
    >>> classifier.keep(centres)                       # (200, 768)
    >>> classifier(features).argmax(dim=1)
    """

    centres: Tensor

    def __init__(self, dim: int, categories: int) -> None:
        super().__init__()
        self.register_buffer("centres", torch.zeros(categories, dim))  # (K, D); all zero: not found yet

    def keep(self, centres: Tensor) -> None:
        self.centres.copy_(centres)

    def forward(self, features: Tensor) -> Tensor:
        """(n, K) minus half the squared distances, up to a constant a row; for unit vectors, cosines.

        A cluster that ended up empty (in the published way) has no centre, and nothing belongs to it: -inf.
        """
        if not self.centres.any():
            raise NewkindsError(NOT_CLUSTERED)
        with full_precision(features) as x:
            centres = self.centres.to(x.dtype)
            logits = x @ centres.T - centres.square().sum(dim=1) / 2
            return logits.where(centres.isfinite().all(dim=1), -torch.inf)


class NearestImage(nn.Module):
    """Categories as those of images that clustering has sorted: a unit row belongs with the most similar one.

    An image that is remembered gets exactly the category it was put in, and any other image gets one as well.

    >>> classifier = NearestImage(768, categories=200)
    >>> classifier.keep(rows, category)                # (n, 768) and (n,)
    >>> classifier(rows).argmax(dim=1)                 # category, where no two rows are alike
    """

    rows: Tensor
    category: Tensor

    def __init__(self, dim: int, categories: int) -> None:
        super().__init__()
        self.categories = categories
        self.register_buffer("rows", torch.empty(0, dim))  # (n, D); empty: not sorted yet
        self.register_buffer("category", torch.empty(0, dtype=torch.long))  # (n,)

    def keep(self, rows: Tensor, category: Tensor) -> None:
        self.rows, self.category = rows, category

    def forward(self, rows: Tensor) -> Tensor:
        """(m, K) for each category the cosine with its most similar image; -inf where it has none."""
        if not len(self.rows):
            raise NewkindsError(NOT_CLUSTERED)
        found = []
        with full_precision(rows) as rows:
            for block in rows.split(max(1, ENTRIES_AT_ONCE // len(self.rows))):
                similarity = block @ self.rows.to(block.dtype).T  # (b, n)
                logits = similarity.new_full((len(block), self.categories), -torch.inf)
                found.append(logits.scatter_reduce_(1, self.category.expand(len(block), -1), similarity, "amax"))
        return torch.cat(found)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        """As many images as the saved ones: how many, a new module cannot know."""
        for name in ("rows", "category"):
            if (saved := state.get(prefix + name)) is not None:
                setattr(self, name, torch.empty_like(saved, device=getattr(self, name).device))
        super()._load_from_state_dict(state, prefix, *rest)
