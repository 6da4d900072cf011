"""Semi-supervised k-means written down literally: broadcast distances, and a loop over clusters.

This is how published code computes it. It is here to be compared with, in results and in time.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

ROWS_AT_ONCE = 1024


class PlainResult(NamedTuple):
    labels: Tensor  # (u,) of the unlabelled points
    centres: Tensor  # (K, D)
    inertia: float
    iterations: int


def plain_kmeans(
    unlabelled: Tensor, labelled: Tensor, targets: Tensor, new_centres: Tensor, max_iter: int, tol: float = 1e-4
) -> PlainResult:
    """From unlabelled points (u, D), labelled ones (l, D) of classes 0..C-1 (l,) and first new centres (K - C, D)."""
    known = range(int(targets.max()) + 1 if len(targets) else 0)
    centres = torch.cat([*(labelled[targets == c].mean(dim=0)[None] for c in known), new_centres])
    best: PlainResult | None = None
    for iteration in range(max_iter):
        nearest = [squared_distances(rows, centres).min(dim=1) for rows in unlabelled.split(ROWS_AT_ONCE)]
        labels = torch.cat([n.indices for n in nearest])
        inertia = sum(float(n.values.sum(dtype=torch.float64)) for n in nearest)
        for c in known:
            inertia += float((labelled[targets == c] - centres[c]).square().sum(dtype=torch.float64))
        before, centres = centres, centres.clone()
        for k in range(len(centres)):
            centres[k] = torch.cat([labelled[targets == k], unlabelled[labels == k]]).mean(dim=0)
        if best is None or inertia < best.inertia:
            best = PlainResult(labels, centres, inertia, iteration + 1)
        if (centres - before).norm(dim=1).sum() ** 2 <= tol:
            break
    assert best is not None
    return best


def squared_distances(points: Tensor, centres: Tensor) -> Tensor:  # (n, K), by way of (n, K, D)
    return (points[:, None] - centres[None]).square().sum(dim=2)
