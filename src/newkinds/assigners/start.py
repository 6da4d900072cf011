"""What clusterings that improve an answer begin with."""

import torch
from torch import Tensor

from ..cluster import BalancedSemiSupervisedKMeans
from ..cluster.em import inverse_root, oracle_shrinkage
from .base import CannotAssign, draw_seed
from .centres import numbers_of_clusters
from .whitening import apply_whitening, covariance_of_classes


def find_start(embedding: Tensor, labels: Tensor, categories: int, restarts: int = 1) -> Tensor:
    """(n,) the category that `balanced` gives unit rows (n, P), whitened by the labelled ones; the fewer these are, the
    less. A labelled row is in its class (n,; -1: none)."""
    found = BalancedSemiSupervisedKMeans(categories, restarts, draw_seed()).fit(whiten(embedding, labels), labels)
    return torch.from_numpy(numbers_of_clusters(found)[found.labels_]).to(labels.device)


def whiten(embedding: Tensor, labels: Tensor) -> Tensor:
    """Unit rows (n, P), whitened as far as the labels (n,) can tell how; as they are if these cannot at all."""
    try:
        covariance, freedom = covariance_of_classes(embedding, labels)
    except CannotAssign:  # such as one label for each class
        return embedding
    shrinkage = oracle_shrinkage(covariance, freedom)
    return apply_whitening(embedding, embedding.mean(dim=0), inverse_root(covariance, shrinkage))
