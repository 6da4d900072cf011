"""`check.csv`: what may be wrong with the data, one row per flagged image and check."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import NewkindsError
from ...files import csv_text
from ..directory import RunDirectory


class Finding(NamedTuple):
    """What a check says about one image, or about all of them (then `path` is empty)."""

    path: str
    check: str
    score: float | None  # the larger, the worse; None: of all of them
    sentence: str


class Findings:
    """The rows of `check.csv`."""

    FILE = "check.csv"

    @classmethod
    def read(cls, run: RunDirectory) -> list[Finding]:
        """What the run's table says; nothing if there is none."""
        if not run.path(cls.FILE).is_file():
            return []
        try:
            return [_finding(row) for row in run.read_table(cls.FILE, Finding._fields)]
        except ValueError:
            damage = f"{run.path(cls.FILE)} is damaged (a score in it is not a number)"
            raise NewkindsError(f"{damage}: delete it, and the page is made without it.") from None

    @classmethod
    def write(cls, findings: Sequence[Finding], run: RunDirectory) -> None:
        run.write(cls.FILE, cls.text(findings))

    @staticmethod
    def text(findings: Sequence[Finding]) -> str:
        """The table, for wherever it is kept."""
        return csv_text(Finding._fields, [["" if cell is None else cell for cell in one] for one in findings])


def _finding(row: dict[str, Any]) -> Finding:
    return Finding(row["path"], row["check"], float(row["score"]) if row["score"] else None, row["sentence"])
