"""Cuts of a Ward tree into K clusters, and what speaks for each of them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from typing_extensions import Self

from .. import Ward, ward
from ..metrics import Labels
from ..points import UNLABELLED
from ..rows import Rows

LOWEST_MERGE = 0.02  # of the highest; below that are copies of an image, between which no gap is looked for
STEP = 1.05  # from one cut that is looked at to the next
SILHOUETTE_OF = 1000  # points: evenly spread over the rows, if there are more


@dataclass(frozen=True)
class Leaves:
    """What a tree is built over: the points themselves or, of very many, grains of points (see `Ward`)."""

    sums: Tensor  # (m, D) of the points of each
    sizes: Tensor  # (m,)
    of: NDArray[np.int64]  # (n,) the leaf of each point

    @classmethod
    def made_of(cls, points: Tensor) -> Self:
        """Every point is one, or belongs to a grain."""
        if len(points) <= ward.EXACT:
            return cls(points, torch.ones(len(points), dtype=torch.long, device=points.device), np.arange(len(points)))
        return cls._of_groups(points, ward.grains(Rows(points))[1])

    @classmethod
    def _of_groups(cls, points: Tensor, group: Tensor) -> Self:
        sizes = group.bincount()
        return cls(Rows(points).sums(group, len(sizes)), sizes, group.cpu().numpy())

    def part(self, points: Tensor, rows: NDArray[np.int64]) -> Self:
        """Those of the points (k, D) in some rows (k,) alone."""
        if len(self.sums) == len(self.of):
            return self.made_of(points)
        return self._of_groups(points, torch.from_numpy(self.of[rows]).to(points.device).unique(return_inverse=True)[1])

    def tree(self) -> Ward:
        if len(self.sums) == len(self.of):
            return Ward().fit(self.sums)
        return Ward.of_groups(self.sums / self.sizes[:, None], self.sizes)


@dataclass(eq=False, repr=False)
class Cuts:
    """Numbers of clusters from `smallest` to `largest`, 5 % apart, and what the cuts of the points' tree say of them.

    Of the numbers between two steps, that at the widest gap of the tree is looked at.
    """

    points: Tensor  # (n, D)
    labels: Labels  # (n,) 0..C-1, -1 if there is none
    smallest: int
    largest: int
    leaves: Leaves

    def __post_init__(self) -> None:
        self._tree = self.leaves.tree()
        ks = np.arange(self.smallest, self.largest + 1)
        self.gap = gaps(self._tree.linkage_[:, 2], ks)  # (largest - smallest + 1,) of every number
        cell = (np.log(ks / ks[0]) / np.log(STEP) + 1e-9).astype(int)
        order = np.lexsort((-ks, self.gap, cell))  # in each cell the widest gap last, of equals the first
        self.ks = ks[order[np.flatnonzero(np.diff(cell[order], append=cell[-1] + 1))]]  # (g,)
        self._cuts = [self._tree.labels_at(int(k)) for k in self.ks]  # g times (m,), the cluster of each leaf

    def at(self, k: int) -> NDArray[np.int64]:  # (n,)
        """The cluster of each point, of k."""
        return self._tree.labels_at(k)[self.leaves.of]

    @cached_property
    def agreement(self) -> NDArray[np.float64]:  # (g,)
        """Share of labelled images in the cluster of their class, under the best one-to-one match."""
        own, leaf = self._labelled
        return np.array([matched_share(cut[leaf], own) for cut in self._cuts])

    @cached_property
    def room(self) -> NDArray[np.float64]:  # (g, C)
        """How many clusters the labelled images of each class fill: the sum of 1 / size of their clusters."""
        own, leaf = self._labelled
        sizes = self.leaves.sizes.cpu().numpy()
        return np.array([np.bincount(own, 1 / np.bincount(cut, sizes)[cut[leaf]]) for cut in self._cuts])

    @cached_property
    def silhouette(self) -> NDArray[np.float64]:  # (g,)
        """Mean over points of (b - a) / max(a, b): distances to the own centre (a) and the nearest other (b)."""
        return np.array([silhouette_of_cut(self.points, cut, self.leaves) for cut in self._cuts])

    def silhouette_at(self, k: int) -> float:
        return silhouette_of_cut(self.points, self._tree.labels_at(k), self.leaves)

    @property
    def _labelled(self) -> tuple[Labels, NDArray[np.int64]]:
        """Class and leaf of the points that have a label."""
        labelled = self.labels != UNLABELLED
        return self.labels[labelled], self.leaves.of[labelled]

    def votes(self) -> dict[str, int]:
        """The number of clusters by three readings of the tree alone, each of them biased; by two without labels."""
        gap = self.gap[self.ks - self.smallest]
        votes = {"silhouette": int(self.ks[self.silhouette.argmax()]), "gap": int(self.ks[gap.argmax()])}
        if (self.labels == UNLABELLED).all():
            return votes
        best = np.flatnonzero(self.agreement == self.agreement.max())
        return {"agreement": int(self.ks[best[gap[best].argmax()]]), **votes}


def gaps(heights: NDArray[np.float64], ks: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much higher the next of the sorted merges is than the last one, at cuts into `ks` clusters (each >= 2)."""
    points = len(heights) + 1
    heights = np.concatenate([heights[:1], heights])  # every point a cluster: no merge gave it, nor is there a gap
    heights = np.maximum(heights, LOWEST_MERGE * heights[-1])
    return heights[points - ks + 1] / heights[points - ks]


def matched_share(cluster: Labels, of_class: Labels) -> float:
    """Share of images whose cluster is that of their class: (n,) each, under the best one-to-one match."""
    classes = of_class.max() + 1
    counts = np.bincount(cluster * classes + of_class, minlength=(cluster.max() + 1) * classes).reshape(-1, classes)
    counts = counts[counts.any(axis=1)]  # a cluster without any labelled image matches nothing
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / len(cluster))


def silhouette_of_cut(points: Tensor, cut: Labels, leaves: Leaves) -> float:
    """The silhouette of points by distances to centres, if the leaves are in the clusters `cut` (m,); a point is no
    part of its own centre, and alone it counts 0."""
    cluster = torch.from_numpy(cut).to(points.device)
    sizes = cluster.new_zeros(int(cluster.max()) + 1).index_add_(0, cluster, leaves.sizes)
    centres = points.new_zeros(len(sizes), points.shape[1]).index_add_(0, cluster, leaves.sums) / sizes[:, None]
    some = torch.linspace(0, len(points) - 1, min(len(points), SILHOUETTE_OF)).round().long()
    own = cluster[torch.from_numpy(leaves.of[some.numpy()]).to(points.device)]
    size = sizes[own]
    distances = torch.cdist(points[some], centres)  # (some, K)
    a = distances.gather(1, own[:, None])[:, 0] * size / (size - 1).clamp(min=1)
    b = distances.scatter_(1, own[:, None], torch.inf).min(dim=1).values
    score = (b - a) / torch.maximum(a, b).clamp(min=torch.finfo(a.dtype).tiny)
    return float(score.where(size > 1, 0.0).mean())
