"""Which of the clusters that an assigner finds are known classes: those of which the labelled images say so."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..naming import bears_name
from .base import SizedByState

NO_CLUSTER = -1


def clusters_of_classes(
    cluster: NDArray[np.int64], labels: NDArray[np.int64], known: int, clusters: int
) -> NDArray[np.int64]:
    """(C,) the cluster that is each known class, or -1: by the rule of `bears_name`, and if several are, the one with
    the most labelled images of the class.

    `cluster` (m,) is where the model alone puts images of these `labels` (m,; -1: none). A class has one cluster at
    most, and a cluster is one class at most: others that labelled images of a class are in stay new.

    >>> clusters_of_classes(np.array([3, 3, 1, 0, 0]), np.array([0, 0, 0, 1, -1]), known=2, clusters=4)
    array([3, 0])
    """
    labelled = labels >= 0
    pairs = cluster[labelled] * known + labels[labelled]
    counts = np.bincount(pairs, minlength=clusters * known).reshape(clusters, known)
    of_cluster, of_class = counts.sum(axis=1), counts.sum(axis=0)
    found = np.full(known, NO_CLUSTER)
    for number in range(known):
        for place in np.argsort(-counts[:, number], kind="stable"):
            if bears_name(int(counts[place, number]), int(of_cluster[place]), int(of_class[number])):
                found[number] = place
                break
    return found


def clusters_of_categories(of_classes: NDArray[np.int64], clusters: int) -> NDArray[np.int64]:
    """(K',) the cluster of each category, or -1 for a known class that has none: its labelled images are alone there.

    The known classes come first. A cluster that is none keeps its number if that is the number of a new category; else
    it takes one that became free, or the next.

    >>> clusters_of_categories(np.array([3, -1]), clusters=4)    # cluster 3 is class 0; of class 1 there is none
    array([ 3, -1,  2,  0,  1])
    """
    known = len(of_classes)
    new = [place for place in range(clusters) if place not in set(of_classes.tolist())]
    category = {place: place for place in new if place >= known}
    free = iter([number for number in range(known, clusters + known) if number not in category])
    category |= {place: next(free) for place in new if place < known}
    found = np.full(known + len(new), NO_CLUSTER)
    found[:known] = of_classes
    for place, number in category.items():
        found[number] = place
    return found


def name_categories(
    cluster: NDArray[np.int64], labels: NDArray[np.int64], known: int, clusters: int
) -> NDArray[np.int64]:
    """(n,) the category of each image from its cluster (n,) and labels (n,; -1: none), by the same rule; labelled
    images too are where their cluster is. What `accuracy_by_name` judges, if there is no model.

    >>> name_categories(np.array([3, 3, 1, 0, 0]), np.array([0, 0, -1, 1, 1]), known=2, clusters=4)
    array([0, 0, 3, 1, 1])
    """
    of_categories = clusters_of_categories(clusters_of_classes(cluster, labels, known, clusters), clusters)
    number = np.full(clusters, NO_CLUSTER)
    filled = np.flatnonzero(of_categories != NO_CLUSTER)
    number[of_categories[filled]] = filled
    return number[cluster]


class Naming(SizedByState):
    """Scores of clusters become scores of categories, of which the first C are the known classes.

    >>> naming = Naming()
    >>> naming.fit(assigner(embedding[labelled]).argmax(dim=1), labels[labelled], known=2, clusters=4)
    >>> naming(assigner(embedding))                    # (n, K) → (n, K')
    """

    cluster: Tensor

    def __init__(self) -> None:
        super().__init__()
        # (K',) of each category, K for none; empty: clusters are numbered as categories are
        self.register_buffer("cluster", torch.empty(0, dtype=torch.long))

    def fit(self, cluster: Tensor, labels: Tensor, known: int, clusters: int) -> None:
        """From where the model alone puts labelled images: (m,) clusters, (m,) classes.

        If there are as many clusters as known classes, nothing is new: whoever said so gets them as they are.
        """
        of_classes = clusters_of_classes(cluster.cpu().numpy(), labels.cpu().numpy(), known, clusters)
        found = clusters_of_categories(of_classes, clusters)
        if clusters == known or np.array_equal(found, np.arange(clusters)):
            found = found[:0]
        self.cluster = torch.from_numpy(np.where(found == NO_CLUSTER, clusters, found)).to(self.cluster)

    def categories(self, clusters: int) -> int:
        return len(self.cluster) or clusters

    def forward(self, logits: Tensor) -> Tensor:
        """(n, K) → (n, K'), -inf for a known class that is no cluster: no other image is put there."""
        if not len(self.cluster):
            return logits
        nowhere = logits.new_full((logits.shape[0], 1), -torch.inf)
        return torch.cat([logits, nowhere], dim=1)[:, self.cluster]
