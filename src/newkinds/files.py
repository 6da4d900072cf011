"""Files are written whole or not at all: a temporary file next to the target, fsync, rename."""

import csv
import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from .errors import NewkindsError
from .text import escaped, unescaped

UNTOUCHED = " What was there before is untouched; make room or choose another folder, then rerun the same command."
# names for what the process has open already, which may be a file in the middle
OPEN_STREAM = re.compile(r"/dev/(stdout|stderr|fd/\d+)|/proc/(self|(?P<process>\d+))/fd/\d+")
NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)
TEMPORARY = re.compile(r"(\..+\.)([0-9a-f]{8})([0-9a-f]{8})\.tmp", re.DOTALL)


def write_whole(path: Path, content: bytes | str) -> None:
    """Replace `path` by `content` in one step; after a crash or on a full disk the old file is still there.

    Whether it may be replaced is decided before, by `ownership`; by itself this is for files in a new folder of ours.
    If `path` is a link, what it leads to is replaced. Devices and pipes are written to, not replaced.
    """
    data = encoded(content)
    if not is_replaceable(path):
        # a second opening of a redirected stream would have a place of its own in the file, and be overwritten
        stream = OPEN_STREAM.fullmatch(os.path.abspath(path))
        own = stream is not None and not stream["process"]
        where: Path | int = int({"stdout": 1, "stderr": 2}.get(path.name, path.name)) if own else path
        with _writing(path), open(where, "ab", closefd=not own) as opened:
            opened.write(data)
        return
    path = Path(os.path.realpath(path))
    temporary = temporary_of(path)
    try:
        with _writing(path, UNTOUCHED):
            with open(temporary, "xb") as file:
                write_to_disk(file, data)
            try:
                os.replace(temporary, path)
            except FileNotFoundError:  # whoever wrote this file meanwhile has tidied up: as if ours had come first
                if not path.exists():
                    raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
    remove_leftovers_of(path)


def write_new(wanted: Path, content: bytes) -> Path:
    """Write a file that is not there yet, whole; if its name is taken, under the next that is free: NAME-2, NAME-3 …"""
    temporary, path, number = temporary_of(wanted), wanted, 2
    try:
        with _writing(wanted):
            with open(temporary, "xb") as file:
                write_to_disk(file, content)
            while not _put_new(temporary, path):
                path = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
                number += 1
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
    return path


def _put_new(temporary: Path, path: Path) -> bool:
    """Give a file its name; False if something has it."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        try:
            path.open("xb").close()  # nobody else can take the name from now on
        except FileExistsError:
            return False
        os.replace(temporary, path)
    return True


def sync_folder(folder: Path) -> None:
    """Make a new name in a folder survive a power cut, if the system can open a folder."""
    try:
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ENOSPC):  # the disk fails; others cannot do this, or need not
            raise NewkindsError(f"cannot be sure that what is new in {folder} is kept: {error.strerror}.") from error


def stamp_of(file: Path) -> tuple[int, int, int]:
    """What tells one content of a file from the next without reading it: which file, how large, when it was changed."""
    seen = file.stat()
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def exists(file: Path) -> bool:
    """Whether there is a file or folder of that name, which may be any text."""
    try:
        return file.exists()
    except (OSError, ValueError):  # a name that is too long, or with a NUL
        return False


def user_path(text: str | Path) -> Path:
    """A path as a person writes it, ~ being their home; whole, so that it means the same from any folder."""
    try:
        return Path(text).expanduser().resolve()
    except (RuntimeError, ValueError, OSError) as error:  # ~nobody, a NUL, a loop of links
        raise NewkindsError(f"{text} is not a path that can be used: {str(error).rstrip('.')}.") from None


@contextmanager
def _writing(path: Path, advice: str = "") -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader has closed
        raise
    except OSError as error:
        raise NewkindsError(f"cannot write {path}: {error.strerror or error}.{advice}") from error


def is_replaceable(path: Path) -> bool:
    """Whether a file is or can be at `path`; else there is a device, a pipe, a folder or an open stream."""
    try:
        return stat.S_ISREG(path.stat().st_mode) and not OPEN_STREAM.fullmatch(os.path.abspath(path))
    except OSError:
        return True


def refuse_inputs(output: Path, inputs: Iterable[Path]) -> None:
    """An output must not replace a file that is read, under whatever name or link."""
    if not (output.exists() and is_replaceable(output)):
        return
    replaced = output.stat()
    for file in inputs:
        with suppress(OSError):
            if os.path.samestat(replaced, file.stat()):
                raise NewkindsError(f"{output} would be replaced, but it is an input ({file}): choose another name.")


def encoded(content: bytes | str) -> bytes:
    # backslashreplace: a file name that is not valid Unicode must not cost the user the whole table
    return content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content


def append_line(path: Path, line: str) -> None:
    """Add a line to a file. The line break comes first, so that half a line, left by a power cut, spoils no other."""
    with _writing(path), open(path, "ab") as file:
        write_to_disk(file, f"\n{line}".encode())


def write_to_disk(file: BinaryIO, data: bytes) -> None:
    """Write to an open file, and return when a power cut can no longer take it away."""
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def checksum(content: Path | bytes) -> str:
    """Of a file's content, or of what is going to be one; short, to be shown with results."""
    digest = hashlib.sha256()
    with open(content, "rb") if isinstance(content, Path) else io.BytesIO(content) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()[:16]


def json_text(content: Any, where: str | Path, **layout: Any) -> str:
    """JSON without NaN: a value that is not a number must not be written as a result."""
    try:
        return json.dumps(content, allow_nan=False, **layout)
    except ValueError:
        raise NewkindsError(f"{where} would hold NaN or an infinite number, so it is not written.") from None


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A CSV table with a header line; a row stays one line, whatever the names of files are."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([escaped(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return text.getvalue()


def csv_cells(text: str) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of a table that `csv_text` made; ValueError or csv.Error if it is damaged."""
    columns, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row] or [[]]
    if "\\" in text:  # in few tables, and looking at every cell takes longer than the rest
        rows = [list(map(unescaped, row)) for row in rows]
    if set(map(len, rows)) - {len(columns)}:
        wrong = next(number for number, row in enumerate(rows, 2) if len(row) != len(columns))
        raise ValueError(f"row {wrong} has not {len(columns)} cells")
    return columns, rows


def make_folder(path: Path) -> Path:
    """Create a folder and its parents, to survive a power cut; a file in the way or a read-only place is an error."""
    try:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in it
        raise NewkindsError(f"cannot create the folder {path}: {getattr(error, 'strerror', None) or error}.") from error
    for made in missing:
        sync_folder(made.parent)
    return path


def require_folder(path: Path) -> None:
    """Refuse a folder that could not be made or written, before the work for it begins; nothing is made yet."""
    nearest = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
    if not nearest.is_dir():
        raise NewkindsError(f"cannot create the folder {path}: {nearest} is no folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise NewkindsError(f"cannot write in {nearest}: choose another --out, or make it writable.")


def move_folder(folder: Path, into: Path) -> Path:
    """Move a folder into another on the same disk, under a name that is free there: NAME-1, NAME-2 …"""
    make_folder(into)
    number = 1
    while os.path.lexists(target := into / f"{folder.name}-{number}"):
        number += 1
    try:
        os.rename(folder, target)
    except OSError as error:
        raise NewkindsError(f"cannot move {folder} to {target}: {error.strerror or error}.") from error
    sync_folder(into)
    sync_folder(folder.parent)
    return target


def sync_tree(path: Path) -> None:
    """Make a file, or a folder with all that is in it, survive a power cut, as far as the system lets us."""
    for folder, _, names in os.walk(path):
        for name in names:
            sync_tree(Path(folder, name))
        sync_folder(Path(folder))
    if path.is_file() and not path.is_symlink():  # a link leads to what is not ours
        with suppress(OSError), open(path, "rb") as file:
            os.fsync(file.fileno())


def temporary_of(path: Path) -> Path:
    """A new name beside `path` for what is going to be put there; short, however long its name is.

    It is signed, so that what a killed process left is told from what people call .something.tmp themselves.
    """
    hidden, number = _hidden(path), os.urandom(4).hex()
    return path.with_name(f"{hidden}{number}{_signature(hidden, number)}.tmp")


def _hidden(path: Path) -> str:
    name = os.fsencode(path.name)
    return f".{path.name if len(name) <= 200 else hashlib.sha256(name).hexdigest()[:32]}."


def _signature(hidden: str, number: str) -> str:
    return hashlib.sha256(b"newkinds " + os.fsencode(f"{hidden}{number}")).hexdigest()[:8]


def is_leftover(path: Path) -> bool:
    """Whether a name is one that `temporary_of` gave."""
    found = TEMPORARY.fullmatch(path.name)
    return found is not None and _signature(found[1], found[2]) == found[3]


def remove_leftovers_of(path: Path) -> None:
    """Delete what killed processes left that were about to write `path`, which is there now."""
    hidden = _hidden(path)
    with suppress(OSError):
        for name in os.listdir(path.parent):
            found = TEMPORARY.fullmatch(name)
            if found is not None and found[1] == hidden:
                remove(path.with_name(name))


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files and folders that a killed process left in `folder`."""
    for leftover in filter(is_leftover, folder.glob(".*.tmp")):
        remove(leftover)


def remove(leftover: Path) -> None:
    """Delete a temporary file, or a folder with all that is in it, if it is there and can be deleted; nothing else."""
    if not is_leftover(leftover):
        return
    if leftover.is_dir() and not leftover.is_symlink():
        shutil.rmtree(leftover, ignore_errors=True)
    with suppress(OSError):
        leftover.unlink(missing_ok=True)
