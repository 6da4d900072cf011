"""The verb that takes what a run found elsewhere."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..discovery.categories import Discovery
from ..discovery.export import EXPORTS, new_target
from ..discovery.export.tables import assignments_text
from ..errors import NewkindsError


def export(run: str | Path, to: str, out: str | Path, **options: Any) -> str:
    """Write what a run found, with all corrections, or its model, in a format that others read.

    `to` is one of `newkinds list exports`; `out` is a folder or file that is not there yet, and nothing else is
    written. Options depend on the format. Returns a sentence about what was written.

    >>> newkinds.export("runs/photos", to="onnx", out="photos-onnx")
    """
    write = _checked(to, options)
    discovery = Discovery.read(run)
    with new_target(Path(out)) as target:
        return write(discovery, target, **options)


def printed(run: str | Path, to: str, **options: Any) -> str:
    """What an export would write, if it is one text."""
    _checked(to, options)
    if to != "csv":
        raise NewkindsError(f"only csv can be printed: name a folder for the export '{to}' by --out.")
    return assignments_text(Discovery.read(run))


def _checked(to: str, options: Mapping[str, Any]) -> Callable[..., str]:
    """The function that writes a format, if these are options of it."""
    write = EXPORTS[to]
    allowed = [
        option.name for option in inspect.signature(write).parameters.values() if option.kind is option.KEYWORD_ONLY
    ]
    for name in options:
        if name not in allowed:
            flags = ", ".join(f"--{other.replace('_', '-')}" for other in allowed)
            raise NewkindsError(
                f"--{name.replace('_', '-')} does not apply to the export '{to}'; it has {flags or 'no options'}."
            )
    return write
