"""Cuts of a Ward tree into K clusters, and what speaks for each of them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from .. import Ward
from ..metrics import Labels
from ..points import UNLABELLED

LOWEST_MERGE = 0.02  # of the highest; below that are copies of an image, between which no gap is looked for
STEP = 1.05  # from one cut that is looked at to the next
SILHOUETTE_OF = 1000  # points: evenly spread over the rows, if there are more


@dataclass(eq=False, repr=False)
class Cuts:
    """Numbers of clusters from `smallest` to `largest`, 5 % apart, and what the cuts of the points' tree say of them.

    Of the numbers between two steps, that at the widest gap of the tree is looked at.
    """

    points: Tensor  # (n, D)
    labels: Labels  # (n,) 0..C-1, -1 if there is none
    smallest: int
    largest: int

    def __post_init__(self) -> None:
        self.tree = Ward().fit(self.points)
        ks = np.arange(self.smallest, self.largest + 1)
        self.gap = gaps(self.tree.linkage_[:, 2], ks)  # (largest - smallest + 1,) of every number
        cell = (np.log(ks / ks[0]) / np.log(STEP) + 1e-9).astype(int)
        order = np.lexsort((-ks, self.gap, cell))  # in each cell the widest gap last, of equals the first
        self.ks = ks[order[np.flatnonzero(np.diff(cell[order], append=cell[-1] + 1))]]  # (g,)
        self.clusters = [self.tree.labels_at(int(k)) for k in self.ks]  # g times (n,)

    @cached_property
    def agreement(self) -> NDArray[np.float64]:  # (g,)
        """Share of labelled images in the cluster of their class, under the best one-to-one match."""
        labelled = self.labels != UNLABELLED
        return np.array([matched_share(cluster[labelled], self.labels[labelled]) for cluster in self.clusters])

    @cached_property
    def room(self) -> NDArray[np.float64]:  # (g, C)
        """How many clusters the labelled images of each class fill: the sum of 1 / size of their clusters."""
        labelled = self.labels != UNLABELLED
        of_class = self.labels[labelled]
        return np.array(
            [np.bincount(of_class, 1 / np.bincount(cluster)[cluster[labelled]]) for cluster in self.clusters]
        )

    @cached_property
    def silhouette(self) -> NDArray[np.float64]:  # (g,)
        """Mean over points of (b - a) / max(a, b): distances to the own centre (a) and the nearest other (b)."""
        return np.array([silhouette(self.points, torch.from_numpy(cluster)) for cluster in self.clusters])

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


def silhouette(points: Tensor, cluster: Tensor) -> float:
    """The silhouette by distances to centres; a point is no part of its own centre, and alone it counts 0."""
    sizes = cluster.bincount()
    centres = points.new_zeros(len(sizes), points.shape[1]).index_add_(0, cluster, points) / sizes[:, None]
    some = torch.linspace(0, len(points) - 1, min(len(points), SILHOUETTE_OF)).round().long()
    own, size = cluster[some], sizes[cluster[some]]
    distances = torch.cdist(points[some], centres)  # (some, K)
    a = distances.gather(1, own[:, None])[:, 0] * size / (size - 1).clamp(min=1)
    b = distances.scatter_(1, own[:, None], torch.inf).min(dim=1).values
    score = (b - a) / torch.maximum(a, b).clamp(min=torch.finfo(a.dtype).tiny)
    return float(score.where(size > 1, 0.0).mean())
