"""Results that say nothing, because nearly all images are in one category."""

from collections import Counter
from collections.abc import Hashable, Iterable

from .categories import Discovery

COLLAPSED = 0.9  # of the unlabelled images in one category


def largest_share(categories: Iterable[Hashable]) -> float | None:
    """How many of some images the largest category has, by the category of each; None if there are no images.

    >>> largest_share([3, 3, 3, 5])
    0.75
    """
    sizes = Counter(categories)
    return max(sizes.values()) / sizes.total() if sizes else None


def collapse_text(found: Discovery) -> str:
    """That nearly all unlabelled images are in one of several categories; empty if they are not."""
    share = largest_share(member.category_id for member in found.found_members if member.given_label is None)
    if share is None or share < COLLAPSED or len(found.found_categories) == 1:
        return ""
    return (
        f"{share:.0%} of the unlabelled images are in one category: unless they are of one kind, this has collapsed "
        "and says nothing. A lower learning rate (train.lr), or another method, may help."
    )
