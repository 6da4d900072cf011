"""The files of the token cache: a folder for each origin (backbone, preprocessing, …), to which rows are only added.

Row i is one view of one image; entry i of `rows.index`, written when the row is safely on the disk, says which, with a
checksum. Rows are in shards of a few gigabytes, `rows.tokens` and then `rows-N.tokens`, where N is its first row;
they are read by memory map. No row is ever moved, cut or overwritten: so readers need no lock, a killed writer loses
what it had not finished, and damage is found when a row is first used."""

import json
import os
import re
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from ..console import say, warn
from ..errors import NewkindsError
from ..files import make_folder, user_path, write_to_disk, write_whole
from ..ownership import require_lock
from ..shards import Shards
from ..text import text_table

FORMAT = 2  # of the files, and of the arithmetic that makes them: another number is another cache
ROOT_VARIABLE = "NEWKINDS_CACHE"
KEY = re.compile("[0-9a-f]{16}")
DESCRIPTION, INDEX = "cache.json", "rows.index"
SHARD = re.compile(r"rows(?:-([0-9]{12}))?\.tokens")
SHARD_BYTES = 2**33  # from so many on, rows go to the next one: each that is open takes a file descriptor
ROW_FILE = re.compile(r"rows\.index|rows(-[0-9]{12})?\.tokens")
ENTRY = np.dtype([("content", "S16"), ("view", "<u4"), ("crc", "<u4")])  # all zero: nothing is in that row
NAMED = 20  # bytes of an entry that say what its row holds


class CacheUnavailable(NewkindsError):
    """There is no place for a cache: training can continue without one."""


class Store:
    """The tokens of one origin; the folder's name, its key, is a digest of the origin."""

    def __init__(self, origin: dict[str, Any], shape: tuple[int, int], dtype: np.dtype, about: str) -> None:
        self.origin = json.loads(json.dumps({"format": FORMAT, **origin}))  # as it is read back
        self.key = _key(self.origin)
        self.folder = cache_root() / self.key
        self.shape = shape  # T tokens of D features
        self.dtype = dtype
        self.row_bytes = shape[0] * shape[1] * dtype.itemsize
        self.about = about  # for people

    def open(self) -> None:
        """Look at what is there now. What others add later is not seen."""
        entries = _read_index(self.folder) if self._description() else np.empty(0, ENTRY)
        is_there = np.zeros(len(entries), dtype=bool)
        self._there = [(start, count) for start, count in self._shards() if count]
        for start, count in self._there:
            is_there[start : start + count] = True
        entries[~is_there] = np.zeros((), ENTRY)
        self._entries = entries
        self._map()
        self._is_sound = np.zeros(len(entries), dtype=bool)  # whether a row was found to fit its checksum

    def _shards(self) -> list[tuple[int, int]]:
        """The first row of each shard, and how many whole rows it has: at most up to the first row of the next one."""
        names = [SHARD.fullmatch(file.name) for file in _row_files(self.folder)]
        starts = sorted(int(name[1] or 0) for name in names if name is not None)
        counts = [_size(self.folder / _shard(start)) // self.row_bytes for start in starts]
        ends = [*starts[1:], sys.maxsize]
        return [(start, min(count, end - start)) for start, count, end in zip(starts, counts, ends, strict=False)]

    def _map(self) -> None:
        if self._there:
            with _name_cache_in_errors(self.folder):
                maps = [self._open_map(self.folder / _shard(start), count) for start, count in self._there]
            self._rows = Shards(maps, [start for start, _ in self._there])

    def _open_map(self, file: Path, count: int) -> np.ndarray:
        try:
            return np.asarray(np.memmap(file, self.dtype, "r", 0, (count, *self.shape)))
        except ValueError as error:  # it has become shorter
            raise OSError(str(error)) from error

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_rows"}  # a map would be sent as a copy

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if "_entries" in state:
            self._map()

    def rows_of(self, contents: Sequence[str], views: int) -> np.ndarray:
        """Of images in the order of their digests, the rows of views 0, 1, …, or -1 if missing: (n, views)."""
        wanted = _digests(contents)
        place = np.searchsorted(wanted, self._entries["content"]).clip(max=len(wanted) - 1)
        is_wanted = (wanted[place] == self._entries["content"]) & (self._entries["view"] < views)
        rows = np.full((len(wanted), views), -1)
        rows[place[is_wanted], self._entries["view"][is_wanted]] = np.flatnonzero(is_wanted)  # the latest row counts
        return rows

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens in rows (n,): (n, T, D); and which of the rows are damaged."""
        tokens = self._rows[rows]
        for i in np.flatnonzero(~self._is_sound[rows]):
            entry = self._entries[rows[i]]
            self._is_sound[rows[i]] = entry["crc"] == self._checksum(entry, tokens[i])
        return tokens, np.unique(rows[~self._is_sound[rows]])

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One process at a time adds to a store; the others wait. A killed one leaves no lock."""
        with _name_cache_in_errors(self.folder):
            make_folder(self.folder.parent)
            # not in the folder: deleted with what it guards, it guards nothing
            lock = FileLock(require_lock(_lock_of(self.folder)))
            try:
                held = lock.acquire(timeout=1)
            except Timeout:
                say(f"another process is adding to the cache {self.folder}: waiting for it")
                held = lock.acquire()
        with held:
            self._describe()
            yield

    def _describe(self) -> None:
        """Write what the folder holds. Rows that are not described are not used."""
        record = self._description()
        with _name_cache_in_errors(self.folder):
            make_folder(self.folder)
            if not record or not (self.folder / INDEX).exists():
                for file in _row_files(self.folder):
                    warn(f"{file} is of no use without {DESCRIPTION} and {INDEX}: its tokens are computed again.")
                    file.unlink()
            users = record.get("about")
            if not isinstance(users, list):
                users = []
            if self.about not in users:
                record = {"made": time.strftime("%F"), **record, "about": [*users, self.about], "origin": self.origin}
                write_whole(self.folder / DESCRIPTION, json.dumps(record, indent=1) + "\n")

    def append(self, contents: Sequence[str], view: int, tokens: np.ndarray) -> None:
        """Add one view of some images, (n, T, D)."""
        kept = self.as_stored(tokens)
        if not np.isfinite(kept).all():
            raise NewkindsError(
                f"this backbone's tokens do not fit into {self.dtype}: take --set train.cache_precision=float32, "
                "or train without a cache (--cache-views 0)."
            )
        entries = np.zeros(len(contents), ENTRY)
        entries["content"] = _digests(contents)
        entries["view"] = view
        entries["crc"] = [self._checksum(entry, row) for entry, row in zip(entries, kept, strict=True)]
        count = _size(self.folder / INDEX) // ENTRY.itemsize  # an entry that a killed writer left unfinished is none
        start, first = self._place_to_append(count)
        unused = bytes((first - count) * ENTRY.itemsize)
        self._extend(_shard(start), (first - start) * self.row_bytes, kept.tobytes())
        self._extend(INDEX, count * ENTRY.itemsize, unused + entries.tobytes())

    def _place_to_append(self, count: int) -> tuple[int, int]:
        """The first row of the shard to add to, and the first row to write, if `count` rows have an entry."""
        start = max((start for start, _ in self._shards()), default=0)
        size = _size(self.folder / _shard(start))
        first = max(count, start + -(-size // self.row_bytes))  # not over what a reader may have open
        return (first, first) if size >= SHARD_BYTES else (start, first)

    def as_stored(self, tokens: np.ndarray) -> np.ndarray:
        """Tokens in the precision of the store; what does not fit is infinite, and refused when it is added."""
        with np.errstate(over="ignore"):
            return tokens.astype(self.dtype, copy=False)

    def _extend(self, name: str, size: int, data: bytes) -> None:
        with _name_cache_in_errors(self.folder), open(self.folder / name, "ab") as file:
            file.truncate(size)
            write_to_disk(file, data)

    def _checksum(self, entry: np.void, tokens: np.ndarray) -> int:
        return zlib.crc32(tokens.data, zlib.crc32(entry.tobytes()[:NAMED], zlib.crc32(self.key.encode())))

    def _description(self) -> dict[str, Any]:
        """What the folder says, if anything; one that is of something else is refused."""
        record = _read_description(self.folder)
        if record.get("origin", self.origin) != self.origin:
            raise NewkindsError(
                f"{self.folder} is not the cache it is named after: newkinds cache clear {self.key} deletes it."
            )
        return record if "origin" in record else {}


@contextmanager
def _name_cache_in_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except CacheUnavailable:
        raise
    except (OSError, NewkindsError) as error:
        reason = str(getattr(error, "strerror", None) or error).rstrip(".")
        raise CacheUnavailable(
            f"cannot use the cache {folder}: {reason}. What is whole in it is kept. Mend that and "
            f"rerun the same command, name another place in the environment variable {ROOT_VARIABLE}, or train without "
            "a cache (--cache-views 0)."
        ) from error


def _digests(contents: Sequence[str]) -> np.ndarray:
    """From hexadecimal to 16 bytes each: (n,)"""
    return np.frombuffer(bytes.fromhex("".join(contents)), ENTRY["content"])


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _key(origin: dict[str, Any]) -> str:
    return sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()[:16]


def _shard(start: int) -> str:
    """The name of the shard whose first row this is."""
    return f"rows-{start:012d}.tokens" if start else "rows.tokens"


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # not there, or being deleted
        return 0


def _read_index(folder: Path) -> np.ndarray:
    try:
        return np.fromfile(folder / INDEX, ENTRY)  # without an entry that is not whole
    except OSError:
        return np.empty(0, ENTRY)


def _read_description(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _row_files(folder: Path) -> list[Path]:
    """What belongs to a cache besides its description; other files are not ours."""
    return [file for file in folder.glob("*") if ROW_FILE.fullmatch(file.name)]  # none if it cannot be read


# -- listing and deleting ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CacheEntry:
    """One cache on the disk."""

    key: str
    about: str
    images: int
    views: int  # random ones
    bytes: int
    made: str
    state: str  # "in use", "damaged" or "other format", as far as its description tells


def cache_root() -> Path:
    """Where caches are: $NEWKINDS_CACHE, else the user's cache folder."""
    named = os.environ.get(ROOT_VARIABLE)
    base = named or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "newkinds" / "tokens"
    try:
        return user_path(base)
    except NewkindsError as error:  # no such home
        raise CacheUnavailable(f"{base} is no place for a cache: {error} See ${ROOT_VARIABLE}.") from None


def list_caches() -> list[CacheEntry]:
    """All caches, the largest first; damaged and old ones too, so that they can be deleted. Other folders are not ours.

    >>> [entry.key for entry in list_caches() if entry.state == "damaged"]
    """
    root = cache_root()
    with _name_cache_in_errors(root):
        folders = [folder for folder in root.iterdir() if KEY.fullmatch(folder.name)] if root.exists() else []
    entries = [entry for folder in folders if not folder.is_symlink() and (entry := _entry(folder))]
    return sorted(entries, key=lambda entry: entry.bytes, reverse=True)


def _entry(folder: Path) -> CacheEntry | None:
    """What a folder holds according to its description, whose digest its name must be; None if it is no cache."""
    record = _read_description(folder)
    files = _row_files(folder)
    if "origin" not in record and INDEX not in [file.name for file in files]:
        return None
    origin = record.get("origin")
    users = record.get("about")
    about = "; ".join(map(str, users)) if isinstance(users, list) else str(users)
    if not isinstance(origin, dict) or _key(origin) != folder.name:
        about = "it does not say what it holds"
        state = "damaged"
    else:
        state = "in use" if origin.get("format") == FORMAT else "other format"
    entries = _read_index(folder)
    entries = entries[entries["content"] != b""]
    return CacheEntry(
        key=folder.name,
        about=about,
        images=len(np.unique(entries["content"])),
        views=max(len(np.unique(entries["view"])) - 1, 0),
        bytes=sum(map(_size, files)),
        made=str(record.get("made", "?")),
        state=state,
    )


def clear_caches(keys: Sequence[str] = ()) -> list[CacheEntry]:
    """Delete the caches with these names, or all; returns those deleted. Nothing else in the folder is touched."""
    entries = {entry.key: entry for entry in list_caches()}
    for key in set(keys) - entries.keys():
        raise NewkindsError(f"there is no cache '{key}' in {cache_root()}: newkinds cache list shows them.")
    chosen = [entries[key] for key in dict.fromkeys(keys or entries)]
    for entry in chosen:
        folder = cache_root() / entry.key
        try:
            with FileLock(require_lock(_lock_of(folder))).acquire(timeout=1):
                for file in [folder / DESCRIPTION, *_row_files(folder)]:
                    file.unlink(missing_ok=True)
                with suppress(OSError):  # somebody else's files stay
                    folder.rmdir()
        except Timeout:
            raise NewkindsError(f"the cache {entry.key} is being made by another process: wait, or stop it.") from None
        except OSError as error:
            raise NewkindsError(f"cannot delete {folder}: {error.strerror or error}.") from error
    return chosen


def gigabytes(size: int) -> str:
    """A size in bytes as people read it."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def cache_listing(entries: Sequence[CacheEntry], where: str) -> str:
    """Caches and their sizes, and the sum."""
    columns = ["key", "of", "images", "views", "size", "made", "state"]
    rows = []
    for entry in entries:
        counts = (f"{entry.images:,}", str(entry.views)) if entry.images else ("–", "–")
        rows.append([entry.key, entry.about, *counts, gigabytes(entry.bytes), entry.made, entry.state])
    total = f"{len(entries)} cache(s), {gigabytes(sum(e.bytes for e in entries))}, {where}"
    return f"{text_table(columns, rows)}\n\n{total}" if entries else total
