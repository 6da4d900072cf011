"""Results that say nothing, because nearly all images are in one category."""

from collections import Counter
from collections.abc import Hashable, Iterable

from ..console import warn
from .categories import Discovery

COLLAPSED = 0.9  # of the unlabelled images in one category


def largest_share(categories: Iterable[Hashable]) -> float | None:
    """How many of some images the largest category has, by the category of each; None if there are no images.

    >>> largest_share([3, 3, 3, 5])
    0.75
    """
    sizes = Counter(categories)
    return max(sizes.values()) / sizes.total() if sizes else None


def warn_of_collapse(found: Discovery) -> None:
    """Say if nearly all unlabelled images are in one of several categories."""
    unlabelled = [member.category_id for member in found.found_members if member.given_label is None]
    share = largest_share(unlabelled)
    if share is not None and share >= COLLAPSED and len(found.found_categories) > 1:
        warn(
            f"{share:.0%} of the unlabelled images are in one category: unless they are of one kind, this has "
            "collapsed and says nothing. A lower learning rate (train.lr), or another method, may help."
        )
