"""Runs of parts that are not loaded: of a plugin that this command was not given, or of a package that is not
installed. Their rows are read from their files; no code of theirs is run."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..console import say, warn
from ..errors import NewkindsError
from ..runs.records import OutsidePart
from ..runs.run import Run
from .cells import Cell


@dataclass(frozen=True)
class UnloadedRuns:
    """Such runs in a folder: their rows, and which parts they need."""

    out: Path
    rows: list[Cell] = field(default_factory=list)
    folders_of: dict[OutsidePart, list[str]] = field(default_factory=dict)

    def tell(self) -> None:
        """Say which parts they need, and how to load these."""
        for part, folders in self.folders_of.items():
            runs = f"{len(folders)} run(s) in {self.out} ({', '.join(folders[:3])}{', …' if len(folders) > 3 else ''})"
            of_what = f"'{part.name}' of {part.origin}, which is not loaded"
            say(f"{runs} need {of_what}: their rows are read from their files.")
            say(f"To run or resume them: {part.how_to_load}.")

    def hint(self, name: str) -> str:
        """How to load a part that some of them need, as a sentence; empty if none does."""
        part = next((part for part in self.folders_of if part.name == name), None)
        return "" if part is None else f" Runs in {self.out} have it from {part.origin}: {part.how_to_load}."


def find_unloaded(out: Path, data: Iterable[str]) -> UnloadedRuns:
    """Those in a folder, on these data sets."""
    found, names = UnloadedRuns(out), list(data)
    for folder in sorted(out.iterdir()) if out.is_dir() else ():
        if not (folder / "config.yaml").is_file():
            continue
        try:
            missing = Run(folder).missing_parts()
            row = _row_of(folder, names) if missing else None
        except NewkindsError as error:
            warn(f"{folder} is left out of the table: {error}")
            continue
        if row is not None:
            if row not in found.rows:
                found.rows.append(row)
            for part in missing.values():
                found.folders_of.setdefault(part, []).append(folder.name)
    return found


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
