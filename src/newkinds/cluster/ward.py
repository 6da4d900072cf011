"""Ward's agglomeration in memory that grows with n, not n²: a cluster is its centre and its size."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from typing_extensions import Self

from ..errors import NewkindsError
from .lloyd import Members, lloyd
from .neighbours import nearest_centre
from .points import UNLABELLED, Features, as_rows, squared_norms, whole_number
from .rows import Rows

POINTS_FOR_SCIPY = 1500  # up to here SciPy is no slower: its n² / 2 distances take 9 MB
DISTANCES_AT_ONCE = 2**23  # entries of a block of the distance matrix: 32 MB in float32
FEWEST_SEARCHES = 32  # a product with fewer rows takes as long: it waits for memory
FULL_ENOUGH = 7 / 8  # share of rows in use, below which the others are dropped
CLOSE = 1 / 128  # squared distance over ‖x‖², below which float32 leaves fewer than five digits of it
UNKNOWN = -1
EXACT = 50_000  # points; with more, time that grows with n² becomes the longest part of a discovery
GRAINS = 5000  # clusters that stand for the points, if these are more
ROUNDS = 5  # in which grains are drawn


@dataclass(eq=False, repr=False)
class Ward(ClusterMixin, BaseEstimator):
    """Joins the two clusters whose union adds least to the sum of squares, until one is left.

    `linkage_` is the tree as `scipy.cluster.hierarchy.linkage(X, "ward")` gives it; up to 1500 points it is SciPy's
    own. SciPy holds all n² / 2 distances; of more points they come from the centres, in blocks, and merges of exactly
    the same height may come in another order. Time still grows with n². In float32, points that are close to each other
    but far from the mean are compared in float64. A tensor of features is worked on where it is, on a GPU for instance.

    More than 50,000 points are first gathered into 5,000 grains by k-means, and the tree of their means, each with the
    weight of its points, is Ward's. Within a grain points are joined at height 0: a cut into more clusters than there
    are grains means nothing. Time and memory then grow with n. `docs/scale.md` says how near this comes.

    >>> import numpy as np
    >>> tree = Ward(n_clusters=2).fit(np.array([[0.0], [1.0], [10.0], [12.0]]))
    >>> tree.labels_, tree.labels_at(3)
    (array([0, 0, 1, 1]), array([0, 0, 1, 2]))
    """

    n_clusters: int | None = None

    def fit(self, X: Features, y: object = None) -> Self:
        """Build the tree over X (n, D), whole whatever `n_clusters` is. `y` is ignored."""
        self.linkage_ = _linkage(as_rows(X))  # (n - 1, 4)
        if self.n_clusters is not None:
            self.labels_ = self.labels_at(self.n_clusters)
        return self

    @classmethod
    def of_groups(cls, means: Tensor, sizes: Tensor) -> Self:
        """The tree over groups of points: their means (m, D), each of the weight of its points (m,)."""
        tree = cls()
        tree.linkage_ = _linkage(Rows(means), sizes)
        return tree

    def fit_predict(self, X: Features, y: object = None) -> NDArray[np.int64]:
        """The clusters of the points themselves, `n_clusters` of them."""
        whole_number("n_clusters", self.n_clusters)
        return self.fit(X).labels_

    def labels_at(self, n_clusters: int) -> NDArray[np.int64]:
        """Cut the tree into exactly `n_clusters`, numbered in the order of their first points."""
        check_is_fitted(self)
        points = len(self.linkage_) + 1
        merges = points - whole_number("n_clusters", n_clusters)
        if merges < 0:
            raise NewkindsError(f"{points} points cannot make {n_clusters} clusters: use {points} at most.")
        if merges == 0:
            return np.arange(points)
        cluster = fcluster(self.linkage_, merges - 1, "monocrit", monocrit=np.arange(points - 1.0))
        _, first, label = np.unique(cluster, return_index=True, return_inverse=True)
        return first.argsort().argsort()[label]


def _linkage(points: Rows, weight: Tensor | None = None) -> NDArray[np.float64]:  # (n - 1, 4)
    if 1 < len(points) <= POINTS_FOR_SCIPY and weight is None:
        return linkage(points.whole().cpu().double().numpy(), "ward")
    tree = _Tree(len(points))
    # Distances are ‖a‖² - 2ab + ‖b‖²: far from the origin they would be differences of large numbers.
    if weight is not None:
        own = torch.arange(len(points), device=points.device)
        clusters = _Clusters(points.less(points.mean()).whole(), torch.ones_like(own), own, weight)
    elif len(points) <= EXACT:
        rows, group = points.whole().unique(dim=0, return_inverse=True)  # no search could tell equal points apart
        clusters = _Clusters(rows - rows.mean(dim=0), *_join_groups(group, tree))
    else:
        rows, group = grains(points)
        clusters = _Clusters(rows, *_join_groups(group, tree))
    while clusters.count > 1:
        clusters.search()
        clusters.merge(tree)
    return tree.linkage()


class _Tree:
    """The merges in the order they are found. Nodes 0..n-1 are the points, node n + i is merge i."""

    def __init__(self, points: int) -> None:
        self.points = points
        self.merges = 0
        self.rounds: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []

    def add(self, left: Tensor, right: Tensor, heights: Tensor, sizes: Tensor) -> Tensor:
        """Record merges of which none contains another; returns their nodes."""
        self.rounds.append((left, right, heights, sizes))
        first = self.points + self.merges
        self.merges += len(left)
        return torch.arange(first, first + len(left), device=left.device)

    def linkage(self) -> NDArray[np.float64]:
        """One row per merge, lowest first, as SciPy numbers and sorts them."""
        if not self.rounds:
            return np.empty((0, 4))
        left, right, heights, sizes = (torch.cat(column).cpu().numpy() for column in zip(*self.rounds, strict=True))
        order = heights.argsort(kind="stable")  # at equal height parts stay before their union
        number = np.arange(self.points + self.merges)
        number[self.points + order] = np.arange(self.points, self.points + self.merges)
        nodes = np.sort(number[np.stack([left, right], axis=1)[order]], axis=1)
        return np.column_stack([nodes, heights[order], sizes[order]]).astype(np.float64)


class _Clusters:
    """The clusters not yet joined, one per row, and the nearest other of each if it is known.

    A union is never nearer to a third cluster than the nearer of its parts was. So all pairs of clusters that are each
    other's nearest are joined at once, and nobody searches again before its nearest is gone.
    """

    def __init__(self, centres: Tensor, points: Tensor, nodes: Tensor, sizes: Tensor | None = None) -> None:
        m = len(centres)
        self.centres = centres  # (m, D) overwritten by unions
        self.squares = squared_norms(centres.double())  # (m,) infinite for a row that has been joined to another
        self.points = points  # (m,) of the tree
        self.sizes = (points if sizes is None else sizes).to(centres.dtype)  # (m,) by which they weigh
        self.nodes = nodes  # (m,) in the tree
        self.heights = torch.zeros(m, dtype=torch.float64, device=centres.device)
        self.nearest = torch.full_like(nodes, UNKNOWN)  # (m,) row of the nearest other cluster
        self.gaps = torch.zeros_like(self.heights)  # (m,) its squared distance; if it is unknown, a lower bound
        self.count = m
        self.searches = m  # that the next round may make

    def search(self) -> None:
        """Find the nearest other of clusters that have lost theirs: those awaited first, then those that may be near.

        Not all: if everybody's nearest were the same cluster, every merge of that one would send all to search again.
        """
        lost = (self.squares.isfinite() & (self.nearest == UNKNOWN)).nonzero()[:, 0]
        awaited = torch.zeros_like(self.nearest, dtype=torch.bool)
        awaited[self.nearest[self.nearest != UNKNOWN]] = True
        urgency = self.gaps[lost].where(~awaited[lost], -1.0)
        rows = lost[urgency.argsort(stable=True)[: self.searches]]
        for some in rows.split(max(1, DISTANCES_AT_ONCE // len(self.nearest))):
            self._choose(some, self.centres.dtype)
            close = some[self._squared(some) < CLOSE * self.squares[some]]
            if len(close) and self.centres.dtype != torch.float64:
                self._choose(close, torch.float64)
            weight = 1 / self.sizes[some] + 1 / self.sizes[self.nearest[some]]
            self.gaps[some] = 2 * self._squared(some) / weight.double()

    def _choose(self, some: Tensor, dtype: torch.dtype) -> None:
        """Set the nearest others of rows `some`, by products in the given precision."""
        centres = self.centres.to(dtype)  # (m, D)
        squares = self.squares.to(dtype)  # (m,)
        distances = torch.addmm(squares, centres[some], centres.T, alpha=-2)  # (some, m)
        distances += squares[some, None]
        distances /= 1 / self.sizes[some, None] + 1 / self.sizes
        distances.scatter_(1, some[:, None], torch.inf)  # itself
        self.nearest[some] = distances.argmin(dim=1)

    def _squared(self, some: Tensor) -> Tensor:  # (some,) float64
        """Squared distances from the nearest others: of differences, which keep the digits that products lose."""
        return squared_norms((self.centres[some] - self.centres[self.nearest[some]]).double())

    def merge(self, tree: _Tree) -> None:
        """Join all pairs that are each other's nearest."""
        known = (self.nearest != UNKNOWN).nonzero()[:, 0]
        closest = known[self.gaps[known].argmin()]
        partner = self.nearest[closest]
        if self.nearest[partner] != UNKNOWN:
            # Equal distances could point round in a circle for ever.
            self.nearest[partner] = closest
            self.gaps[partner] = self.gaps[closest]
        mutual = (self.nearest[self.nearest[known]] == known) & (known < self.nearest[known])
        a = known[mutual]
        b = self.nearest[a]
        self.searches = max(FEWEST_SEARCHES, len(a))
        sizes = self.sizes[a] + self.sizes[b]
        share = (self.sizes[b] / sizes)[:, None]
        self.centres[a] = torch.lerp(self.centres[a], self.centres[b], share)
        self.squares[a] = squared_norms(self.centres[a].double())
        self.sizes[a] = sizes
        self.points[a] += self.points[b]
        # Rounding must not put a union below its parts.
        self.heights[a] = self.gaps[a].sqrt().maximum(self.heights[a]).maximum(self.heights[b])
        self.nodes[a] = tree.add(self.nodes[a], self.nodes[b], self.heights[a], self.points[a])
        self.squares[b] = torch.inf
        self.count -= len(a)
        joined = torch.zeros_like(self.nearest, dtype=torch.bool)
        joined[a] = joined[b] = True
        self.nearest[joined | joined[self.nearest]] = UNKNOWN
        if self.count < FULL_ENOUGH * len(self.nearest):
            self._close_ranks()

    def _close_ranks(self) -> None:
        """Drop the rows that have been joined to others: every search would go past them."""
        kept = self.squares.isfinite().nonzero()[:, 0]
        row = torch.full_like(self.nearest, UNKNOWN)
        row[kept] = torch.arange(len(kept), device=kept.device)
        self.nearest = row[self.nearest].where(self.nearest != UNKNOWN, UNKNOWN)
        for name, values in vars(self).items():
            if isinstance(values, Tensor):
                setattr(self, name, values[kept])


def grains(points: Rows) -> tuple[Tensor, Tensor]:
    """The means (g, D) of about GRAINS clusters, relative to that of all points, and the cluster of each point (n,).

    Centres are points drawn in a few rounds, far ones more likely (by squared distance, as k-means++ draws one by one):
    small groups far from all else get theirs. Then they move to the means of their points, twice.
    """
    random = torch.Generator().manual_seed(0)
    members = Members.of(points.less(points.mean()), torch.full((len(points),), UNLABELLED, device=points.device))
    label = torch.zeros(len(points), dtype=torch.long, device=points.device)  # (n,) the nearest centre
    squared = members.free_squares.clone()  # (n,) its squared distance
    centres = points.mean().new_empty(0, points.shape[1])
    for _ in range(ROUNDS):
        shares = squared.double().cumsum(0)
        drawn = torch.rand(GRAINS // ROUNDS, generator=random, dtype=torch.float64).to(shares) * shares[-1]
        new = members.free[torch.searchsorted(shares, drawn).clamp(max=len(points) - 1).unique()].whole()
        nearest, away = nearest_centre(members.free, new, members.free_squares)
        is_nearer = (away < squared) | (len(centres) == 0)
        label, squared = torch.where(is_nearer, nearest + len(centres), label), torch.where(is_nearer, away, squared)
        centres = torch.cat([centres, new])
    settled = lloyd(members, centres, max_iter=2, tol=0.0, reseed=True, nearest=(label, squared))
    used, group = settled.labels.unique(return_inverse=True)
    return settled.centres[used], group


def _join_groups(group: Tensor, tree: _Tree) -> tuple[Tensor, Tensor]:
    """Join the points of each group (n,), 0..g-1, at height 0; returns the groups' sizes and nodes."""
    sizes = group.bincount()
    order = group.argsort(stable=True)  # points, group after group
    start = sizes.cumsum(0) - sizes
    place = torch.arange(len(group), device=group.device) - start[group[order]]  # of a point in its group
    later = (place > 0).nonzero()[:, 0]  # each is joined to what stands before it
    merge_before = torch.arange(tree.points - 1, tree.points - 1 + len(later), device=group.device)
    left = merge_before.where(place[later] > 1, order[later - 1])
    nodes = order[start]  # the first point of each group ...
    if len(later):
        merged = tree.add(left, order[later], torch.zeros_like(later, dtype=torch.float64), place[later] + 1)
        last = place[later] + 1 == sizes[group[order[later]]]
        nodes[group[order[later[last]]]] = merged[last]  # ... or the union of all its points
    return sizes, nodes
