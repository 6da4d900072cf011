"""The second part of the demonstration: hosts alone, with controls and with CPF on drawn creatures, in a table and on a
page."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..comparison import Comparison, Row
from ..console import keep_quiet, say
from ..data import load_table
from ..discovery.described import read_described
from ..discovery.figures.field_maps import fields_figure
from ..discovery.finished import load
from ..discovery.report import render
from ..discovery.report.build import page_of
from ..errors import NewkindsError
from ..files import make_folder
from ..methods import METHODS
from ..ownership import OwnFiles
from ..runs.config import resolve
from .cells import Cell
from .demo_folder import DATA
from .outcomes import ACCURACY, Outcome
from .paper import HOSTS, TABLES, PaperTable, comparisons, narrow_settings
from .run_grid import run_all
from .styles import text

PAGE, FIELDS = "research.html", "fields.png"
EPOCHS = 15
SEEDS, SEEDS_OF_SEVERAL = (0, 1, 2, 3, 4), (0, 1, 2)
CPF = "cpf-parts"
CONTROLS = ("adapter", "attention-pooling")
ONE_SEED = "One seed: no difference is significant."
NO_SPREAD = "Every difference is the same for all seeds, which says nothing about others."
# The published settings are for data sets and backbones a hundred times as large. Here the backbone stays frozen: a run
# takes seconds, and the organizer is all that can adapt. The rates were chosen once, with SimGCD on creatures of
# another data seed, and are the same for all hosts (results/creatures.md says among which).
COMMON = {
    "backbone": {"train_blocks": 0},
    "train": {"batch_size": 32, "lr": 0.1, "organizer_lr_ratio": 0.03, "cache_views": 4},
}
MEMAX = {"simgcd": 2.0, "legogcd": 2.0}  # memax_weight


class Compared(NamedTuple):
    """The comparison as text: a few lines, or all figures with the protocol."""

    in_short: str
    in_full: str


def methods_of(hosts: str | Sequence[str]) -> list[str]:
    """The names of methods; "all": GCD, and those into which the paper plugs CPF. A wrong one is an error."""
    named = [hosts] if isinstance(hosts, str) else hosts
    methods = ["gcd", *HOSTS] if list(named) == ["all"] else list(dict.fromkeys(named))
    for name in methods:
        METHODS[name]
    return methods


def compare_controls(folder: Path, methods: Sequence[str], seeds: Sequence[int] | None, epochs: int) -> Compared:
    """Train hosts alone, with each control and with CPF on creatures, beside k-means without any training; the table
    with the intervals of all differences, and `research.html` in the folder."""
    if seeds is None:
        seeds = SEEDS_OF_SEVERAL if len(methods) > 1 else SEEDS
    seeds = list(dict.fromkeys(seeds))  # the same run twice would have no spread
    table = replace(
        TABLES["plugin"], data=(DATA["name"],), methods=tuple(methods), organizers=("none", *CONTROLS, CPF),
        baselines=("kmeans",),
    )  # fmt: skip
    cells = table.cells(seeds)

    def settings(cell: Cell) -> list[dict[str, Any]]:
        data = {"data": DATA}
        if cell.is_baseline:
            return [data]
        memax = {"memax_weight": MEMAX[cell.method]} if cell.method in MEMAX else {}
        own = {"train": {"epochs": epochs}, "method": {**narrow_settings(cell.method), **memax}}
        return [data, COMMON, own]

    for cell in cells:  # a wrong name or number is found before anything long begins
        resolve(*settings(cell), *cell.layers())
    make_folder(folder)
    for name in (PAGE, FIELDS):
        OwnFiles(folder).require(name)  # before the work, not after it
    outcomes: dict[Cell, Outcome] = {}
    for row in dict.fromkeys(cell.row for cell in cells):
        say(f"{row.title}, {len(seeds)} seed{'' if len(seeds) == 1 else 's'}")
        with keep_quiet(but_warnings=True):
            outcomes |= run_all([cell for cell in cells if cell.row == row], folder, settings).finished
    if not outcomes:
        raise NewkindsError(f"none of the {len(cells)} runs in {folder} could be finished: see the messages above.")
    (comparison,) = comparisons(table, outcomes)
    comparison.note = _significant(comparison, table, outcomes, seeds)
    command = ["newkinds", "demo", "--research", "--out", str(folder), "--hosts", ",".join(methods), "--seeds"]
    command += [*map(str, seeds), "--epochs", str(epochs)]
    shown = next((cell for cell in outcomes if cell.organizer == CPF), next(iter(outcomes)))
    _write_page(folder, shown, comparison, shlex.join(command))
    short = replace(table, measures=ACCURACY)
    (accuracies,) = comparisons(short, outcomes)
    best = _best_rows(accuracies)
    rivals = [control for control in CONTROLS if control in best]
    beside = ""
    if CPF in best and rivals:
        strongest = max(rivals, key=lambda control: _new(best[control]))
        said = _against(strongest, short, outcomes)
        beside = next((one for one in said if one.startswith(f"{best[CPF].name} ")), _nothing_sure(seeds))
    in_short = [
        f"For research, new kinds on frozen features in %: {', '.join(map(_figure, best.values()))}.",
        beside,
        f"With all figures and intervals: {folder / PAGE}, or newkinds demo --research",
    ]
    return Compared("\n".join(filter(None, in_short)), f"{text(comparison)}\n\nlook at {folder / PAGE}")


def _significant(
    comparison: Comparison, table: PaperTable, outcomes: Mapping[Cell, Outcome], seeds: Sequence[int]
) -> str:
    """Which differences from the hosts, and of CPF from each control, are significant."""
    said = [row.significant_differences() for row in comparison.rows]
    for control in CONTROLS:
        said += _against(control, table, outcomes)
    return " ".join(filter(None, said)) or _nothing_sure(seeds)


def _against(control: str, table: PaperTable, outcomes: Mapping[Cell, Outcome]) -> list[str]:
    """Which differences of CPF from a control are significant, a sentence for each host of which that can be said."""
    (beside,) = comparisons(replace(table, against=control), outcomes)
    rows = (row for row in beside.rows if row.parts["organizer"] == CPF)
    return [said for row in rows if (said := row.significant_differences(beside.base))]


def _nothing_sure(seeds: Sequence[int]) -> str:
    return ONE_SEED if len(seeds) == 1 else NO_SPREAD


def _best_rows(comparison: Comparison) -> dict[str, Row]:
    """Of each organizer the row that finds new kinds best, in the order of the table; k-means has one of its own."""
    best: dict[str, Row] = {}
    for row in comparison.rows:
        what = row.parts["organizer"] if row.parts["assigner"] == "own" else row.parts["assigner"]
        if what not in best or _new(row) > _new(best[what]):
            best[what] = row
    return best


def _new(row: Row) -> float:
    """Accuracy on new kinds."""
    found = row.entries[-1].ours
    return -1.0 if found is None else found.mean


def _figure(row: Row) -> str:
    return f"{row.name} {row.entries[-1].text}"


def _write_page(folder: Path, shown: Cell, comparison: Comparison, command: str) -> None:
    """`research.html`: the comparison, then what one of the runs found; `fields.png`: its primitives."""
    loaded = load(shown.folder(folder))
    loaded.discover(load_table(loaded.run.config().data), page=False)
    page = replace(
        page_of(loaded.run), comparison=comparison, command=command, accuracy=None,
        title="Does CPF help to discover new kinds?",
        subtitle=f"Hosts alone, with controls and with CPF on creatures drawn by code; below, what {shown} found",
    )  # fmt: skip
    OwnFiles(folder).write(PAGE, render(page))
    if (fields := read_described(loaded.run).fields) is not None:
        picture = fields_figure(list(fields.views), list(fields.shares), fields.grid)
        OwnFiles(folder).write(FIELDS, picture.png)
