"""Clusters that split and merge: whether a mixture of Gaussians would rather have one more, or one less.

Proposals are judged by the Hastings ratio of Chang and Fisher (NeurIPS 2013), as GPC does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .kmeans import KMeans

HALVING_ROUNDS = 20  # of 2-means; it settles sooner
HALVING_STARTS = 10  # of 2-means in the published code
FLAT_COIN = 0.1  # the published chance of a change that the ratio is against, however bad it is

Group = tuple[Tensor, ...]  # a cluster: its rows (n,), or those of the two that it was before these merged


@dataclass(frozen=True)
class Prior:
    """What is thought of a cluster before its points are seen (normal-inverse-Wishart), around the origin."""

    kappa: float  # so many points at the origin: how far from it clusters lie, in multiples of their own width
    nu: float  # so many points: how sure the shape is; more than the number of dimensions less one
    scale: float  # the scatter of these, in every direction

    def log_marginal(self, points: Tensor, centre: Tensor | None = None) -> float:
        """Log probability of points (n, d), whatever the Gaussian; `centre` (d,) in the place of their mean."""
        n, d = points.shape
        centre = points.mean(dim=0) if centre is None else centre
        away, kappa, nu = points - centre, self.kappa + n, self.nu + n
        scatter = away.T @ away + self.kappa * n / kappa * torch.outer(centre, centre)  # (d, d)
        scatter.diagonal().add_(self.scale)
        gammas = torch.mvlgamma(scatter.new_tensor([self.nu / 2, nu / 2]), d)
        spread = self.nu * d * math.log(self.scale) - nu * float(torch.logdet(scatter))
        return float(gammas[1] - gammas[0]) + (spread + d * (math.log(self.kappa / kappa) - n * math.log(math.pi))) / 2

    def posterior_mean(self, points: Tensor) -> Tensor:  # (d,)
        return points.sum(dim=0) / (self.kappa + len(points))


@dataclass(frozen=True)
class SplitMerge:
    """One round of proposals: every new cluster may split in two or merge with the nearest one.

    A change is made with probability min(1, e^ratio). `published=True` does as the published code: a change that the
    ratio is against is made in 10 % of all cases; only new clusters merge with new ones; those that merge stay, and are
    merged once more from the other side; halves are the best of ten 2-means, and points of a split lie around their
    posterior means.
    """

    prior: Prior
    alpha: float = 1.0  # the larger, the more clusters
    smallest: int = 5  # points on each side of a split
    published: bool = False

    def __call__(self, points: Tensor, cluster: Tensor, known: int, fewest: int, most: int) -> list[Group]:
        """The clusters after the changes, `fewest` to `most` if there were as many.

        `points` (n, d) in float64 around the origin, `cluster` (n,); the first `known` clusters never split, and no two
        of these merge. Random numbers come from torch's generator.
        """
        members = list(cluster.argsort(stable=True).split(cluster.bincount().tolist()))
        filled = [c for c, rows in enumerate(members) if len(rows)]
        splits = self._splits(points, {c: members[c] for c in filled if c >= known})
        splits = dict(list(splits.items())[: most - len(filled)])
        whole = [c for c in filled if c not in splits]
        merges = self._merges(points, members, whole, known)
        halves = [(half,) for both in splits.values() for half in both]
        if self.published:
            merged: set[int] = set()
        else:
            merges, merged = _disjoint(merges, most=len(whole) + len(halves) - fewest)
        kept = [(members[c],) for c in whole if c not in merged]
        return [*kept, *halves, *((members[a], members[b]) for a, b in merges)][:most]

    def split_ratio(self, first: Tensor, second: Tensor) -> float:
        """Log of how much better two clusters (n₁, d) and (n₂, d) are than one."""
        return self._ratio(first, second, around_posterior=self.published)

    def merge_ratio(self, first: Tensor, second: Tensor) -> float:
        """Log of how much better one cluster is than the two."""
        return -self._ratio(first, second)

    def _ratio(self, first: Tensor, second: Tensor, around_posterior: bool = False) -> float:
        def weigh(points: Tensor) -> float:
            centre = self.prior.posterior_mean(points) if around_posterior else None
            return math.lgamma(len(points)) + self.prior.log_marginal(points, centre)

        return math.log(self.alpha) + weigh(first) + weigh(second) - weigh(torch.cat([first, second]))

    def accept(self, ratios: Sequence[float], draws: Tensor) -> list[int]:
        """The proposals that are made, the best first, if `draws` (m,) are uniform in [0, 1]."""
        made = [i for i, draw in enumerate(draws.tolist()) if self._accepts(ratios[i], draw)]
        return sorted(made, key=lambda i: -ratios[i])

    def _accepts(self, ratio: float, draw: float) -> bool:
        return ratio > 0 or draw < (FLAT_COIN if self.published else math.exp(min(ratio, 0)))

    def _splits(self, points: Tensor, members: dict[int, Tensor]) -> dict[int, tuple[Tensor, Tensor]]:
        """The two sides of each cluster that splits."""
        halve = halves_of_ten if self.published else halves
        sides = {c: halve(points[rows], rows) for c, rows in members.items()}
        sides = {c: both for c, both in sides.items() if min(map(len, both)) >= self.smallest}
        ratios = [self.split_ratio(points[a], points[b]) for a, b in sides.values()]
        chosen = self.accept(ratios, torch.rand(len(ratios), dtype=torch.float64))
        proposed = list(sides.items())
        return dict(proposed[i] for i in chosen)

    def _merges(self, points: Tensor, members: list[Tensor], whole: list[int], known: int) -> list[tuple[int, int]]:
        """Pairs of clusters that merge, the best first: a new one, and the nearest that does not split either."""
        if self.published:
            whole = [c for c in whole if c >= known]
        if len(whole) < 2:
            return []
        centres = torch.stack([points[members[c]].mean(dim=0) for c in whole])
        nearest = torch.cdist(centres, centres).fill_diagonal_(torch.inf).argmin(dim=1).tolist()
        pairs = [tuple(sorted((c, whole[other]))) for c, other in zip(whole, nearest, strict=True) if c >= known]
        if not self.published:
            pairs = sorted(set(pairs))
        ratios = [self.merge_ratio(points[members[a]], points[members[b]]) for a, b in pairs]
        chosen = self.accept(ratios, torch.rand(len(ratios), dtype=torch.float64))
        return [(pairs[i][0], pairs[i][1]) for i in chosen]


def halves_of_ten(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """`rows` (n,) in two parts, that of the first row first, by the best of ten 2-means of points (n, d)."""
    if torch.equal(points, points[:1].expand_as(points)):  # copies
        return rows, rows[:0]
    random = np.random.RandomState(int(torch.randint(2**31, ())))
    found = torch.from_numpy(KMeans(2, HALVING_STARTS, random, tol=0.0).fit(points).labels_)
    first = found == found[0]
    return rows[first], rows[~first]


def halves(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """`rows` (n,) in two parts, that of the first row first, by 2-means of points (n, d) from their longest axis."""
    away = points - points.mean(dim=0)
    axis = torch.linalg.eigh(away.T @ away).eigenvectors[:, -1]  # (d,)
    first = away @ axis > 0
    for _ in range(HALVING_ROUNDS):
        if first.all() or not first.any():
            break
        a, b = away[first].mean(dim=0), away[~first].mean(dim=0)
        again = (away - (a + b) / 2) @ (a - b) > 0  # nearer to a
        if torch.equal(again, first):
            break
        first = again
    first = first == first[0]  # the sign of an axis means nothing
    return rows[first], rows[~first]


def _disjoint(pairs: list[tuple[int, int]], most: int) -> tuple[list[tuple[int, int]], set[int]]:
    """The first `most` pairs of clusters of which none has merged already, and the clusters in them."""
    taken: list[tuple[int, int]] = []
    merged: set[int] = set()
    for pair in pairs:
        if len(taken) < most and merged.isdisjoint(pair):
            taken.append(pair)
            merged.update(pair)
    return taken, merged
