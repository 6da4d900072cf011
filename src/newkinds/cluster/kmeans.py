"""k-means, and k-means in which labelled points stay with their class."""

import warnings
from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from typing_extensions import Self

from ..errors import NewkindsError
from .lloyd import Members, Settled, k_means_plus_plus, lloyd
from .neighbours import nearest_centre
from .points import UNLABELLED, Features, as_features, as_labels, as_rows, whole_number
from .rows import Rows


@dataclass(eq=False, repr=False)
class KMeans(ClusterMixin, BaseEstimator):
    """k-means from k-means++ starts, in the arithmetic and with the random draws of the published GCD code.

    A tensor of features is worked on where it is. Of an array on the disk (`np.memmap`, or several: `Shards`) a block
    at a time is read, once for each step: the result is that of the same array in memory, and what is held grows with
    n, not with n × D. The best of `n_init` starts is kept, and each ends when the distances
    that the centres move sum up to no more than √tol (for unit rows: lower it for much smaller ones). `init` can
    be given: centres (n_clusters, D). A cluster that loses all its points starts again at the point farthest from its
    centre; with `published_behaviour=True` its centre is NaN and takes every unlabelled point next, as published.

    >>> import numpy as np
    >>> KMeans(2, random_state=0).fit(np.array([[0.0], [1.0], [9.0], [10.0]])).cluster_centers_
    array([[0.5],
           [9.5]])
    """

    n_clusters: int
    n_init: int = 10
    random_state: int | np.random.RandomState | None = None
    _: KW_ONLY
    max_iter: int = 200
    tol: float = 1e-4
    init: str | ArrayLike = "k-means++"
    published_behaviour: bool = False

    def fit(self, X: Features, y: ArrayLike | Tensor | None = None) -> Self:
        """Find the clusters of X (n, D). `y` is ignored."""
        rows = as_rows(X)
        return self._fit(rows, np.full(len(rows), UNLABELLED))

    def fit_predict(self, X: Features, y: ArrayLike | Tensor | None = None) -> NDArray[np.int64]:
        """The clusters of the points themselves: `fit(X, y).labels_`."""
        return self.fit(X, y).labels_  # scikit-learn's own would drop y

    def predict(self, X: Features) -> NDArray[np.int64]:
        """The nearest centre of points (m, D) that need not have been seen before."""
        check_is_fitted(self)
        rows = as_rows(X)
        if rows.shape[1] != self.n_features_in_:
            raise NewkindsError(f"points of {rows.shape[1]} features, but the centres have {self.n_features_in_}.")
        centres = torch.as_tensor(self.cluster_centers_, dtype=rows.dtype, device=rows.device)
        middle = centres.nanmean(dim=0)  # published behaviour may have left a centre at NaN
        return nearest_centre(rows.less(middle), centres - middle)[0].cpu().numpy()

    def _fit(self, rows: Rows, classes: NDArray[np.int64]) -> Self:
        """`classes` (n,) are 0..C-1 and get the clusters of these numbers; -1 is free."""
        self._check(classes)
        # Distances are ‖x‖² - 2xc + ‖c‖²: far from the origin they would be differences of large numbers. The
        # published code leaves points where they are, and the rounding there decides between equal distances.
        middle = rows.mean() * (not self.published_behaviour)
        target = torch.from_numpy(classes).to(rows.device)
        members = Members.of(rows.less(middle), target)
        rng = check_random_state(self.random_state)
        starts = range(self.n_init if isinstance(self.init, str) else 1)
        runs = (self._run(members, self._start(members, middle, rng)) for _ in starts)
        best = min(runs, key=lambda run: run.inertia)
        filled = int((members.sizes(best.labels, self.n_clusters) > 0).sum())
        if filled < self.n_clusters:
            message = f"only {filled} of {self.n_clusters} clusters have points: use fewer, or look for copies"
            warnings.warn(message, ConvergenceWarning, stacklevel=3)
        target[target == UNLABELLED] = best.labels
        self.labels_: NDArray[np.int64] = target.cpu().numpy()  # (n,) 0..n_clusters-1
        self.cluster_centers_: NDArray = (best.centres + middle).cpu().numpy()  # (n_clusters, D)
        self.inertia_ = best.inertia  # sum of squared distances from the centres that gave `labels_`
        self.n_iter_ = best.iterations
        self.n_features_in_ = rows.shape[1]
        return self

    def _run(self, members: Members, centres: Tensor) -> Settled:
        """One start, until it settles."""
        return lloyd(members, centres, self.max_iter, self.tol, reseed=not self.published_behaviour)

    def _check(self, classes: NDArray[np.int64]) -> None:
        for name in ("n_clusters", "n_init", "max_iter"):
            whole_number(name, getattr(self, name))
        if not 0 <= self.tol < np.inf:
            raise NewkindsError(f"tol is a number from 0 on, not {self.tol!r}.")
        known, free = int(classes.max()) + 1, int((classes == UNLABELLED).sum())
        if self.n_clusters < known:
            raise NewkindsError(
                f"n_clusters is {self.n_clusters}, but the labels name {known} classes, "
                f"each of which keeps its own cluster: use {known} or more."
            )
        if self.n_clusters - known > free:
            which = f"{free} unlabelled points" if known else f"{free} points"
            raise NewkindsError(
                f"{which} cannot make {self.n_clusters - known} {'new ' if known else ''}clusters: "
                f"set n_clusters to {known + free} or fewer."
            )

    def _leaving(self, members: Members, init: str) -> int:
        """How many points are lost with each draw of k-means++, see there."""
        if init != "k-means++":
            raise NewkindsError(f"init is 'k-means++' or an array of centres, not {init!r}.")
        return 0

    def _start(self, members: Members, middle: Tensor, rng: np.random.RandomState) -> Tensor:  # (K, D)
        """Means of the classes, then new centres: the given ones, or drawn by k-means++."""
        means = members.class_means()
        if isinstance(self.init, str):
            return k_means_plus_plus(members.free, means, self.n_clusters, rng, self._leaving(members, self.init))
        given = as_features(self.init).to(means)
        if given.shape != (self.n_clusters - len(means), means.shape[1]):
            raise NewkindsError(
                f"init has shape {tuple(given.shape)}, but {self.n_clusters - len(means)} centres "
                f"of {means.shape[1]} features are to be placed."
            )
        return torch.cat([means, given - middle])


class SemiSupervisedKMeans(KMeans):
    """k-means for generalized category discovery (Vaze et al., CVPR 2022): labelled points keep their class.

    Clusters 0..C-1 are the C classes among the labels, ascending (`classes_`): they start at the means of
    their labelled points, which never leave. The other clusters are new and start at unlabelled points,
    drawn by k-means++ or given as `init` (n_clusters - C, D). Everything else is as in `KMeans`.

    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [5.0], [6.0], [9.0], [10.0]])
    >>> model = SemiSupervisedKMeans(3, random_state=0).fit(X, y=[7, -1, 3, -1, -1, -1])
    >>> model.labels_, model.classes_
    (array([1, 1, 0, 0, 2, 2]), array([3, 7]))
    """

    def fit(self, X: Features, y: ArrayLike | Tensor | None = None) -> Self:
        """Cluster X (n, D) given labels y (n,): whole numbers, -1 if there is none."""
        rows = as_rows(X)
        labels = as_labels(y, len(rows))
        labelled = labels != UNLABELLED
        self.classes_, labels[labelled] = np.unique(labels[labelled], return_inverse=True)  # (C,)
        return self._fit(rows, labels)
