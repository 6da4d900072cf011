"""EM: soft clusters that share a covariance, found from several starts that vote."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from ..cluster.em import SharedCovarianceEM, align_shares
from ..cluster.points import UNLABELLED
from ..cluster.rows import HELD
from ..precision import full_precision
from ..settings import AtLeastOne, Positive, Share
from .base import ASSIGNERS, Assigner
from .start import find_start
from .whitening import apply_whitening

FEW_RESTARTS = 3
MOST_COMPARED = 200_000  # rows, among which copies are looked for
ENOUGH = 10  # rows for each dimension tell how to whiten them, whatever they are


@ASSIGNERS.register("em")
class EM(Assigner):
    """Soft clusters in a space that is whitened by the clusters themselves, see `SharedCovarianceEM`.

    Each of the `restarts` begins with what `balanced` finds in rows that are whitened by the labelled ones. Their
    answers are aligned and averaged, and from that vote a last run begins, which is kept: a single map and a direction
    for each category. `evenness` is how even the sizes of the categories are believed to be: 0 not at all, 1 exactly.
    """

    mean: Tensor
    map: Tensor
    directions: Tensor
    offsets: Tensor

    def __init__(
        self,
        dim: int,
        known: int,
        categories: int,
        /,
        restarts: AtLeastOne = 12,
        shrinkage: Share | Literal["auto"] = "auto",
        evenness: Share = 0.0,
        temperature: Positive = 0.05,
    ) -> None:
        super().__init__(dim, known, categories)
        self.restarts = restarts
        self.shrinkage = shrinkage
        self.evenness = evenness
        self.temperature = temperature
        self.register_buffer("mean", torch.zeros(dim))  # (P,)
        self.register_buffer("map", torch.zeros(dim, dim))  # (P, P); all zero: not found yet
        self.register_buffer("directions", torch.zeros(categories, dim))  # (K, P)
        self.register_buffer("offsets", torch.zeros(categories))  # (K,)

    def fit(self, embedding: Tensor, labels: Tensor) -> None:
        if len(embedding) <= MOST_COMPARED:
            distinct = first_copies(embedding, labels)
            if int((labels[distinct] < 0).sum()) >= self.categories:  # a thousand copies are one image to learn from
                embedding, labels = embedding[distinct], labels[distinct]
        starts = self._starts(embedding, labels)
        start = starts[0]
        if len(starts) > 1:
            runs = [self._run(embedding, labels, each).predict_proba(embedding, labels) for each in starts]
            start = align_shares(runs).argmax(dim=1)
        found = self._run(embedding, labels, start)
        # not copied: a trial has given them another size if there are as many categories as dimensions
        self.mean, self.map = found.mean_.to(self.mean), found.whitening_.to(self.map)
        self.directions.copy_(found.directions_)
        self.offsets.copy_(found.offsets_)

    def _run(self, embedding: Tensor, labels: Tensor, start: Tensor) -> SharedCovarianceEM:
        clustering = SharedCovarianceEM(
            self.categories, start, shrinkage=self.shrinkage, evenness=self.evenness, temperature=self.temperature
        )
        return clustering.fit(embedding, labels)

    def _starts(self, embedding: Tensor, labels: Tensor) -> list[Tensor]:
        """Hard assignments (n,) to begin with. A vote holds the shares of all runs: of very many images one must do."""
        shares = embedding.shape[0] * self.categories * embedding.dtype.itemsize
        restarts = 1 if 2 * self.restarts * shares > HELD else self.restarts
        return [find_start(embedding, labels, self.categories) for _ in range(restarts)]

    def trial(self, known: int, categories: int) -> Self:
        """With few restarts: it is one of several trials."""
        other = super().trial(known, categories)
        other.restarts = min(self.restarts, FEW_RESTARTS)
        return other

    def forward(self, embedding: Tensor) -> Tensor:
        self.require_fitted(bool(self.map.any()))
        return self.logits(embedding)

    def own_space(self) -> tuple[Tensor, Tensor]:
        return self.mean, self.map

    def own_space_of(self, embedding: Tensor, cluster: Tensor, labelled: Tensor) -> tuple[Tensor, Tensor]:
        labels = cluster.where(labelled, UNLABELLED)
        clusters = int(cluster.max()) + 1
        found = SharedCovarianceEM(clusters, cluster, shrinkage=self.shrinkage, rounds=1, max_iter=1)
        found.fit(embedding, labels)
        return found.mean_, found.whitening_

    def logits(self, embedding: Tensor) -> Tensor:
        """(n, K) cosines in the whitened space, and the offsets of the sizes."""
        with full_precision(embedding) as x:
            rows = apply_whitening(x, *self.own_space())
            return rows @ self.directions.to(x).T + self.temperature * self.offsets.to(x)


def can_learn_whitening(embedding: Tensor, labels: Tensor, categories: int) -> bool:
    """Whether unit rows (n, P) with labels (n,; -1: none) are enough to tell how `em` should whiten them: by the
    clusters that it begins with. If not, it compares rows as they are."""
    if len(embedding) >= ENOUGH * embedding.shape[1]:
        return True
    start = find_start(embedding, labels, categories)
    return SharedCovarianceEM(categories, start, rounds=1, max_iter=1).fit(embedding, labels).shrinkage_ < 1.0


def first_copies(embedding: Tensor, labels: Tensor) -> Tensor:
    """Which rows (n, P) are not copies of an earlier one with the same label (n,; -1: none), ascending."""
    known = np.concatenate([embedding.cpu().numpy(), labels.cpu().numpy()[:, None]], axis=1, dtype=np.float32)
    as_bytes = np.ascontiguousarray(known).view([("row", f"V{known.dtype.itemsize * known.shape[1]}")])[:, 0]
    return torch.from_numpy(np.sort(np.unique(as_bytes, return_index=True)[1])).to(labels.device)
