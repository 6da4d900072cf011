"""What all exported data sets share: which images and categories go in, files that are copied or linked, and tables."""

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from ...console import track, warn
from ...data.images import ENDINGS, BadImage, look_at_header
from ...errors import NewkindsError, Skipped
from ...files import csv_text, json_text, write_whole
from ...runs.directory import RunDirectory
from ...runs.seen_images import replaced_rows
from ...text import spelt
from ..categories import Discovery
from ..edits import JUNK
from ..kinds import Category, Member
from ..originals import REPLACED, WHERE, originals
from .base import EXPORTS
from .names import Names
from .tables import MEMBER_COLUMNS, member_cells

Files = Literal["copy", "hardlink", "symlink"]
DONE = {"copy": "copied", "hardlink": "hard-linked", "symlink": "linked"}
AT_ONCE = 4  # files that are read or written at the same time
TABLES = ("images.csv", "categories.csv", "missing.csv")
T = TypeVar("T")
U = TypeVar("U")


class ExportedImage(NamedTuple):
    """An image in an export."""

    member: Member
    file: str  # where it is below the export's folder, with slashes
    width: int  # px, as its file says: a tag that turns it is not obeyed
    height: int

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2]


@dataclass(frozen=True)
class FoundImage:
    """An image that is there."""

    row: int  # in the table of originals
    member: Member
    width: int
    height: int
    stem: str  # of the name that its file should get
    ending: str


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
        self.junk = junk
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
        stem, ending = os.path.splitext(PurePath(member.path).name)
        try:
            if self._originals.file is None:
                return FoundImage(row, member, *self._originals.open(row).size, stem, ".png")
            width, height, kind = look_at_header(self._originals.file(row))
        except BadImage as error:
            return Skipped(member.path, str(error))
        if ending.lower() not in ENDINGS:  # other programs know images by their endings
            stem, ending = stem + ending, {"JPEG": ".jpg", "TIFF": ".tif"}.get(kind, f".{kind.lower()}")
        return FoundImage(row, member, width, height, stem, ending)

    def bring(self, inside: Callable[[Member], str], stems: bool = False) -> list[ExportedImage]:
        """Copy or link every image into the folder of the export that `inside` names for it.

        No two files in a folder get the same name; with `stems` not even without their endings.
        """
        names: dict[str, Names] = {}
        pictures = []
        for found in self.found:
            folder = inside(found.member)
            if folder not in names:
                names[folder] = Names(TABLES, stems)
                (self.target / folder).mkdir(parents=True, exist_ok=True)
            name = names[folder].make(found.stem, found.ending)
            pictures.append(ExportedImage(found.member, f"{folder}/{name}", found.width, found.height))
        _all(self._bring, list(zip(self.found, pictures, strict=True)), "writing images")
        return pictures

    def _bring(self, pair: tuple[FoundImage, ExportedImage]) -> None:
        found, picture = pair
        to = self.target / picture.file
        if self._originals.file is None:
            self._originals.open(found.row).save(to, format="PNG", compress_level=1)
            return
        file = self._originals.file(found.row)
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

    def folder_names(self) -> dict[int, str]:
        """Category → the name of a folder for it; also for junk, if that goes in."""
        names = Names(TABLES)
        named = {category.id: names.make(category.name) for category in self.categories}
        return named | ({JUNK: names.make("(junk)")} if self.junk else {})

    def write_json(self, name: str, content: Any) -> None:
        write_whole(self.target / name, json_text(content, name, indent=1, ensure_ascii=False) + "\n")

    def write_tables(self, pictures: Sequence[ExportedImage], folders: dict[int, str] | None = None) -> None:
        """Every image of the export and every category, as CSV; and the images that are missing, if any are."""
        rows = [(picture.file, *member_cells(picture.member)) for picture in pictures]
        write_whole(self.target / "images.csv", csv_text(("file", *MEMBER_COLUMNS), rows))
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
            gone = [(*member_cells(member), skipped.reason) for member, skipped in self.missing]
            write_whole(self.target / "missing.csv", csv_text((*MEMBER_COLUMNS, "reason"), gone))

    def sentence(self, pictures: Sequence[ExportedImage]) -> str:
        """What was exported; what is missing is warned of."""
        if self.missing:
            first, count = self.missing[0][1], len(self.missing)
            are = "1 image is" if count == 1 else f"{count:,} images are"
            where = "" if len(self._replaced) == count else f" {WHERE}"
            warn(f"{are} missing, listed in missing.csv; the first is {first.path}: {first.reason}.{where}")
        filled = {picture.member.category_id for picture in pictures} - {JUNK}
        how = "written" if self._originals.file is None else DONE[self.files]
        junk = f"; {self.junk_count:,} junk left out (--junk includes them)" if self.junk_count else ""
        images = "1 image" if len(pictures) == 1 else f"{len(pictures):,} images"
        categories = "1 category" if len(filled) == 1 else f"{len(filled):,} categories"
        return f"{images} of {categories} {how}{junk}"


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
