"""What the images of a run showed when it started, as `images.csv` keeps it; without torch."""

from ..data.facts import facts_of
from ..data.table import ImageRecord, Table, look_at_all
from .changes import UpdateHistory
from .directory import IMAGES, RunDirectory


def earlier_images(run: RunDirectory) -> dict[str, ImageRecord]:
    """The images that a run started with, by their path; none if it is new."""
    rows = run.read_table(IMAGES, ("path", "stamp", "content")) if run.path(IMAGES).is_file() else []
    return {row["path"]: ImageRecord(row["stamp"], row["content"], facts_of(row)) for row in rows}


def earlier_groups(run: RunDirectory) -> dict[str, str]:
    """The groups of the images that a run started with, by their path; those that were alone have none."""
    rows = run.read_table(IMAGES, ("path",)) if run.path(IMAGES).is_file() else []
    return {row["path"]: row["group"] for row in rows if row.get("group")}


def replaced_rows(run: RunDirectory, table: Table) -> list[int]:
    """The images of a table that show something else than when the run started; those that are gone are not among them.

    Only files that changed since are opened. Images that are no files of their own are not looked at.
    """
    earlier = {path: seen for path, seen in earlier_images(run).items() if seen.content}
    if table.file is None or not earlier:
        return []
    rows = [row for row in range(len(table)) if _has_changed(table, row, earlier.get(table.paths[row]))]
    if not rows:
        return []
    now = look_at_all(table.rows(rows), contents=True, earlier=earlier)
    return [
        row
        for row, image in zip(rows, now, strict=True)
        if isinstance(image, ImageRecord) and image.content != earlier[table.paths[row]].content
    ]


def _has_changed(table: Table, row: int, then: ImageRecord | None) -> bool:
    stamp = table.stamp(row)
    return then is not None and stamp != "" and stamp != then.stamp


def copies_left_out(run: RunDirectory) -> set[str]:
    """Paths of images that updates did not add, because the run has others that show the same."""
    return {path for update in UpdateHistory.of(run).updates if not update.undone for path in update.copies}
