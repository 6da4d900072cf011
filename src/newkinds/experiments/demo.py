"""The demonstration: hosts alone, with an adapter and with CPF on drawn creatures, in a table and on a page."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..comparison import Comparison
from ..data import load_table
from ..discovery.described import read_described
from ..discovery.figures.field_maps import fields_figure
from ..discovery.finished import load
from ..discovery.report import render
from ..discovery.report.build import page_of
from ..errors import NewkindsError
from ..files import make_folder
from ..ownership import OwnFiles
from ..runs.config import resolve
from .cells import Cell
from .paper import HOSTS, TABLES, comparisons, narrow_settings
from .run_grid import run_all
from .styles import text

DATA = "creatures"
PAGE, FIELDS = "index.html", "fields.png"
DATA_SEED = 101  # of creatures on which nothing was ever chosen, neither a setting nor this seed (results/creatures.md)
EPOCHS = 15
SEEDS, SEEDS_OF_SEVERAL = (0, 1, 2, 3, 4), (0, 1, 2)
CPF = "cpf-parts"
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


def demo(
    out: str | Path = "newkinds-demo", hosts: str | Sequence[str] = "simgcd", seeds: Sequence[int] | None = None,
    epochs: int = EPOCHS,
) -> str:  # fmt: skip
    """Train hosts alone, with an adapter and with CPF on creatures (same seeds, same schedule), beside k-means without
    any training; the table with the intervals of all differences, and index.html in `out`.

    `hosts`: a method's name, several, or "all": GCD, and those into which the paper plugs CPF. `seeds`: one run each;
    by default 0 to 4, and 0 to 2 for several hosts. To resume, make the same call again.

    >>> from newkinds.experiments.demo import demo
    >>> print(demo("plug-in", hosts="all", seeds=[0, 1, 2]))
    """
    named = [hosts] if isinstance(hosts, str) else hosts
    methods = ["gcd", *HOSTS] if list(named) == ["all"] else list(dict.fromkeys(named))
    if seeds is None:
        seeds = SEEDS_OF_SEVERAL if len(methods) > 1 else SEEDS
    seeds = list(dict.fromkeys(seeds))  # the same run twice would have no spread
    organizers = ("none", "adapter", CPF)
    table = replace(
        TABLES["plugin"], data=(DATA,), methods=tuple(methods), organizers=organizers, baselines=("kmeans",)
    )
    cells = table.cells(seeds)

    def settings(cell: Cell) -> list[dict[str, Any]]:
        data = {"data": {"name": DATA, "seed": DATA_SEED}}
        if cell.is_baseline:
            return [data]
        memax = {"memax_weight": MEMAX[cell.method]} if cell.method in MEMAX else {}
        own = {"train": {"epochs": epochs}, "method": {**narrow_settings(cell.method), **memax}}
        return [data, COMMON, own]

    for cell in cells:  # a wrong name or number is found before anything long begins
        resolve(*settings(cell), *cell.layers())
    folder = make_folder(Path(out))
    for name in (PAGE, FIELDS):
        OwnFiles(folder).require(name)  # before the work, not after it
    outcomes = run_all(cells, folder, settings).finished
    if not outcomes:
        raise NewkindsError(f"none of the {len(cells)} runs in {folder} could be finished: see the messages above.")
    (comparison,) = comparisons(table, outcomes)
    (with_adapter,) = comparisons(replace(table, against="adapter"), outcomes)
    said = [row.significant_differences() for row in comparison.rows]
    said += [
        row.significant_differences(with_adapter.base) for row in with_adapter.rows if row.parts["organizer"] == CPF
    ]
    comparison.note = " ".join(filter(None, said)) or (ONE_SEED if len(seeds) == 1 else NO_SPREAD)
    command = ["newkinds", "demo", "--out", str(folder), "--hosts", ",".join(methods), "--seeds", *map(str, seeds)]
    shown = next((cell for cell in outcomes if cell.organizer == CPF), next(iter(outcomes)))
    _write_page(folder, shown, comparison, shlex.join([*command, "--epochs", str(epochs)]))
    return f"{text(comparison)}\n\nlook at {folder / 'index.html'}"


def _write_page(folder: Path, shown: Cell, comparison: Comparison, command: str) -> None:
    """`index.html`: the comparison, then what one of the runs found; `fields.png`: its primitives."""
    loaded = load(shown.folder(folder))
    loaded.discover(load_table(loaded.run.config().data), page=False)
    page = replace(
        page_of(loaded.run), comparison=comparison, command=command, accuracy=None,
        title="Does CPF help to discover new kinds?",
        subtitle=f"Hosts alone, with an adapter and with CPF on creatures drawn by code; below, what {shown} found",
    )  # fmt: skip
    OwnFiles(folder).write(PAGE, render(page))
    if (fields := read_described(loaded.run).fields) is not None:
        picture = fields_figure(list(fields.views), list(fields.shares), fields.grid)
        OwnFiles(folder).write(FIELDS, picture.png)
