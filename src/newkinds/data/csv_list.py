"""Your own images: a CSV file with the columns path and label, and perhaps truth, box and group."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from ..console import warn
from ..errors import NewkindsError, Skipped, nearest
from ..files import exists
from ..settings import AtLeastOne, Positive
from ..text import unescaped
from .bursts import group_photos
from .folder import csv_rows, table_below
from .fragments import WHOLE, read_box, split_name
from .frames import with_frames
from .spellings import classes_of, means_no_label, refuse_two_spellings
from .splits import Known, as_benchmark
from .table import DATASETS, Table

COLUMNS = ("path", "label", "truth", "box", "group")
NO_GROUP = ("", "nan", "none", "null", "na", "n/a")  # what programs write into an empty cell


@DATASETS.register("csv")
def read_csv(
    path: str, known: Known | None = None, fraction: float = 0.5, split_seed: int = 0, tune: bool = False,
    group_by_time: str | float | None = None, frame_every: Positive | None = None,
    most_frames: AtLeastOne | None = None, separate_frames: bool = False,
) -> Table:  # fmt: skip
    """Columns path and label (empty = unlabelled), optionally truth (read by `eval` only), box and group.

    Paths are relative to the CSV file's folder. `box` is x, y, width, height in pixels: an image may have several lines
    with a box each, and each of them is an item. Images of one `group` (a burst, an event, a specimen) are of one kind.
    `group_by_time` and what is taken of videos: as for a folder.
    """
    table = with_frames(_table_of_list(Path(path)), frame_every, most_frames, separate_frames)
    return as_benchmark(group_photos(table, group_by_time), known, fraction, split_seed, tune)


def _table_of_list(file: Path) -> Table:
    header, rows = csv_rows(file)
    unknown = [name for name in header if name not in COLUMNS]
    for column, advice in (
        ("path", "The first line must name the columns path and label."),
        ("label", "Leave the label empty if an image has none."),
    ):
        if column not in header:
            named = ", ".join([*(name[:40] for name in header[:8]), *(["…"] if len(header) > 8 else [])])
            it_has = f"(it has: {named}).{nearest(column, unknown[:100])}"
            raise NewkindsError(f"{file} has no column '{column}' {it_has} {advice}")
    if unknown:
        named = ", ".join([*(name[:40] for name in unknown[:5]), *(["…"] if len(unknown) > 5 else [])])
        warn(f"{file}: ignoring {len(unknown)} column(s), {named} (known: {', '.join(COLUMNS)}).")
    paths, label_cells, truth_cells, boxes, group_cells = (
        [(row or {}).get(column, "").strip() for _, row in rows] for column in COLUMNS
    )
    groups_there = [None if group.lower() in NO_GROUP else group for group in group_cells]
    labels_there = classes_of(label_cells, str(file))
    truth_there = classes_of(truth_cells, str(file), "truth")
    refuse_two_spellings([*labels_there, *truth_there], str(file))
    names: list[str] = []
    labels: list[str | None] = []
    truth: list[str | None] = []
    groups: list[str | None] = []
    skipped: list[Skipped] = []
    first_line: dict[str, tuple[int, int]] = {}  # of a file: its line, and its place in the table
    reading = _reading(file.parent, paths)
    for (line, row), path, label, true, box, group in zip(
        rows, paths, labels_there, truth_there, boxes, groups_there, strict=True
    ):
        if not path:
            reason = "the path is empty" if row else "more fields than columns: quote a text with commas"
            skipped.append(Skipped(f"{file.name} line {line}", reason))
            continue
        name = reading(path)
        try:
            name = _with_box(file.parent, name, box)
        except ValueError as error:
            skipped.append(Skipped(name, f"line {line}: {error}"))
            continue
        same_file = os.path.normpath(file.parent / name)
        if same_file in first_line:
            earlier, place = first_line[same_file]
            labels[place] = _agreed(labels[place], label, f"{file}: {name} has the label", earlier, line)
            truth[place] = _agreed(truth[place], true, f"{file}: {name} is in truth", earlier, line)
            groups[place] = _agreed(groups[place], group, f"{file}: {name} is in the group", earlier, line)
            skipped.append(Skipped(name, f"line {line} repeats line {earlier}"))
            continue
        first_line[same_file] = (line, len(names))
        names.append(name)
        labels.append(label)
        truth.append(true)
        groups.append(group)
    if not names:
        why = f" that can be used ({skipped[0].reason})" if skipped else ""
        raise NewkindsError(f"{file} lists no image{why}.")
    return table_below(
        file.parent, names, labels, truth=truth if "truth" in header else None, skipped=skipped,
        groups=groups if any(groups) else None,
    )  # fmt: skip


def _with_box(root: Path, name: str, cell: str) -> str:
    """The name of a box in a file; `ValueError` says what is wrong with the cell that names the box."""
    if means_no_label(cell):
        return name
    box = read_box(cell)
    file, part = (name, WHOLE) if exists(root / name) else split_name(name)
    if part.box not in (None, box):
        raise ValueError(f"the box is {part.box} in the path and {box} in its own column")
    return f"{file}{part._replace(box=box)}"


def _agreed(first: str | None, second: str | None, what: str, line: int, later: int) -> str | None:
    """What two lines about one image say; that they contradict each other is an error."""
    if first is not None and second is not None and first != second:
        raise NewkindsError(f"{what} '{first}' in line {line} and '{second}' in line {later}: delete one of the lines.")
    return second if first is None else first


def _reading(root: Path, names: Iterable[str]) -> Callable[[str], str]:
    r"""How the names of a list are meant: as they stand, or as our tables spell them, where \xff is a byte and \\xff
    are four letters. Files of both names may be there, so more names than one decide: what most of them fit, else
    doubled backslashes, which hardly any file has."""
    odd = [(name, unescaped(name)) for name in names if unescaped(name) != name]
    plain, spelt = (sum(exists(root / pair[way]) for pair in odd) for way in (0, 1))
    doubled = any("\\\\" in name for name, _ in odd)
    is_plain = plain > spelt or (plain == spelt > 0 and not doubled)
    return (lambda name: name) if is_plain else unescaped
