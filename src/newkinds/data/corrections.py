"""The images of a run as people corrected them: what `newkinds refine` learns from.

`corrections.csv` is a copy of what they had said when the refining began, so that later edits change nothing in it. It
lies beside the settings of the refined run, whose `data` section names it: any data set may have one."""

import csv
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from ..errors import NewkindsError, Skipped
from ..files import csv_cells, csv_text
from .folder import require_file
from .table import Table, all_caveats

SETTINGS = ("corrections", "refines")  # of any data set: that file, and the run whose images were corrected
COLUMNS = ("path", "label", "status", "category", "category_id", "piece")
JUNK_REASON = "junk by hand"
NOWHERE = -1  # the category of what is junk


@dataclass(frozen=True)
class Correction:
    """One image as people saw it."""

    path: str
    label: str | None  # what it is taken to be: its own label, or what a person said; None: nobody said
    status: str  # "": as the model found it; "moved", "accepted" or "junk" by a person
    category: str  # where it was seen
    category_id: int  # of the categories that are looked for: those with labels come first
    # the cluster in which the model had found it: people may since have merged or split these; NOWHERE: in none of its
    # class, although it has its label
    piece: int

    @property
    def is_decided(self) -> bool:
        """Whether a person has looked at it and said where it belongs."""
        return self.status in ("moved", "accepted")


def corrections_text(corrections: list[Correction]) -> str:
    """The file `corrections.csv`."""
    return csv_text(COLUMNS, [(c.path, c.label or "", *astuple(c)[2:]) for c in corrections])


def read_corrections(file: Path) -> list[Correction]:
    """What `corrections_text` wrote."""
    if file.exists():
        require_file(file)
    try:
        columns, rows = csv_cells(file.read_text(encoding="utf-8"))
        if tuple(columns) != COLUMNS:
            raise ValueError(f"its columns are not {', '.join(COLUMNS)}")
        return [
            Correction(path, label or None, status, category, int(category_id), int(piece))
            for path, label, status, category, category_id, piece in rows
        ]
    except FileNotFoundError:
        raise NewkindsError(f"{file} is missing: restore it, or refine again (newkinds refine).") from None
    except (OSError, ValueError, csv.Error) as error:
        raise NewkindsError(f"{file} is damaged ({error}): restore it, or refine again (newkinds refine).") from None


def corrected_names(corrections: list[Correction]) -> tuple[list[str], int]:
    """The names of all categories in the order of their ids, and how many of them have labels: these come first.

    A class may have labels although no image was seen in it.
    """
    seen = {c.category_id: c.category for c in corrections if c.category_id != NOWHERE}
    labels = dict.fromkeys(c.label for c in corrections if c.label is not None)
    unseen = [label for label in labels if label not in seen.values()]
    names = [seen.get(number) or unseen.pop(0) for number in range(len(seen) + len(unseen))]
    return names, len(labels)


def apply_corrections(table: Table, corrections: list[Correction]) -> Table:
    """A table with the labels that people gave; what is junk is skipped.

    An image that the corrections do not name, because it was added since, keeps its own label.
    """
    said = {c.path: c for c in corrections}
    junk = [c.path for c in corrections if c.status == "junk"]
    is_junk = set(junk)
    table = table.rows([row for row, name in enumerate(table.paths) if name not in is_junk])
    names, known = corrected_names(corrections)
    labels = [said[name].label if name in said else own for name, own in zip(table.paths, table.labels, strict=True)]
    came = sorted({label for label in labels if label is not None} - set(names[:known]))
    by_hand = "its labels were corrected by hand" if table.class_list else ""
    return replace(
        table,
        labels=labels,
        skipped=[*table.skipped, *(Skipped(name, JUNK_REASON) for name in junk)],
        known_first=[*names[:known], *came],
        categories=None,
        class_list=None,
        caveat=all_caveats(table.caveat, by_hand),
    )
