"""Labelled images split again into known and new classes: what a choice is judged by before any truth is seen."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..data.splits import gcd_split

FEWEST_CLASSES = 4  # with two labels or more: two that stay known, two that act as new
HIDDEN = 0.25  # of the labelled classes, and of the labels of the others: what is left is much like the task itself


@dataclass(frozen=True)
class Resplit:
    """Some images of a data set as a benchmark of their own, in which some labels are hidden."""

    rows: NDArray[np.int64]  # (m,) which images of the data set they are, ascending
    labels: NDArray[np.int64]  # (m,) classes, -1: hidden, or there is none
    truth: NDArray[np.int64]  # (m,) classes: those below `known` are known, the others act as new; -1: there is none
    known: int
    hidden: NDArray[np.int64]  # positions among the m that lost their label: what is judged, ascending
    seed: int  # for whatever is fitted to it
    categories: int  # that are to be found


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
        found.append(Resplit(rows, left, truth, len(known), hidden, random.randint(2**31), len(names)))
    return found


def task_splits(
    labels: NDArray[np.int64], categories: int, splits: int, random: np.random.RandomState, most: int,
    groups: NDArray[np.int64] | None = None,
) -> list[Resplit]:  # fmt: skip
    """The task itself, several times, with a part of the labels (n,; -1: none) hidden: all images are there, and as
    many `categories` are to be found. What depends on their number, or on how many images there are, is seen.

    A quarter of the labelled classes act as new, and a quarter of the others' labels is hidden. Of more than `most`
    images so many are drawn. Of too few classes there are none, see `can_judge`. Images of one of the `groups` (n,)
    have the same feature: they lose their labels together, or one that keeps it would tell what the others are.
    """
    if not can_judge(labels):
        return []
    rows = np.arange(len(labels))
    if len(rows) > most:
        rows = np.sort(random.choice(len(labels), most, replace=False))
        if not can_judge(labels[rows]):
            return []
    groups = rows if groups is None else groups[rows]  # (m,)
    names, classes = np.unique(labels[rows], return_inverse=True)
    names, classes = names[names >= 0], classes - int((names < 0).sum())  # (C,), (m,; -1: none)
    found = []
    for _ in range(splits):
        order = random.permutation(len(names))
        new = max(2, round(HIDDEN * len(names)))
        known = len(names) - new
        number = np.argsort(np.concatenate([np.sort(order[new:]), np.sort(order[:new])]))  # (C,) of each class
        truth = np.where(classes >= 0, number[classes], -1)
        left = np.where(truth < known, truth, -1)
        for one in range(known):
            own = np.flatnonzero(left == one)
            units = np.unique(groups[own])
            fewer = int(HIDDEN * len(units) + random.rand())  # rounded up or down at random: right on average
            lost = random.permutation(units)[: min(fewer, len(units) - 1)]
            left[own[np.isin(groups[own], lost)]] = -1
        hidden = np.flatnonzero((truth >= 0) & (left < 0))
        found.append(Resplit(rows, left, truth, known, hidden, random.randint(2**31), categories))
    return found
