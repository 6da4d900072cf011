"""All images as one table."""

from pathlib import Path
from typing import Any

from ...data.fragments import split_name
from ...files import csv_text, write_whole
from ...runs.directory import RunDirectory
from ...runs.seen_images import earlier_groups
from ..assignment_tables import ASSIGNMENT_COLUMNS, member_row
from ..categories import Discovery
from ..kinds import Member
from .base import EXPORTS


class MemberCells:
    """An image as a row of a table: what was found, and its box and group, if images of the run have any."""

    def __init__(self, discovery: Discovery) -> None:
        self._groups = earlier_groups(RunDirectory(discovery.run))
        self._has_boxes = any(split_name(member.path)[1].box is not None for member in discovery.members)
        named = {"box": self._has_boxes, "group": bool(self._groups)}
        self.columns = (*ASSIGNMENT_COLUMNS, "status", *(name for name, there in named.items() if there))

    def of(self, member: Member) -> tuple[Any, ...]:
        """One cell for each column."""
        box = (str(split_name(member.path)[1].box or ""),) if self._has_boxes else ()
        group = (self._groups.get(member.path, ""),) if self._groups else ()
        return *member_row(member), member.status, *box, *group


def assignments_text(discovery: Discovery) -> str:
    """All images with what was found, junk too."""
    cells = MemberCells(discovery)
    return csv_text(cells.columns, [cells.of(member) for member in discovery.members])


@EXPORTS.register("csv")
def to_csv(discovery: Discovery, target: Path) -> str:
    """One CSV file: every image with its category, ids and all corrections; safe in a spreadsheet."""
    write_whole(target, assignments_text(discovery))
    return f"{len(discovery.members):,} rows"
