"""The files of caches: a folder each, every view a file of its own, beside it the checksums of its pieces.

A piece counts only if its checksum is there and right. That one rule makes an interrupted cache go on and a damaged one
heal, and lets views be added. A folder's name is a digest of all that its tokens depend on.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from .console import say, warn
from .errors import NewkindsError
from .files import write_whole

ROOT_VARIABLE = "NEWKINDS_CACHE"
PIECE = 64  # images; what is written and checked as one
SUM_BYTES = 9  # of a line with a piece's checksum
DESCRIPTION = "cache.json"


class CacheUnavailable(NewkindsError):
    """There is no place for a cache: training can go on without."""


@dataclass(frozen=True)
class Store:
    """The files of one cache."""

    origin: dict[str, Any]  # all that its tokens depend on
    images: int
    shape: tuple[int, int]  # T tokens of D features
    dtype: np.dtype
    about: str  # for people

    @property
    def folder(self) -> Path:
        key = sha256(json.dumps(self.origin, sort_keys=True).encode()).hexdigest()[:16]
        return cache_root() / key

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
            raise NewkindsError(f"{self.folder} is not the cache it is named after: delete it.")
        return origin is not None

    def describe(self) -> None:
        """Say what the folder holds. Tokens that nothing is said of are not used."""
        if self.is_described():
            return
        with _writing(self.folder):
            for file in self.folder.glob("view*"):
                file.unlink()
        for other in cache_root().glob(f"*/{DESCRIPTION}"):
            record = _read_description(other)
            origin = record.get("origin") or {}
            if record.get("about") == self.about and {**origin, "images": self.origin["images"]} == self.origin:
                say(
                    f"the images changed since the cache {other.parent.name} was made (or are others): it is not used "
                    f"(newkinds cache clear {other.parent.name} deletes it)"
                )
        record = {"about": self.about, "count": self.images, "origin": self.origin, "made": time.strftime("%F")}
        try:
            write_whole(self.folder / DESCRIPTION, json.dumps(record, indent=1) + "\n")
        except NewkindsError as error:
            raise CacheUnavailable(str(error)) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time makes a cache; the others wait. A killed one leaves no lock."""
        with _writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / "lock")
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
                    if len(data) < self._piece_bytes(piece) or recorded != _checksum(data):
                        if tell:
                            warn(f"{self._tokens(number)} is damaged: made again from image {piece * PIECE} on.")
                        return piece
        except (FileNotFoundError, NotADirectoryError):
            return 0
        except OSError as error:
            raise CacheUnavailable(f"cannot read the cache {self.folder}: {error.strerror or error}.") from error
        return self.pieces

    def cut(self, number: int, pieces: int) -> None:
        """Forget what comes after the first `pieces`: it is not whole."""
        if pieces == self.pieces:
            return
        with _writing(self.folder):
            for file, piece_bytes in ((self._tokens(number), PIECE * self.view_bytes), (self._sums(number), SUM_BYTES)):
                with open(file, "ab") as opened:
                    opened.truncate(pieces * piece_bytes)

    def append(self, number: int, tokens: np.ndarray) -> None:
        """Add a piece (images, T, D); its checksum is written when the piece is safely on the disk."""
        with np.errstate(over="ignore"):  # told below
            kept = tokens.astype(self.dtype)
        if not np.isfinite(kept).all():
            raise NewkindsError(
                f"this backbone's tokens do not fit into {self.dtype}: take --set train.cache_precision=float32, "
                "or train without a cache (--cache-views 0)."
            )
        data = kept.tobytes()
        with _writing(self.folder):
            for file, content in ((self._tokens(number), data), (self._sums(number), _checksum(data))):
                with open(file, "ab") as opened:
                    opened.write(content)
                    opened.flush()
                    os.fsync(opened.fileno())

    def open(self, number: int) -> np.ndarray:
        """One view of all images (images, T, D), read from the disk as it is needed."""
        return np.memmap(self._tokens(number), self.dtype, mode="r", shape=(self.images, *self.shape))

    def _piece_bytes(self, piece: int) -> int:
        return min(PIECE, self.images - piece * PIECE) * self.view_bytes

    def _tokens(self, number: int) -> Path:
        return self.folder / f"view{number:03d}.tokens"

    def _sums(self, number: int) -> Path:
        return self.folder / f"view{number:03d}.crc"


def _checksum(data: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(data)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CacheUnavailable(
            f"cannot write to the cache {folder}: {error.strerror or error}. What is whole in it is kept: make room "
            f"and run the same command again, name another place in the environment variable {ROOT_VARIABLE}, or "
            "train without one (--cache-views 0)."
        ) from error


# -- looking after caches ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CacheEntry:
    """One cache on the disk."""

    key: str
    about: str
    images: int
    views: int  # random ones
    bytes: int
    made: str


def cache_root() -> Path:
    """Where caches are: $NEWKINDS_CACHE, else the user's cache folder."""
    if named := os.environ.get(ROOT_VARIABLE):
        return Path(named).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "newkinds" / "tokens"


def list_caches() -> list[CacheEntry]:
    """All caches, the largest first."""
    found = []
    for file in cache_root().glob(f"*/{DESCRIPTION}"):
        record = _read_description(file)
        views = list(file.parent.glob("view*.tokens"))
        size = sum(view.stat().st_size for view in views)
        about, made = str(record.get("about", "?")), str(record.get("made", "?"))
        images = int(record.get("count", 0))
        found.append(CacheEntry(file.parent.name, about, images, max(len(views) - 1, 0), size, made))
    return sorted(found, key=lambda entry: entry.bytes, reverse=True)


def clear_caches(keys: Sequence[str] = ()) -> list[CacheEntry]:
    """Delete the caches with these names, or all; which they were. Nothing else in the folder is touched."""
    entries = {entry.key: entry for entry in list_caches()}
    for key in keys:
        if key not in entries:
            raise NewkindsError(f"there is no cache '{key}' in {cache_root()}: newkinds cache list shows them.")
    chosen = [entries[key] for key in keys or entries]
    for entry in chosen:
        folder = cache_root() / entry.key
        try:
            for pattern in ("view*.tokens", "view*.crc", "lock", DESCRIPTION):
                for file in folder.glob(pattern):
                    file.unlink(missing_ok=True)
        except OSError as error:
            raise NewkindsError(f"cannot delete {folder}: {error.strerror or error}.") from error
        with suppress(OSError):  # somebody else's files stay
            folder.rmdir()
    return chosen


def _read_description(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def gigabytes(size: int) -> str:
    """A size in bytes as people read it."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
