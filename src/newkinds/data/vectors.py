"""Ready-made vectors in the place of images: a NumPy file with one row each, and a CSV file with their labels.

Text, sounds and tables become vectors in programs of their own; from there on all is as for images."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..console import warn
from ..errors import NewkindsError, nearest
from ..text import unescaped
from .folder import csv_rows, require_file
from .images import BadImage
from .spellings import classes_of, refuse_two_spellings
from .splits import Known, as_benchmark
from .table import DATASETS, Skipped, Table, leave_out

NAME, ENDING = "vectors", ".npy"
LARGEST, SMALLEST = 1e100, 1e-100  # of a number, and length of a vector: squares must neither overflow nor vanish
AT_ONCE = 1 << 22  # numbers that are looked at in one piece: the file may be larger than the memory
NAMES = ("name", "path")  # columns that name rows
OWN_NAME = re.compile(r"row[-_ ]?(\d+)", re.IGNORECASE)  # of a row that has no other name
AS_FLOAT = "np.save(FILE, X.astype('float32'))"


@DATASETS.register(NAME)
def read_vectors(
    path: str, labels: str | None = None, known: Known | None = None, fraction: float = 0.5, split_seed: int = 0,
    tune: bool = False,
) -> Table:  # fmt: skip
    """Ready-made features: an .npy file with one row each, and a CSV file that labels them (--labels)."""
    vectors = open_vectors(Path(path))
    given = RowLabels.none(len(vectors)) if labels is None else read_labels(Path(labels), len(vectors))
    return as_benchmark(_table(vectors, given), known, fraction, split_seed, tune)


def table_of_vectors(files: Sequence[str | Path], width: int) -> Table:
    """The rows of one or more files, without labels; those of several are called FILE row-00000 and so on."""
    parts, named = [], list(dict.fromkeys(map(Path, files)))
    for file in named:
        vectors = open_vectors(file)
        if vectors.shape[1] != width:
            held = f"vectors of {vectors.shape[1]} numbers, those of the run have {width}"
            raise NewkindsError(f"{file} holds {held}: make them in the same way.")
        parts.append(vectors)
    names = [
        row if len(parts) == 1 else f"{file} {row}"
        for file, part in zip(named, parts, strict=True)
        for row in row_names(len(part))
    ]
    joined = parts[0] if len(parts) == 1 else np.concatenate([part.astype(np.float32) for part in parts])
    return _table(joined, replace(RowLabels.none(len(names)), names=names))


def true_table(data: Mapping[str, Any], truth: str | Path) -> Table:
    """Other labels of the vectors of a `data` section, such as their true classes, under the names that these have.

    A list that names its rows and does not number them may be in any order, and may leave some out.
    """
    vectors = open_vectors(Path(data["path"]))
    own = read_vectors(data["path"], data["labels"])
    header, rows = csv_rows(Path(truth))
    column = next((name for name in NAMES if name in header), None)
    if column is None or "row" in header:
        return replace(_table(vectors, read_labels(Path(truth), len(vectors))), paths=own.paths)
    _require_label(Path(truth), header)
    classes = _classes(Path(truth), [cells for _, cells in rows], "label")
    known = set(own.paths)
    first: dict[str, tuple[int, str | None]] = {}
    for (line, cells), label in zip(rows, classes, strict=True):
        if cells is None:
            raise _too_many_fields(Path(truth), line)
        text = cells[column].strip()
        name = text if text in known else unescaped(text)
        if not name:
            raise NewkindsError(f"{truth} line {line} has no {column}: name the row that it is about.")
        earlier, said = first.setdefault(name, (line, label))
        if said != label:
            found = f"gives '{name}' the class '{label or ''}', line {earlier} '{said or ''}'"
            raise NewkindsError(f"{truth} line {line} {found}: delete one of the lines.")
    return Table(list(first), [label for _, label in first.values()], no_picture)


# -- the vectors -----------------------------------------------------------------------------------------------------


def open_vectors(file: Path) -> NDArray[Any]:
    """(n, D) finite numbers of any floating type, which stay in the file until they are read. Nothing is unpickled."""
    require_file(file)
    try:
        found: NDArray[Any] = np.lib.format.open_memmap(file, mode="r")
    except OSError as error:
        raise NewkindsError(f"cannot read {file}: {error.strerror or error}.") from None
    except Exception as error:  # the header is read as Python: a damaged one can fail in any way
        if "object" in str(error).lower():
            held = "holds Python objects, which are never loaded"
            raise NewkindsError(f"{file} {held}: save a table of numbers, {AS_FLOAT}.") from None
        reason = " ".join(str(error).split())[:160]
        raise NewkindsError(f"{file} is no table of vectors ({reason}): write one by np.save(FILE, X).") from None
    if found.ndim != 2 or 0 in found.shape:
        raise NewkindsError(f"{file} is of shape {found.shape}: vectors are a table (rows, numbers of each).")
    if found.dtype.kind != "f":
        raise NewkindsError(f"{file} holds {found.dtype}, not floating numbers: save it by {AS_FLOAT}.")
    # a comparison with NaN is never true
    bad = np.concatenate([~(np.abs(part.astype(np.float64)) <= LARGEST).all(axis=1) for part in _pieces(found)])
    if bad.any():
        rows = np.flatnonzero(bad)
        shown = ", ".join(map(str, rows[:5])) + (", …" if len(rows) > 5 else "")
        held = f"NaN, infinite or too large numbers in {len(rows)} of {len(found)} rows ({shown})"
        raise NewkindsError(f"{file} holds {held}: leave these rows out, or look at how they were made.")
    return found


def width_of_vectors(file: str) -> int:
    """How many numbers each vector of a file has."""
    return int(open_vectors(Path(file)).shape[1])


def _pieces(vectors: NDArray[Any]) -> Iterable[NDArray[Any]]:
    rows = max(1, AT_ONCE // vectors.shape[1])
    return (vectors[start : start + rows] for start in range(0, len(vectors), rows))


def row_names(rows: int) -> list[str]:
    width = max(5, len(str(rows - 1)))
    return [f"row-{row:0{width}d}" for row in range(rows)]


def no_picture(row: int) -> Image.Image:
    raise BadImage("a vector has no picture")


def _table(vectors: NDArray[Any], given: "RowLabels") -> Table:
    lengths = np.concatenate([np.linalg.norm(part.astype(np.float64), axis=1) for part in _pieces(vectors)])
    names = [name or default for name, default in zip(given.names, row_names(len(vectors)), strict=True)]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise NewkindsError(f"two rows are called '{twice[0]}': give each a name of its own.")
    _require_different(vectors, lengths)
    table = Table(names, given.labels, no_picture, truth=given.truth, vectors=vectors)
    why = "all numbers are zero: it has no direction to compare by"
    bad = {int(row): Skipped(names[row], why) for row in np.flatnonzero(lengths < SMALLEST)}
    return leave_out(table, bad)


def _require_different(vectors: NDArray[Any], lengths: NDArray[Any]) -> None:
    """Refuse vectors that all have one direction, by which alone they are compared; say if most are copies."""
    probe = np.random.default_rng(0).standard_normal(vectors.shape[1])
    parts = [part.astype(np.float64) @ probe for part in _pieces(vectors)]
    usable = lengths >= SMALLEST
    # equal vectors have equal projections on any direction; others hardly ever
    projected = np.round(np.concatenate(parts)[usable] / lengths[usable], 9)
    different = len(np.unique(projected))
    if len(projected) > 1 and different == 1:
        raise NewkindsError(
            f"all {len(projected):,} vectors are equal, or multiples of each other, so nothing can be told apart: look "
            "at how they were made."
        )
    if different < len(projected) / 2:
        warn(f"of {len(projected):,} vectors only {different:,} differ from all others: look at how they were made.")


# -- their labels ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowLabels:
    """What a list says about n rows."""

    names: Sequence[str | None]
    labels: list[str | None]
    truth: list[str | None] | None = None

    @classmethod
    def none(cls, rows: int) -> "RowLabels":
        return cls([None] * rows, [None] * rows)


def read_labels(file: Path, rows: int) -> RowLabels:
    """A CSV file with the column label, empty or -1 where there is none, and optionally row, name (or path) and truth.

    With row, the number of a vector from 0 on, lines may be in any order, and vectors that are not listed have no
    label; likewise with our own names of rows (row-00012). Else line i is of vector i, and there must be as many lines
    as vectors.
    """
    header, lines = csv_rows(file, blank=True)
    _require_label(file, header)
    while lines and "row" not in header and len(lines) > rows and not any((lines[-1][1] or {"": "?"}).values()):
        lines.pop()  # an empty line at the end
    for line, cells in lines:
        if cells is None:
            raise _too_many_fields(file, line)
    column = next((name for name in NAMES if name in header), None)
    own_names = _rows_by_own_names(file, lines, column, rows) if column else None
    if "row" in header or own_names is not None:
        lines = [line for line in lines if any((line[1] or {}).values())]
    elif len(lines) != rows:
        raise NewkindsError(
            f"{file} has {len(lines)} lines after the first, but there are {rows} vectors: write one line for each, or "
            "add a column row (0 is the first vector) and list those that have a label."
        )
    _judge_other_columns(file, header, lines, by_position="row" not in header and own_names is None)
    labels_there = _classes(file, [cells for _, cells in lines], "label")
    truth_there = _classes(file, [cells for _, cells in lines], "truth")
    refuse_two_spellings([*labels_there, *truth_there], str(file))
    found = RowLabels.none(rows)
    names, truth, line_of = list(found.names), list(found.labels), dict[int, int]()
    for place, (line, cells) in enumerate(lines):
        assert cells is not None
        name = cells.get(column, "").strip() if column else ""
        row = place
        if "row" in header:
            row = _row(file, line, cells["row"].strip(), rows)
        elif own_names is not None:
            if not name:
                raise NewkindsError(f"{file} line {line} has no {column}: name the row that it is about.")
            row = own_names[name]
        if own_names is not None and name and own_names[name] != row:
            raise NewkindsError(f"{file} line {line} is about row {row}, but is called {name}: correct one of them.")
        if row in line_of:
            raise NewkindsError(f"{file} line {line} is about row {row}, as line {line_of[row]} is: delete one.")
        line_of[row] = line
        found.labels[row] = labels_there[place]
        truth[row] = truth_there[place]
        names[row] = name or None
    if "row" in header:
        _require_row_zero(file, set(line_of), rows)
    return RowLabels(names, found.labels, truth if "truth" in header else None)


Lines = Sequence[tuple[int, dict[str, str] | None]]


def _rows_by_own_names(file: Path, lines: Lines, column: str, rows: int) -> dict[str, int] | None:
    """The row of each name, if a list uses the names that rows have without one (row-00012); None if it does not."""
    own = {name: row for row, name in enumerate(row_names(rows))}
    there = {(cells or {}).get(column, "").strip(): line for line, cells in lines}
    there.pop("", None)
    alike = [name for name in there if OWN_NAME.fullmatch(name)]
    if not alike:
        return None
    for name, line in there.items():
        if name not in own:
            which = f"rows are called {next(iter(own))} to {list(own)[-1]} if they have no name of their own"
            raise NewkindsError(f"{file} line {line}: there is no '{name}'; {which}. Use these for all lines, or none.")
    return own


def _require_row_zero(file: Path, listed: set[int], rows: int) -> None:
    """Rows are numbered from 0. A list without row 0 that has nearly all others was probably numbered from 1."""
    if 0 in listed or not listed:
        return
    from_one_on = len(listed) > 1 and listed == set(range(1, len(listed) + 1))
    if from_one_on or len(listed) > rows / 2:
        raise NewkindsError(
            f"{file} lists {len(listed):,} rows, but not row 0, which is the first vector. If they are numbered from "
            "1, subtract 1 from each; if not, add a line for row 0 with an empty label."
        )
    warn(
        f"{file}: rows are numbered from 0, and row 0 is not listed. If they are numbered from 1, subtract 1 from each."
    )


def _judge_other_columns(file: Path, header: Sequence[str], lines: Lines, by_position: bool) -> None:
    """Refuse a list that is read by position if a column of numbers says that it is in another order."""
    unknown = [name for name in header if name not in ("row", "label", "truth", *NAMES)]
    for name in unknown if by_position else ():
        cells = [(row or {}).get(name, "").strip() for _, row in lines]
        if not all(re.fullmatch(r"\d{1,15}(\.0)?", cell) for cell in cells):
            continue
        numbers = [int(float(cell)) for cell in cells]
        counts_rows = len(set(numbers)) == len(numbers)
        if counts_rows and numbers != sorted(numbers):
            raise NewkindsError(
                f"{file} has a column '{name}' whose numbers are in another order than the lines, and lines are taken "
                "in the order of the vectors. If it is the number of the vector, from 0 on, call it row; if it is a "
                "name, call it name; else leave it out."
            )
    if unknown:
        shown = ", ".join(f"'{name}'" for name in unknown[:5]) + (", …" if len(unknown) > 5 else "")
        how = ", and line i is taken as vector i" if by_position else ""
        warn(f"{file}: ignoring the columns {shown} (known: row, name, path, label, truth){how}.")


def _classes(file: Path, cells: Sequence[dict[str, str] | None], column: str) -> list[str | None]:
    """What a column says, None where it says that there is no class."""
    return classes_of([(row or {}).get(column, "") for row in cells], str(file), column)


def _too_many_fields(file: Path, line: int) -> NewkindsError:
    return NewkindsError(f"{file} line {line} has more fields than columns: quote a text with commas.")


def _row(file: Path, line: int, text: str, rows: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < rows):
        there = f"the {rows} vectors are numbered from 0 to {rows - 1}"
        raise NewkindsError(f"{file} line {line}: there is no row '{text}', {there}.")
    return int(text)


def _require_label(file: Path, header: Sequence[str]) -> None:
    if "label" not in header:
        it_has = f"(it has: {', '.join(header)}).{nearest('label', header)}"
        raise NewkindsError(f"{file} has no column 'label' {it_has} The first line must name it, beside row or name.")
