"""Clustering of features, in the manner of scikit-learn: `fit(X, y)`, and y = -1 if there is no label."""

from ..shards import Shards
from .balanced import BalancedSemiSupervisedKMeans
from .em import SharedCovarianceEM
from .kmeans import KMeans, SemiSupervisedKMeans
from .neighbours import mean_shift_step, most_similar
from .ward import Ward

__all__ = [
    "BalancedSemiSupervisedKMeans",
    "KMeans",
    "SemiSupervisedKMeans",
    "Shards",
    "SharedCovarianceEM",
    "Ward",
    "mean_shift_step",
    "most_similar",
]
