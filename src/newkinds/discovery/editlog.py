"""The log of edits as a file: `edits.jsonl` in the run directory, which only grows.

A line is one edit, with its number, a checksum of its own and that of the line before. Nothing is ever rewritten:
undoing is an edit as well. So a changed, missing, doubled or foreign line shows: the next one does not follow it.
Whoever adds a line holds a lock, also between hosts if the drive has locks. Half a line, left by a crash, never
happened: the next one follows the line before it.

What is gone from the end of the log cannot be seen in the log itself. So `edits.count`, beside it, says how many edits
were safely on the disk. It is overwritten in place after each edit, without a sync: a power cut or a full disk can
only leave it behind the log or make it unreadable, and then it says nothing.
"""

import errno
import hashlib
import json
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..errors import NewkindsError
from ..files import sync_folder, write_whole
from .edits import Edit

VERSION = 2
PATIENCE = 30  # seconds that one waits for others to write


class EditLog:
    """The edits of one assignment of images; `of` is that assignment's fingerprint.

    >>> log = EditLog(Path("runs/photos/edits.jsonl"), of)
    >>> log.append(lambda edits: {"edit": "rename", "category": 7, "name": "shiba inu"})
    """

    def __init__(self, file: Path, of: str) -> None:
        self.usual_file, self.of = file, of
        self.count_file = file.with_suffix(".count")
        self.lock_file = file.with_name(f".{file.stem}.lock")
        self._turn = threading.RLock()  # threads may share one
        self._forget()

    def _forget(self) -> None:
        self._known: list[dict[str, Any]] = []  # header and edits that were read already
        self._last_check = ""  # of the last of these
        self._inode, self._offset, self._line = -1, 0, 1  # of what, and up to where
        self._ending = b""  # what came last: a copy may have been put in its place
        self._warned = False

    @property
    def file(self) -> Path:
        """Where the log is: the usual file, or where it was put when another assignment began to take the place of
        this one. If that was interrupted, this one still counts."""
        aside = self._aside(self.of)
        return aside if aside.is_file() else self.usual_file

    def _aside(self, of: str) -> Path:
        return self.usual_file.with_name(f"{self.usual_file.stem}-of-{of}{self.usual_file.suffix}")

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
        """Add the edit that `make` gives for all edits so far."""
        with self._turn, self._locked():
            self.require_own()
            if not self._entries():
                self._write({"n": 0, "edits": VERSION, "of": self.of})
            entries = self._entries()
            made = {"n": len(entries), "at": _now(), **make(entries[1:])}
            self._write(made)
            entries = self._entries()
            if len(entries) != made["n"] + 1:
                raise NewkindsError(
                    f"{self.file}: the edit was not kept by the drive. Earlier ones are safe; try again."
                )
            self._note(made["n"])
            return entries[-1]

    def begin_with(self, edits: Sequence[Edit]) -> None:
        """Begin a log, where there is none yet, with edits that were made in another one: their numbers, times and
        words stay."""
        if self.file.exists():
            raise NewkindsError(f"{self.file} is there already: it cannot begin with the edits of another log.")
        lines, check = [], ""
        for entry in ({"n": 0, "edits": VERSION, "of": self.of}, *edits):
            line = _canonical({**entry, "after": check})
            check = _check(line)
            lines.append(f'\n{line[:-1]},"check":"{check}"}}')
        if edits:
            write_whole(self.usual_file, "".join(lines))
            self._note(len(edits), sync=True)
        self._forget()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time adds to the log; a killed one leaves no lock."""
        from filelock import FileLock, Timeout  # slow to import, and a reader needs no lock

        try:
            held = FileLock(self.lock_file).acquire(timeout=PATIENCE)
        except Timeout:
            raise NewkindsError(
                f"another program has been adding to {self.file} for {PATIENCE} seconds: the edit was not made. End "
                "that program, or try again."
            ) from None
        except NotImplementedError:
            raise NewkindsError(
                f"the drive of {self.file} has no locks, so that two programs could overwrite each other's edits: copy "
                "the run to another drive and correct it there."
            ) from None
        except OSError as error:
            raise NewkindsError(
                f"cannot write {self.file}: {error.strerror or error}. The edit was not made; earlier ones are safe."
            ) from None
        with held:
            yield

    def set_aside(self) -> Path | None:
        """Rename the log, so that editing begins anew; where to, or None if there is none."""
        with self._turn:
            moved = self._set_other_aside()
            for file in (self._aside(self.of), self.usual_file):
                if file.is_file():
                    moved = self._rename(file, file)
            if self._noted():
                self._note(0, sync=True)
            self._forget()
            return moved

    def set_other_aside(self) -> Path | None:
        """Rename a log of another assignment, which finds it there again; where to, or None if there is none."""
        with self._turn:
            moved = self._set_other_aside()
            own = self._aside(self.of)
            if own.is_file() and not self.usual_file.exists():  # set aside itself, when it had another one's place
                own.rename(self.usual_file)
                sync_folder(own.parent)
            self._forget()
            return moved

    def _set_other_aside(self) -> Path | None:
        of = _assignment_of(self.usual_file)
        return self._rename(self.usual_file, self._aside(of)) if of not in (None, self.of) else None

    def _rename(self, file: Path, wanted: Path) -> Path:
        """Rename a log to a name that is free; nothing is ever lost."""
        number, aside = 1, wanted
        while aside.exists():
            aside = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
            number += 1
        file.rename(aside)
        sync_folder(file.parent)
        return aside

    def _write(self, entry: Edit) -> None:
        """One write of one line, at the end; the line break comes first, so that half a line spoils no other."""
        line = _canonical({**entry, "after": self._last_check})
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
                self._require_noted(noted)
                if not whole:
                    self._warn(
                        f"{self.file} line {self._line} is not whole: that edit was interrupted and does not count."
                    )
            except FileNotFoundError:
                self._forget()
                self._require_noted(noted)
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
        self._require_next(entry)
        if not self._known and (entry.get("edits") != VERSION or not isinstance(entry.get("of"), str)):
            raise NewkindsError(
                f"{self.file} was written by another version of newkinds (format {entry.get('edits')}; this one reads "
                f"{VERSION}): use that version, or rename the log to set it aside."
            )
        self._last_check = entry.pop("check")
        entry.pop("after")
        self._known.append(entry)
        return True

    def _require_next(self, entry: Edit) -> None:
        """Refuse a line that does not follow the one before it."""
        number, here = entry["n"], len(self._known)
        if number == here and entry.get("after") == self._last_check:
            return
        if number > here:
            why = f"edit {here} is missing or damaged"
        elif number < here:
            why = f"edit {number} is there already: perhaps two logs were joined by hand"
        else:
            why = f"edit {number} does not follow edit {here - 1}, which was changed or is of another log"
        raise NewkindsError(
            f"{self.file} is damaged before line {self._line}: {why}. Restore it from a "
            "copy, or delete its lines from there on to lose only the edits in them (and edits.count)."
        )

    def _require_noted(self, noted: int) -> None:
        """Refuse a log that has fewer edits than were on the disk."""
        if self._known and self._known[0]["of"] != self.of:
            return
        there = max(len(self._known) - 1, 0)
        if there < noted:
            what = f"ends after edit {there}" if self._known else "is gone or empty"
            raise NewkindsError(
                f"{self.file} {what}, but {noted} edits were made: the last {noted - there} are missing. Restore it "
                f"from a copy; or delete {self.count_file.name} beside it, too, to go on without them."
            )

    def _warn(self, message: str) -> None:
        if not self._warned:
            from ..console import warn  # slow to import

            warn(message)
        self._warned = True


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


def _assignment_of(file: Path) -> str | None:
    """The assignment that a log belongs to; None if there is no log, or if that cannot be read."""
    with suppress(OSError), open(_opened(file, os.O_RDONLY), "rb") as opened:
        for line in opened:
            if line.strip():
                of = (_entry(line) or {}).get("of")
                return of if isinstance(of, str) and re.fullmatch("[0-9a-f]{1,64}", of) else None
    return None


def _entry(line: bytes) -> dict[str, Any] | None:
    """A line of the log, or None if it is not whole or its checksum is wrong."""
    with suppress(ValueError, TypeError, RecursionError):
        entry = json.loads(line)
        if isinstance(entry, dict) and isinstance(entry.get("n"), int):
            check = entry.pop("check", None)
            if check == _check(_canonical(entry)) and ("edit" in entry or entry["n"] == 0):
                return {**entry, "check": check}
    return None


def _canonical(entry: Edit) -> str:
    return json.dumps(entry, separators=(",", ":"), sort_keys=True)  # ASCII: names of any bytes survive


def _check(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:8]


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
