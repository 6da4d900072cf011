"""Runs of a grid that other code made than there is now: they are never mixed with others, and never deleted."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from ..console import say, warn
from ..errors import KeptApart, NewkindsError
from ..files import move_folder
from ..runs.code import describe_difference
from ..runs.records import Protocol
from ..runs.run import Run
from .cell_lock import claimed_cell
from .cells import Cell

EARLIER_CODE = "earlier-code"  # the folder, among the runs, of those that other code made


def require_present_code(run: Run) -> None:
    """Refuse a run, finished or not, that other code made than there is now."""
    if differing := _differing(run):
        raise KeptApart(
            f"{run.folder} was made by other code ({differing}). Its figures are not mixed with those of the code as "
            f"it is now: newkinds bench … --again (in Python again=True) runs it again, and keeps what is there in "
            f"{EARLIER_CODE}; or choose another --out."
        )


def set_aside(cells: Sequence[Cell], out: Path) -> None:
    """Move runs that other code made to a folder of their own, and what was made from them; a run that another process
    is at stays."""
    moved: set[Path] = set()
    for cell in cells:
        source = cell.before.folder(out) if cell.before else cell.features_folder(out) if cell.is_baseline else None
        for folder in filter(None, (source, cell.folder(out))):
            if _set_aside(folder, out, "its source has changed" if source in moved and folder.is_dir() else ""):
                moved.add(folder)


def set_aside_trials(folders: Iterable[Path], out: Path) -> None:
    """The same of trainings by which settings were chosen."""
    for folder in folders:
        _set_aside(folder, out)


def _set_aside(folder: Path, out: Path, otherwise: str = "") -> bool:
    """Move a run, if other code made it; whether it was."""
    try:
        differing = _differing(Run(folder)) or otherwise
        if differing:
            with claimed_cell(folder):
                target = move_folder(folder, out / EARLIER_CODE)
            say(f"{folder.name} was made by other code ({differing}): it is in {target} now")
    except NewkindsError as error:
        warn(f"{folder} stays where it is: {error}")
        return False
    return bool(differing)


def _differing(run: Run) -> str:
    record = Protocol.find(run)
    return "" if record is None else describe_difference(record, run.config())
