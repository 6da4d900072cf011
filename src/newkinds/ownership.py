"""Whose a file is. One rule for all that newkinds writes and removes:

**A file is replaced or removed only if newkinds can prove that it wrote it.** Whatever else is there stays as it is,
and the command says so before the work, if it can. An image is never written over.

The proof is a ledger in the same folder, which begins with a marker and has one line for each file that was written,
with its checksum: `checksums.txt` in a run, the hidden `.newkinds-files` elsewhere. A file that somebody has edited
since does not fit its checksum any more, so it is theirs. The ledger is written before the file: a kill in between
leaves the old file, which fits an older line.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import Busy, NewkindsError
from .files import (
    append_line,
    checksum,
    encoded,
    is_leftover,
    is_replaceable,
    make_folder,
    refuse_inputs,
    remove,
    stamp_of,
    temporary_of,
    write_whole,
)
from .text import spelt, unescaped

OF_RUN = "checksums.txt"  # the ledger of a run
ELSEWHERE = ".newkinds-files"  # the ledger of any other folder: hidden, for it lies beside what people look at
MARKER = "# newkinds wrote these files: checksum and name"
LOCK = ".lock"
CELL_LOCK = ".cell.lock"
LOCKS = (LOCK, ".edits.lock", CELL_LOCK)  # of a run, of its log of edits, and of a run in a table from begin to end
# how files begin that are never written over, whatever they are called; see data.headers for their endings
PICTURES = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"RIFF")
PICTURE_ENDINGS = (".bmp", ".gif", ".heic", ".heif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


class NotOurs(NewkindsError):
    """A file that newkinds cannot prove it wrote stands where it would have to be replaced or removed."""


class OwnFiles:
    """What newkinds wrote in a folder, and may therefore replace and remove.

    >>> own = OwnFiles(Path("checked"))
    >>> own.require("check.csv")          # before the work: NotOurs if somebody else's file is there
    >>> own.write("check.csv", "path,check\\n")
    """

    def __init__(self, folder: Path, ledger: str = ELSEWHERE) -> None:
        self.folder, self.ledger = folder, folder / ledger
        self._proven: dict[str, tuple[int, int, int]] = {}  # files that were ours, as they were then

    def write(self, name: str, content: bytes | str) -> None:
        """Write a file whole, if none is there or it is ours."""
        data = encoded(content)
        file = self.folder / name
        try:
            self.require(name)
        except NotOurs:
            if _holds(file, data):  # there is nothing to replace
                return
            raise
        self._note(name, data)
        write_whole(file, data)
        with suppress(OSError):
            self._proven[name] = stamp_of(file)

    def link(self, name: str, file: Path) -> bool:
        """Let a file of ours be here, too, as one that is only ever replaced whole; whether the disk has links."""
        self.require(name)
        self._note_digest(name, checksum(file))
        aside = temporary_of(self.folder / name)
        try:
            os.link(os.path.realpath(file), aside)
            os.replace(aside, self.folder / name)
        except OSError:  # another disk, or one without links
            remove(aside)
            return False
        remove(aside)  # where both names were the same file already, it is still there
        return True

    def adopt(self, name: str, content: bytes) -> None:
        """Count a file that somebody edited as ours from now on, if this is its content: there is a copy of it."""
        self._note(name, content)

    def remove(self, name: str) -> None:
        """Delete a file if it is there; one that is not ours is an error."""
        self.require(name, "removed")
        with suppress(OSError):
            (self.folder / name).unlink(missing_ok=True)

    def require(self, name: str, done: str = "replaced") -> None:
        """Refuse to touch what is not ours; nothing at all may be there."""
        file = self.folder / name
        if not os.path.lexists(file) or self.is_own(name):
            return
        advice = "Move it elsewhere, or choose another place (--out)."
        if file.is_dir():
            raise NotOurs(f"{file} is a folder, and a file would be written there. {advice}")
        if file.is_symlink() and not file.exists():
            raise NotOurs(f"{file} is a link that leads nowhere. {advice}")
        if is_picture(file):
            raise NotOurs(f"{file} is an image that would be {done}: newkinds never writes over an image. {advice}")
        if spelt(name) in self.checksums():
            raise NotOurs(
                f"{file} would be {done}, but it is not as newkinds wrote it: it was edited, or it is damaged. {advice}"
            )
        raise NotOurs(f"{file} would be {done}, but newkinds did not write it. {advice}")

    def is_own(self, name: str) -> bool:
        """Whether a file is there and as newkinds wrote it."""
        file = self.folder / name
        try:
            if not stat.S_ISREG(file.stat().st_mode):
                return False
            stamp = stamp_of(file)
            if self._proven.get(name) == stamp:
                return True
            if not self.is_kept() or checksum(file) not in self._digests(name):
                return False
        except (OSError, ValueError):
            return False
        self._proven[name] = stamp
        return True

    def is_kept(self) -> bool:
        """Whether there is a ledger here that newkinds wrote: by its marker, else by a file that it is right about."""
        text = self._text()
        if text is None:
            return False
        if MARKER in text.split("\n"):
            return True
        for name, digests in self.checksums().items():
            file = self.folder / unescaped(name)
            with suppress(OSError, ValueError):
                if file.parent == self.folder and file.is_file() and checksum(file) in digests:
                    return True
        return False

    def is_begun(self) -> bool:
        """Whether there is nothing but the beginning of a ledger: the power was cut, or the process killed."""
        text = self._text()
        return text is not None and MARKER.startswith(text.strip("\n"))

    def checksums(self) -> dict[str, set[str]]:
        """Those of each file that was ever written here, by its name as a table spells it."""
        known: dict[str, set[str]] = {}
        for line in (self._text() or "").split("\n"):
            digest, _, name = line.partition("  ")
            if name:
                known.setdefault(name, set()).add(digest)
        return known

    def _digests(self, name: str) -> set[str]:
        """The checksums of a file; where A.csv and a.csv are the same file, under either name."""
        found: set[str] = set()
        for listed, digests in self.checksums().items():
            other = unescaped(listed)
            if other == name or (
                other.lower() == name.lower() and _is_same_file(self.folder / other, self.folder / name)
            ):
                found |= digests
        return found

    def _text(self) -> str | None:
        """The ledger; None if there is none. A link or a pipe is none: it may lead anywhere."""
        try:
            if not stat.S_ISREG(self.ledger.lstat().st_mode):
                return None
            return self.ledger.read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):  # ValueError: a NUL in its name
            return None

    def _note(self, name: str, data: bytes) -> None:
        self._note_digest(name, checksum(data))

    def _note_digest(self, name: str, digest: str) -> None:
        """Add a line to the ledger, which must be ours or not there yet."""
        if os.path.lexists(self.ledger) and not (self.is_kept() or self.is_begun()):
            raise NotOurs(
                f"{self.ledger} is not newkinds' list of its files, so nothing is written in {self.folder}: choose "
                "another place (--out)."
            )
        has_marker = MARKER in (self._text() or "").split("\n")
        line = f"{digest}  {spelt(name)}"
        append_line(self.ledger, line if has_marker else f"{MARKER}\n{line}")


# -- single files that a person names ------------------------------------------------------------------------------


def require_table_name(file: Path, what: str, example: str) -> None:
    """Refuse to call a table or a page like an image: the shell makes `--out first.png second.png` of `--out *.png`."""
    if file.suffix.lower() in PICTURE_ENDINGS:
        named = f"{file} is named like an image, and {what} would be written there"
        raise NotOurs(
            f"{named}: newkinds never writes over an image. Name it otherwise, e.g. {file.with_name(example)}."
        )


def require_page(file: Path, inputs: Iterable[Path], example: str) -> None:
    """Refuse, before the work, to write a page over what is not ours or over its `inputs`; make its folder."""
    if file.is_dir():
        raise NewkindsError(f"{file} is a folder: name the file to write, e.g. {file / example}.")
    refuse_inputs(file, inputs)
    require_table_name(file, "a page", example)
    require_output(file)
    make_folder(file.parent)


def require_output(file: Path) -> None:
    """Refuse, before the work, to write a result over what is not ours; devices and pipes are written to."""
    if is_replaceable(file):
        own, name = _place(file)
        own.require(name)
    elif file.is_dir():
        raise NotOurs(f"{file} is a folder: name a file.")


def write_output(file: Path, content: bytes | str) -> None:
    """Write a result where a person wants it, whole, if nothing or an earlier result of ours is there."""
    if not is_replaceable(file):
        write_whole(file, content)
        return
    own, name = _place(file)
    own.write(name, content)


def remove_output(file: Path) -> None:
    """Delete an earlier result of ours; nothing else."""
    if is_replaceable(file):
        own, name = _place(file)
        if own.is_own(name):
            own.remove(name)


def _place(file: Path) -> tuple[OwnFiles, str]:
    """Where a link leads is what would be replaced."""
    real = Path(os.path.realpath(file))
    return OwnFiles(real.parent), real.name


# -- folders -------------------------------------------------------------------------------------------------------


def is_run_folder(folder: Path) -> bool:
    """Whether newkinds has written a run in a folder, or has begun to."""
    return OwnFiles(folder, OF_RUN).is_kept()


def own_pictures(folder: Path, names: Iterable[str]) -> set[str]:
    """Those of the files in a folder that newkinds drew there."""
    own = OwnFiles(folder)
    listed = {unescaped(name) for name in own.checksums()}
    return {name for name in names if name in listed and own.is_own(name)}


def foreign_files(folder: Path) -> list[Path]:
    """What newkinds cannot prove it wrote, in a folder and below it."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        ledgers = [OwnFiles(Path(place), name) for name in (OF_RUN, ELSEWHERE)]
        kept = {own.ledger.name for own in ledgers if own.is_kept()}
        found += [Path(place, name) for name in folders if Path(place, name).is_symlink()]
        for name in names:
            file = Path(place, name)
            known = name in kept or is_leftover(file) or (name in LOCKS and _is_lock(file))
            if file.is_symlink() or not (known or any(own.is_own(name) for own in ledgers)):
                found.append(file)
    return found


def remove_own_folder(folder: Path) -> bool:
    """Delete a folder in which all is ours; whether it is gone. A kill leaves all of it or, under another name, what
    can be deleted."""
    if not os.path.lexists(folder):
        return True
    if folder.is_symlink() or not folder.is_dir() or foreign_files(folder):
        return False
    aside = temporary_of(folder)
    try:
        os.rename(folder, aside)
    except OSError as error:
        raise NewkindsError(f"cannot delete {folder}: {error.strerror or error}.") from error
    remove(aside)
    return True


# -- locks ---------------------------------------------------------------------------------------------------------


@contextmanager
def hold_lock(file: Path, busy: str) -> Iterator[None]:
    """Hold a lock, whose folder is made for it; if another process has it, that is an error which says `busy`. A killed
    process leaves it free."""
    from filelock import FileLock, Timeout  # slow to import, and a reader needs no lock

    folder = make_folder(file.parent)
    lock = FileLock(require_lock(file))
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        raise Busy(busy) from None
    except OSError as error:
        raise NewkindsError(f"cannot write in {folder}: {error.strerror or error}.") from error
    with held:
        yield


def require_lock(file: Path) -> Path:
    """A lock is an empty file; whatever else has its name would be emptied by locking it."""
    if os.path.lexists(file) and not _is_lock(file):
        raise NotOurs(f"{file} is not a lock of newkinds, which is an empty file: move it elsewhere.")
    return file


def _is_lock(file: Path) -> bool:
    try:
        status = file.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and not status.st_size


# -- what a file is ------------------------------------------------------------------------------------------------


def is_picture(file: Path) -> bool:
    """Whether a file is called like an image or begins like one."""
    if file.suffix.lower() in PICTURE_ENDINGS:
        return True
    try:
        with open(file, "rb") as opened:
            return opened.read(8).startswith(PICTURES)
    except OSError:
        return False


def _holds(file: Path, data: bytes) -> bool:
    try:
        return file.is_file() and file.stat().st_size == len(data) and file.read_bytes() == data
    except OSError:
        return False


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
