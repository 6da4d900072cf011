"""Within-class whitening: what differs between images of one class counts less."""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..cluster import SemiSupervisedKMeans
from ..cluster.em import inverse_root
from ..cluster.metrics import clustering_accuracy
from ..cluster.rows import Rows
from ..errors import NewkindsError
from .base import CannotAssign, SizedByState, draw_seed
from .resplit import resplits

SHRINKAGES = (0.9, 0.5, 0.2, 0.1, 0.05)  # that `auto` tries, besides no whitening
SPLITS = 3  # of the labelled classes into known and new ones, over which it averages
RESTARTS = 3  # of k-means in each

Shrinkage = float | Literal["none", "auto"]


class Whitening(SizedByState):
    """Unit rows, centred and whitened by the within-class covariance of labelled images; unit rows again.

    The covariance S is shrunk towards a multiple of the identity: (1 - s)·S + s·tr(S)/P·I. The centre is the mean
    of all training images, new classes included. `auto` chooses s on labelled images alone, see `choose_shrinkage`.
    """

    mean: Tensor
    map: Tensor

    def __init__(self, shrinkage: Shrinkage = "auto") -> None:
        super().__init__()
        self.shrinkage = shrinkage
        self.note = ""  # what `fit` chose, for the protocol
        self.chosen = shrinkage
        self.register_buffer("mean", torch.empty(0))  # (P,)
        self.register_buffer("map", torch.empty(0, 0))  # (P, P); empty: not whitened

    @classmethod
    def of(cls, mean: Tensor, map: Tensor) -> "Whitening":
        """One whose mean (P,) and map (P, P) are known."""
        whitening = cls("none")
        whitening.mean, whitening.map = mean, map
        return whitening

    def fit(self, embedding: Tensor, labels: Tensor) -> None:
        shrinkage = self.shrinkage
        self.note = f"shrinkage {self.shrinkage}"
        if shrinkage == "auto":
            shrinkage, reason = choose_shrinkage(embedding, labels)
            self.note = f"{'not whitened' if shrinkage == 'none' else f'shrinkage {shrinkage:g}'}: {reason}"
        self.chosen = shrinkage
        self.mean = self.mean.new_empty(0)
        self.map = self.map.new_empty(0, 0)
        if shrinkage != "none":
            self.mean, self.map = (tensor.to(embedding) for tensor in whitening_of(embedding, labels, shrinkage))

    def refit(self, embedding: Tensor, labels: Tensor) -> "Whitening":
        """One like this, with the shrinkage that was chosen, for other rows and labels."""
        other = Whitening(self.chosen)
        other.fit(embedding, labels)
        return other

    def forward(self, embedding: Tensor) -> Tensor:
        return apply_whitening(embedding, self.mean, self.map) if len(self.map) else embedding


def whitening_of(embedding: Tensor, labels: Tensor, shrinkage: float) -> tuple[Tensor, Tensor]:
    """The mean (P,) of all rows (n, P) and the whitening map (P, P) of the labelled ones, in float64."""
    covariance, _ = covariance_of_classes(embedding, labels)
    return Rows(embedding).mean(torch.float64), inverse_root(covariance, shrinkage)


def covariance_of_classes(embedding: Tensor, labels: Tensor) -> tuple[Tensor, int]:
    """(P, P) of labelled rows within their classes, in float64, and the degrees of freedom of that estimate."""
    rows, classes = Rows(embedding)[labels >= 0], labels[labels >= 0]
    _, classes = classes.unique(return_inverse=True)
    sizes = classes.bincount()  # (C,)
    within = len(rows) - len(sizes)
    means = rows.sums(classes, len(sizes), torch.float64) / sizes[:, None]
    covariance = means.new_zeros(rows.shape[1], rows.shape[1])  # (P, P)
    for block, own in rows.beside(classes):
        difference = block.double() - means[own]
        covariance += difference.T @ difference / max(within, 1)
    if not covariance.trace() > 0:
        raise CannotAssign(
            "whitening needs a class with two labelled images that differ: leave out --whiten (embedding.whiten=none)."
        )
    return covariance, within


def apply_whitening(embedding: Tensor, mean: Tensor, map: Tensor) -> Tensor:
    return F.normalize((embedding - mean.to(embedding)) @ map.to(embedding), dim=1)


def choose_shrinkage(embedding: Tensor, labels: Tensor) -> tuple[float | Literal["none"], str]:
    """The shrinkage that serves semi-supervised k-means best on labelled images alone, and why it was taken.

    They are split again, see `resplits`: whitened by what is still labelled, the others are clustered and judged.
    Of equals no whitening wins.
    """
    splits = resplits(labels.cpu().numpy(), SPLITS, np.random.RandomState(draw_seed()))
    if not splits:
        pairs = int((labels[labels >= 0].bincount() > 1).sum())
        return "none", f"{pairs} classes with two labelled images are too few to choose by"
    rows = embedding[labels >= 0]
    scores = np.zeros((SPLITS, 1 + len(SHRINKAGES)))
    for split, of_split in zip(splits, scores, strict=True):
        left = torch.from_numpy(split.labels).to(labels.device)
        for place, shrinkage in enumerate((None, *SHRINKAGES)):
            try:
                points = rows if shrinkage is None else apply_whitening(rows, *whitening_of(rows, left, shrinkage))
                found = SemiSupervisedKMeans(split.categories, RESTARTS, split.seed).fit(points, split.labels).labels_
            except NewkindsError:
                return "none", "too few labelled images per class to choose by"
            hidden = split.hidden
            of_split[place] = clustering_accuracy(split.truth[hidden], found[hidden], range(split.known)).all
    best = scores.mean(axis=0)
    place = int(best.argmax())
    figures = f"{100 * best[0]:.1f} % without, {100 * best[1:].max():.1f} % with, on labelled images split again"
    return SHRINKAGES[place - 1] if place else "none", figures
