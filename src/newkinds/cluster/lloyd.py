"""Lloyd's iteration with points that may choose their cluster and points that may not."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from .neighbours import nearest_centre
from .points import UNLABELLED, squared_norms, squares_of
from .rows import Rows

ROUNDINGS = 16  # a squared distance of 0 comes out as no more than so many times the smallest share of ‖x‖²


@dataclass(frozen=True)
class Members:
    """Free points choose their cluster. Labelled ones stay with their class, of which only sums are needed."""

    free: Rows  # (u, D)
    free_squares: Tensor  # (u,) their ‖x‖²
    class_sums: Tensor  # (C, D) float64
    class_sizes: Tensor  # (C,)
    labelled_squares: Tensor  # () sum of ‖x‖² over labelled points, float64

    @classmethod
    def of(cls, points: Rows, classes: Tensor) -> Self:
        """From points (n, D) and the class of each (n,): 0..C-1, or -1 for a free one."""
        labelled = classes != UNLABELLED
        free = (points[~labelled] if labelled.any() else points).hold()
        squares = squares_of(free)
        theirs, own = points[labelled], classes[labelled]
        sizes = own.bincount()
        sums = theirs.sums(own, len(sizes), torch.float64)
        labelled_squares = sum((block.double().square().sum() for block in theirs.split()), sums.new_zeros(()))
        return cls(free, squares, sums, sizes, labelled_squares)

    def class_means(self) -> Tensor:  # (C, D)
        return (self.class_sums / self.class_sizes[:, None]).to(self.free.dtype)

    def sizes(self, labels: Tensor, clusters: int) -> Tensor:  # (K,)
        """The points in each cluster, labelled ones included, if `labels` (u,) are those of the free ones."""
        sizes = labels.bincount(minlength=clusters)
        sizes[: len(self.class_sizes)] += self.class_sizes
        return sizes

    def means(self, labels: Tensor, clusters: int) -> Tensor:  # (K, D)
        """The mean of each cluster; NaN if it has no points."""
        sums = self.free.sums(labels, clusters)
        sums[: len(self.class_sums)] += self.class_sums.to(sums.dtype)
        return sums / self.sizes(labels, clusters)[:, None]

    def inertia(self, squared: Tensor, centres: Tensor) -> float:
        """Sum of squared distances of all points from their `centres` (K, D); of the free ones they are given."""
        centres = centres[: len(self.class_sums)].double()
        towards = 2 * (centres * self.class_sums).sum() - squared_norms(centres) @ self.class_sizes.double()
        return float(squared.sum(dtype=torch.float64) + (self.labelled_squares - towards).clamp(min=0))


def k_means_plus_plus(
    free: Rows, centres: Tensor, clusters: int, rng: np.random.RandomState, leaving: int = 0
) -> Tensor:
    """Add points of `free` (u, D) to `centres` until there are K, far ones more likely: by squared distance.

    `leaving` is a mistake of InfoSieve's code: after each draw, the numbers of so many earlier centres, those nearest
    to the point drawn, are taken for numbers of points, which are not drawn any more.
    """
    chosen = [*centres] or [_point(free, rng.randint(0, len(free)))]
    squared = nearest_centre(free, torch.stack(chosen))[1].double()  # (u,)
    while len(chosen) < clusters:
        # Every point on a centre already: any will do, and none will be missed.
        shares = squared / squared.sum() if squared.any() else torch.full_like(squared, 1 / len(squared))
        drawn = int(torch.searchsorted(shares.cumsum(dim=0), rng.rand()))
        chosen.append(_point(free, min(drawn, len(free) - 1)))  # rounding may leave the sum of shares below 1
        if leaving:
            nearest_first = (torch.stack(chosen[:-1]) - chosen[-1]).square().sum(dim=1).argsort(stable=True)
            mistaken = nearest_first[:leaving]
            squared[mistaken[mistaken < len(free)]] = 0
        for block, nearest in free.beside(squared):
            distance = torch.cdist(block, chosen[-1][None], compute_mode="donot_use_mm_for_euclid_dist")[:, 0]
            torch.minimum(nearest, distance.double().square(), out=nearest)
    return torch.stack(chosen)


def _point(points: Rows, place: int) -> Tensor:  # (D,)
    return points[torch.tensor([place], device=points.device)].whole()[0]


@dataclass
class Settled:
    """The result of an iteration: its best state, and where it stopped."""

    labels: Tensor  # (u,) of the free points
    centres: Tensor  # (K, D) means of their members
    inertia: float  # before the centres moved there
    last_centres: Tensor  # (K, D)
    iterations: int = 0


# (iteration, labels, squared distances, centres) -> labels
Rearrange = Callable[[int, Tensor, Tensor, Tensor], Tensor] | None


def lloyd(
    members: Members,
    centres: Tensor,
    max_iter: int,
    tol: float,
    reseed: bool,
    fixed: int = 0,
    rearrange: Rearrange = None,
    nearest: tuple[Tensor, Tensor] | None = None,
) -> Settled:
    """Assign and average in turn, until all centres together move by no more than √tol; the first `fixed` ones stay.

    `rearrange` may change the assignment before centres move. A cluster without points gets the point farthest from its
    centre, or with `reseed=False` a centre of NaN. `nearest`: what `nearest_centre` of the free points gives, if
    that is known already.
    """
    best: Settled | None = None
    nearest = nearest or nearest_centre(members.free, centres, members.free_squares)
    for iteration in range(max_iter):
        labels, squared = nearest
        if reseed:
            _fill_empty(members, labels, squared, centres)
        inertia = members.inertia(squared, centres)
        if rearrange:
            labels = rearrange(iteration, labels, squared, centres)
        means = members.means(labels, len(centres))
        if reseed:  # too few points differ to fill all clusters: the rest stay where they are
            means = means.where(means.isfinite(), centres)
        means[:fixed] = centres[:fixed]
        moved = (means - centres).norm(dim=1).sum() ** 2
        has_moved = (means != centres).any(dim=1)  # (K,)
        centres = means
        if best is None or inertia < best.inertia:
            best = Settled(labels, centres, inertia, centres)
        best.last_centres = centres
        best.iterations = iteration + 1
        if moved <= tol or iteration + 1 == max_iter:
            break
        nearest = _search_again(members, *nearest, centres, has_moved)
    assert best is not None  # max_iter is at least 1
    return best


def _search_again(
    members: Members, labels: Tensor, squared: Tensor, centres: Tensor, has_moved: Tensor
) -> tuple[Tensor, Tensor]:
    """`nearest_centre` of the free points, of which `labels` and `squared` (u,) were right before centres moved."""
    if has_moved.all():
        return nearest_centre(members.free, centres, members.free_squares)
    labels, squared, moved = labels.clone(), squared.clone(), has_moved.nonzero()[:, 0]
    lost = has_moved[labels]  # (u,) their own centre has moved
    stay = (~lost).nonzero()[:, 0]  # only centres that have moved can be nearer: in the end, few
    labels[lost], squared[lost] = nearest_centre(members.free[lost], centres, members.free_squares[lost])
    choice, distance = nearest_centre(members.free[stay], centres[moved], members.free_squares[stay])
    nearer = ~(distance >= squared[stay])  # NaN too, a centre without points: it takes everything
    labels[stay[nearer]] = moved[choice[nearer]]
    squared[stay[nearer]] = distance[nearer]
    return labels, squared


def _fill_empty(members: Members, labels: Tensor, squared: Tensor, centres: Tensor) -> None:
    """Give each empty cluster a point that is far from its centre and not the last of its cluster."""
    sizes = members.sizes(labels, len(centres))
    empty = (sizes == 0).nonzero()[:, 0]
    if len(empty) == 0:
        return
    distance, point = squared.where(sizes[labels] > 1, 0).topk(min(len(empty), len(labels)))
    # Copies of a point are on their centre, but products and means of them are rounded: they must stay together.
    rounding = ROUNDINGS * torch.finfo(squared.dtype).eps * members.free_squares[point]
    point = point[distance > rounding]
    labels[point] = empty[: len(point)]
    squared[point] = 0
