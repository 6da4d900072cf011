"""Small pictures of a run's images, made when they are asked for and kept: in memory, and in a folder of the user's
caches that may be deleted at any time."""

import io
import json
import os
import re
import secrets
import threading
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from PIL import Image

from ...data.images import BadImage
from ...data.table import Table
from ...data.vectors import no_picture
from ...errors import NewkindsError
from ...runs.directory import RunDirectory
from ...runs.seen_images import earlier_images
from ...training.store import CacheUnavailable, cache_root
from ..kinds import Member
from ..originals import originals

THUMBNAIL, LARGE = 224, 1400  # px of the longer side
QUALITY = {THUMBNAIL: 82, LARGE: 88}
MOST_IN_MEMORY = 64_000_000  # bytes of pictures
MOST_ON_DISK = 1_000_000_000
AT_ONCE = 4  # images that are decoded at the same time: each may need a lot of memory
CHECKSUM = 4  # bytes, after a picture on disk
# how we call them: the cache may lie in a folder with other pictures
PICTURE = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{30}\.(jpg|[0-9a-f]{8}\.tmp)")


class Pictures:
    """The images of a run by their row in `assignments.csv`.

    `folder` says where the images are now, if they have moved. `versions` differ if what is seen differs, in this run
    and between runs: browsers keep pictures by them. An image that is gone has the version "".
    """

    def __init__(self, run: RunDirectory, members: Sequence[Member], folder: Path | None = None) -> None:
        if folder is not None and not folder.is_dir():
            raise NewkindsError(f"there is no folder {folder}.")
        self.problem = ""  # why no image can be shown, and what to do
        self._run, self._members, self._folder = run, members, folder
        self._named = _names_of(run, members)  # what each image is, of those that are no files
        self.versions = [_short(named) for named in self._named]
        self._kept, self._bytes = OrderedDict[str, bytes](), 0
        self._decoding = threading.BoundedSemaphore(AT_ONCE)
        self._lock, self._finding = threading.Lock(), threading.Lock()
        self._disk = _disk()
        self._table: Table | None = None
        self.has_any = True  # a run of ready-made vectors has none, and that is no problem

    def table(self) -> Table:
        """The images; a data set that is drawn or read takes a while, so it is opened when one is asked for."""
        with self._finding:
            if self._table is None and not self.problem:
                try:
                    self._table = originals(self._run, self._members, self._folder)
                    self.has_any = self._table.open is not no_picture
                except NewkindsError as error:
                    self.problem = (
                        f"The images cannot be shown: {error} Then start the studio again as: newkinds studio "
                        f"{self._run.folder} --images FOLDER. Corrections are safe, and can be made without the images."
                    )
                if self._table is None or not self.has_any:
                    self.versions = [""] * len(self.versions)
            if self._table is None:
                raise BadImage(self.problem)
            return self._table

    def look(self, rows: Sequence[int] | None = None) -> int:
        """Look again whether images (default: all) are there and when they changed; how many are not there."""
        with suppress(BadImage):
            if (table := self.table()).file is not None:
                for row in range(len(self.versions)) if rows is None else rows:
                    named = _name_of_file(table, row)
                    self.versions[row] = _short(named) if named else ""
        return self.versions.count("") if self.has_any else 0

    def picture(self, row: int, size: int = THUMBNAIL) -> bytes:
        """A JPEG file with the image; `BadImage` says why there is none."""
        table = self.table()
        if table.file is None:
            named = self._named[row]
        else:
            named = _name_of_file(table, row)
            self.versions[row] = _short(named) if named else ""
            if not named:
                raise BadImage("file not found")
        key = sha256(f"{named}\0{size}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = self._from_disk(key)
        if made is None:
            with self._decoding:
                made = _jpeg(self.opened(row, size), size)
            self._to_disk(key, made)
        with self._lock:
            self._bytes += len(made) - len(self._kept.pop(key, b""))
            self._kept[key] = made
            while self._bytes > MOST_IN_MEMORY:
                self._bytes -= len(self._kept.popitem(last=False)[1])
        return made

    def opened(self, row: int, enough: int | None = None) -> Image.Image:
        """The image itself; a JPEG file is decoded at a fraction of its size if that is `enough` pixels a side."""
        return self.table().open_small(row, enough)

    def _from_disk(self, key: str) -> bytes | None:
        """A power cut may have left a file without its end: what does not fit its checksum is none."""
        with suppress(OSError):
            if self._disk is not None:
                kept = (self._disk / key[:2] / f"{key}.jpg").read_bytes()
                return kept[:-CHECKSUM] if kept[-CHECKSUM:] == _checksum(kept[:-CHECKSUM]) else None
        return None

    def _to_disk(self, key: str, made: bytes) -> None:
        """Nothing is lost if that fails."""
        if self._disk is None:
            return
        with suppress(OSError):
            file = self._disk / key[:2] / f"{key}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary = file.with_suffix(f".{secrets.token_hex(4)}.tmp")
            temporary.write_bytes(made + _checksum(made))  # what follows a JPEG's end is ignored by those who show it
            os.replace(temporary, file)

    def tidy(self) -> None:
        """Delete the oldest pictures on disk if there are too many."""
        if self._disk is None:
            return
        with suppress(OSError):
            own = [file for file in self._disk.glob("*/*") if PICTURE.fullmatch(f"{file.parent.name}/{file.name}")]
            files = [(file.stat().st_mtime, file.stat().st_size, file) for file in own]
            total = sum(size for _, size, _ in files)
            for _, size, file in sorted(files):
                if total <= MOST_ON_DISK:
                    break
                file.unlink(missing_ok=True)
                total -= size


def _checksum(made: bytes) -> bytes:
    return zlib.crc32(made).to_bytes(CHECKSUM, "little")


def _names_of(run: RunDirectory, members: Sequence[Member]) -> list[str]:
    """What each image is: the run, its data, the path, and what the image showed when the run started."""
    try:
        data = json.dumps(run.settings().get("data"), sort_keys=True, default=str)
        content = {path: seen.content for path, seen in earlier_images(run).items()}
    except NewkindsError:  # said where the images are needed
        data, content = "", {}
    where = f"{run.folder.resolve()}\0{data}"
    return [f"{where}\0{member.path}\0{content.get(member.path, '')}" for member in members]


def _name_of_file(table: Table, row: int) -> str:
    """Changes if the file of an image does; "" if there is none."""
    try:
        assert table.file is not None
        file = table.file(row).absolute()
        seen = file.stat()
    except (OSError, ValueError, BadImage):
        return ""
    part = table.part_of(row)
    return f"{file}{part}\0{seen.st_size:x}-{seen.st_mtime_ns:x}-{seen.st_ino:x}" if seen.st_size else ""


def _short(named: str) -> str:
    return sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _jpeg(image: Image.Image, size: int) -> bytes:
    image.thumbnail((size, size), Image.Resampling.LANCZOS, reducing_gap=2.0)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY[size])
    return file.getvalue()


def _disk() -> Path | None:
    with suppress(CacheUnavailable):
        return cache_root() / "thumbnails"
    return None
