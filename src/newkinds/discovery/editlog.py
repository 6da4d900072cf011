"""The log of edits as a file: `edits.jsonl` in the run directory, which only grows.

A line is one edit, with its number and a checksum. Nothing is ever rewritten: undoing is an edit as well. Several
processes may write without a lock: whoever appends edit number n first has made it, and a later line with the same
number never happened; its writer looks again and retries. Half a line, left by a crash, never happened either.

Whole lines that are gone from its end cannot be seen in the log itself. So `edits.count`, beside it, says how many
edits were safely on the disk. It is overwritten in place after each edit, without a sync and without a lock: a power
cut, a faster process or a full disk can only leave it behind the log or make it unreadable, and then it says nothing.
"""

import errno
import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..errors import NewkindsError
from ..files import sync_folder
from .edits import Edit

VERSION = 1


class EditLog:
    """The edits of one assignment of images; `of` is that assignment's fingerprint.

    >>> log = EditLog(Path("runs/photos/edits.jsonl"), of)
    >>> log.append(lambda edits: {"edit": "rename", "category": 7, "name": "shiba inu"})
    """

    def __init__(self, file: Path, of: str) -> None:
        self.file, self.of = file, of
        self.count_file = file.with_suffix(".count")
        self._turn = threading.RLock()  # threads may share one
        self._forget()

    def _forget(self) -> None:
        self._known: list[dict[str, Any]] = []  # header and edits that were read already
        self._inode, self._offset, self._line = -1, 0, 1  # of what, and up to where
        self._ending = b""  # what came last: a copy may have been put in its place
        self._warned = False

    def edits(self) -> list[dict[str, Any]]:
        """All edits, the first one first. Those of another assignment are not these."""
        return self._entries()[1:]

    def is_own(self) -> bool:
        """Whether the log, if there is one, belongs to this assignment."""
        return all(header["of"] == self.of for header in self._entries(of_any=True)[:1])

    def require_own(self) -> None:
        """Refuse to add to a log that belongs to another assignment."""
        if not self.is_own():
            aside = self.file.with_name(f"{self.file.stem}-earlier{self.file.suffix}")
            raise NewkindsError(
                f"{self.file} belongs to other categories than this run has now (they were found again since): rename "
                f"it, e.g. to {aside.name}, and edit anew."
            )

    def append(self, make: Callable[[list[dict[str, Any]]], Edit]) -> dict[str, Any]:
        """Add the edit that `make` gives for all edits so far; if another process was faster, it is asked again."""
        with self._turn:
            self.require_own()
            while True:
                entries = self._entries()
                if not entries:
                    if self._noted():  # of a log that somebody has taken away
                        self._note(0, sync=True)
                    self._write({"n": 0, "edits": VERSION, "of": self.of})
                    continue
                made = {"n": len(entries), "at": _now(), **make(entries[1:]), "id": os.urandom(4).hex()}
                self._write(made)
                entries = self._entries()
                if len(entries) > made["n"] and entries[made["n"]].get("id") == made["id"]:
                    self._note(made["n"])
                    return entries[made["n"]]

    def _write(self, entry: Edit) -> None:
        """One write of one line, at the end; the line break comes first, so that half a line spoils no other."""
        line = _canonical(entry)
        whole = f'\n{line[:-1]},"check":"{_check(line)}"}}'.encode()
        outcome = "The edit was not made"
        try:
            file = _opened(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                if os.write(file, whole) < len(whole):
                    raise OSError(28, "no space left on the disk")
                outcome = "Whether the edit was kept, newkinds log shows"
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise NewkindsError(
                f"cannot write {self.file}: {error.strerror or error}. {outcome}; earlier ones are safe."
            ) from None
        if entry["n"] <= 1:  # a killed process may have left the file new, and its name unsafe
            sync_folder(self.file.parent)

    def _note(self, count: int, sync: bool = False) -> None:
        """Say that so many edits are on the disk; always as many bytes, so that they are replaced by one write."""
        said = f"{self.of} {count:10}"
        with suppress(OSError):  # nothing is lost but a warning
            file = _opened(self.count_file, os.O_WRONLY | os.O_CREAT)
            try:
                os.write(file, f"{said} {_check(said)}\n".encode())
                if sync:
                    os.fsync(file)
            finally:
                os.close(file)

    def _noted(self) -> int:
        """How many edits were on the disk at least; 0 if that is not known."""
        with suppress(OSError, ValueError):
            with open(_opened(self.count_file, os.O_RDONLY), encoding="ascii") as file:
                said, _, check = file.read(200).rstrip("\n").rpartition(" ")
            of, _, count = said.partition(" ")
            if check == _check(said) and of == self.of:
                return int(count)
        return 0

    def _entries(self, of_any: bool = False) -> list[dict[str, Any]]:
        """The header and all edits; empty if there are none, or if they are of another assignment."""
        with self._turn:
            noted = self._noted()  # first: others may be adding
            try:
                whole = self._read_on()
                if not whole:
                    time.sleep(0.02)  # another process may be in the middle of writing the last line
                    whole = self._read_on()
                own = not self._known or self._known[0]["of"] == self.of
                if own and (there := max(len(self._known) - 1, 0)) < noted:
                    self._warn(
                        f"{self.file} ends after edit {there}, but {noted} were made: the last {noted - there} are "
                        "missing. Restore it from a copy; the next edit takes their place."
                    )
                elif not whole:
                    self._warn(
                        f"{self.file} line {self._line} is not whole: that edit was interrupted and does not count."
                    )
            except FileNotFoundError:
                self._forget()
            except OSError as error:
                raise NewkindsError(f"cannot read {self.file}: {error.strerror or error}.") from None
            if self._known and self._known[0]["of"] != self.of and not of_any:
                self._warn(f"{self.file} belongs to categories that the run no longer has: its edits are not shown.")
                return []
            return list(self._known)

    def _read_on(self) -> bool:
        """Read what was added since; whether the last line is whole."""
        with open(_opened(self.file, os.O_RDONLY), "rb") as file:
            seen = os.fstat(file.fileno())
            start = self._offset - len(self._ending)
            file.seek(start)
            content = file.read() if seen.st_size >= self._offset else b""
            if seen.st_ino != self._inode or not content.startswith(self._ending):
                self._forget()
                self._inode = seen.st_ino
                file.seek(0)
                content, start = file.read(), 0
            whole = self._take(content[self._offset - start :])
            self._ending = content[: self._offset - start][-64:]
            return whole

    def _take(self, content: bytes) -> bool:
        """Add the lines that count. One that is not whole matters only if a later one shows that an edit is missing."""
        *before, last = content.split(b"\n")
        for line in before:
            self._add(line)
            self._offset += len(line) + 1
            self._line += 1
        whole = self._add(last)
        if whole:  # else it is looked at again
            self._offset += len(last)
        return whole

    def _add(self, line: bytes) -> bool:
        """Whether a line is whole (or empty); one that lost the race for its number is, and does not count."""
        if not line.strip():
            return True
        entry = _entry(line)
        if entry is None:
            return False
        if entry["n"] > len(self._known):
            raise NewkindsError(
                f"{self.file} is damaged before line {self._line}: edit {len(self._known)} is missing. Restore it from "
                "a copy, or delete its lines from there on to lose only the edits in them."
            )
        if entry["n"] == len(self._known):
            if not self._known and not self._readable(entry):
                raise NewkindsError(
                    f"{self.file} was written by a newer version of newkinds (format {entry.get('edits')}; this one "
                    f"reads {VERSION}): update newkinds."
                )
            self._known.append(entry)
        return True

    def _warn(self, message: str) -> None:
        if not self._warned:
            from ..console import warn  # slow to import

            warn(message)
        self._warned = True

    @staticmethod
    def _readable(header: Edit) -> bool:
        return header.get("edits") == VERSION and isinstance(header.get("of"), str)


def set_aside(file: Path) -> Path | None:
    """Rename a log whose categories are being found anew, so that nothing is lost; None if there is none."""
    if not file.is_file():
        return None
    number = 1
    while (aside := file.with_name(f"{file.stem}-{number}{file.suffix}")).exists():
        number += 1
    file.rename(aside)
    sync_folder(file.parent)
    return aside


def fingerprint(found: Iterable[tuple[str, int]]) -> str:
    """Of an assignment: paths and the ids of their categories, in order."""
    lines = "".join([f"{path}\0{category}\n" for path, category in found])
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _opened(file: Path, how: int) -> int:
    """Open a log, which is a file in the run: a link would lead out of it, and a pipe would never answer."""
    plain = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        opened = os.open(file, how | plain, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise OSError(error.errno, "it is a link or a pipe, not a file of the run") from None
        raise
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "it is not a file")
    return opened


def _entry(line: bytes) -> dict[str, Any] | None:
    """A line of the log, or None if it is not whole or its checksum is wrong."""
    with suppress(ValueError, TypeError, RecursionError):
        entry = json.loads(line)
        if isinstance(entry, dict) and isinstance(entry.get("n"), int):
            check = entry.pop("check", None)
            if check == _check(_canonical(entry)) and ("edit" in entry or entry["n"] == 0):
                return entry
    return None


def _canonical(entry: Edit) -> str:
    return json.dumps(entry, separators=(",", ":"), sort_keys=True)  # ASCII: names of any bytes survive


def _check(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:8]


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
