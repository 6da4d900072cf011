"""All images as one table."""

from pathlib import Path
from typing import Any

from ...files import csv_text, write_whole
from ..assignment_tables import ASSIGNMENT_COLUMNS, member_row
from ..categories import Discovery
from ..kinds import Member
from .base import EXPORTS

MEMBER_COLUMNS = (*ASSIGNMENT_COLUMNS, "status")


def member_cells(member: Member) -> tuple[Any, ...]:
    """One for each of MEMBER_COLUMNS."""
    return *member_row(member), member.status


def assignments_text(discovery: Discovery) -> str:
    """All images with what was found, junk too."""
    return csv_text(MEMBER_COLUMNS, [member_cells(member) for member in discovery.members])


@EXPORTS.register("csv")
def to_csv(discovery: Discovery, target: Path) -> str:
    """One CSV file: every image with its category, ids and all corrections; safe in a spreadsheet."""
    write_whole(target, assignments_text(discovery))
    return f"{len(discovery.members):,} rows"
