"""What every way of counting takes and gives: features, labels, and a `Count`."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from ...category_count import Count
from ...errors import NewkindsError
from ...registry import Registry
from ..metrics import Labels
from ..points import UNLABELLED, Features, as_features, as_labels
from ..ward import EXACT

COUNTERS: Registry[Callable[..., Count]] = Registry("counter")

Given = ArrayLike | Tensor  # (n,) classes, -1 if there is none


def check_features(features: Features, y: Given) -> tuple[Tensor, Labels, int, int]:
    """Features (n, D), labels (n,) as 0..C-1 or -1, C, and how many rows differ; or what is missing to count by."""
    points = as_features(features)
    labels = as_labels(y, len(points))
    labelled = labels != UNLABELLED
    classes, labels[labelled] = np.unique(labels[labelled], return_inverse=True)
    if len(classes) < 2:
        have = "all labelled images are of one class" if len(classes) else "none of the images has a label"
        raise NewkindsError(
            f"{have}, but the number of categories is judged by how well known classes are separated: "
            "label some images of two classes or more, or say how many categories there are."
        )
    if labelled.all():
        raise NewkindsError(f"all {len(points)} images have a label: there are no new categories to count.")
    differing = count_differing(points)
    if differing <= len(classes):
        raise NewkindsError(
            f"the {len(points)} images have only {differing} different features, but {len(classes)} classes are known "
            "already: look at how the features were made."
        )
    return points, labels, len(classes), differing


def count_differing(points: Tensor) -> int:
    """How many rows (n, D) differ; of very many at least as many as in a part of them."""
    return len(points[:: -(-len(points) // EXACT)].unique(dim=0))
