"""Which of the images that are like no category are like each other, with scipy alone."""

import numpy as np
from numpy.typing import NDArray

from .split import unit_means

MOST_LINKED = 3000  # images that are compared pair by pair; the others join the nearest group
WIDEST = 0.9  # the share of a run's categories that are tighter than a group of strangers may be


def usual_width(rows: NDArray[np.float32], of: NDArray[np.int64]) -> float:
    """How far apart the images of a wide category are: the mean cosine distance between two of its unit rows (n, P), at
    the WIDEST quantile of all categories with two images; `of` (n,) are ids, negative: in no category."""
    widths = []
    for number in np.unique(of[of >= 0]):
        inside = rows[of == number].astype(np.float64)
        n = len(inside)
        if n > 1:
            # pairs with oneself have distance 0, and the squared length of the mean is the mean cosine of all pairs
            widths.append((1 - np.square(inside.mean(axis=0)).sum()) * n / (n - 1))
    return float(np.quantile(widths, WIDEST)) if widths else 0.0


def group_alike(rows: NDArray[np.float32], width: float) -> list[list[int]]:
    """Unit rows (m, P) that are alike, by their numbers: the largest group first, in each the most typical image first.

    Average linkage: two groups become one as long as their images are no farther from each other than `width`, on
    average over all pairs.

    >>> group_alike(np.float32([[1, 0], [0, 1], [0.9, 0.1]]), width=0.1)
    [[0, 2], [1]]
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import pdist

    if len(rows) < 2:
        return [[row] for row in range(len(rows))]
    sample = np.arange(0, len(rows), -(-len(rows) // MOST_LINKED))
    tree = linkage(pdist(rows[sample].astype(np.float64), "cosine"), "average")
    part = fcluster(tree, width, "distance") - 1  # (sample,)
    centres = unit_means(rows, [sample[part == number] for number in range(part.max() + 1)])
    group = np.empty(len(rows), np.int64)
    others = np.setdiff1d(np.arange(len(rows)), sample)
    group[others] = (rows[others] @ centres.T).argmax(axis=1)
    group[sample] = part
    groups = [np.flatnonzero(group == number) for number in range(len(centres))]
    typical = [inside[np.argsort(-(rows[inside] @ centres[n]), kind="stable")] for n, inside in enumerate(groups)]
    return [inside.tolist() for inside in sorted(typical, key=lambda inside: (-len(inside), inside.min()))]
