"""Settings that are chosen for each row of a table, all rows by one rule and at the same cost: each candidate is
trained on the labelled images alone, split again, and the one with the best All there is taken. No label of an image
that the table judges by takes part in that."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from ..console import say, warn
from ..data import load_table
from ..data.table import require_judgeable
from ..errors import NewkindsError
from ..evaluation.judge import evaluate
from ..files import checksum
from ..runs.config import Config, resolve
from ..runs.records import Tried, Tuned
from ..runs.run import Run
from ..settings import SECTIONS, WAITING, nested
from ..training.loop import Diverged
from ..verbs.discover import discover
from ..verbs.train import require_same_settings
from .cell_lock import claimed_cell
from .cells import Cell, Settings
from .earlier_code import require_present_code
from .outcomes import read_outcome
from .tasks import Call, Task

FOLDER = "tuning"  # where the trials are, among the runs
DIVERGED = "diverged.json"  # in a trial that did
ON_LABELLED: dict[str, Any] = {"data": {"tune": True}, "k": None}  # how many categories these have is known
Values = tuple[tuple[str, Any], ...]  # settings and what is tried for them


@dataclass(frozen=True)
class Trial:
    """A row trained with values of settings, on the labelled images alone."""

    row: Cell
    values: Values

    def __str__(self) -> str:
        return f"{self.row.title} on {self.row.data} tried with {Tried(dict(self.values), None)}"

    @property
    def name(self) -> str:
        """That of its folder."""
        text = ",".join(f"{setting}={value}" for setting, value in self.values) or "untuned"
        if re.fullmatch(r"[\w.,=+-]{1,80}", text) is None:  # no part of a path
            text = checksum(repr(self.values).encode())[:16]
        return f"{self.row.data}-{self.row.method}-{self.row.organizer}-{text}"

    def folder(self, out: Path) -> Path:
        return out / FOLDER / self.name


class RowTuning:
    """What is tried for the rows of a table whose runs are in `out`, and what was chosen.

    >>> tuning = RowTuning({"train.lr": [0.1, 0.3, 1.0]}, Path("runs"), row_settings)
    >>> tuning.chosen(cell).chosen.values          # once all of `tuning.tasks(cell)` are done
    {'train.lr': 0.3}
    """

    def __init__(self, grid: Mapping[str, Sequence[Any]], out: Path, settings: Callable[[Cell], Settings]) -> None:
        self._grid = {name: _require_values(name, values) for name, values in grid.items()}
        self._out = out
        self._settings = settings
        self._trials: dict[Cell, list[Trial]] = {}
        self._images: dict[str, int] = {}  # data set → how many it has
        self._told: set[Cell] = set()  # rows of which people know that nothing could be chosen for them

    def trials(self, cell: Cell) -> list[Trial]:
        """What is tried for the row of a cell: nothing if it trains nothing, or if what is tuned is none of its
        settings, as those of one organizer are none of another's."""
        row = _trained(cell)
        if row not in self._trials:
            self._trials[row] = [] if row.is_baseline else self._trials_of(row)
        return self._trials[row]

    def _trials_of(self, row: Cell) -> list[Trial]:
        trials = [Trial(row, tuple(zip(self._grid, values, strict=True))) for values in product(*self._grid.values())]
        layers = [*self._settings(row), *row.layers()]
        configs = [resolve(*layers, *layers_of_values(dict(trial.values))) for trial in trials]
        is_used = any(config != configs[0] for config in configs)
        return trials if is_used and configs[0].train.epochs else []

    def tasks(self, cell: Cell) -> list[Task]:
        """What must be done before the settings of a cell are known, in its order."""
        return self._tasks(self.trials(cell))

    def _tasks(self, trials: Sequence[Trial]) -> list[Task]:
        """The trials of one row, and before them those of its first stage, from the best of which they start."""
        before: list[Task] = []
        if trials and (first := trials[0].row.first_stage) is not None:
            before = self._tasks(self.trials(first) or [Trial(first, ())])
        needs = tuple(task.name for task in before)
        return [*before, *(Task(trial, partial(self._call, trial), needs, trial.name) for trial in trials)]

    def folders(self, cells: Sequence[Cell]) -> list[Path]:
        """Where the trials for some cells are, if they are there."""
        trials: list[Any] = list(dict.fromkeys(task.name for cell in cells for task in self.tasks(cell)))
        return [folder for trial in trials if (folder := trial.folder(self._out)).is_dir()]

    def _call(self, trial: Trial) -> Call:
        return partial(run_trial, trial.folder(self._out), self.layers(trial))

    def layers(self, trial: Trial) -> Settings:
        """All settings of a trial: those of its row, on the labelled images alone, with as many steps as the row."""
        row = trial.row
        layers = [*self._settings(row), *row.layers()]
        config = resolve(*layers)
        train: dict[str, Any] = {}
        if config.train.epoch_size is None:
            train["epoch_size"] = self._count_images(row, config)
        if row.first_stage is not None:
            tuned = self.chosen(row.first_stage)
            values = () if tuned is None else tuple(tuned.chosen.values.items())
            train["start"] = str(Trial(row.first_stage, values).folder(self._out))
        return [*layers, ON_LABELLED, {"train": train}, *layers_of_values(dict(trial.values))]

    def chosen(self, cell: Cell) -> Tuned | None:
        """What was chosen for the row of a cell; None if there was nothing to choose."""
        trials = self.trials(cell)
        if not trials:
            return None
        tried = [Tried(dict(trial.values), read_score(trial.folder(self._out))) for trial in trials]
        sound = [one for one in tried if one.score is not None]
        if not sound:
            raise NewkindsError(f"all trials of {_trained(cell).title} diverged: let --tune try other values.")
        chosen = max(sound, key=lambda one: one.score or 0.0)  # the first of equal ones
        row = _trained(cell)
        if len(sound) > 1 and len({one.score for one in sound}) == 1 and row not in self._told:
            self._told.add(row)
            score = f"All {chosen.score:.1f} % on the labelled images"
            of_row = f"{row.title} on {row.data}"
            warn(f"--tune says nothing about {of_row}: all that was tried has {score}. The first is taken, {chosen}.")
        return Tuned(chosen, tried)

    def require_sound(self, rows: Sequence[Cell]) -> None:
        """Refuse, before anything is trained, values that a row cannot have; say what is going to be tried."""
        trials = list(dict.fromkeys(trial for row in rows for trial in self.trials(row)))
        tuned = len({trial.row for trial in trials})
        if self._grid and rows and not trials:
            raise NewkindsError(f"--tune {', '.join(self._grid)}: no row has such a setting, or trains.")
        for row in {row.data: row for row in (trial.row for trial in trials)}.values():
            self._require_labelled(row)
        if trials:
            each = len(trials) // tuned
            say(f"--tune: for {tuned} row(s) {each} trainings each, on labelled images alone, choose {self.names}")

    def _require_labelled(self, row: Cell) -> None:
        """Refuse data whose labelled images cannot be split again, or are what the table judges by."""
        layers = [*self._settings(row), *row.layers()]
        if resolve(*layers).data.get("tune"):
            raise NewkindsError(
                "--tune chooses on the labelled images, split again, and with data.tune=true the table judges by the "
                "same: leave out one of the two."
            )
        try:
            require_judgeable(load_table(resolve(*layers, ON_LABELLED).data))
        except NewkindsError as error:
            raise NewkindsError(f"--tune cannot split the labelled images of {row.data} again: {error}") from None

    @property
    def names(self) -> str:
        return ", ".join(self._grid)

    def _count_images(self, row: Cell, config: Config) -> int:
        if row.data not in self._images:
            self._images[row.data] = len(load_table(config.data))
        return self._images[row.data]


def layers_of_values(values: Mapping[str, Any]) -> Settings:
    """Values of settings by their full names, as layers."""
    return [nested(name.split("."), value) for name, value in values.items()]


def run_trial(folder: Path, layers: Settings) -> float | None:
    """Train and judge on what the layers say; All in percent, None if it diverges. What is done is not done again."""
    require_present_code(Run(folder))
    if not _is_done(folder):
        Run(folder).refuse_other_contents()
        with claimed_cell(folder):
            if not _is_done(folder):
                _train_and_judge(folder, layers)
    require_same_settings(None, folder, settings=layers)
    return read_score(folder)


def _train_and_judge(folder: Path, layers: Settings) -> None:
    try:
        discover(None, folder, page=False, settings=layers)
    except Diverged as error:
        Run(folder).write_json(DIVERGED, {"why": str(error)})
    else:
        evaluate(folder)


def _is_done(folder: Path) -> bool:
    return (folder / DIVERGED).is_file() or read_outcome(folder) is not None


def read_score(folder: Path) -> float | None:
    """All in percent of a finished trial; None if it diverged."""
    if (folder / DIVERGED).is_file():
        return None
    outcome = read_outcome(folder)
    if outcome is None:
        raise NewkindsError(f"the trial {folder} is not finished: rerun the command.")
    return outcome.figures["all"]


def _trained(cell: Cell) -> Cell:
    """The row whose training a cell has: another assigner takes that of its host."""
    return replace(cell.row, organizer="none") if cell.is_assigned else cell.row


def _require_values(name: str, values: Sequence[Any]) -> list[Any]:
    """The values of a setting, each once; what cannot be tuned is refused."""
    section, _, rest = name.partition(".")
    example = "write it as --tune train.lr=0.1,0.3,1"
    if section not in SECTIONS or not rest or (rest.count(".") and section not in WAITING):
        raise NewkindsError(f"--tune {name}: there is no such setting; {example}.")
    if section == "data" or rest == "name" or name in ("train.seed", "train.start"):
        raise NewkindsError(f"--tune {name}: that is not chosen by trying, but by you.")
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise NewkindsError(f"--tune {name}: give several values; {example}.")
    different = [value for place, value in enumerate(values) if value not in values[:place]]
    if len(different) < 2:
        raise NewkindsError(f"--tune {name}: give two values or more; {example}.")
    return different
