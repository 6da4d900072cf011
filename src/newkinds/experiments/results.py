"""What `bench` returns: the table as text, its numbers, and what is not in it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..comparison import Comparison, Row
from ..errors import NewkindsError
from .result_lines import figure_lines, seed_lines

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Benched:
    """A table, its numbers, which parts of it could not be run, the pictures of it, and runs that do not belong in it.

    >>> found = bench("plugin", "runs/parts", data=["creatures"], methods=["simgcd"], seeds=[0, 1, 2])
    >>> new = found.row("simgcd", "cpf")["new"]
    >>> new.ours.mean, new.ours.of_seed, new.gain.mean, new.gain.interval
    >>> found.to_frame(per_seed=True).groupby(["method", "organizer", "measure"])["value"].mean()
    """

    text: str
    failed: list[str]
    pictures: list[Path]
    busy: Sequence[str] = ()  # what other processes are at, and what needs that
    left_out: Sequence[str] = ()  # runs that are there and do not belong in the table
    tables: Sequence[Comparison] = field(default=(), repr=False)  # one per data set, for test images, and the average
    kept_apart: Sequence[str] = ()  # what was asked for and not run, as other code has: `again` runs it

    @property
    def rows(self) -> list[Row]:
        """Those of all data sets of which there are runs, on the unlabelled images."""
        own = [table for table in self.tables if table.parts["evaluated"] != "test"]
        return [row for table in own for row in table.rows if row.runs]

    def row(self, method: str, organizer: str = "none", data: str | None = None, assigner: str = "own") -> Row:
        """One row by the names that it was asked for; `data`: which data set (or "average"), if there are several."""
        wanted = {"method": method, "organizer": organizer, "assigner": assigner}
        for table in self.tables:
            if data in (None, table.parts["data"]) and table.parts["evaluated"] != "test":
                for row in table.rows:
                    if row.runs and wanted.items() <= row.parts.items():
                        return row
        where = f" on {data}" if data else ""
        raise NewkindsError(f"the table has no run of {method} with {organizer}{where}.")

    def to_frame(self, per_seed: bool = False) -> "pandas.DataFrame":
        """All numbers as a data frame of pandas: one line per row and measure, or per run and measure."""
        try:
            import pandas
        except ImportError:
            raise NewkindsError("a data frame needs pandas: pip install pandas, or take rows or CSV.") from None
        lines = seed_lines(self.tables) if per_seed else figure_lines(self.tables)
        used = [name for name in (lines[0] if lines else ()) if any(line[name] != "" for line in lines)]
        return pandas.DataFrame([{name: None if line[name] == "" else line[name] for name in used} for line in lines])
