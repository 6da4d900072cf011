"""Several processes may work on one grid: each cell is one process's at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import Busy, NewkindsError
from ..files import make_folder
from ..ownership import CELL_LOCK, require_lock


@contextmanager
def claimed_cell(folder: Path) -> Iterator[None]:
    """One process at a time works on a cell, from its training to its count; a killed one leaves it free."""
    lock = FileLock(require_lock(make_folder(folder) / CELL_LOCK))
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        raise Busy(f"another process is working on {folder}: wait for it.") from None
    except OSError as error:
        raise NewkindsError(f"cannot write in {folder}: {error.strerror or error}.") from error
    with held:
        yield
