"""What an export is: a function that writes a file or a folder which was not there before, whole or not at all."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import NewkindsError
from ...files import make_folder, remove, remove_leftovers_of, sync_folder, sync_tree, temporary_of
from ...registry import Registry

# `write(discovery, target, **options)` makes `target`, where nothing is yet, from what a run found as people corrected
# it, and says what was written. Its keyword arguments are options of the command line.
EXPORTS: Registry[Callable[..., str]] = Registry("export")


@contextmanager
def new_target(target: Path) -> Iterator[Path]:
    """Where to build a file or a folder that appears as `target` at once, when all of it is there; on an error nothing
    is left. Anything that is there already is refused, but for an empty folder.

    >>> with new_target(Path("exported")) as building:
    ...     building.mkdir()
    """
    target = Path(os.path.abspath(target))
    if target.is_dir() and not target.is_symlink():
        if any(target.iterdir()):
            raise NewkindsError(f"the folder {target} is not empty: choose another --out, or empty it first.")
        if target.samefile(os.curdir):  # it would be replaced under its user's feet
            raise NewkindsError(f"you are in the folder {target}: name a folder that is not there yet by --out.")
    elif os.path.lexists(target):
        raise NewkindsError(f"{target} is there already: choose another --out, or delete it first.")
    make_folder(target.parent)
    building = temporary_of(target)
    try:
        yield building
        sync_tree(building)
        if target.is_dir():
            if not building.is_dir():
                raise NewkindsError(f"{target} is a folder: name a file by --out, such as {target / 'found.csv'}.")
            target.rmdir()  # somebody may have put something in: then it is not removed
        os.rename(building, target)
        sync_folder(target.parent)
        remove_leftovers_of(target)
    except OSError as error:
        raise NewkindsError(f"cannot write {target}: {error.strerror or error}. Nothing was exported.") from error
    finally:
        remove(building)
