"""Categories as the centres of clusters: an image belongs to the nearest one."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..cluster import BalancedSemiSupervisedKMeans, KMeans, SemiSupervisedKMeans
from ..cluster.metrics import match_known
from ..precision import full_precision
from ..settings import AtLeastOne
from .base import ASSIGNERS, Assigner, SizedByState, draw_seed


class CentreClassifier(Assigner):
    """Categories as fixed centres that clustering has found: a row belongs to the nearest one."""

    centres: Tensor

    def __init__(self, dim: int, known: int, categories: int, /) -> None:
        super().__init__(dim, known, categories)
        self.register_buffer("centres", torch.zeros(categories, dim))  # (K, P); all zero: not found yet

    def forward(self, embedding: Tensor) -> Tensor:
        """(n, K) minus half the squared distances, up to a constant per row; for unit vectors, cosines."""
        self.require_fitted(bool(self.centres.any()))
        return self.logits(embedding)

    def logits(self, embedding: Tensor) -> Tensor:
        with full_precision(embedding) as x:
            centres = self.centres.to(x.dtype)
            logits = x @ centres.T - centres.square().sum(dim=1) / 2
            # A cluster that ended up empty (in the published way) has no centre, and nothing belongs to it.
            return logits.where(centres.isfinite().all(dim=1), -torch.inf)


def centres_of_classes(clustering: SemiSupervisedKMeans, embedding: Tensor, labels: Tensor) -> Tensor:
    """(K, P) the centres of a clustering that knows the labels, those of known classes under their numbers."""
    found = clustering.fit(embedding, labels)
    return torch.from_numpy(found.cluster_centers_[np.argsort(numbers_of_clusters(found))])


def numbers_of_clusters(found: SemiSupervisedKMeans) -> NDArray[np.int64]:
    """(K,) the category of each cluster. Clusters of classes come first, and have the numbers of these; a known class
    of which no image has a label takes a new cluster."""
    others = np.setdiff1d(np.arange(found.n_clusters), found.classes_)
    return np.concatenate([found.classes_, others])


@ASSIGNERS.register("kmeans")
class PlainKMeans(CentreClassifier):
    """k-means on all images without their labels; clusters are named after known classes afterwards."""

    def __init__(
        self, dim: int, known: int, categories: int, /, restarts: AtLeastOne = 10, iterations: AtLeastOne = 200
    ) -> None:
        super().__init__(dim, known, categories)
        self.restarts = restarts
        self.iterations = iterations

    def fit(self, embedding: Tensor, labels: Tensor) -> None:
        found = KMeans(self.categories, self.restarts, draw_seed(), max_iter=self.iterations).fit(embedding)
        number, _ = match_known(found.labels_, labels.cpu().numpy(), self.known, self.categories)
        self.centres.copy_(torch.from_numpy(found.cluster_centers_[np.argsort(number)]))


@ASSIGNERS.register("sskmeans")
class LabelledKMeans(CentreClassifier):
    """Semi-supervised k-means: labelled images stay in the cluster of their class (GCD's assigner)."""

    def __init__(
        self,
        dim: int,
        known: int,
        categories: int,
        /,
        restarts: AtLeastOne = 10,
        iterations: AtLeastOne = 200,
        as_published: bool = False,  # an emptied cluster takes in every unlabelled image, not a far one
    ) -> None:
        super().__init__(dim, known, categories)
        self.restarts = restarts
        self.iterations = iterations
        self.as_published = as_published

    def clustering(self, clusters: int, restarts: int, random: int | np.random.RandomState) -> SemiSupervisedKMeans:
        return SemiSupervisedKMeans(
            clusters, restarts, random, max_iter=self.iterations, published_behaviour=self.as_published
        )

    def fit(self, embedding: Tensor, labels: Tensor) -> None:
        clustering = self.clustering(self.categories, self.restarts, draw_seed())
        self.centres.copy_(centres_of_classes(clustering, embedding, labels))


class FoundKMeans(SizedByState, LabelledKMeans):
    """Semi-supervised k-means with the number of categories that a method has found while training."""

    found: Tensor
    expected: Tensor

    def __init__(self, dim: int, known: int, categories: int, /, *settings: Any) -> None:
        super().__init__(dim, known, categories, *settings)
        self.register_buffer("found", torch.tensor(0))  # categories; 0: none found yet
        self.register_buffer("expected", torch.tensor(categories))  # --k, with which training has begun

    def fit(self, embedding: Tensor, labels: Tensor) -> None:
        if self.found:
            self.categories = int(self.found)
            self.note = f"{self.categories} categories found while training, {int(self.expected)} expected"
            self.centres = self.centres.new_zeros(self.categories, self.centres.shape[1])
        super().fit(embedding, labels)

    def trial(self, known: int, categories: int) -> "FoundKMeans":
        other = super().trial(known, categories)
        assert isinstance(other, FoundKMeans)
        other.found = torch.zeros_like(self.found)  # of other data nothing has been found
        return other


@ASSIGNERS.register("balanced")
class BalancedKMeans(LabelledKMeans):
    """Semi-supervised k-means that is steered towards categories of the same size (SelEx's assigner)."""

    def __init__(
        self,
        dim: int,
        known: int,
        categories: int,
        /,
        restarts: AtLeastOne = 10,
        iterations: AtLeastOne = 10,  # with balancing, then as many without
        even_sizes: bool = True,
        as_published: bool = False,
    ) -> None:
        super().__init__(dim, known, categories, restarts, iterations, as_published)
        self.even_sizes = even_sizes
        self.init = "k-means++"

    def clustering(self, clusters: int, restarts: int, random: int | np.random.RandomState) -> SemiSupervisedKMeans:
        size = "even" if self.even_sizes else None
        how: dict[str, Any] = {"max_iter": self.iterations, "published_behaviour": self.as_published}
        how["init"] = self.init
        return BalancedSemiSupervisedKMeans(clusters, restarts, random, cluster_size=size, **how)
