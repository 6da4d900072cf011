"""Runs of parts that are not loaded: of a plugin that this command was not given, or of a package that is not
installed. Their rows are read from their files; no code of theirs is run."""

from collections.abc import Iterable
from pathlib import Path

from ..console import say, warn
from ..errors import NewkindsError
from ..runs.records import OutsidePart
from ..runs.run import Run
from .cells import Cell


def unloaded_rows(out: Path, data: Iterable[str]) -> list[Cell]:
    """The rows of such runs in a folder, on these data sets; which parts they need, and how to load these, is said."""
    rows: dict[Cell, None] = {}
    folders_of: dict[OutsidePart, list[str]] = {}
    for folder in sorted(out.iterdir()) if out.is_dir() else ():
        if not (folder / "config.yaml").is_file():
            continue
        try:
            missing = Run(folder).missing_parts()
            row = _row_of(folder, data) if missing else None
        except NewkindsError as error:
            warn(f"{folder} is left out of the table: {error}")
            continue
        if row is not None:
            rows[row] = None
            for part in missing.values():
                folders_of.setdefault(part, []).append(folder.name)
    for part, folders in folders_of.items():
        runs = f"{len(folders)} run(s) in {out} ({', '.join(folders[:3])}{', …' if len(folders) > 3 else ''})"
        say(f"{runs} need '{part.name}' of {part.origin}, which is not loaded: their rows are read from their files.")
        say(f"To run or resume them: {part.how_to_load}.")
    return list(rows)


def _row_of(folder: Path, data: Iterable[str]) -> Cell | None:
    """The row of a run by its settings and by the name of its folder, which also tells the variant; None: of no row."""
    settings = Run(folder).settings()
    try:
        method, seed = settings["method"]["name"], settings["train"]["seed"]
    except (KeyError, TypeError):
        raise NewkindsError("its config.yaml does not say its method and its seed.") from None
    for name in data:
        beginning, end = f"{name}-{method}-", f"-seed{seed}"
        if folder.name.startswith(beginning) and folder.name.endswith(end):
            return Cell(name, method, folder.name.removeprefix(beginning).removesuffix(end))
    return None
