"""What refining goes on from, and how it is judged: by labels that are hidden for a moment, a fifth at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..assigners.continued import ContinuedKMeans, Pieces
from ..assigners.whitening import apply_whitening, whitening_of
from ..data.corrections import NOWHERE, Correction
from ..data.loader import seed_for
from ..errors import NewkindsError

FOLDS = 5
Whiten = float | str


@dataclass(frozen=True)
class Taught:
    """The images that refining learns from, in the order of its table."""

    said: Sequence[Correction]
    labels: NDArray[np.int64]  # (n,) ids of categories, -1: none
    known: int
    categories: int
    seed: int = 0

    @property
    def decided(self) -> NDArray[np.bool_]:
        """(n,) whether a person has said where an image belongs."""
        return np.array([c.is_decided for c in self.said], dtype=bool)

    def folds(self) -> list[NDArray[np.int64]]:
        """Parts of the labelled images, by row; decided ones are spread evenly over them."""
        random = np.random.default_rng(seed_for("plan", self.seed))
        decided, labelled = self.decided, self.labels >= 0
        order = [random.permutation(np.flatnonzero(labelled & which)) for which in (decided, ~decided)]
        rows = np.concatenate(order)
        return [np.sort(rows[fold::FOLDS]) for fold in range(min(FOLDS, len(rows)))]

    def hidden(self, rows: NDArray[np.int64]) -> "Taught":
        """The same, as if nobody had said anything about some images."""
        labels = self.labels.copy()
        labels[rows] = -1
        return Taught(self.said, labels, self.known, self.categories, self.seed)

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

    def right(self, rows: Tensor, whiten: Whiten, fold: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which images of a fold get their category back, from unit rows (n, P), if their labels are hidden."""
        left = self.hidden(fold)
        labels = torch.from_numpy(left.labels)
        if whiten != "none":
            rows = apply_whitening(rows, *whitening_of(rows, labels, float(whiten)))
        assigner = ContinuedKMeans(rows.shape[1], self.known, self.categories)
        assigner.begin_with(left.pieces(hidden=fold))
        with torch.no_grad():
            assigner.fit(rows, labels)
            category = assigner(rows[fold]).argmax(dim=1).numpy()
        return category == self.labels[fold]


@dataclass(frozen=True)
class Judged:
    """One way to refine, and how many hidden labels it gets back."""

    name: str
    whiten: Whiten
    folds: list[float]  # share of each
    decided: float | None  # share of those that a person gave; None: none

    @property
    def score(self) -> float:
        return float(np.mean(self.folds)) if self.folds else float("nan")


def judge_whitening(taught: Taught, rows: Tensor, whitenings: Sequence[Whiten]) -> list[Judged]:
    """Every whitening on the same folds; one that cannot be computed from so few labels is left out."""
    folds, decided, found = taught.folds(), taught.decided, []
    for whiten in whitenings:
        try:
            right = [taught.right(rows, whiten, fold) for fold in folds]
        except NewkindsError:
            continue
        of_people = [ok for fold, part in zip(folds, right, strict=True) for ok in part[decided[fold]]]
        name = "not whitened" if whiten == "none" else f"whitened by labels (shrinkage {whiten:g})"
        found.append(Judged(name, whiten, [float(part.mean()) for part in right],
                            float(np.mean(of_people)) if of_people else None))  # fmt: skip
    return found
