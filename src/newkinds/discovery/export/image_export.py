"""What all exported data sets share: which images and categories go in, files that are copied or linked, and tables."""

import errno
import os
import re
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from ...console import track, warn
from ...data.fragments import WHOLE, Box, Part
from ...data.headers import ENDINGS, is_turned, look_at_header
from ...data.images import BadImage, open_full
from ...data.parts import open_part, size_of_whole
from ...errors import NewkindsError, Skipped
from ...files import csv_text, json_text, write_whole
from ...runs.directory import RunDirectory
from ...runs.seen_images import replaced_rows
from ...text import plural, spelt
from ..categories import Discovery
from ..edits import JUNK, NO_CATEGORY, POOL
from ..kinds import Category, Member
from ..originals import REPLACED, WHERE, originals
from .base import EXPORTS
from .names import Names
from .tables import MemberCells

Files = Literal["copy", "hardlink", "symlink"]
DONE = {"copy": "copied", "hardlink": "hard-linked", "symlink": "linked"}
AT_ONCE = 4  # files that are read or written at the same time
TABLES = ("images.csv", "categories.csv", "missing.csv")
T = TypeVar("T")
U = TypeVar("U")


class ExportedImage(NamedTuple):
    """An image in an export."""

    member: Member
    file: str  # where it is below the export's folder, with slashes; several boxes may be in one file
    width: int  # px, as its file says: a tag that turns it is not obeyed
    height: int
    box: Box | None = None  # where it is in that file; None: it is all of it

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2]


@dataclass(frozen=True)
class FoundImage:
    """An image that is there."""

    row: int  # in the table of originals
    member: Member
    width: int  # px, of the file; upright, if the image is a part of it
    height: int
    stem: str  # of the name that its file should get
    ending: str
    part: Part = WHOLE  # which part of the file it is; its box lies inside


class _Job(NamedTuple):
    """A file of the export that is to be written."""

    row: int  # of the image that it is made of
    part: Part  # of that image's file
    stem: str
    ending: str
    upright: bool = False  # turned as its tag says, for boxes in it


class DataSet:
    """What a run found, as people corrected it, on its way into the folder `target`, which it makes.

    Images that are junk are left out, unless `junk` asks for them; those that are gone are listed.
    """

    def __init__(self, discovery: Discovery, target: Path, files: Files, images: str | Path | None, junk: bool) -> None:
        if files not in get_args(Files):
            raise NewkindsError(f"--files {files}: choose {', '.join(get_args(Files))}.")
        self.discovery = discovery
        self.target = target
        self.files = files
        self.categories: list[Category] = discovery.categories
        run = RunDirectory(discovery.run)
        members = [member for member in discovery.members if junk or member.category_id != JUNK]
        self.junk_count = len(discovery.members) - len(members)
        if not members:
            raise NewkindsError(f"{run.folder} has only junk: nothing to export.")
        self._originals = originals(run, members, images)
        self._refuse_own_folder(run, images)
        if self._originals.vectors is not None:
            raise NewkindsError(f"{run.folder} is of vectors, which have no pictures: export its table by --to csv.")
        if self._originals.file is None and files != "copy":
            raise NewkindsError(f"the images of {run.folder} are no files that --files {files} could lead to.")
        self._replaced = set(replaced_rows(run, self._originals))
        looked = _all(self._look, list(enumerate(members)), "looking at images")
        self.missing = [(members[row], found) for row, found in enumerate(looked) if isinstance(found, Skipped)]
        self.found = [found for found in looked if isinstance(found, FoundImage)]
        if not self.found:
            first = self.missing[0][1]
            raise NewkindsError(
                f"none of the {len(members)} images of {run.folder} can be read; the first is {first.path}: "
                f"{first.reason}. {WHERE}"
            )
        target.mkdir()

    def _refuse_own_folder(self, run: RunDirectory, images: str | Path | None) -> None:
        """An export among the images would be taken for images of the data set next time."""
        data = run.settings()["data"]
        root = Path(images or data["path"]).resolve() if data["name"] == "folder" else None
        if root is not None and self.target.resolve().is_relative_to(root):
            raise NewkindsError(f"{root} holds the run's images: choose an --out that is not below it.")

    def _look(self, numbered: tuple[int, Member]) -> FoundImage | Skipped:
        row, member = numbered
        if row in self._replaced:
            return Skipped(member.path, REPLACED)
        try:
            if self._originals.file is None:
                stem = os.path.splitext(PurePath(member.path).name)[0]
                return FoundImage(row, member, *self._originals.open(row).size, stem, ".png")
            return _look_at_file(row, member, self._originals.file(row), self._originals.part_of(row))
        except BadImage as error:
            return Skipped(member.path, str(error))

    def bring(self, inside: Callable[[Member], str], stems: bool = False, boxes: bool = False) -> list[ExportedImage]:
        """Copy or link every image into the folder of the export that `inside` names for it.

        No two files in a folder get the same name; with `stems` not even without their endings. An image that is a box
        in a photo becomes a picture of its own or, with `boxes`, stays a box in the photo, which is brought once.
        """
        names: dict[str, Names] = {}
        pictures: list[ExportedImage] = []
        jobs: dict[str, _Job] = {}  # file of the export → what it is made of
        made: dict[tuple[Any, ...], str] = {}  # folder, and picture that has boxes → its file in the export
        boxed = [found for found in self.found if boxes and found.part.box is not None]
        upright = {self._whole(found): (found.width, found.height) for found in boxed}  # sizes of pictures with boxes
        for found in self.found:
            folder, whole = inside(found.member), self._whole(found)
            has_boxes = whole in upright
            file = made.get((folder, *whole)) if has_boxes else None
            if file is None:
                if folder not in names:
                    names[folder] = Names(TABLES, stems)
                    (self.target / folder).mkdir(parents=True, exist_ok=True)
                job = self._job(found, has_boxes)
                file = f"{folder}/{names[folder].make(job.stem, job.ending)}"
                jobs[file] = job
                made[(folder, *whole)] = file
            if has_boxes:
                pictures.append(ExportedImage(found.member, file, *upright[whole], found.part.box))
            else:
                box = found.part.box or Box(0, 0, found.width, found.height)
                pictures.append(ExportedImage(found.member, file, box.width, box.height))
        _all(self._bring, list(jobs.items()), "writing images")
        return pictures

    def _whole(self, found: FoundImage) -> tuple[Any, ...]:
        """The picture that an image is in; its own, if it is no file."""
        file = self._originals.file
        return (found.row,) if file is None else (os.path.abspath(file(found.row)), found.part.time)

    def _job(self, found: FoundImage, has_boxes: bool) -> "_Job":
        part = found.part._replace(box=None) if has_boxes else found.part
        if self._originals.file is None or part != WHOLE:
            marks = re.sub("[^0-9.]+", "-", str(part))  # which part it is, in a name that every disk takes
            return _Job(found.row, part, f"{found.stem}{marks}", ".png")
        if has_boxes and is_turned(self._originals.file(found.row)):
            # readers of boxes do not agree on whether the tag counts: upright pixels mean the same to all
            return _Job(found.row, part, found.stem, ".jpg", upright=True)
        return _Job(found.row, part, found.stem, found.ending)

    def _bring(self, wanted: "tuple[str, _Job]") -> None:
        to, job = self.target / wanted[0], wanted[1]
        if self._originals.file is None:
            self._originals.open(job.row).save(to, format="PNG", compress_level=1)
            return
        file = self._originals.file(job.row)
        if job.part != WHOLE:
            open_part(file, job.part).save(to, format="PNG", compress_level=1)
            return
        if job.upright:
            open_full(file)[0].save(to, format="JPEG", quality=95)
            return
        try:
            if self.files == "symlink":
                os.symlink(os.path.abspath(file), to)
            elif self.files == "hardlink":
                os.link(os.path.realpath(file), to)  # of the image, if it is a link itself
            else:
                shutil.copyfile(file, to)
                status = file.stat()
                os.utime(to, ns=(status.st_atime_ns, status.st_mtime_ns))  # photos are sorted by their time
        except OSError as error:
            if self.files == "copy":
                raise
            why = error.strerror or error
            if error.errno == errno.EXDEV:
                why = "the export is on another disk, where no hard link leads"
            raise NewkindsError(
                f"cannot make a {self.files} to {file}: {why}. Nothing was exported; choose --files copy."
            ) from None

    def folder_names(self, besides: str) -> tuple[dict[int, str], str]:
        """Category → the name of a folder for it, also for what is not placed yet, and for junk; and the name of one
        more. No category gets theirs."""
        names = Names(TABLES)
        other = names.make(besides)
        named = {number: names.make(name) for number, name in NO_CATEGORY.items()}
        return named | {category.id: names.make(category.name) for category in self.categories}, other

    def write_json(self, name: str, content: Any) -> None:
        write_whole(self.target / name, json_text(content, name, indent=1, ensure_ascii=False) + "\n")

    def write_tables(self, pictures: Sequence[ExportedImage], folders: dict[int, str] | None = None) -> None:
        """Every image of the export and every category, as CSV; and the images that are missing, if any are."""
        cells = MemberCells(self.discovery)
        rows = [(picture.file, *cells.of(picture.member)) for picture in pictures]
        write_whole(self.target / "images.csv", csv_text(("file", *cells.columns), rows))
        inside: dict[int, int] = {}
        for picture in pictures:
            inside[picture.member.category_id] = inside.get(picture.member.category_id, 0) + 1
        columns = ("category_id", "category", "is_new", "images", *(["folder"] if folders else []))
        listed = [
            (c.id, c.name, str(c.is_new).lower(), inside.get(c.id, 0), *([folders[c.id]] if folders else []))
            for c in self.categories
        ]
        write_whole(self.target / "categories.csv", csv_text(columns, listed))
        if self.missing:
            gone = [(*cells.of(member), skipped.reason) for member, skipped in self.missing]
            write_whole(self.target / "missing.csv", csv_text((*cells.columns, "reason"), gone))

    def sentence(self, pictures: Sequence[ExportedImage]) -> str:
        """What was exported; what is missing is warned of."""
        if self.missing:
            first, count = self.missing[0][1], len(self.missing)
            are = "1 image is" if count == 1 else f"{count:,} images are"
            where = "" if len(self._replaced) == count else f" {WHERE}"
            warn(f"{are} missing, listed in missing.csv; the first is {first.path}: {first.reason}.{where}")
        filled = {picture.member.category_id for picture in pictures} - NO_CATEGORY.keys()
        only_parts = all(found.part != WHOLE for found in self.found)
        how = "written" if self._originals.file is None or only_parts else DONE[self.files]
        junk = f"; {self.junk_count:,} junk left out (--junk includes them)" if self.junk_count else ""
        waiting = sum(picture.member.category_id == POOL for picture in pictures)
        waits = f", {waiting:,} of them not placed yet" if waiting else ""
        return f"{plural(len(pictures), 'image')} of {plural(len(filled), 'category')} {how}{waits}{junk}"


def data_set(name: str) -> Callable[[Callable[[DataSet], list[ExportedImage]]], Callable[..., str]]:
    """Register an export that lays images out in a folder: a function that is given the data set, writes all but the
    tables, and returns the pictures. It gets the options that all of them have."""

    def register(lay_out: Callable[[DataSet], list[ExportedImage]]) -> Callable[..., str]:
        def write(
            discovery: Discovery, target: Path, *, files: Files = "copy", images: str | Path | None = None,
            junk: bool = False,
        ) -> str:  # fmt: skip
            data = DataSet(discovery, target, files, images, junk)
            return data.sentence(lay_out(data))

        write.__doc__ = lay_out.__doc__
        write.__module__ = lay_out.__module__
        return EXPORTS.register(name)(write)

    return register


def _look_at_file(row: int, member: Member, file: Path, part: Part) -> FoundImage:
    """An image that is a file or a part of one; `BadImage` if it is not there."""
    stem, ending = os.path.splitext(file.name)
    if part.time is not None:  # of a video, whose frames become pictures
        size, kind = size_of_whole(file, part), "PNG"
    else:
        *found, kind = look_at_header(file)
        size = (found[0], found[1]) if part == WHOLE else size_of_whole(file, part)
    if ending.lower() not in ENDINGS:  # other programs know images by their endings
        stem, ending = stem + ending, {"JPEG": ".jpg", "TIFF": ".tif"}.get(kind, f".{kind.lower()}")
    if part.box is None:
        return FoundImage(row, member, *size, stem, ending, part)
    box = part.box.inside(*size)
    if box is None:
        raise BadImage(f"the box {part.box} lies outside the image ({size[0]}×{size[1]} pixels)")
    return FoundImage(row, member, *size, stem, ending, part._replace(box=box))


def record(member: Member) -> dict[str, Any]:
    """An image as JSON has it, where what is not UTF-8 cannot stand: names are spelt as in a table."""
    return {name: spelt(value) if isinstance(value, str) else value for name, value in member._asdict().items()}


def _all(do: Callable[[T], U], items: Sequence[T], what: str) -> list[U]:
    """Several at once, with a bar; if one fails, those that wait are not begun."""
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        return list(track(pool.map(do, items), what, total=len(items)))
    finally:
        pool.shutdown(cancel_futures=True)
