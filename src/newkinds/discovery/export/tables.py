"""CSV tables for spreadsheets, which take some texts for commands."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...files import csv_text, write_whole
from ..categories import ASSIGNMENT_COLUMNS, Discovery, Member, member_row
from .base import EXPORTS

MEMBER_COLUMNS = (*ASSIGNMENT_COLUMNS, "status")
COMMAND = re.compile("[=+\\-@＝＋－＠']")  # how a cell begins that a spreadsheet computes, or that is quoted by us


def spreadsheet_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A CSV table in which no text is a formula: one that begins with = + - @ or ' has one more ' before it.

    Other characters that must not be shown are escaped as in all tables. `plain_text` gives a text back.
    """
    return csv_text(columns, [[_quoted(cell) if isinstance(cell, str) else cell for cell in row] for row in rows])


def plain_text(cell: str) -> str:
    """The text that a cell of an exported table stands for.

    >>> plain_text("'=1+1.jpg")
    '=1+1.jpg'
    """
    from ...text import unescaped

    return unescaped(cell.removeprefix("'"))


def _quoted(text: str) -> str:
    return f"'{text}" if COMMAND.match(text) else text


def member_cells(member: Member) -> tuple[Any, ...]:
    """One for each of MEMBER_COLUMNS."""
    return *member_row(member), member.status


def table_text(discovery: Discovery) -> str:
    """All images with what was found, those that were thrown out too."""
    return spreadsheet_text(MEMBER_COLUMNS, [member_cells(member) for member in discovery.members])


@EXPORTS.register("csv")
def to_csv(discovery: Discovery, target: Path) -> str:
    """One CSV file: every image with its category, ids and all corrections; safe in a spreadsheet."""
    write_whole(target, table_text(discovery))
    return f"{len(discovery.members):,} images"
