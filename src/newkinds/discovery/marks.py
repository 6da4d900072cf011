"""Which categories deserve a look, and why. Every rule compares a category with the others of the same run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .kinds import Category, Member

Mark = Literal["mixed", "small", "unsure"]

FEWEST_IMAGES = 5  # a category with fewer is small
SMALL_SHARE = 0.2  # of the median size; a category below that is small
FEWEST_LABELLED = 3  # members of a category, below which their labels say nothing about it
AGREEMENT = 0.8  # share of the commonest label among labelled members; a category below that is mixed
FEWEST_FOR_FENCE = 4  # categories, below which none is unusual
UNSURE_GAP = 0.1  # below the median mean confidence: less is no reason to look, however alike all others are
FENCE = 1.5  # × the interquartile range: how far outside the middle half a figure must lie to be unusual (Tukey)

MEANINGS: Mapping[Mark, str] = {
    "mixed": "labelled images disagree, or its images differ much more from each other than in other categories",
    "small": f"fewer than {FEWEST_IMAGES} images, or less than {100 * SMALL_SHARE:.0f} % of the median size",
    "unsure": "the mean confidence is far below that of the other categories",
}


def marks_of(
    categories: Sequence[Category], members: Sequence[Member], labels: Sequence[int | None], spread: NDArray[np.float64]
) -> dict[str, list[Mark]]:
    """The marks of each category that has members, by its name.

    `labels`: the category that each member's label stands for; `spread` (K,) is that of `relations.relate`.
    """
    filled = [category for category in categories if category.size]
    spreads = np.array([width for width, category in zip(spread, categories, strict=True) if category.size])
    given: dict[int, Counter[int]] = {category.id: Counter() for category in filled}
    for member, label in zip(members, labels, strict=True):
        # where the model alone puts it, unless a person has said where it belongs
        of_model = None if member.status else member.model_category_id
        place = member.category_id if of_model is None else of_model
        if label is not None and place in given:  # junk is in none
            given[place][label] += 1
    sizes, confidences = (np.array([getattr(c, what) for c in filled], float) for what in ("size", "confidence"))
    small = (sizes < FEWEST_IMAGES) | (sizes < SMALL_SHARE * np.median(sizes)) if filled else sizes
    unsure = unusually_high(-confidences)
    if filled:
        unsure &= confidences < np.median(confidences) - UNSURE_GAP
    wide = unusually_high(spreads)
    marks: dict[str, list[Mark]] = {}
    for place, category in enumerate(filled):
        found = {"mixed": wide[place] or disagree(given[category.id]), "small": small[place], "unsure": unsure[place]}
        marks[category.name] = [mark for mark in MEANINGS if found[mark]]
    return marks


def disagree(labels: Counter[int]) -> bool:
    """Whether the labelled members of a category are of several classes.

    >>> disagree(Counter({0: 3, 1: 1})), disagree(Counter({0: 9, 1: 1})), disagree(Counter({0: 1, 1: 1}))
    (True, False, False)
    """
    return labels.total() >= FEWEST_LABELLED and max(labels.values()) < AGREEMENT * labels.total()


def unusually_high(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which values lie above Tukey's fence; none if there are too few to say what is usual, and never NaN.

    >>> unusually_high(np.array([1.0, 1.1, 0.9, 1.0, 9.0])).tolist()
    [False, False, False, False, True]
    """
    finite = values[np.isfinite(values)]
    if len(finite) < FEWEST_FOR_FENCE:
        return np.zeros(len(values), dtype=bool)
    low, high = np.quantile(finite, [0.25, 0.75])
    return values > high + FENCE * (high - low) + 1e-6  # equal values differ by rounding
