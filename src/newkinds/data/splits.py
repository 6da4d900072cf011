"""Which images of a labelled data set keep their labels: the benchmark protocol of category discovery."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import NewkindsError


def gcd_split(
    labels: ArrayLike, known: Collection[Any], fraction: float = 0.5, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that keep their label and rows that lose it, both ascending.

    A `fraction` of all images of the `known` classes stays labelled, drawn without regard to class; the
    rest of them and every image of another class is unlabelled (Vaze et al., CVPR 2022). With the same
    `labels`, in the data set's own order, these are the images of the published splits.

    >>> labelled, unlabelled = gcd_split([0, 0, 1, 1, 2, 2], known=[0, 1])
    >>> labelled, unlabelled
    (array([2, 3]), array([0, 1, 4, 5]))
    """
    if not 0 <= fraction <= 1:
        raise NewkindsError(f"the labelled fraction of a split lies between 0 and 1, not at {fraction}.")
    classes = np.asarray(labels)
    candidates = np.flatnonzero(np.isin(classes, list(known)))
    if len(known) and not len(candidates):
        raise NewkindsError(
            f"none of the {len(known)} known classes occurs among the {len(classes)} labels of the data set: "
            "are they written in the same way?"
        )
    # The legacy generator, because the published splits were drawn with it.
    drawn = np.random.RandomState(seed).choice(
        len(candidates), size=int(fraction * len(candidates)), replace=False
    )
    keeps_label = np.zeros(len(classes), dtype=bool)
    keeps_label[candidates[drawn]] = True
    return np.flatnonzero(keeps_label), np.flatnonzero(~keeps_label)
