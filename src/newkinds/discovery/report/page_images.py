"""Which images of a discovery the page shows, and their pictures."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...data.table import Table
from ..edits import JUNK, POOL
from ..kinds import Member
from . import ShownImage
from .sheets import Sheet, Tile, draw_sheets

ENDS = 6  # most certain images of a category that are always shown, and as many of the least certain
MOST_PICTURES = 12_000  # of more images, an even sample of each category is shown, and all that are in doubt
MOST_WANTED = 200  # images in doubt of each sort that are shown whatever the sample
ENDS_BYTES = 5_000_000  # of pictures that are always shown; in the page a third more, for they are written as text
PICTURE_BYTES = 15_000_000  # of all pictures


class PageImages:
    """The members of a discovery as the page shows them; an image is called by its place among them."""

    def __init__(
        self, members: Sequence[Member], position: NDArray[np.int64], k: int, labels: Sequence[int | None],
        table: Table, wanted: Collection[str] = (), doubts: Mapping[str, str] | None = None,
        rank: NDArray[np.float64] | None = None,
    ) -> None:  # fmt: skip
        """`position` (n,) of each member's category among k, or JUNK or POOL; `labels`: the category that its label
        stands for; `table` has the members' images; `wanted`: paths that are shown whatever the sample; `doubts`:
        labelled images that the model would put elsewhere, and the name of that category; `rank` (n,): higher ones
        come first in their category, else the more certain ones."""
        self.members = members
        self.agrees = [
            member.given_label is None or label == member.category_id
            for member, label in zip(members, labels, strict=True)
        ]
        confidence = np.array([member.confidence for member in members])
        decided = np.array([member.status != "" for member in members], dtype=bool)
        self.model_says = doubts = doubts or {}
        doubtful = [place for place, member in enumerate(members) if member.path in doubts]
        self.doubtful = sorted(doubtful, key=lambda place: -(members[place].model_confidence or 0.0))
        unlike = [place for place, member in enumerate(members) if member.is_unlike]
        self.unlike = sorted(unlike, key=lambda place: -members[place].unlike)
        self.junk = np.flatnonzero(position == JUNK).tolist()
        pool = np.flatnonzero(position == POOL).tolist()
        self.pool = sorted(pool, key=lambda place: members[place].unlike)
        self.place_of = {member.path: place for place, member in enumerate(members)}

        certain = np.where(decided, 1.0, confidence) if rank is None else rank
        order = np.lexsort((-certain, position))[len(self.junk) + len(pool) :]  # by category, the most certain first
        sizes = np.bincount(position[order], minlength=k)
        flagged = (self.place_of[path] for path in wanted if path in self.place_of)
        kept = {*self.doubtful[:MOST_WANTED], *self.unlike[:MOST_WANTED], *flagged}
        self.most, self.least, self.others = _chosen(np.split(order, np.cumsum(sizes)[:-1]), kept)
        self.sheets, self.tile_of = self._drawn(table)

    def _drawn(self, table: Table) -> tuple[list[Sheet], dict[int, Tile]]:
        """Sheets of the images that are always shown, which are larger, and of the others; and the tile of each."""
        ends = [[*most, *least] for most, least in zip(self.most, self.least, strict=True)]
        others = [*self.others, self.junk[:MOST_WANTED], self.pool[:MOST_WANTED]]
        front, front_tiles = draw_sheets(table, [group for group in ends if group], ENDS_BYTES)
        left = PICTURE_BYTES - sum(len(sheet.jpeg) for sheet in front)
        back, back_tiles = draw_sheets(table, [group for group in others if group], left, first=len(front))
        return [*front, *back], front_tiles | back_tiles

    @property
    def missing(self) -> int:
        """Images that should have a picture, but cannot be read any more."""
        groups = (*self.most, *self.least, *self.others, self.junk[:MOST_WANTED], self.pool[:MOST_WANTED])
        return sum(place not in self.tile_of for group in groups for place in group)

    def image_at(self, place: int) -> ShownImage:
        m, tile = self.members[place], self.tile_of.get(place)
        says = self.model_says.get(m.path)
        return ShownImage(
            m.path, m.category, m.confidence, m.given_label, self.agrees[place], m.unlike, tile, m.status,
            says, m.model_confidence if says else None,
        )  # fmt: skip

    def image_of(self, path: str) -> ShownImage | None:
        return self.image_at(self.place_of[path]) if path in self.place_of else None

    def of_category(self, number: int) -> tuple[list[ShownImage], list[ShownImage], list[ShownImage]]:
        """Its most certain images, the least certain ones, and those between."""
        most, least, others = (list(map(self.image_at, of[number])) for of in (self.most, self.least, self.others))
        return most, least, others


def _chosen(groups: Sequence[np.ndarray], wanted: set[int]) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """Of images grouped by category, the most certain first: both ends of each group, and those between that are shown.

    All of them, unless there are more than MOST_PICTURES: then those `wanted`, and an even sample of the others.
    """
    filled = sum(len(group) > 0 for group in groups)
    few = max(1, min(ENDS, MOST_PICTURES // max(2 * filled, 1)))
    most = [group[:few].tolist() for group in groups]
    least = [group[few:][-few:].tolist() for group in groups]
    between = [group[few:-few].tolist() for group in groups]
    room = MOST_PICTURES - sum(map(len, most + least))
    every = -(-sum(map(len, between)) // max(room, 1))
    if every > 1:
        between = [[p for i, p in enumerate(group) if i % every == 0 or p in wanted] for group in between]
    return most, least, between
