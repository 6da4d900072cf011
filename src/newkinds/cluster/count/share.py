"""Which share of the images of known classes is labelled, read from the neighbours of labelled images.

Nobody says how many unlabelled images are of known classes. But beside a labelled image, images of its class are
labelled as often as elsewhere. Among its k nearest, `same` have its own label and `other` another one, the rest has
none. If c of the L labelled images are of its class and N images are there in all, and a share f of the known classes
is labelled, then each of `same` stands for (c/f - 1)/(c - 1) images of its class, and each of `other` for
(N - c/f)/(L - c) images of any other class:

    k = same * (c/f - 1)/(c - 1) + other * (N - c/f)/(L - c)        on average

so images of new classes are expected beside it as often as images of other known classes. Times f this is linear in f.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from ..metrics import Labels
from ..neighbours import most_similar
from ..points import UNLABELLED

MOST_PAIRS = 50_000**2  # of a labelled image and any other; of more, too many to be compared, some images are drawn
NEIGHBOURS = 8  # chosen on CUB and CIFAR-100, see benchmarks/counting.py; 3 to 20 do about as well


@dataclass(frozen=True)
class LabelledNeighbours:
    """Neighbours of the labelled images, summed over the images of each of C classes."""

    images: int  # N, labelled or not
    k: int  # neighbours of each
    sizes: NDArray[np.int64]  # (C,) labelled images
    same: NDArray[np.float64]  # (C,) neighbours with the same label
    other: NDArray[np.float64]  # (C, C) neighbours of class c' of images of class c, 0 on the diagonal

    @classmethod
    def of(cls, points: Tensor, labels: Labels, k: int = NEIGHBOURS) -> "LabelledNeighbours":
        """Count them among unit rows (n, D) with labels (n,) 0..C-1, or -1 if there is none.

        Of very many rows an even share is looked at, in which as large a share is labelled.
        """
        if (kept := _even_share(labels)) is not None:
            points, labels = points[from_numpy(kept).to(points.device)], labels[kept]
        rows = np.flatnonzero(labels != UNLABELLED)
        own = labels[rows]
        classes = int(own.max()) + 1
        k = min(k, len(points) - 1)
        queries = from_numpy(rows).to(points.device)
        near = labels[most_similar(points[queries], points, k, itself=queries).cpu().numpy()]  # (labelled, k)
        found = near != UNLABELLED
        pairs = (own[:, None] * classes + near)[found]
        counts = np.bincount(pairs, minlength=classes**2).reshape(classes, classes).astype(np.float64)
        same = counts.diagonal().copy()
        np.fill_diagonal(counts, 0)
        return cls(len(labels), k, np.bincount(own), same, counts)

    def deviation(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:  # (g,)
        """By how many standard errors each of `shares` (g,) differs from what the neighbours say; 0 if it fits.

        Positive: more images are labelled than that. The error is that of a sum over classes, each of which counts as
        the class beside whose images one looks and as the class one sees there, as in a U-statistic. It is never below
        that of as many independent finds. Classes with a single labelled image say nothing.
        """
        c, f = self.sizes, shares[:, None]
        use = c > 1
        if not use.any():
            return np.zeros(len(shares))
        seen = np.where(use, self.same * c / np.maximum(c - 1, 1), 0)
        others = (c.sum() - c)[:, None]  # (C, 1) labelled images of other classes
        weighed = np.where(use[:, None], self.other / np.maximum(others, 1), 0)  # (C, C)
        foreign, foreign_known = weighed * self.images, weighed * c[:, None]
        # of each class (g, C): what is found minus what f lets expect
        own = seen - f * (np.where(use, self.k * c, 0) + seen / c)
        beside = f * foreign.sum(axis=1) - foreign_known.sum(axis=1)
        there = f * foreign.sum(axis=0) - foreign_known.sum(axis=0)
        parts = (own + beside + there)[:, use]
        classes = parts.shape[1]
        variance = classes * parts.var(axis=1) * classes / max(classes - 1, 1)
        least = shares * np.where(use, self.k * c**2 / np.maximum(c - 1, 1), 0).sum() + 1
        return (own + beside).sum(axis=1) / np.sqrt(np.maximum(variance, least))


def _even_share(labels: Labels) -> NDArray[np.int64] | None:
    """Rows (m,) drawn at random, so few that MOST_PAIRS are to be compared, of each class two at least; None: all."""
    labelled = int((labels != UNLABELLED).sum())
    share = (MOST_PAIRS / max(labelled * len(labels), 1)) ** 0.5
    if share >= 1:
        return None
    order = np.random.default_rng(0).permutation(len(labels))
    order = order[labels[order].argsort(kind="stable")]  # class after class
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    place = np.arange(len(labels)) - np.repeat(starts, sizes)  # of a row in its class
    wanted = np.maximum(np.round(share * sizes), 2)
    return np.sort(order[place < np.repeat(wanted, sizes)])
