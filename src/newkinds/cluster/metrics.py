"""How well discovered categories match the true classes, to which they are matched one to one (Hungarian algorithm).

All, Old and New are accuracies over all images, those of known and those of new classes; over no image, NaN.
`known` says which images are Old: a boolean (or 0/1) mask with one entry per image, or the known class labels.
"""

import math
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from ..errors import NewkindsError

__all__ = [
    "NOWHERE", "Accuracy", "AccuracyByName", "accuracy_by_name", "balanced_clustering_accuracy",
    "clustering_accuracy", "clustering_accuracy_v1", "is_correct", "match_known", "score_clustering",
]  # fmt: skip

# Up to here integer labels index the contingency matrix as they are, as in published evaluations: of equally good
# matches it then takes theirs. Others are numbered first: a label of 10⁹ must not ask for a matrix of 10¹⁸ cells.
LARGEST_LITERAL_LABEL = 2000
NOWHERE = -1  # in the place of a category: the image is in none

Labels = NDArray[np.int64]
Known = Collection[Any] | NDArray[Any]


class Accuracy(NamedTuple):
    """Shares of images in [0, 1]; NaN if there was no image to judge by."""

    all: float
    old: float
    new: float


def clustering_accuracy(y_true: ArrayLike, y_pred: ArrayLike, known: Known) -> Accuracy:
    """Accuracy under one match over all images: what papers on category discovery report ("v2").

    >>> clustering_accuracy([0, 0, 1, 1, 2, 2], [5, 5, 3, 3, 3, 4], known=[0, 1])
    Accuracy(all=0.8333333333333334, old=1.0, new=0.5)
    """
    return _accuracy(*_prepare(y_true, y_pred, known))


def match_known(cluster: NDArray[Any], labels: NDArray[Any], known: int, categories: int) -> tuple[Labels, float]:
    """The category (K,) of each cluster, such that 0..known-1 are the classes they match, and the share that matches.

    The match is one to one, over labelled points (`labels`, -1: none); other clusters follow, largest first.

    >>> match_known(np.array([0, 0, 1, 1, 2]), np.array([-1, -1, 0, -1, -1]), known=1, categories=3)
    (array([1, 0, 2]), 1.0)
    """
    labelled = labels >= 0
    pairs = cluster[labelled] * known + labels[labelled]
    counts = np.bincount(pairs, minlength=categories * known).reshape(categories, known)
    matched, classes = linear_sum_assignment(counts, maximize=True)  # (known,) each
    largest_first = np.argsort(-np.bincount(cluster, minlength=categories), kind="stable")
    number = np.empty(categories, dtype=np.int64)
    number[matched] = classes
    number[largest_first[~np.isin(largest_first, matched)]] = np.arange(known, categories)
    return number, float(counts[matched, classes].sum() / max(labelled.sum(), 1))


@dataclass(frozen=True)
class AccuracyByName:
    """Shares of images in [0, 1] that have the right name; NaN if there was no image to judge by."""

    all: float
    old: float  # of the images of known classes, those in the category of that name: no match helps
    new: float  # of the others, those in the new category that is matched with their class
    precision: float  # of the images in categories of known names, those that are of that class

    @property
    def recall(self) -> float:
        """Of known names: the same images, and the same question, as Old by name."""
        return self.old


def accuracy_by_name(truth: ArrayLike, category: ArrayLike | Sequence[Any], known: Collection[Any]) -> AccuracyByName:
    """Accuracy if names are taken at their word, which a match of all categories with all classes cannot see.

    `truth` and `category` have one entry per image, `known` is the known classes. A category that is one of `known`
    claims to be that class. All other categories are new ones, and are matched with the other classes one to one. None
    is no category, and never right.

    >>> accuracy_by_name(["cat", "cat", "owl", "owl"], ["cat", "dog", 7, "dog"], known=["cat", "dog"])
    AccuracyByName(all=0.5, old=0.5, new=0.5, precision=0.3333333333333333)
    """
    true, claimed = _list_of(truth), _list_of(category)
    if len(true) != len(claimed):
        raise NewkindsError(
            f"accuracy compares one true label and one category per image, not {len(true)} and {len(claimed)}."
        )
    names = set(_list_of(list(known)))
    of_known_class = np.array([label in names for label in true], dtype=bool)  # (n,)
    has_known_name = np.array([name in names for name in claimed], dtype=bool)  # (n,)
    named_right = np.array([name == label for name, label in zip(claimed, true, strict=True)], dtype=bool)
    named_right &= has_known_name
    right = named_right.copy()
    in_category = np.array([name is not None for name in claimed], dtype=bool)
    both_new = np.flatnonzero(~of_known_class & ~has_known_name & in_category)
    right[both_new] = is_correct(_number([true[i] for i in both_new]), _number([claimed[i] for i in both_new]))
    return AccuracyByName(
        _mean(right), _mean(right[of_known_class]), _mean(right[~of_known_class]), _mean(named_right[has_known_name])
    )


def _list_of(values: ArrayLike | Sequence[Any]) -> list[Any]:
    """Python's own values: NumPy would make text of the numbers in a mixed list."""
    return values.tolist() if isinstance(values, np.ndarray) else list(values)  # type: ignore[arg-type]


def _number(values: Sequence[Any]) -> Labels:
    """0, 1, … for each distinct value, in the order in which they appear."""
    place: dict[Any, int] = {}
    return np.array([place.setdefault(value, len(place)) for value in values], dtype=np.int64)


def clustering_accuracy_v1(y_true: ArrayLike, y_pred: ArrayLike, known: Known) -> Accuracy:
    """Old and New are matched separately ("v1", of early papers): never below `clustering_accuracy` on Old and New."""
    return _accuracy_v1(*_prepare(y_true, y_pred, known))


def balanced_clustering_accuracy(y_true: ArrayLike, y_pred: ArrayLike, known: Known) -> Accuracy:
    """Recall of each class under the match of `clustering_accuracy`, averaged over classes: for long-tailed data."""
    return _balanced_accuracy(*_prepare(y_true, y_pred, known))


def score_clustering(
    y_true: ArrayLike, y_pred: ArrayLike, known: Known, placed: NDArray[np.bool_] | None = None
) -> dict[str, float]:
    """Every metric by name: acc_*, acc_v1_* and acc_balanced_* of all, old and new; nmi and ari need no match.

    `placed` (n,): whether each image is in a category at all. One that is not is never right, and alone.
    """
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score  # slow to import

    true, pred, old = _prepare(y_true, y_pred, known)
    alone = pred
    if placed is not None:
        alone = np.where(placed, pred, pred.max(initial=0) + 1 + np.arange(len(pred)))
        pred = np.where(placed, pred, NOWHERE)
    scores: dict[str, float] = {}
    for name, score in (("acc", _accuracy), ("acc_v1", _accuracy_v1), ("acc_balanced", _balanced_accuracy)):
        scores |= {f"{name}_{split}": value for split, value in score(true, pred, old)._asdict().items()}
    scores["nmi"] = float(normalized_mutual_info_score(true, alone)) if len(true) else math.nan
    scores["ari"] = float(adjusted_rand_score(true, alone)) if len(true) else math.nan
    return scores


def _accuracy(true: Labels, pred: Labels, old: NDArray[np.bool_]) -> Accuracy:
    correct = is_correct(true, pred)
    return Accuracy(_mean(correct), _mean(correct[old]), _mean(correct[~old]))


def _accuracy_v1(true: Labels, pred: Labels, old: NDArray[np.bool_]) -> Accuracy:
    correct_old, correct_new = is_correct(true[old], pred[old]), is_correct(true[~old], pred[~old])
    correct = np.concatenate([correct_old, correct_new])
    return Accuracy(_mean(correct), _mean(correct_old), _mean(correct_new))


def _balanced_accuracy(true: Labels, pred: Labels, old: NDArray[np.bool_]) -> Accuracy:
    classes, rank, images = np.unique(true, return_inverse=True, return_counts=True)
    recall = np.bincount(rank, weights=is_correct(true, pred), minlength=len(classes)) / images  # per class
    class_is_old = np.isin(classes, true[old])
    return Accuracy(_mean(recall), _mean(recall[class_is_old]), _mean(recall[~class_is_old]))


def is_correct(true: Labels, pred: Labels) -> NDArray[np.bool_]:
    """Whether each image's category is the one matched with its class; NOWHERE never is."""
    if len(true) == 0:
        return np.zeros(0, dtype=bool)
    if (placed := pred != NOWHERE).sum() < len(pred):
        right = np.zeros(len(pred), dtype=bool)
        right[placed] = is_correct(true[placed], pred[placed])
        return right
    size = int(max(true.max(), pred.max())) + 1
    counts = np.bincount(pred * size + true, minlength=size * size).reshape(size, size)  # category × class
    _, class_of = linear_sum_assignment(counts.max() - counts)  # square: one class for every category
    return class_of[pred] == true


def _mean(values: NDArray) -> float:
    return float(values.mean()) if len(values) else math.nan


def _prepare(y_true: ArrayLike, y_pred: ArrayLike, known: Known) -> tuple[Labels, Labels, NDArray[np.bool_]]:
    """Labels that can index a matrix, and which images are of known classes; warns of empty splits."""
    true, pred = np.asarray(y_true), np.asarray(y_pred)
    if true.ndim != 1 or true.shape != pred.shape:
        raise NewkindsError(
            "accuracy compares one true label and one category per image: two lists of the same length, "
            f"not shapes {true.shape} and {pred.shape}."
        )
    old = _is_old(true, known)
    if len(true) == 0:
        warnings.warn("there are no images to evaluate: every metric is NaN", stacklevel=3)
    elif not old.any():
        warnings.warn("no evaluated image is of a known class: Old accuracy is NaN", stacklevel=3)
    elif old.all():
        warnings.warn("no evaluated image is of a new class: New accuracy is NaN", stacklevel=3)
    return _indices(true), _indices(pred), old


def _is_old(true: NDArray, known: Known) -> NDArray[np.bool_]:
    """Read `known`, a mask over images or a collection of class labels, as a mask over images."""
    marks = np.asarray(known if hasattr(known, "__array__") else list(known))
    # A list of classes has no need to repeat one, so as many zeros and ones as images can only be a mask.
    zeros_and_ones = len(marks) == len(true) and marks.dtype.kind in "iuf" and np.isin(marks, (0, 1)).all()
    if not (marks.dtype == bool or (zeros_and_ones and len(np.unique(marks)) < len(marks))):
        return np.isin(true, marks)
    if len(marks) != len(true):
        raise NewkindsError(f"`known` is a mask of {len(marks)} entries, but there are {len(true)} images.")
    old = marks.astype(bool)
    both = np.intersect1d(true[old], true[~old])
    if len(both):
        raise NewkindsError(
            f"`known` marks some images of class {both[0]} as known and others as new: it must tell known "
            "classes from new ones, not labelled images from unlabelled ones."
        )
    return old


def _indices(labels: NDArray) -> Labels:
    integers = labels.dtype.kind in "iu" and len(labels) > 0
    if integers and labels.min() >= 0 and labels.max() <= LARGEST_LITERAL_LABEL:
        return labels.astype(np.int64)
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)
