"""What refining goes on from, and how it is judged: by held-out labels, a fifth at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..assigners.calibration import centres_of
from ..assigners.continued import ContinuedKMeans, Pieces
from ..assigners.whitening import Whitening
from ..cluster.metrics import Accuracy
from ..data.corrections import NOWHERE, Correction
from ..data.loader import seed_for
from .ways import Features, Judge, Way

FOLDS = 5
FOLD_RULE = (
    "Labels are hidden, a fifth at a time, and those that are found again are counted. The best mean over the parts "
    "wins; training must win by more than the standard error of its gain, or the answer without it stays."
)

SpaceOf = Callable[[Tensor, Tensor, Tensor], Whitening | None]  # rows (n, P), their clusters and labels (n,; -1: none)


@dataclass(frozen=True)
class Fold:
    """A part of the labelled images, whose labels are hidden; all images are looked at."""

    rows: NDArray[np.int64]  # (n,) all images
    hidden: NDArray[np.int64]  # which of them lose their label


@dataclass(frozen=True)
class Lessons:
    """The images that refining learns from, in the order of its table."""

    said: Sequence[Correction]
    labels: NDArray[np.int64]  # (n,) ids of categories, -1: none
    known: int
    categories: int
    seed: int = 0
    groups: NDArray[np.int64] | None = None  # (n,) equal for images that have one feature

    @property
    def decided(self) -> NDArray[np.bool_]:
        """(n,) whether a person has said where an image belongs."""
        return np.array([c.is_decided for c in self.said], dtype=bool)

    def folds(self) -> list[Fold]:
        """Parts of the labelled images; decided ones are spread evenly over them, and groups are not divided."""
        random = np.random.default_rng(seed_for("plan", self.seed))
        decided, labelled = self.decided, self.labels >= 0
        order = [random.permutation(np.flatnonzero(labelled & which)) for which in (decided, ~decided)]
        shuffled = np.concatenate(order)
        every = np.arange(len(self.labels))
        units = shuffled if self.groups is None else self.groups[shuffled]
        _, first, place = np.unique(units, return_index=True, return_inverse=True)
        turn = np.argsort(np.argsort(first))[place] % FOLDS  # (m,) groups take turns in the order of their first image
        return [Fold(every, np.sort(shuffled[turn == fold])) for fold in range(min(FOLDS, len(first)))]

    def hide(self, rows: NDArray[np.int64]) -> "Lessons":
        """The same, as if nobody had said anything about some images."""
        labels = self.labels.copy()
        labels[rows] = -1
        return Lessons(self.said, labels, self.known, self.categories, self.seed, self.groups)

    def pieces(self, hidden: NDArray[np.int64] | None = None) -> Pieces:
        """The clusters to go on from: what the model had found as one cluster and people see as one category.

        So a category that was merged has several, and a cluster that was split is several. An image that was moved, or
        that the model would put elsewhere than its label says, is in none of them; neither are `hidden` ones. A class
        in which nothing was found is a piece of its labelled images.
        """
        keys: list[tuple[int, int] | None] = [
            (c.category_id, c.piece)
            if c.status != "moved" and c.piece != NOWHERE and label in (-1, c.category_id)
            else None
            for c, label in zip(self.said, self.labels.tolist(), strict=True)
        ]
        for row in [] if hidden is None else hidden.tolist():
            keys[row] = None
        there = {key[0] for key in keys if key is not None}
        for row, label in enumerate(self.labels.tolist()):
            if label >= 0 and label not in there:
                keys[row] = (label, -1)
        number = {key: place for place, key in enumerate(sorted({key for key in keys if key is not None}))}
        of_image = torch.tensor([-1 if key is None else number[key] for key in keys])
        return Pieces(of_image, torch.tensor([category for category, _ in number]))

    def find_again(self, rows: Tensor, way: Way, fold: Fold) -> NDArray[np.bool_]:
        """Which images of a fold get their category back, from unit rows (n, P), if their labels are hidden."""
        left = self.hide(fold.hidden)
        labels = torch.from_numpy(left.labels)
        rows = way.whiten_rows(rows, labels)
        assigner = ContinuedKMeans(rows.shape[1], self.known, self.categories)
        assigner.begin_with(left.pieces(hidden=fold.hidden))
        with torch.no_grad():
            assigner.fit(rows, labels)
            category = assigner(rows[fold.hidden]).argmax(dim=1).numpy()
        return category == self.labels[fold.hidden]

    def find_unlearnt(self, rows: Tensor, space_of: SpaceOf, fold: Fold) -> NDArray[np.bool_]:
        """Which images of a fold get their category back if nothing is learnt: from unit rows (n, P) to the nearest of
        the clusters that there are. What the fold hides is in none of them, and has no part in the space in which rows
        are compared (`space_of` rows, their clusters and labels)."""
        left = self.hide(fold.hidden)
        pieces, labels = left.pieces(hidden=fold.hidden), torch.from_numpy(left.labels)
        space = space_of(rows, pieces.of_image, labels)
        inside = pieces.of_image >= 0
        centres = centres_of(rows[inside], pieces.of_image[inside], len(pieces.category))  # (M, P)
        asked = rows[fold.hidden]
        if space is not None:
            centres, asked = space(centres), space(asked)
        nearest = (asked @ F.normalize(centres, dim=1).T).argmax(dim=1)
        return pieces.category[nearest].numpy() == self.labels[fold.hidden]

    def judge(self) -> Judge[Fold]:
        """Judges by the share of hidden labels that come back."""

        def score(way: Way, features: Features, fold: Fold) -> Accuracy:
            right = self.find_again(features.rows, way, fold)
            return Accuracy(float(right.mean()), float("nan"), float("nan"))

        return Judge(self.folds(), score, FOLD_RULE, "no image has a label")

    def share_of_decided(self, rows: Tensor, way: Way) -> float | None:
        """Of the images that a person decided about, the share that gets its category back; None if there are none."""
        decided = self.decided
        right = [self.find_again(rows, way, fold)[decided[fold.hidden]] for fold in self.folds()]
        found = np.concatenate(right) if right else np.zeros(0)
        return float(found.mean()) if len(found) else None
