"""Parts from Python files: methods, organizers, assigners, counters and data sets that are in no package."""

import importlib
import sys
from pathlib import Path

from .errors import NewkindsError, note_outside, reason_of
from .files import checksum, user_path
from .registry import registering_from

_loaded: dict[str, str] = {}  # the files, in their order → checksum of what was imported


def load_plugin(file: str | Path) -> None:
    """Import a Python file, once, and again if it was edited; what it registers can be named from then on.

    >>> newkinds.plugins.load_plugin("mine.py")
    >>> newkinds.train("photos/", "runs/mine", method="mine", k=40)
    """
    path = user_path(file)
    if not path.is_file() or path.suffix != ".py":
        raise NewkindsError(f"the plugin {file} does not exist or is not a Python file (.py).")
    if not path.stem.isidentifier():
        raise NewkindsError(f"the plugin {file} cannot be imported by that name: use letters, digits and _ only.")
    if str(path.parent) not in sys.path:  # also for the files that it imports, and for the processes that read images
        sys.path.append(str(path.parent))
    note_outside(path.stem)
    try:
        content = checksum(path)
        with registering_from(str(path)):
            module = importlib.import_module(path.stem)
            if _loaded.get(str(path), content) != content:
                module = importlib.reload(module)
    except (Exception, SystemExit) as error:
        raise NewkindsError(f"the plugin {file} cannot be loaded: {reason_of(error)}") from error
    if Path(module.__file__ or "").resolve() != path:
        raise NewkindsError(f"the plugin {path} has the name of another module ({module.__file__}): rename it.")
    _loaded[str(path)] = content


def loaded_plugins() -> list[str]:
    """The files that were loaded, in their order: other processes of a command load them too."""
    return list(_loaded)
