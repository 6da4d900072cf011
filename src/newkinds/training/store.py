"""The files of caches: a folder each, every view a file of its own, beside it the checksums of its pieces.

A piece counts only if its checksum is there and right; it covers the cache's key, the view and the place of the piece
too, so that nothing passes for what it is not. That one rule makes an interrupted cache go on and a damaged one heal,
and lets views be added. A folder's name, its key, is a digest of all that its tokens depend on.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from ..console import say, warn
from ..errors import NewkindsError
from ..files import write_whole
from ..text import text_table

ROOT_VARIABLE = "NEWKINDS_CACHE"
PIECE = 64  # images; what is written and checked as one
SUM_BYTES = 9  # of a line with a piece's checksum
KEY = re.compile("[0-9a-f]{16}")
DESCRIPTION = "cache.json"
CONTENTS = "images.txt"  # a digest a line
VIEW_FILE = re.compile(r"view[0-9]{3}\.(tokens|crc)(\.kept)?")


class CacheUnavailable(NewkindsError):
    """There is no place for a cache: training can go on without."""


@dataclass(frozen=True)
class Store:
    """The files of one cache."""

    origin: dict[str, Any]  # all that its tokens depend on
    contents: Sequence[str]  # digests of its images, in their order
    shape: tuple[int, int]  # T tokens of D features
    dtype: np.dtype
    about: str  # for people

    @property
    def key(self) -> str:
        return _key(self.origin)

    @property
    def folder(self) -> Path:
        return cache_root() / self.key

    @property
    def images(self) -> int:
        return len(self.contents)

    @property
    def pieces(self) -> int:
        return -(-self.images // PIECE)

    @property
    def view_bytes(self) -> int:
        """Of one view of one image."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def is_described(self) -> bool:
        """Whether the folder says that it holds this cache; one that says otherwise is refused."""
        origin = _read_description(self.folder / DESCRIPTION).get("origin")
        if origin is not None and origin != self.origin:
            raise NewkindsError(
                f"{self.folder} is not the cache it is named after: newkinds cache clear {self.key} deletes it."
            )
        return origin is not None

    def describe(self) -> None:
        """Say what the folder holds. Tokens that nothing is said of are not used."""
        if not self.is_described():
            with _writing(self.folder):
                undescribed = _view_files(self.folder)
                if undescribed:
                    warn(f"{self.folder} does not say what it holds: its {len(undescribed)} files are made again.")
                for file in undescribed:
                    file.unlink()
            record = {"about": self.about, "count": self.images, "origin": self.origin, "made": time.strftime("%F")}
            try:
                write_whole(self.folder / DESCRIPTION, json.dumps(record, indent=1) + "\n")
            except NewkindsError as error:
                raise CacheUnavailable(str(error)) from error
        self.list_contents()

    def list_contents(self) -> None:
        """Say which images the folder holds, for caches that have some of them too; no harm if that is not possible."""
        listed = "\n".join(self.contents)
        with suppress(OSError, ValueError):
            if (self.folder / CONTENTS).read_text(encoding="ascii") == listed:
                return
        with suppress(NewkindsError):
            write_whole(self.folder / CONTENTS, listed)

    def siblings(self) -> list[Store]:
        """Caches that differ from this one in their images alone, and may have some of them in common."""
        found = []
        for entry in list_caches():
            origin = entry.origin
            if origin and origin != self.origin and {**origin, "images": self.origin["images"]} == self.origin:
                with suppress(OSError, ValueError):  # made by an earlier version, or being deleted
                    contents = (cache_root() / entry.key / CONTENTS).read_text(encoding="ascii").split("\n")
                    lines_are_whole = {len(content) for content in contents} == {len(self.contents[0])}
                    if lines_are_whole and digest_of(contents) == origin["images"]:
                        found.append(replace(self, origin=origin, contents=contents, about=entry.about))
        return found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time makes a cache; the others wait. A killed one leaves no lock."""
        with _writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = _lock(self.key)
            try:
                lock.acquire(timeout=1)
            except Timeout:
                say(f"another process is making the cache {self.folder}: waiting for it")
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def sound_pieces(self, numbers: Sequence[int], tell: bool = False) -> dict[int, int]:
        """For each view, how many of its pieces, from the first on, are there and right; damage may be told of."""
        if not self.is_described():
            return dict.fromkeys(numbers, 0)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return dict(zip(numbers, pool.map(partial(self._sound_pieces, tell=tell), numbers), strict=True))

    def _sound_pieces(self, number: int, tell: bool) -> int:
        try:
            sums = self._sums(number).read_bytes()
            with open(self._tokens(number), "rb") as file:
                for piece in range(self.pieces):
                    recorded = sums[piece * SUM_BYTES :][:SUM_BYTES]
                    if len(recorded) < SUM_BYTES:
                        return piece  # not made yet
                    data = file.read(self._piece_bytes(piece))
                    if len(data) < self._piece_bytes(piece) or recorded != self._checksum(number, piece, data):
                        if tell:
                            warn(f"{self._tokens(number)} is damaged: made again from image {piece * PIECE} on.")
                        return piece
        except (FileNotFoundError, NotADirectoryError):
            return 0
        except OSError as error:
            raise CacheUnavailable(f"cannot read the cache {self.folder}: {error.strerror or error}.") from error
        return self.pieces

    def cut(self, number: int, pieces: int) -> None:
        """Forget what comes after the first `pieces`: it is not whole. Whoever reads the old files goes on doing so."""
        if pieces == self.pieces:
            return
        with _writing(self.folder):
            for file, piece_bytes in ((self._tokens(number), PIECE * self.view_bytes), (self._sums(number), SUM_BYTES)):
                if file.exists() and file.stat().st_size != pieces * piece_bytes:
                    kept = file.with_suffix(file.suffix + ".kept")
                    shutil.copyfile(file, kept)
                    os.truncate(kept, min(pieces * piece_bytes, kept.stat().st_size))
                    os.replace(kept, file)

    def append(self, number: int, piece: int, tokens: np.ndarray) -> None:
        """Add a piece (images, T, D); its checksum is written when the piece is safely on the disk."""
        with np.errstate(over="ignore"):  # told below
            kept = tokens.astype(self.dtype)
        if not np.isfinite(kept).all():
            raise NewkindsError(
                f"this backbone's tokens do not fit into {self.dtype}: take --set train.cache_precision=float32, "
                "or train without a cache (--cache-views 0)."
            )
        data = kept.tobytes()
        checksum = self._checksum(number, piece, data)
        files = ((self._tokens(number), PIECE * self.view_bytes, data), (self._sums(number), SUM_BYTES, checksum))
        with _writing(self.folder):
            for file, piece_bytes, addition in files:
                with open(file, "ab") as opened:
                    if opened.tell() != piece * piece_bytes:
                        raise CacheUnavailable(f"{file} was changed by somebody else meanwhile: run the command again.")
                    opened.write(addition)
                    opened.flush()
                    os.fsync(opened.fileno())

    def open(self, number: int, images: int | None = None) -> np.ndarray:
        """One view of all images, or of the first ones (images, T, D), read from the disk as it is needed."""
        shape = (self.images if images is None else images, *self.shape)
        try:
            return np.memmap(self._tokens(number), self.dtype, mode="r", shape=shape)
        except (OSError, ValueError) as error:
            raise CacheUnavailable(f"cannot read the cache {self.folder}: {error}.") from error

    def _checksum(self, number: int, piece: int, data: bytes) -> bytes:
        return b"%08x\n" % zlib.crc32(data, zlib.crc32(f"{self.key} {number} {piece}".encode()))

    def _piece_bytes(self, piece: int) -> int:
        return min(PIECE, self.images - piece * PIECE) * self.view_bytes

    def _tokens(self, number: int) -> Path:
        return self.folder / f"view{number:03d}.tokens"

    def _sums(self, number: int) -> Path:
        return self.folder / f"view{number:03d}.crc"


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise CacheUnavailable(
            f"cannot write to the cache {folder}: {error.strerror or error}. "
            + ("What is whole in it is kept: make room and run the same command again, or n" if full else "N")
            + f"ame another place in the environment variable {ROOT_VARIABLE}, or train without one (--cache-views 0)."
        ) from error


def digest_of(contents: Sequence[str]) -> str:
    """One digest for many images."""
    return sha256("".join(contents).encode()).hexdigest()


def _key(origin: dict[str, Any]) -> str:
    return sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()[:16]


def _lock(key: str) -> FileLock:
    """Beside the cache, not in it: a lock that is deleted with what it guards guards nothing."""
    return FileLock(cache_root() / f"{key}.lock")


# -- looking after caches ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CacheEntry:
    """One cache on the disk."""

    key: str
    origin: dict[str, Any] | None  # all that its tokens depend on; None: damaged
    about: str
    images: int
    views: int  # random ones
    bytes: int
    made: str


def cache_root() -> Path:
    """Where caches are: $NEWKINDS_CACHE, else the user's cache folder."""
    named = os.environ.get(ROOT_VARIABLE)
    base = named or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "newkinds" / "tokens"
    try:
        return Path(base).expanduser().resolve()
    except RuntimeError as error:  # no such home
        raise CacheUnavailable(f"{base} is no place for a cache: {error} (see ${ROOT_VARIABLE}).") from None


def list_caches() -> list[CacheEntry]:
    """All caches, the largest first; damaged ones too, so that they can be deleted. Other folders are not ours."""
    try:
        folders = [folder for folder in cache_root().iterdir() if folder.is_dir() and not folder.is_symlink()]
    except FileNotFoundError:
        return []  # none yet
    except OSError as error:
        raise CacheUnavailable(f"cannot read {cache_root()}: {error.strerror or error}.") from error
    entries = [entry for folder in folders if (entry := _entry(folder)) is not None]
    return sorted(entries, key=lambda entry: entry.bytes, reverse=True)


def _entry(folder: Path) -> CacheEntry | None:
    """What a folder holds by what it says, whose digest its name must be; None if it is no cache."""
    record = _read_description(folder / DESCRIPTION)
    files = _view_files(folder)
    origin = record.get("origin")
    if not isinstance(origin, dict) or _key(origin) != folder.name:
        looks_like_ours = "origin" in record or any(file.suffix == ".crc" for file in files)
        if not looks_like_ours or not KEY.fullmatch(folder.name):
            return None
        origin, record = None, {"about": "damaged: it does not say what it holds"}
    views = [file for file in files if file.suffix == ".tokens"]
    images = record.get("count")
    return CacheEntry(
        key=folder.name,
        origin=origin,
        about=str(record.get("about", "?")),
        images=images if isinstance(images, int) else 0,
        views=max(len(views) - 1, 0),
        bytes=sum(map(_size, files)),
        made=str(record.get("made", "?")),
    )


def _view_files(folder: Path) -> list[Path]:
    try:
        return [file for file in folder.iterdir() if VIEW_FILE.fullmatch(file.name)]
    except OSError:  # not there, or not readable
        return []


def _size(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:  # being deleted
        return 0


def clear_caches(keys: Sequence[str] = ()) -> list[CacheEntry]:
    """Delete the caches with these names, or all; which they were. Nothing else in the folder is touched."""
    entries = {entry.key: entry for entry in list_caches()}
    for key in keys:
        if key not in entries:
            raise NewkindsError(f"there is no cache '{key}' in {cache_root()}: newkinds cache list shows them.")
    chosen = [entries[key] for key in dict.fromkeys(keys or entries)]
    for entry in chosen:
        folder = cache_root() / entry.key
        try:
            with _lock(entry.key).acquire(timeout=1):
                for file in [folder / DESCRIPTION, folder / CONTENTS, *_view_files(folder)]:
                    file.unlink(missing_ok=True)
                with suppress(OSError):  # somebody else's files stay
                    folder.rmdir()
        except Timeout:
            raise NewkindsError(f"the cache {entry.key} is being made by another process: wait, or stop it.") from None
        except OSError as error:
            raise NewkindsError(f"cannot delete {folder}: {error.strerror or error}.") from error
    return chosen


def _read_description(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def gigabytes(size: int) -> str:
    """A size in bytes as people read it."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def listing(entries: Sequence[CacheEntry], where: str) -> str:
    """Caches and their sizes, and the sum."""
    rows = [[e.key, e.about, f"{e.images:,}", str(e.views), gigabytes(e.bytes), e.made] for e in entries]
    total = f"{len(entries)} cache(s), {gigabytes(sum(e.bytes for e in entries))}, {where}"
    return f"{text_table(['key', 'of', 'images', 'views', 'size', 'made'], rows)}\n\n{total}" if entries else total
