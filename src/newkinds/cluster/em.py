"""Soft clustering with one covariance for all clusters, and sizes that are believed to be more or less even."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from typing_extensions import Self

from ..errors import NewkindsError
from .points import UNLABELLED, Features, as_labels, as_rows, whole_number
from .rows import HELD, Rows

LABEL_WEIGHT = 3.0  # of a labelled row in the covariance; the others count by how sure they are
SIZE_STEPS = 20  # towards the offsets of the sizes, for given directions
SMALLEST_SHARE = 1e-3  # of an even share: an empty cluster does not become infinitely attractive
CAUTION = 3.0  # times the shrinkage that is best for known classes: clusters are not yet the classes
LEAST_SHRINKAGE = 0.1  # of however many rows


@dataclass(eq=False, repr=False)
class SharedCovarianceEM(ClusterMixin, BaseEstimator):
    """Expectation and maximisation on the sphere, in a space that is whitened by the clusters themselves.

    Every round estimates the covariance *within* the clusters from all rows, labelled or not, whitens by it (shrunk
    towards the identity by `shrinkage`; "auto" is the more, the fewer rows there are, see `oracle_shrinkage`), and then
    alternates between the directions of the clusters and the rows' shares in them: a softmax of cosines over
    `temperature`, with an offset for each cluster that makes sizes even. `evenness` is how far they are believed to be
    so: 1 even, 0 free. It is the exponent λ/(λ+ε) of unbalanced optimal transport. Labelled rows stay in their cluster:
    label k is cluster k. Rows may be on the disk, as in `KMeans`.

    It begins with a hard assignment `init` (n,), and goes where that leads: see `align_shares` for a vote of several.

    >>> start = BalancedSemiSupervisedKMeans(50, random_state=0).fit(X, y).labels_
    >>> SharedCovarianceEM(50, start).fit(X, y).labels_
    """

    n_clusters: int
    init: ArrayLike | Tensor
    _: KW_ONLY
    shrinkage: float | Literal["auto"] = "auto"
    evenness: float = 0.0
    temperature: float = 0.05
    rounds: int = 5  # of the covariance
    max_iter: int = 5  # of the directions, in every round

    def fit(self, X: Features, y: ArrayLike | Tensor | None = None) -> Self:
        """Cluster unit rows X (n, P) given labels y (n,; -1: none, else below `n_clusters`)."""
        rows = as_rows(X)
        labels = torch.from_numpy(as_labels(y, len(rows))).to(rows.device)
        cluster = torch.as_tensor(self.init, dtype=torch.long).to(rows.device)
        self._check(labels, cluster)
        cluster = torch.where(labels == UNLABELLED, cluster, labels)
        sureness = torch.ones(len(rows), dtype=rows.dtype, device=rows.device)
        self.mean_ = rows.mean()  # (P,)
        for _ in range(self.rounds):
            before = cluster
            weight = sureness.masked_fill(labels != UNLABELLED, LABEL_WEIGHT)
            covariance = covariance_within(rows.less(self.mean_), cluster, weight, self.n_clusters)
            self.shrinkage_ = self._shrinkage(covariance, weight)
            self.whitening_ = inverse_root(covariance, self.shrinkage_).to(rows.dtype)  # (P, P)
            cluster, sureness = self._settle(self._space(rows), labels, cluster, sureness)
            if torch.equal(cluster, before):
                break
        self.labels_: NDArray[np.int64] = cluster.cpu().numpy()  # (n,)
        self.n_features_in_ = rows.shape[1]
        return self

    def predict_proba(self, X: Features, y: ArrayLike | Tensor | None = None) -> Tensor:
        """(n, K) the shares of unit rows in the clusters; those of labelled ones are whole."""
        check_is_fitted(self)
        space = self._space(as_rows(X))
        labels = torch.from_numpy(as_labels(y, len(space))).to(space.device)
        odds = (self._cosines(block) / self.temperature + self.offsets_ for block in space.split())
        shares = torch.cat([block.softmax(dim=1) for block in odds])
        known = labels != UNLABELLED
        shares[known] = F.one_hot(labels[known], self.n_clusters).to(shares.dtype)
        return shares

    def predict(self, X: Features) -> NDArray[np.int64]:
        """The cluster of unit rows (m, P) that need not have been seen before."""
        return self.predict_proba(X).argmax(dim=1).cpu().numpy()

    def _settle(self, space: Rows, labels: Tensor, cluster: Tensor, sureness: Tensor) -> tuple[Tensor, Tensor]:
        """Directions and shares in turn, from a hard assignment (n,) on: the cluster of each row, and how sure."""
        free = labels == UNLABELLED
        theirs, own = space[~free], labels[~free]
        of_labelled = theirs.sums(own, self.n_clusters)  # (K, P)
        label_sizes = own.bincount(minlength=self.n_clusters)
        others = space[free].hold()
        choice, sure = cluster[free], sureness[free]
        sums = of_labelled + _weighted_sums(others, choice, sure, self.n_clusters)
        for _ in range(self.max_iter):
            self.directions_ = F.normalize(sums, dim=1)  # (K, P)
            odds = _Odds(others, self.directions_ / self.temperature)
            self.offsets_ = size_offsets(odds, label_sizes, self.evenness)  # (K,)
            before, sums = choice, of_labelled.clone()
            found: list[tuple[Tensor, Tensor]] = []  # largest share and its place, block by block
            for block, of_block in zip(others.split(), odds.blocks(), strict=True):
                shares = of_block * self.offsets_.exp()
                shares /= shares.sum(dim=1, keepdim=True)
                sums += shares.T @ block
                found.append(shares.max(dim=1))
            sure, choice = torch.cat([share for share, _ in found]), torch.cat([place for _, place in found])
            if torch.equal(choice, before):
                break
        cluster, sureness = cluster.clone(), sureness.clone()
        cluster[free], sureness[free] = choice, sure
        return cluster, sureness

    def _shrinkage(self, covariance: Tensor, weight: Tensor) -> float:
        if self.shrinkage != "auto":
            return self.shrinkage
        rows = float(weight.sum() ** 2 / weight.square().sum())  # as many of the same weight tell as much
        return oracle_shrinkage(covariance, rows - self.n_clusters, CAUTION)

    def _cosines(self, rows: Tensor) -> Tensor:  # (m, K)
        return rows @ self.directions_.T

    def _space(self, rows: Rows) -> Rows:
        """Unit rows (n, P), centred and whitened."""
        return Rows(_Whitened(rows, self.mean_, self.whitening_)).hold()

    def _check(self, labels: Tensor, cluster: Tensor) -> None:
        for name in ("n_clusters", "rounds", "max_iter"):
            whole_number(name, getattr(self, name))
        if self.shrinkage != "auto" and not (isinstance(self.shrinkage, (int, float)) and 0 < self.shrinkage <= 1):
            raise NewkindsError(f"shrinkage is a number between 0 and 1, or 'auto', not {self.shrinkage!r}.")
        for name, low, high in (("evenness", -1e-9, 1.0), ("temperature", 0.0, np.inf)):
            if not low < getattr(self, name) <= high:
                raise NewkindsError(
                    f"{name} is a number between {max(low, 0):g} and {high:g}, not {getattr(self, name)!r}."
                )
        if cluster.shape != labels.shape:
            raise NewkindsError(
                f"init is one cluster per row: shape {tuple(labels.shape)}, not {tuple(cluster.shape)}."
            )
        largest = int(torch.cat([labels, cluster]).max())
        if largest >= self.n_clusters or int(cluster.min()) < 0:
            raise NewkindsError(f"labels and init are clusters from 0 to {self.n_clusters - 1}, not {largest}.")


class _Whitened:
    """Rows of a source, centred, whitened and of unit length; computed when they are read."""

    def __init__(self, rows: Rows, mean: Tensor, whitening: Tensor) -> None:
        self.source, self.mean, self.whitening = rows.source, mean, whitening
        self.shape, self.dtype = rows.shape, rows.dtype

    def __getitem__(self, rows: Any, /) -> Tensor:
        found = self.source[rows]
        read = found if isinstance(found, Tensor) else torch.from_numpy(np.array(found))
        return F.normalize((read.to(self.mean) - self.mean) @ self.whitening, dim=1)


class _Odds:
    """exp(logits) of rows for given directions, each row divided by its largest: what a softmax is made of.

    They are held if they are not too many, because the sizes' offsets look at them many times.
    """

    def __init__(self, rows: Rows, directions: Tensor) -> None:
        self.rows, self.directions = rows, directions
        self.count = len(rows)
        size = len(rows) * len(directions) * rows.dtype.itemsize
        self._held = list(self._compute()) if size <= HELD else None

    def blocks(self) -> Iterator[Tensor]:  # (m, K)
        return iter(self._held) if self._held is not None else self._compute()

    def _compute(self) -> Iterator[Tensor]:
        for block in self.rows.split():
            logits = block @ self.directions.T
            yield (logits - logits.amax(dim=1, keepdim=True)).exp_()


def size_offsets(odds: _Odds, label_sizes: Tensor, evenness: float) -> Tensor:
    """(K,) what is added to the logits of each cluster so that sizes, those of labelled rows (K,) included, are as even
    as they are believed to be: relaxed Sinkhorn, damped by half."""
    clusters = len(label_sizes)
    n = odds.count + int(label_sizes.sum())
    offsets = torch.zeros(clusters, dtype=odds.directions.dtype, device=odds.directions.device)
    if evenness == 0 or odds.count == 0:
        return offsets
    for _ in range(SIZE_STEPS):
        factor = offsets.exp()
        sizes = label_sizes.to(offsets.dtype)
        for block in odds.blocks():
            sizes = sizes + factor * (block.T @ (block @ factor).reciprocal())
        offsets = (offsets + evenness * (offsets - (sizes * clusters / n + SMALLEST_SHARE).log())) / 2
    return offsets


def covariance_within(rows: Rows, cluster: Tensor, weight: Tensor, clusters: int) -> Tensor:
    """(P, P) of the differences of weighted rows (n, P) from the mean of their cluster (n,), in float64."""
    sizes = torch.zeros(clusters, dtype=torch.float64, device=rows.device).index_add_(0, cluster, weight.double())
    means = (_weighted_sums(rows, cluster, weight, clusters).double() / sizes.clamp(min=1e-12)[:, None]).to(rows.dtype)
    total = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64, device=rows.device)
    places = torch.arange(len(cluster), device=rows.device)
    for block, at in rows.beside(places):
        difference = block - means[cluster[at]]
        total += difference.T @ (difference * weight[at, None])
    return total / sizes.sum()


def inverse_root(covariance: Tensor, shrinkage: float) -> Tensor:
    """(P, P) the map after which the covariance, shrunk towards a multiple of the identity, is the identity."""
    variance = covariance.trace() / len(covariance)
    if not variance > 0:  # every cluster is a point: nothing is to be learnt from that
        return torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    values, vectors = torch.linalg.eigh((1 - shrinkage) * covariance / variance)
    return vectors / (values.clamp(min=0) + shrinkage).sqrt() @ vectors.T


def oracle_shrinkage(covariance: Tensor, freedom: float, times: float = 1.0) -> float:
    """How far a covariance (P, P), estimated with so many degrees of `freedom`, is to be shrunk towards a multiple of
    the identity: the farther, the fewer these are and the more alike all directions; so many `times` what is best for
    the covariance itself, from `LEAST_SHRINKAGE` to 1.

    That is the oracle approximating shrinkage of Chen, Wiesel, Eldar, Hero: Shrinkage Algorithms for MMSE Covariance
    Estimation. IEEE Transactions on Signal Processing 2010.

    >>> oracle_shrinkage(torch.diag(torch.tensor([8.0, 1.0, 1.0])), 10)
    0.3614...
    """
    size = len(covariance)
    squares, trace = float(covariance.square().sum()), float(covariance.trace())
    spread = squares - trace**2 / size  # 0: as wide in every direction
    if not spread > 0 or not freedom > 0:
        return 1.0
    best = ((1 - 2 / size) * squares + trace**2) / ((freedom + 1 - 2 / size) * spread)
    return min(1.0, max(LEAST_SHRINKAGE, times * best))


def align_shares(shares: Sequence[Tensor]) -> Tensor:
    """(n, K) the mean of several answers (n, K), whose clusters are numbered by those of the first.

    >>> align_shares([torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 1.0], [0.9, 0.1]])])
    tensor([[1.0000, 0.0000],
            [0.0500, 0.9500]])
    """
    first = shares[0]
    total = first.clone()
    for other in shares[1:]:
        agreement = (first.T @ other).cpu().numpy()  # (K, K)
        total += other[:, torch.from_numpy(linear_sum_assignment(agreement, maximize=True)[1]).to(other.device)]
    return total / len(shares)


def _weighted_sums(rows: Rows, cluster: Tensor, weight: Tensor, clusters: int) -> Tensor:  # (K, P)
    sums = torch.zeros(clusters, rows.shape[1], dtype=rows.dtype, device=rows.device)
    places = torch.arange(len(cluster), device=rows.device)
    for block, at in rows.beside(places):
        sums.index_add_(0, cluster[at], block * weight[at, None])
    return sums
