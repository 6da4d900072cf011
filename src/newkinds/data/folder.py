"""Your own images: a folder with one sub-folder per class. What lists of images need too: files, and tables of them."""

import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from stat import S_ISREG
from typing import Any, Literal

from PIL import Image

from ..console import say, warn
from ..errors import NewkindsError
from ..files import exists
from ..ownership import ELSEWHERE, OF_RUN, is_run_folder, own_pictures
from ..settings import AtLeastOne, Positive
from .bursts import group_photos
from .fragments import WHOLE, Part, find_part
from .frames import with_frames
from .headers import is_meant_as_image
from .parts import open_part
from .spellings import UNLABELLED, is_no_class, is_unlabelled, mentions_unlabelled, refuse_two_spellings
from .splits import Known, as_benchmark
from .table import DATASETS, Skipped, Table
from .videos import is_video

LITTER = {"thumbs.db", "desktop.ini"}  # what desktops leave in photo folders
PARTS = {
    "train",
    "training",
    "val",
    "valid",
    "validation",
    "test",
    "testing",
    "dev",
    "eval",
}  # of data sets: no classes
MOST_OTHERS = 1_000_000  # files that are no images; a folder of more is not one of images
LARGEST_LIST = 2_000_000_000  # bytes of a CSV file
OF_THE_SYSTEM = ("/proc", "/sys", "/dev")  # folders whose files never end

ClassFolder = Literal["top", "leaf"]


@DATASETS.register("folder")
def read_folder(
    path: str, known: Known | None = None, fraction: float = 0.5, split_seed: int = 0, tune: bool = False,
    class_folder: ClassFolder | None = None, group_by_time: str | float | None = None,
    frame_every: Positive | None = None, most_frames: AtLeastOne | None = None, separate_frames: bool = False,
) -> Table:  # fmt: skip
    """`<class>/…` are labelled images; `unlabeled/…` and loose files are not. Sub-folders are searched.

    `class_folder`: an image's class is the name of the top folder (as by default, which is then said), or of the folder
    that it lies in (`leaf`), such as Bengal in `Felidae/Bengal/`. Files that are no images are ignored; an image that
    is damaged is one. `group_by_time`: see `bursts`. Of a video a frame is taken every `frame_every` seconds
    (1), `most_frames` (300) at most; they are a group, unless `separate_frames` is true.
    """
    table = _table_of_folder(Path(path), class_folder)
    table = group_photos(with_frames(table, frame_every, most_frames, separate_frames), group_by_time)
    return as_benchmark(table, known, fraction, split_seed, tune)


def _table_of_folder(root: Path, class_folder: ClassFolder | None) -> Table:
    if not root.is_dir():
        raise NewkindsError(f"there is no folder {root}.")
    if is_run_folder(root):
        raise NewkindsError(f"{root} is a run of newkinds, not a folder of images: name the folder with the images.")
    refuse_whole_disk(root)
    names: list[str] = []
    folders: list[tuple[str, ...]] = []  # in which each image lies, from the top on
    closed: list[Skipped] = []
    others: list[Path] = []
    for file in images_below(root, closed, others, videos=True):
        inside = file.relative_to(root)
        names.append(str(inside))
        folders.append(inside.parts[:-1])
    if not names:
        raise NewkindsError(f"there is no image in the folder {root}.")
    mention_ignored(others)
    place = -1 if class_folder == "leaf" else 0
    labels = [_class_of(inside, place) for inside in folders]
    if class_folder is None:
        _mention_nested(root, [inside for inside, label in zip(folders, labels, strict=True) if label is not None])
    if class_folder == "leaf":
        _mention_joined(folders, labels)
    _mention_unlabelled(folders, labels, place)
    refuse_two_spellings(labels, f"the class folders in {root}")
    classes = {entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith(".")}
    for name in sorted(classes - {inside[0] for inside in folders if inside}):
        if not is_no_class(name) and not is_run_folder(root / name):
            warn(f"the class folder '{name}' has no image and is not counted as a known class.")
    return table_below(root, names, labels, skipped=closed)


@cache
def _class_of(folders: tuple[str, ...], place: int) -> str | None:
    """The class of an image by the folders that it is in; `place`: which of them names it."""
    if not folders or is_no_class(folders[place]) or any(map(is_unlabelled, folders)):
        return None
    return folders[place]


def _mention_unlabelled(folders: Sequence[tuple[str, ...]], labels: Sequence[str | None], place: int) -> None:
    """Say which folders are not taken as classes because of their names, unless it is the name that everybody uses."""
    taken: Counter[str] = Counter()
    for inside, label in zip(folders, labels, strict=True):
        if label is None and inside and inside[0].lower() not in UNLABELLED:
            at = next((at for at, name in enumerate(inside) if is_unlabelled(name)), len(inside) - 1 if place else 0)
            taken["/".join(inside[: at + 1])] += 1
    if taken:
        named = ", ".join(f"'{name}' ({count:,})" for name, count in taken.most_common(5))
        more = f" and {len(taken) - 5} more" if len(taken) > 5 else ""
        warn(
            f"the images in {named}{more} are taken as unlabelled, as the folder's name says. If it is a class, give "
            "the folder another name."
        )
    doubtful = sorted({label for label in labels if label is not None and mentions_unlabelled(label)})
    if doubtful:
        warn(f"the folder '{doubtful[0]}' is taken as a known class. If its images have no label, call it 'unlabeled'.")


def _mention_nested(root: Path, folders: Sequence[tuple[str, ...]]) -> None:
    """Say which labelled images lie deeper than their class folder: their folders may be classes of their own."""
    deeper = dict.fromkeys(inside for inside in folders if len(inside) > 1)
    if not deeper:
        return
    tops, first = dict.fromkeys(inside[0] for inside in deeper), next(iter(deeper))
    leaf = "--set data.class_folder=leaf"
    if {inside[0].lower() for inside in folders} <= PARTS:
        raise NewkindsError(
            f"the folders in {root} ({', '.join(tops)}) are parts of a data set, not classes: name one of them, such "
            f"as {root / first[0]}, or add {leaf} to take the folders inside them as classes."
        )
    are = "class folder has sub-folders" if len(tops) == 1 else "class folders have sub-folders"
    warn(
        f"{len(tops):,} {are} with images: {'/'.join(first)} is taken as the class '{first[0]}', and so are all "
        f"{len(deeper):,} of these. If they are classes of their own, add {leaf}; if not, data.class_folder=top."
    )


def _mention_joined(folders: Sequence[tuple[str, ...]], labels: Sequence[str | None]) -> None:
    """Say which folders in different places have one name, and so are one class."""
    places: dict[str, set[tuple[str, ...]]] = {}
    for inside, label in zip(folders, labels, strict=True):
        if label is not None:
            places.setdefault(label, set()).add(inside)
    joined = sorted(label for label, of_label in places.items() if len(of_label) > 1)
    if joined:
        where = " and ".join("/".join(inside) for inside in sorted(places[joined[0]])[:2])
        warn(f"{len(joined):,} class name(s) are in several places, and each is one class: {where}.")


def refuse_whole_disk(folder: Path) -> None:
    """Refuse a folder that is surely not one of images: a whole disk, or what the system shows as files."""
    resolved = folder.resolve()
    if resolved == resolved.parent or any(resolved.is_relative_to(system) for system in OF_THE_SYSTEM):
        raise NewkindsError(
            f"{folder} is no folder of images, but belongs to the system: name the folder of your images."
        )


def table_below(root: Path, names: list[str], labels: Sequence[str | None], **others: Any) -> Table:
    """A table of files and parts of files, whose names are paths below `root` (see `fragments`)."""
    found = [find_part(root, name) for name in names]
    files, parts = [file for file, _ in found], [part for _, part in found]
    part = parts.__getitem__ if any(part != WHOLE for part in parts) else None
    return Table(names, list(labels), partial(_open_found, found), file=files.__getitem__, part=part, **others)


def _open_found(found: Sequence[tuple[Path, Part]], row: int) -> Image.Image:
    return open_part(*found[row])


def files_of(entries: Iterable[str | Path], others: list[Path], videos: bool = False) -> list[Path]:
    """Files and parts of files as they are, folders as the images below them; each once. What else the folders hold
    goes to `others`, also videos, unless these are wanted."""
    found: dict[str, Path] = {}  # by the full path: the same file may be named in two ways
    for path in map(Path, entries):
        if path.is_dir():
            refuse_whole_disk(path)
        inside = list(images_below(path, [], others, videos)) if path.is_dir() else [path]
        if not exists(find_part(Path(), str(path))[0]):
            raise NewkindsError(f"there is no file or folder {path}.")
        if not inside:
            raise NewkindsError(f"there is no image in the folder {path}.")
        for file in inside:
            found.setdefault(os.path.abspath(file), file)
    return list(found.values())


def images_below(root: Path, closed: list[Skipped], others: list[Path], videos: bool = False) -> Iterator[Path]:
    """As `files_below`, but files that are no images (nor `videos`, if these are wanted) go to `others`."""
    for file in files_below(root, closed):
        if (videos and is_video(file)) or is_meant_as_image(file):
            yield file
            continue
        others.append(file)
        if len(others) > MOST_OTHERS:
            raise NewkindsError(
                f"{root} holds more than {MOST_OTHERS:,} files that are no images, the last one seen is {file}: name "
                "the folder of the images."
            )


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
    require_file(file, LARGEST_LIST)
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


def require_file(file: Path, largest: int | None = None) -> None:
    """Refuse what is no file on a disk: a pipe waits for a writer, and a device may never end."""
    try:
        status = file.stat()
    except (OSError, ValueError) as error:
        raise NewkindsError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}.") from None
    if not S_ISREG(status.st_mode):
        raise NewkindsError(f"{file} is not a file, but a folder, a pipe or a device: name a file.")
    if largest is not None and status.st_size > largest:
        raise NewkindsError(f"{file} has {status.st_size:,} bytes: a list of images has {largest:,} at most.")
