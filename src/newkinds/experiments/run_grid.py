"""Grids of runs: data sets × methods × organizers × seeds, each run or resumed."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path

from ..console import say, warn
from ..errors import NewkindsError
from ..evaluation.judge import evaluate
from ..runs.records import Tuned
from ..runs.run import Run
from ..training.watching import Watcher
from ..verbs.assign import CHANGED as ASSIGNING
from ..verbs.assign import assign
from ..verbs.count import count_categories
from ..verbs.discover import discover
from ..verbs.train import differing_settings, require_same_settings
from .cell_lock import claimed_cell
from .cells import Cell, Settings, with_what_comes_before
from .earlier_code import require_present_code
from .outcomes import Outcome, count_of, read_outcome
from .tasks import Call, InTurn, Pool, Task, TaskQueue, Worked
from .tuning import RowTuning, layers_of_values

COUNTED_BY = "ward"  # published for trained features, and the same in all tables


def run_all(
    cells: Sequence[Cell], out: Path, settings: Callable[[Cell], Settings],
    count_by: Callable[[Cell], str | None] = lambda _: COUNTED_BY, watchers: Sequence[Watcher] = (),
    pool: Pool | None = None, wait: bool = True, tuning: RowTuning | None = None,
) -> Worked:  # fmt: skip
    """Run the cells one after the other, or as the `pool` does, or resume them, and before each what it starts from;
    one that fails is reported and does not stop the others, one that another process is at comes last: see `TaskQueue`.
    `settings`: for each cell all that the cell itself does not say; `count_by`: its estimator of categories, if any;
    `tuning` chooses some of the settings before."""

    def call(cell: Cell) -> Call:
        tuned = None if tuning is None else tuning.chosen(cell)
        return partial(run_one, cell, out, settings(cell), count_by(cell), watchers, tuned)

    tasks: dict[Hashable, Task] = {}
    for cell in with_what_comes_before(cells):
        before = [] if tuning is None else tuning.tasks(cell)
        tasks |= {task.name: task for task in before}
        needs = (*(task.name for task in before), *([] if cell.before is None else [cell.before]))
        tasks[cell] = Task(cell, partial(call, cell), needs, cell.folder(out).name)
    worked = TaskQueue(list(tasks.values()), pool or InTurn(), wait).work_off()
    return worked.only(lambda name: isinstance(name, Cell))


def run_one(
    cell: Cell, out: Path, settings: Settings, count_by: str | None = COUNTED_BY, watchers: Sequence[Watcher] = (),
    tuned: Tuned | None = None,
) -> Outcome:  # fmt: skip
    """Train (or resume), assign, evaluate and, if requested, count; what is done already is not done again.
    What it starts from is there already. `tuned`: settings that were chosen for its row, which win. If another process
    is at it, that is said by `Busy`."""
    if tuned is not None:
        settings = [*settings, *layers_of_values(tuned.chosen.values)]
    folder, layers = cell.folder(out), [*settings, *cell.layers(out)]
    require_present_code(Run(folder))
    done = read_outcome(folder)
    if done is not None:
        require_same_settings(None, folder, settings=layers)
        if _tells_tuned(Run(folder), tuned) and not _lacks_count(folder, count_by):
            say(f"{folder} is finished already")
            return done
    Run(folder).refuse_other_contents()
    with claimed_cell(folder):
        is_judged = read_outcome(folder) is not None and _tells_tuned(Run(folder), tuned)
        if tuned is not None and not is_judged:
            tuned.write(Run(folder))
        if read_outcome(folder) is None:
            _find_categories(cell, out, settings, watchers)
        if not is_judged:
            evaluate(folder)
        if count_by and _lacks_count(folder, count_by):
            try:
                count_categories(folder, count_by)
            except NewkindsError as error:  # its accuracies still count
                warn(f"the categories of {cell} cannot be counted: {error}")
    outcome = read_outcome(folder)
    assert outcome is not None  # all its files have just been written
    return outcome


def describe_other_settings(cell: Cell, out: Path, settings: Settings) -> str:
    """How a finished run differs from what is asked for: `train.lr is 0.1, not 0.3`; empty if it does not."""
    differing = differing_settings(None, cell.folder(out), settings=[*settings, *cell.layers(out)])
    return ", ".join(f"{name} is {there}, not {asked}" for name, (there, asked) in differing.items())


def _find_categories(cell: Cell, out: Path, settings: Settings, watchers: Sequence[Watcher]) -> None:
    """Train and assign, or only assign what another run has learnt."""
    folder, layers = cell.folder(out), [*settings, *cell.layers(out)]
    if cell.is_baseline or cell.is_assigned:
        source = cell.before.folder(out) if cell.before else _frozen_features(cell, out, settings)
        named_first = (cell.variant, *layers)  # an assigner's name forgets the settings of another
        chosen = [{section: layer[section] for section in ASSIGNING if section in layer} for layer in named_first]
        assign(source, out=folder, seed=cell.seed, page=False, settings=chosen)
    else:
        discover(None, folder, page=False, watchers=watchers, settings=layers)


def _tells_tuned(run: Run, tuned: Tuned | None) -> bool:
    """Whether a run says how its settings were chosen, if they were."""
    return tuned is None or Tuned.find(run) == tuned


def _lacks_count(folder: Path, count_by: str | None) -> bool:
    """Whether categories are to be counted that have not been, in this way."""
    if count_by is None:
        return False
    count = count_of(Run(folder))
    return count is None or count.method != count_by


def _frozen_features(cell: Cell, out: Path, settings: Settings) -> Path:
    """The run from which all baselines of a data set are made, which is run if it is not there."""
    folder, layers = cell.features_folder(out), [*settings, *Cell(cell.data, cell.method, "none").layers()]
    require_present_code(Run(folder))
    if not _has_features(folder):
        with claimed_cell(folder):
            if not _has_features(folder):
                discover(None, folder, page=False, settings=layers)
    require_same_settings(None, folder, settings=layers)
    return folder


def _has_features(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("features.safetensors", "assignments.csv"))
