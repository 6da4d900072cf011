"""Labelled images split again into known and new classes: what a choice is judged by before any truth is seen."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data.splits import gcd_split

FEWEST_CLASSES = 4  # with two labels or more: two that stay known, two that act as new


@dataclass(frozen=True)
class Resplit:
    """The m labelled images of a data set as a small benchmark of their own."""

    rows: NDArray[np.int64]  # (m,) which images of the data set they are, ascending
    labels: NDArray[np.int64]  # (m,) classes, -1: hidden
    truth: NDArray[np.int64]  # (m,) classes: those below `known` are known, the others act as new
    known: int
    hidden: NDArray[np.int64]  # positions among the m that lost their label: what is judged, ascending
    seed: int  # for whatever is fitted to it

    @property
    def categories(self) -> int:
        return int(self.truth.max()) + 1


def can_judge(labels: NDArray[np.int64]) -> bool:
    """Whether enough classes have two of the labels (n,; -1: none) to split them again."""
    sizes = np.unique(labels[labels >= 0], return_counts=True)[1]
    return int((sizes > 1).sum()) >= FEWEST_CLASSES


def some_labels(
    labels: NDArray[np.int64], most: int, per_class: int, random: np.random.RandomState
) -> NDArray[np.int64]:
    """The labels (n,; -1: none) of no more than `most` images, or `per_class` of each class on average if that is more;
    the others, drawn at random, lose theirs."""
    labels = labels.copy()
    labelled = np.flatnonzero(labels >= 0)
    spare = len(labelled) - max(most, per_class * len(np.unique(labels[labelled])))
    if spare > 0:
        labels[random.choice(labelled, spare, replace=False)] = -1
    return labels


def resplits(labels: NDArray[np.int64], splits: int, random: np.random.RandomState) -> list[Resplit]:
    """Several random splits of the labelled images (`labels`, (n,); -1: none), as the benchmarks split theirs.

    Half of the labelled classes stay known, and half of their images keep their label. There are none if fewer than
    `FEWEST_CLASSES` classes have two labelled images: one that is alone in its class would be right anywhere.

    >>> [split] = resplits(np.array([0, 0, 1, 1, -1, 2, 2, 3, 3]), 1, np.random.RandomState(0))
    >>> split.labels, split.truth, split.known
    (array([-1, -1, -1, -1,  0, -1,  1, -1]), array([2, 2, 3, 3, 0, 0, 1, 1]), 2)
    """
    if not can_judge(labels):
        return []
    rows = np.flatnonzero(labels >= 0)
    names, classes = np.unique(labels[rows], return_inverse=True)
    found = []
    for _ in range(splits):
        known = np.sort(random.permutation(len(names))[: len(names) // 2])
        number = np.argsort(np.concatenate([known, np.setdiff1d(np.arange(len(names)), known)]))  # (C,) of each class
        kept, hidden = gcd_split(classes, known.tolist(), seed=random.randint(2**31))
        truth = number[classes]
        left = np.full(len(rows), -1)
        left[kept] = truth[kept]
        found.append(Resplit(rows, left, truth, len(known), hidden, random.randint(2**31)))
    return found
