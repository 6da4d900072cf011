"""Small pictures of a run's images, made when they are asked for and kept: in memory, and in a folder of the user's
caches that may be deleted at any time."""

import io
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from ...data import load_table
from ...data.images import ENOUGH, BadImage, open_image
from ...data.table import Table
from ...errors import NewkindsError
from ...runs.directory import RunDirectory
from ...training.store import CacheUnavailable, cache_root
from ..categories import Member

THUMBNAIL, LARGE = 224, 1400  # px of the longer side
QUALITY = {THUMBNAIL: 82, LARGE: 88}
MOST_IN_MEMORY = 64_000_000  # bytes of pictures
MOST_ON_DISK = 1_000_000_000
AT_ONCE = 4  # images that are decoded at the same time: each may need a lot of memory
WITHOUT_FILE = "0"  # stamp of images that are not files: drawn ones, or many in one file
END_OF_JPEG = b"\xff\xd9"


class Source(NamedTuple):
    """Where images come from, by their row."""

    open: Callable[[int, int], Image.Image]  # row, px that are enough → RGB image, or BadImage
    file: Callable[[int], Path] | None  # the file of a row, if each has its own


class Pictures:
    """The images of a run by their row in `assignments.csv`.

    `folder` says where the images are now, if they have moved. An image that is gone has the stamp "".
    """

    def __init__(self, run: RunDirectory, members: Sequence[Member], folder: Path | None = None) -> None:
        if folder is not None and not folder.is_dir():
            raise NewkindsError(f"there is no folder {folder}.")
        self.problem = ""  # why no image can be shown, and what to do
        self.stamps = [WITHOUT_FILE] * len(members)
        self._run, self._paths = run, [member.path for member in members]
        self._kept, self._bytes = OrderedDict[str, bytes](), 0
        self._decoding = threading.BoundedSemaphore(AT_ONCE)
        self._lock, self._finding = threading.Lock(), threading.Lock()
        self._disk = _disk()
        self._source: Source | None = None
        self._data: dict[str, Any] = {}
        with self._told():
            self._data = dict(run.settings()["data"])
            root = _root(self._data, folder)
            if root is not None and not root.is_dir():
                raise NewkindsError(f"the folder {root} is gone.")
            if root is not None:
                files = [root / path for path in self._paths]
                self._source = Source(lambda row, size: open_image(files[row], size), files.__getitem__)
            elif folder is not None:
                self._data["root"] = str(folder)

    def source(self) -> "Source":
        """Where the images come from; a data set is opened when its first image is asked for."""
        with self._finding:
            if self._source is None and not self.problem:
                with self._told():
                    self._source = _from_table(load_table(self._data), self._paths)
            if self._source is None:
                raise BadImage(self.problem)
            return self._source

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What goes wrong inside is the problem that people are told."""
        try:
            yield
        except (NewkindsError, KeyError, TypeError) as error:
            said = str(error) if isinstance(error, NewkindsError) else "config.yaml does not say where they are."
            how = f"newkinds studio {self._run.folder} --images FOLDER"
            self.problem = (
                f"The images cannot be shown: {said} If they are in another folder now, stop the studio and start it "
                f"as: {how}. All corrections are safe, and can be made without the images too."
            )
            self.stamps = [""] * len(self.stamps)

    def look(self, rows: Sequence[int] | None = None) -> int:
        """Look again whether images (default: all) are there and when they changed; how many are not there."""
        with suppress(BadImage):
            file = self.source().file
            if file is not None:
                for row in range(len(self._paths)) if rows is None else rows:
                    self.stamps[row] = _stamp(file(row))
        return self.stamps.count("")

    def picture(self, row: int, size: int = THUMBNAIL) -> bytes:
        """A JPEG file with the image; `BadImage` says why there is none."""
        source = self.source()
        if source.file is not None:
            self.stamps[row] = stamp = _stamp(source.file(row))
            if not stamp:
                raise BadImage("file not found")
            named = f"{source.file(row).absolute()}\0{stamp}"
        else:
            named = f"{sorted(self._data.items(), key=str)}\0{self._paths[row]}"
        key = sha256(f"{named}\0{size}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = self._from_disk(key)
        if made is None:
            with self._decoding:
                made = _jpeg(source.open(row, size), size)
            self._to_disk(key, made)
        with self._lock:
            self._bytes += len(made) - len(self._kept.pop(key, b""))
            self._kept[key] = made
            while self._bytes > MOST_IN_MEMORY:
                self._bytes -= len(self._kept.popitem(last=False)[1])
        return made

    def opened(self, row: int) -> Image.Image:
        """The image itself, as large as a model could want it."""
        return self.source().open(row, ENOUGH)

    def _from_disk(self, key: str) -> bytes | None:
        """A power cut may have left a file without its end: that is none."""
        with suppress(OSError):
            if self._disk is not None:
                kept = (self._disk / key[:2] / f"{key}.jpg").read_bytes()
                return kept if kept.endswith(END_OF_JPEG) else None
        return None

    def _to_disk(self, key: str, made: bytes) -> None:
        """Nothing is lost if that fails."""
        if self._disk is None:
            return
        with suppress(OSError):
            file = self._disk / key[:2] / f"{key}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary = file.with_suffix(f".{secrets.token_hex(4)}.tmp")
            temporary.write_bytes(made)
            os.replace(temporary, file)

    def tidy(self) -> None:
        """Delete the oldest pictures on disk if there are too many."""
        if self._disk is None:
            return
        with suppress(OSError):
            files = [(file.stat().st_mtime, file.stat().st_size, file) for file in self._disk.glob("*/*")]
            total = sum(size for _, size, _ in files)
            for _, size, file in sorted(files):
                if total <= MOST_ON_DISK:
                    break
                file.unlink(missing_ok=True)
                total -= size


def _root(data: dict[str, Any], folder: Path | None) -> Path | None:
    """The folder below which the images of one's own are; None if they are of a data set."""
    if data["name"] == "folder":
        return folder or Path(data["path"])
    if data["name"] == "csv":
        return folder or Path(data["path"]).parent
    return None


def _from_table(table: Table, paths: Sequence[str]) -> Source:
    row_of = {path: row for row, path in enumerate(table.paths)}
    rows = [row_of.get(path) for path in paths]

    def opened(row: int, size: int) -> Image.Image:
        if (there := rows[row]) is None:
            raise BadImage("the data set has no such image now")
        return table.open(there)

    file = table.file
    if file is None:
        return Source(opened, None)
    return Source(opened, lambda row: Path(os.devnull, "none") if (there := rows[row]) is None else file(there))


def _stamp(file: Path) -> str:
    """Changes if the file does; "" if there is none."""
    try:
        seen = file.stat()
    except (OSError, ValueError):
        return ""
    return f"{seen.st_size:x}-{seen.st_mtime_ns:x}" if seen.st_size else ""


def _jpeg(image: Image.Image, size: int) -> bytes:
    image.thumbnail((size, size), Image.Resampling.LANCZOS, reducing_gap=2.0)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY[size])
    return file.getvalue()


def _disk() -> Path | None:
    with suppress(CacheUnavailable):
        return cache_root() / "thumbnails"
    return None
