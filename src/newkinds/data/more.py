"""Images that came to a run later, from elsewhere than its own data: files, folders, lists and vectors, which the
setting `data.more` names. They are called by their absolute paths."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import TypeVar

import numpy as np

from ..errors import NewkindsError
from .folder import files_of, mention_ignored, table_below
from .fragments import WHOLE, Part
from .frames import with_frames
from .json_lists import kind_of_list
from .table import DATASETS, Table, all_caveats
from .vectors import table_of_vectors

SETTING = "more"  # of any data set that is read from files
LISTS = (".csv", ".tsv", ".txt", ".json")
T = TypeVar("T")


def table_with_more(table: Table, entries: Sequence[str]) -> Table:
    """The images of a table, and those of further files, folders or lists that are not among them.

    What an entry names and is gone since is left out: an update says so.
    """
    for entry in entries:
        if os.path.lexists(entry):
            table = join_tables(table, table_of_entry(Path(entry), table.vectors))
    return table


def table_of_entry(entry: Path, vectors: np.ndarray | None = None) -> Table:
    """The images of one file, folder or list, by their absolute paths; `vectors`: those that others are like."""
    if vectors is not None:
        more = table_of_vectors([entry], vectors.shape[1])
        return replace(more, paths=[f"{entry} {name}" for name in more.paths])
    if entry.suffix.lower() in LISTS and entry.is_file():
        kind = kind_of_list(entry) if entry.suffix.lower() == ".json" else "csv"
        listed = DATASETS[kind](str(entry))
        return replace(listed, paths=[os.path.join(os.path.abspath(entry.parent), name) for name in listed.paths])
    others: list[Path] = []
    try:
        files = files_of([entry], others, videos=True)
    except NewkindsError:
        files = []
        if not entry.is_dir():
            raise
    mention_ignored(others)
    return with_frames(table_below(Path(), [os.path.abspath(file) for file in files], [None] * len(files)))


def is_named_by(entries: Sequence[str], path: str) -> bool:
    """Whether an image of such a name may come from one of the entries; a list may name files anywhere."""
    if ".." in PurePath(path).parts:
        return False
    return any(
        PurePath(entry).suffix.lower() in LISTS or path.startswith(entry) or PurePath(path).is_relative_to(entry)
        for entry in entries
    )


def join_tables(first: Table, second: Table) -> Table:
    """The rows of two tables, one after the other; of the second, those that are other images than all of the first."""
    if second.vectors is None and second.file is not None:
        there = {*first.paths, *_places(first)}
        new = [row for row, place in enumerate(_places(second)) if place not in there]
    else:
        new = [row for row, path in enumerate(second.paths) if path not in set(first.paths)]
    second = second.rows(new)
    vectors = None
    if first.vectors is not None and second.vectors is not None:
        vectors = np.concatenate([first.vectors, second.vectors.astype(first.vectors.dtype)])
    count = len(first)
    file = None
    if first.file is not None and second.file is not None:
        file = partial(_of_either, first.file, second.file, count)
    return replace(
        first,
        paths=[*first.paths, *second.paths],
        labels=[*first.labels, *second.labels],
        open=partial(_of_either, first.open, second.open, count),
        file=file,
        part=partial(_of_either, first.part_of, second.part_of, count) if first.part or second.part else None,
        truth=_joined(first.truth, second.truth, first, second),
        groups=_joined(first.groups, second.groups, first, second),
        skipped=[*first.skipped, *second.skipped],
        known_first=_known_first(first, second),
        caveat=all_caveats(first.caveat, "images were added" if first.class_list and len(second) else ""),
        vectors=vectors,
    )


def _known_first(first: Table, second: Table) -> list[str] | None:
    """Known classes that are in a fixed order stay in it, and others follow."""
    if first.known_first is None:
        return None
    return [*first.known_first, *sorted({label for label in second.labels if label} - set(first.known_first))]


def _places(table: Table) -> list[str]:
    """Where each image is: its file, and which part of it."""
    if table.file is None:
        return table.paths
    return [f"{os.path.abspath(table.file(row))}{_fragment(table.part_of(row))}" for row in range(len(table))]


def _fragment(part: Part) -> str:
    return "" if part == WHOLE else str(part)


def _joined(
    one: list[str | None] | None, other: list[str | None] | None, first: Table, second: Table
) -> list[str | None] | None:
    if one is None and other is None:
        return None
    return [*(one or [None] * len(first)), *(other or [None] * len(second))]


def _of_either(first: Callable[[int], T], second: Callable[[int], T], count: int, row: int) -> T:
    return first(row) if row < count else second(row - count)
