"""Several processes may work on one grid: each cell is one process's at a time."""

from contextlib import AbstractContextManager
from pathlib import Path

from ..ownership import CELL_LOCK, hold_lock


def claimed_cell(folder: Path) -> AbstractContextManager[None]:
    """One process at a time works on a cell, from its training to its count; a killed one leaves it free."""
    return hold_lock(folder / CELL_LOCK, f"another process is working on {folder}: wait for it.")
