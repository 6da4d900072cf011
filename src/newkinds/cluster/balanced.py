"""Semi-supervised k-means that steers its new clusters towards equal sizes."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import partial

import torch
from torch import Tensor

from ..errors import NewkindsError
from .kmeans import SemiSupervisedKMeans
from .lloyd import Members, Settled, lloyd
from .neighbours import nearest_centre
from .points import whole_number


@dataclass(eq=False, repr=False)
class BalancedSemiSupervisedKMeans(SemiSupervisedKMeans):
    """The clustering of SelEx (Rastegar et al., ECCV 2024): clusters are first spread out by their sizes.

    In up to `max_iter` iterations only new clusters move, and clusters of more than `cluster_size` points ("even":
    n / n_clusters, rounded up; None: no limit) pass their farthest unlabelled ones on to the nearest cluster with room:
    not at all in the first iteration, once in the second, twice in the third ... Then as many iterations of plain
    semi-supervised k-means follow. The state of least inertia is kept: sizes are steered, not guaranteed.

    `published_behaviour=True` repeats what the published code gets wrong: a cluster with one unlabelled point always
    has room; one with more labelled points than `cluster_size` passes on only as many as it is over; empty clusters are
    not filled (see `KMeans`). Its arithmetic decides which of two points stays that are equally far from the centre.
    `init="infosieve"` draws the starts as InfoSieve's code does, with a mistake (see `k_means_plus_plus`).
    """

    _: KW_ONLY
    cluster_size: int | str | None = "even"
    max_iter: int = 10

    def _run(self, members: Members, centres: Tensor) -> Settled:
        reseed = not self.published_behaviour
        known = len(members.class_sizes)
        spread = None if self.cluster_size is None else partial(self._spread, members, self._room(members))
        spreading = lloyd(members, centres, self.max_iter, self.tol, reseed, fixed=known, rearrange=spread)
        settling = lloyd(members, spreading.last_centres, self.max_iter, self.tol, reseed)
        best = settling if settling.inertia < spreading.inertia else spreading
        best.iterations = spreading.iterations + settling.iterations
        return best

    def _leaving(self, members: Members, init: str) -> int:
        if init == "infosieve":
            return 0 if self.cluster_size is None else self._size(members)
        return super()._leaving(members, init)

    def _size(self, members: Members) -> int:
        """How many points a cluster may have, labelled ones included."""
        if self.cluster_size == "even":
            return math.ceil((len(members.free) + int(members.class_sizes.sum())) / self.n_clusters)
        return whole_number("cluster_size", self.cluster_size)

    def _room(self, members: Members) -> Tensor:  # (K,)
        """How many unlabelled points each cluster may have."""
        size = self._size(members)
        room = torch.full((self.n_clusters,), size, device=members.free.device)
        room[: len(members.class_sizes)] -= members.class_sizes
        if self.published_behaviour:
            return room
        room = room.clamp(min=0)
        if room.sum() < len(members.free):
            raise NewkindsError(
                f"{self.n_clusters} clusters of at most {size} points have room for {int(room.sum())} of the "
                f"{len(members.free)} unlabelled ones: raise cluster_size, or leave it at 'even'."
            )
        return room

    def _spread(
        self, members: Members, room: Tensor, rounds: int, labels: Tensor, squared: Tensor, centres: Tensor
    ) -> Tensor:
        """Labels (u,) after `rounds` in which overfull clusters pass on their farthest points, all at once."""
        labels, squared = labels.clone(), squared.clone()
        for _ in range(rounds):
            sizes = labels.bincount(minlength=len(room))
            has_room, keeps = sizes < room, room
            if self.published_behaviour:
                # Two points are equally far from their mean: which of them leaves is up to the rounding.
                blocks = members.free.beside(labels)
                squared = torch.cat([(block - centres[own]).square().sum(dim=1) for block, own in blocks])
                has_room = has_room | (sizes == 1)
                keeps = room.where(room >= 0, sizes + room)  # a Python slice that starts below 0
            passed_on = (_rank(labels, squared, sizes) >= keeps[labels]) & ~has_room[labels]
            if not has_room.any() or not passed_on.any():
                break
            receivers = has_room.nonzero()[:, 0]
            choice, squared[passed_on] = nearest_centre(members.free[passed_on], centres[receivers])
            labels[passed_on] = receivers[choice]
        return labels


def _rank(labels: Tensor, squared: Tensor, sizes: Tensor) -> Tensor:  # (u,)
    """The place of each point in its cluster, 0 for the nearest to the centre."""
    nearest_first = squared.argsort(stable=True)
    order = nearest_first[labels[nearest_first].argsort(stable=True)]  # cluster after cluster
    starts = sizes.cumsum(dim=0) - sizes
    rank = torch.empty_like(labels)
    rank[order] = torch.arange(len(labels), device=labels.device) - starts[labels[order]]
    return rank
