"""Categories that are there already are found again with more labels: what `newkinds refine` assigns by."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import Self

from ..cluster import BalancedSemiSupervisedKMeans
from ..cluster.neighbours import ENTRIES_AT_ONCE
from ..precision import full_precision
from ..settings import AtLeastOne, Positive
from .base import ASSIGNERS, Assigner, SizedByState, draw_seed
from .centres import centres_of_classes


@dataclass(frozen=True)
class Pieces:
    """Clusters that there are. Several may be one category, which people merged: its images need not be alike."""

    of_image: Tensor  # (n,) the piece of each image, -1: none
    category: Tensor  # (M,) the category of each piece


@ASSIGNERS.register("continued")
class ContinuedKMeans(SizedByState, Assigner):
    """k-means on the sphere that goes on from clusters that are there already, of which several may be one category.

    Labelled images stay with their class and count `told` times. `newkinds refine` says by `begin_with` what there is;
    where nothing is, it begins with what `balanced` finds.
    """

    begins = False
    centres: Tensor
    category: Tensor

    def __init__(
        self,
        dim: int,
        known: int,
        categories: int,
        /,
        told: Positive = 3.0,  # how many unlabelled images one with a label outweighs: most of theirs are right too
        iterations: AtLeastOne = 100,
    ) -> None:
        super().__init__(dim, known, categories)
        self.told = told
        self.iterations = iterations
        self.pieces: Pieces | None = None
        self.register_buffer("centres", torch.empty(0, dim))  # (M, P) unit rows; empty: not found yet
        self.register_buffer("category", torch.empty(0, dtype=torch.long))  # (M,)

    def begin_with(self, pieces: Pieces) -> None:
        """What `fit` goes on from. A category without a piece stays empty."""
        self.pieces = pieces

    def trial(self, known: int, categories: int) -> Self:
        other = super().trial(known, categories)
        other.pieces = None  # these are pieces of other images
        return other

    def fit(self, embedding: Tensor, labels: Tensor) -> None:
        if self.pieces is None:
            clustering = BalancedSemiSupervisedKMeans(self.categories, random_state=draw_seed())
            self.centres = F.normalize(centres_of_classes(clustering, embedding, labels).to(embedding), dim=1)
            self.category = torch.arange(self.categories, device=embedding.device)
            piece = self._nearest(embedding, labels)
        else:
            piece = self.pieces.of_image.to(labels)
            self.category = self.pieces.category.to(labels)
            self.centres = embedding.new_zeros(len(self.category), embedding.shape[1])
            self.centres = self._centres(embedding, labels, piece)
            piece = self._nearest(embedding, labels)
        for _ in range(self.iterations):
            self.centres = self._centres(embedding, labels, piece)
            before, piece = piece, self._nearest(embedding, labels)
            if torch.equal(before, piece):
                break

    def _centres(self, embedding: Tensor, labels: Tensor, piece: Tensor) -> Tensor:
        """(M, P) the directions of the means of all pieces; one without images stays where it was."""
        inside = piece >= 0
        weighted = embedding * torch.where(labels >= 0, self.told, 1.0)[:, None]
        sums = torch.zeros_like(self.centres).index_add_(0, piece[inside], weighted[inside])
        filled = piece[inside].bincount(minlength=len(sums)) > 0
        return F.normalize(sums, dim=1).where(filled[:, None], self.centres)

    def _nearest(self, embedding: Tensor, labels: Tensor) -> Tensor:
        """(n,) the nearest piece of each image; a labelled one chooses among those of its class."""
        found = []
        for rows, label in zip(*(values.split(self._at_once()) for values in (embedding, labels)), strict=True):
            allowed = (label[:, None] < 0) | (label[:, None] == self.category)  # (b, M)
            found.append((rows @ self.centres.T).where(allowed, -torch.inf).argmax(dim=1))
        return torch.cat(found)

    def _at_once(self) -> int:
        return max(1, ENTRIES_AT_ONCE // len(self.centres))

    def forward(self, embedding: Tensor) -> Tensor:
        """(n, K) for each category the cosine with the nearest of its centres; -inf if it has none."""
        self.require_fitted(len(self.centres) > 0)
        return torch.cat([self.logits(block) for block in embedding.split(self._at_once())])

    def logits(self, embedding: Tensor) -> Tensor:
        with full_precision(embedding) as x:
            near = x @ self.centres.to(x.dtype).T  # (n, M)
            logits = near.new_full((x.shape[0], self.categories), -torch.inf)
            return logits.scatter_reduce_(1, self.category.expand(x.shape[0], -1), near, "amax")
