"""A category, and an image in one."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .edits import JUNK, POOL, POOL_NAME

EXEMPLARS = 12
OUTSIDE = 1.0  # `unlike` above this: unlike every category. The scale is the same everywhere


class Category(NamedTuple):
    """A known class or a discovered one. Its id never changes, whatever it is called."""

    id: int
    name: str
    is_new: bool
    size: int  # images assigned to it
    confidence: float  # mean over them; 0 if there are none
    exemplars: list[str]  # paths of its most typical images, best first


class Member(NamedTuple):
    """One image: what its label said, and the category the model (or a person) puts it in; or JUNK, or POOL.

    A labelled image is in the category of its class. If the model would put it elsewhere, it deserves a look.
    """

    path: str
    given_label: str | None
    category: str
    is_new: bool
    confidence: float  # that the model is right
    unlike: float = 0.0  # distance to its category; above 1, it is unlike every category
    category_id: int = JUNK
    status: str = ""  # "": as the model found it; else "moved", "accepted" or "junk" by a person
    model_category_id: int | None = None  # where the model would put a labelled image, or one in the pool; None: here
    model_confidence: float | None = None  # that it belongs there
    since: int = 0  # the number of the update with which it came; 0: it was there from the start

    @property
    def is_unlike(self) -> bool:
        """Whether it is in a category although it is unlike every one, and nobody has decided where it belongs."""
        return is_unlike(self.unlike, self.status) and self.category_id != POOL


def stay_waiting(member: Member) -> Member:
    """An image that was not placed before: it still is not, if it is unlike the category that the model would give."""
    if member.unlike <= OUTSIDE:
        return member
    return member._replace(
        category=POOL_NAME, category_id=POOL, is_new=False, model_category_id=member.category_id,
        model_confidence=member.confidence,
    )  # fmt: skip


def is_unlike(unlike: float, status: str = "") -> bool:
    """Whether an image is unlike every category; a person's word on it (`status`) is the last."""
    return unlike > OUTSIDE and not status


def category_of(number: int, name: str, is_new: bool, members: Sequence[Member]) -> Category:
    """A category of these members: its mean confidence, its most typical images."""
    typical = typical_first(members)[:EXEMPLARS]
    mean = sum(member.confidence for member in members) / max(len(members), 1)
    return Category(number, name, is_new, len(members), round(mean, 4), [member.path for member in typical])


def typical_first(members: Iterable[Member]) -> list[Member]:
    """Those of which the model is surest come first."""
    return sorted(members, key=lambda member: -member.confidence)


def category_names(known: Sequence[str], k: int) -> list[str]:
    """Names for all categories: the known classes', then new-1, new-2, … (with another word if that is taken).

    >>> category_names(["cat", "dog"], 4)
    ['cat', 'dog', 'new-1', 'new-2']
    """
    word = "new"
    while any(name.startswith(f"{word}-") for name in known):
        word = f"discovered-{word}"
    width = len(str(k - len(known)))
    return [*known, *(f"{word}-{i:0{width}d}" for i in range(1, k - len(known) + 1))]


def is_numbered(name: str) -> bool:
    """Whether a category is called as `category_names` calls those that nobody has named, or as a part of such a one.

    >>> is_numbered("new-06"), is_numbered("new-06-2"), is_numbered("owl-2")
    (True, True, False)
    """
    return re.fullmatch(r"(discovered-)*new(-\d+)+", name) is not None


def with_more_names(names: Sequence[str], k: int) -> list[str]:
    """The names of some categories, and default ones for the others up to k.

    >>> with_more_names(["cat", "new-1", "owl"], 5)
    ['cat', 'new-1', 'owl', 'new-2', 'new-3']
    """
    more = [name for name in category_names([], len(names) + k) if name not in names]
    return [*names, *more[: k - len(names)]]


def next_numbered(used: Iterable[str]) -> str:
    """The default name after all that were ever used.

    >>> next_numbered(["cat", "new-01", "owl", "new-12"])
    'new-13'
    """
    found = [match for name in used if (match := re.fullmatch(r"((?:discovered-)*new)-(\d{1,9})", name))]
    if not found:
        return "new-1"
    last = max(found, key=lambda match: int(match[2]))
    return f"{last[1]}-{int(last[2]) + 1:0{len(last[2])}d}"
