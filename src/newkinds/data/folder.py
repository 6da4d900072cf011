"""Your own images: a folder with one sub-folder per class, or a CSV file with the columns path and label."""

import csv
import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from PIL import Image

from ..console import say, warn
from ..errors import NewkindsError, nearest
from ..ownership import ELSEWHERE, OF_RUN, is_run_folder, own_pictures
from ..text import unescaped
from .images import is_meant_as_image, open_image
from .splits import Known, as_benchmark
from .table import DATASETS, Skipped, Table

UNLABELLED_FOLDERS = {"unlabeled", "unlabelled"}
LITTER = {"thumbs.db", "desktop.ini"}  # what desktops leave in photo folders
COLUMNS = ("path", "label", "truth")


def _or_benchmark(read: Callable[[Path], Table]) -> Callable[..., Table]:
    """With `known` (names of classes, or their share) what is read becomes a benchmark: see `as_benchmark`."""

    def read_and_split(
        path: str, known: Known | None = None, fraction: float = 0.5, split_seed: int = 0, tune: bool = False
    ) -> Table:
        return as_benchmark(read(Path(path)), known, fraction, split_seed, tune)

    read_and_split.__doc__ = read.__doc__
    return read_and_split


@DATASETS.register("folder")
@_or_benchmark
def read_folder(root: Path) -> Table:
    """`<class>/…` are labelled images; `unlabeled/…` and loose files are not. Sub-folders are searched.

    Files that are no images are ignored; an image that is damaged is one.
    """
    if not root.is_dir():
        raise NewkindsError(f"there is no folder {root}.")
    if is_run_folder(root):
        raise NewkindsError(f"{root} is a run of newkinds, not a folder of images: name the folder with the images.")
    names: list[str] = []
    labels: list[str | None] = []
    closed: list[Skipped] = []
    others: list[Path] = []
    for file in images_below(root, closed, others):
        inside = file.relative_to(root)
        top = inside.parts[0] if len(inside.parts) > 1 else None
        names.append(str(inside))
        labels.append(None if top is None or top.lower() in UNLABELLED_FOLDERS else top)
    if not names:
        raise NewkindsError(f"there is no image in the folder {root}.")
    mention_ignored(others)
    classes = {entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith(".")}
    for name in sorted(classes - set(labels)):
        if name.lower() not in UNLABELLED_FOLDERS and not is_run_folder(root / name):
            warn(f"the class folder '{name}' has no image and is not counted as a known class.")
    return table_below(root, names, labels, skipped=closed)


@DATASETS.register("csv")
@_or_benchmark
def read_csv(file: Path) -> Table:
    """Columns path and label (empty = unlabelled), optionally truth (read by `eval` only).

    Paths are relative to the CSV file's folder.
    """
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
    names: list[str] = []
    labels: list[str | None] = []
    truth: list[str | None] = []
    skipped: list[Skipped] = []
    first_row: dict[str, tuple[int, str | None]] = {}
    reading = _reading(file.parent, ((row or {}).get("path", "").strip() for _, row in rows))
    for line, row in rows:
        name, label, true = ((row or {}).get(column, "").strip() or None for column in COLUMNS)
        if name is None:
            reason = "the path is empty" if row else "more fields than columns: quote a text with commas"
            skipped.append(Skipped(f"{file.name} line {line}", reason))
            continue
        name = reading(name)
        same_file = os.path.normpath(file.parent / name)
        if same_file in first_row:
            earlier, label_there = first_row[same_file]
            reason = f"line {line} repeats line {earlier}"
            if label_there != label:
                reason += f" with label '{label_there or ''}', which is kept (here '{label or ''}')"
            skipped.append(Skipped(name, reason))
            continue
        first_row[same_file] = (line, label)
        names.append(name)
        labels.append(label)
        truth.append(true)
    if not names:
        raise NewkindsError(f"{file} lists no image.")
    return table_below(file.parent, names, labels, truth=truth if "truth" in header else None, skipped=skipped)


def _reading(root: Path, names: Iterable[str]) -> Callable[[str], str]:
    r"""How the names of a list are meant: as they stand, or as our tables spell them, where \xff is a byte and \\xff
    are four letters. Files of both names may be there, so more names than one decide: what most of them fit, else
    doubled backslashes, which hardly any file has."""
    odd = [(name, unescaped(name)) for name in names if unescaped(name) != name]
    plain, spelt = (sum(_exists(root / pair[way]) for pair in odd) for way in (0, 1))
    doubled = any("\\\\" in name for name, _ in odd)
    is_plain = plain > spelt or (plain == spelt > 0 and not doubled)
    return (lambda name: name) if is_plain else unescaped


def _exists(file: Path) -> bool:
    try:
        return file.exists()
    except (OSError, ValueError):  # a name that is too long, or with a NUL
        return False


def table_below(root: Path, names: list[str], labels: Sequence[str | None], **others: Any) -> Table:
    """A table of files, whose names are paths below `root`."""
    files = [root / name for name in names]
    return Table(names, list(labels), partial(_open_file, files), file=files.__getitem__, **others)


def _open_file(files: Sequence[Path], row: int) -> Image.Image:
    return open_image(files[row])


def files_of(entries: Iterable[str | Path], others: list[Path]) -> list[Path]:
    """Files as they are, folders as the images below them; each once. What else the folders hold goes to `others`."""
    found: dict[str, Path] = {}  # by the full path: the same file may be named in two ways
    for path in map(Path, entries):
        inside = list(images_below(path, [], others)) if path.is_dir() else [path]
        if not path.exists():
            raise NewkindsError(f"there is no file or folder {path}.")
        if not inside:
            raise NewkindsError(f"there is no image in the folder {path}.")
        for file in inside:
            found.setdefault(os.path.abspath(file), file)
    return list(found.values())


def images_below(root: Path, closed: list[Skipped], others: list[Path]) -> Iterator[Path]:
    """As `files_below`, but files that are no images go to `others`."""
    for file in files_below(root, closed):
        if is_meant_as_image(file):
            yield file
        else:
            others.append(file)


def mention_ignored(others: Sequence[Path]) -> None:
    """Say in one line which files were ignored, if any."""
    if others:
        endings = [ending for ending, _ in Counter(f.suffix.lower() or "no ending" for f in others).most_common()]
        which = ", ".join([*endings[:5], *(["…"] if len(endings) > 5 else [])])
        are = "1 file that is no image is" if len(others) == 1 else f"{len(others):,} files that are no images are"
        say(f"{are} ignored ({which})")


def files_below(root: Path, closed: list[Skipped], follow_links: bool = True) -> Iterator[Path]:
    """All files that are not hidden, in a fixed order; no folder is entered twice. What newkinds itself wrote among
    them, runs and pictures, is left out.

    Folders that are not entered, because they cannot be read or are links back into the tree, are added to `closed`.
    Without `follow_links` no linked folder is entered; `root` and files may still be links.
    """

    def note(error: OSError) -> None:
        closed.append(Skipped(os.path.relpath(error.filename, root), f"cannot read the folder: {error.strerror}"))

    def leads_back(link: Path) -> bool:
        """To a folder that is found without the link (there it has its own class), or to one that `root` is in."""
        top, target = root.resolve(), link.resolve()
        if target.is_relative_to(top):
            return not any(part.startswith(".") for part in target.relative_to(top).parts)
        return top.is_relative_to(target)

    entered: set[str] = set()
    for folder, subfolders, files in os.walk(root, followlinks=follow_links, onerror=note):
        real = os.path.realpath(folder)
        if real in entered:
            subfolders.clear()
            continue
        entered.add(real)
        if OF_RUN in files and Path(folder) != root and is_run_folder(Path(folder)):
            _mention_run(folder)
            subfolders.clear()
            continue
        drawn = own_pictures(Path(folder), files) if ELSEWHERE in files else set()
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in list(subfolders) if follow_links else []:
            link = Path(folder, name)
            if link.is_symlink() and leads_back(link):
                subfolders.remove(name)
                closed.append(Skipped(os.path.relpath(link, root), "a link back into the same folders"))
        for name in sorted(files):
            if not name.startswith(".") and name.lower() not in LITTER and name not in drawn:
                yield Path(folder) / name


@cache  # once in a process
def _mention_run(folder: str) -> None:
    say(f"{folder} is a run of newkinds among the images: it is not read")


def csv_rows(file: Path, blank: bool = False) -> tuple[list[str], list[tuple[int, dict[str, str] | None]]]:
    """Column names, and each row with its line number; None for one with more fields than there are columns.

    `blank`: also rows without any text, whose cells are empty.
    """
    text = _decoded(file)
    delimiter = max(",;\t", key=text.split("\n", 1)[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        rows = [
            (reader.line_num, dict(zip_longest(header, row, fillvalue="")) if len(row) <= len(header) else None)
            for row in reader
            if blank or any(row)
        ]
    except csv.Error as error:
        raise NewkindsError(f"{file} line {reader.line_num} is not CSV: {error}.") from None
    if not header:
        raise NewkindsError(f"{file} is empty: its first line must name the columns, such as path and label.")
    if len(set(header)) < len(header):
        raise NewkindsError(f"{file} names a column twice: {', '.join(header)}.")
    return header, rows


def _decoded(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise NewkindsError(f"cannot read {file}: {error.strerror}.") from None
    is_utf_16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    for encoding in ["utf-16"] if is_utf_16 else ["utf-8-sig", "cp1252"]:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if encoding == "cp1252":
            warn(f"{file} is not UTF-8; reading it as Windows-1252. Save it as UTF-8 if names look wrong.")
        return text
    raise NewkindsError(f"{file} is in an encoding that cannot be read: save it as UTF-8.")
