"""The paper's tables, and one for any data: the runs each needs, what is reported, and our figures next to it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import product
from typing import Any, Literal

from ..comparison import HOST, Comparison, Entry, LeftOut, OverSeeds, Row, merge_protocols, shared_protocol
from ..data.published.classes import read_class_list
from ..encoders.families import PUBLISHED
from ..methods import METHODS
from ..runs.config import DRAWN
from ..settings import settings_of
from .averages import average_gains, average_over_data
from .cells import READOUTS, SIZES, Cell, Settings
from .outcomes import ACCURACY, CLASSES, COLUMNS, COMPARED, Outcome, Refused, describe_classes
from .run_grid import COUNTED_BY

HOSTS = ("simgcd", "legogcd", "cms", "selex")
FINE = ("cub", "aircraft", "cars")
COUNTED = ("cifar100", "imagenet100", "cub", "cars")
CONTROLS = ("adapter", "grid", "attention-pooling")  # what CPF must beat besides its host: they have no primitives
ABLATED = (
    "none", "patches", *CONTROLS,
    "cpf", "cpf-without-alpha", "cpf-without-prior", "cpf-without-data",
    *(f"cpf-{readout}" for readout in READOUTS), "cpf-full-phi", "cpf-frozen",
    "cpf-parts", "cpf-parts-trained", "cpf-random-parts",
    "cpf-attention", "cpf-attention-without-codebook", "cpf-attention-without-field",
)  # fmt: skip
SWEPT = ("none", "adapter", *(f"cpf-M{primitives}-H{heads}" for primitives, heads in product(SIZES, SIZES)))
SWEEP_REPORTED = "The paper shows this as a picture without figures; it says: best and stable for 12 to 16 primitives."
PAPERS_READOUT = "literal"
COUNTS = ("count", "count_error")
COUNTABLE = ("kmeans", "kmeans-whitened")  # the count depends on the embedding alone
BASELINES = (
    *(f"{name}{kind}" for name in ("kmeans", "sskmeans", "ward", "balanced", "pim") for kind in ("", "-whitened")),
    "em",  # it whitens by itself
)
COSTS = ("model_parameters", "epoch_seconds", "inference_seconds")
QUOTED = (
    "APL and ConGCD are only quoted: no code of theirs is published. Our organizers parts and slots, in their style, "
    "have rows of their own."
)
PIM = "The paper's PIM is GCD + pim, as published."
OF_DCCL = "What is reported for DCCL is the number of its communities; ours is counted in its features, as for CMS."
PUBLISHED_PIM = {"assigner": {"pim": {"as_published": True}}}  # where it is a row of the paper, and no baseline of ours
# The published sizes are for data sets a hundred times as large, and for GPUs.
QUICK: dict[str, Any] = {
    "train": {"epochs": 20, "batch_size": 64, "precision": "auto"},  # a recipe may say float16, for a GPU
    "tuning": {"prompts": {"blocks": 2}},  # what comes before can be cached
}
# What suits the bundled backbone: with the head's rate for all, three of four hosts were worse than k-means without
# training; with these, two (creatures of data seed 1, one seed). Other backbones have what suits their family.
GENTLE = {"train": {"backbone_lr_ratio": 0.1, "organizer_lr_ratio": 0.1}}
NARROW = {"projection_hidden": 256, "output_dim": 1024, "bank": 512}  # at most, for methods that have these settings
SHRUNK = (
    "To be quick, all systems train for as few epochs, with narrower heads, shorter memories and prompts in fewer "
    "blocks than published (see method, tuning and training below): the published order need not show."
)

# table → data set → method → organizer → measure; methods in the paper's order, and systems that are only quoted
REPORTED = json.loads(resources.files(__package__).joinpath("reported.json").read_text(encoding="utf-8"))


def narrow_settings(method: str) -> dict[str, int]:
    """Settings of a method whose heads and memories would be far too large for a few hundred images."""
    usual = settings_of(METHODS[method].Config)
    return {name: most for name, most in NARROW.items() if name in usual and usual[name].default > most}


@dataclass(frozen=True)
class PaperTable:
    """One table: a grid, and what is read from its runs."""

    name: str
    title: str
    data: tuple[str, ...]  # unless others are named
    methods: tuple[str, ...]  # in their order, also systems that are only quoted; none: see `systems`
    organizers: tuple[str, ...] = ("none", *CONTROLS, "cpf")
    also: tuple[tuple[str, str], ...] = ()  # further rows: method, organizer
    measures: tuple[str, ...] = ACCURACY
    baselines: tuple[str, ...] = BASELINES  # assigners of frozen features
    on_test_images: bool = False  # the paper: on the unlabelled training images
    any_data: bool = False  # folders and CSV files too
    against: str = "none"  # what rows are compared with: an organizer, a method, or METHOD+ORGANIZER
    note: str = ""
    picture: Literal["differences", "map"] | None = None  # differences from the host, or primitives × heads
    quick: bool = False  # sizes and epochs for a small machine
    suits_backbone: bool = False  # read-out and rates by default those of the backbone's family

    @property
    def evaluated(self) -> str:
        """The images that are judged; empty if the measures are not accuracies."""
        return "test" if self.on_test_images else "unlabelled" if "all" in self.measures else ""

    @property
    def reported(self) -> dict[str, Any]:
        """The paper's figures: data set → method → organizer → measure; empty if it has no such table."""
        return {} if self.on_test_images else REPORTED.get(self.name, {})

    def base_of(self, row: Cell) -> Cell | None:
        """The row that a row is compared with: of the same method with the organizer `against`, of that method with the
        same organizer, or one for all; None for that row itself, and for baselines unless one is for all."""
        method, plus, organizer = self.against.partition("+")
        if plus:
            base = replace(row, method=method, organizer=organizer)
        elif row.is_baseline:
            return None
        elif self.is_against_method:
            base = replace(row, method=method)
        else:
            base = replace(row, organizer=self.against)
        return None if base == row else base

    @property
    def is_against_method(self) -> bool:
        return self.against in METHODS

    @property
    def compares_inside_hosts(self) -> bool:
        return "+" not in self.against and not self.is_against_method

    @property
    def base_name(self) -> str:
        """What `base_of` gives, in words."""
        method, plus, organizer = self.against.partition("+")
        if plus:
            return Cell("", method, organizer).title
        if self.is_against_method:
            return f"{Cell('', method, 'none').title} with the same organizer"
        return HOST if self.against == "none" else f"{HOST} with {self.against}"

    def published_classes(self, data: str) -> str | None:
        """How many classes the reported figures are for, of data of which some are reported."""
        if data not in self.reported:
            return None
        classes = read_class_list(data)
        return describe_classes(len(classes.known), len(classes.known) + len(classes.new))

    def reports(self, row: Cell) -> bool:
        """Whether the paper has figures of such a row."""
        return row.organizer in self.reported.get(row.data, {}).get(row.method, {})

    def counted_by(self, cell: Cell) -> str | None:
        """The estimator: that of the method's authors if the paper reports counts, else one for all."""
        if "count" not in self.measures:
            return None
        return "brent" if self.reported and cell.method == "gcd" else COUNTED_BY

    @property
    def systems(self) -> tuple[str, ...]:
        """Its methods; if it names none, all that train, those of the paper first."""
        every = dict.fromkeys([*REPORTED["fine"]["cub"], *REPORTED["coarse"]["cifar10"], *METHODS])
        return self.methods or tuple(name for name in every if name in METHODS and METHODS[name].trains)

    def settings(self, cell: Cell) -> Settings:
        """What the table wants otherwise than a method's authors, or as they have it whatever the backbone is."""
        if not self.quick:
            pim = [PUBLISHED_PIM] if (cell.method, cell.organizer) in self.also else []
            return pim if self.suits_backbone else [PUBLISHED, *pim]
        gentle = [GENTLE] if cell.data in DRAWN else []
        return [QUICK, *gentle, {"method": {"name": cell.method, **narrow_settings(cell.method)}}]

    def cells(self, seeds: Iterable[int] = (0,)) -> list[Cell]:
        """For each data set the baselines, then host by host: alone, and with each organizer, unless it is quoted."""
        rows = []
        for data in self.data:
            rows += [Cell(data, "frozen", name) for name in self.baselines]
            for method in self.systems:
                others = [organizer for host, organizer in self.also if host == method]
                organizers = (*self.organizers, *others) if method in METHODS else ("none",)
                rows += [Cell(data, method, organizer) for organizer in organizers]
        return [replace(row, seed=seed) for row in dict.fromkeys(rows) for seed in seeds]


TABLES = {table.name: table for table in (
    PaperTable("fine", "Fine-grained data sets", FINE, tuple(REPORTED["fine"]["cub"]), note=QUOTED),
    PaperTable(
        "coarse", "Coarse data sets", tuple(REPORTED["coarse"]), tuple(REPORTED["coarse"]["cifar10"]),
        also=(("gcd", "pim"),), note=f"{PIM} {QUOTED}",
    ),
    PaperTable(
        "ablation", "Which parts of CPF matter", FINE, ("simgcd",), ABLATED, any_data=True, picture="differences",
    ),
    PaperTable(
        "sensitivity", "How many primitives (M) and heads (H)", FINE, ("simgcd",), SWEPT, any_data=True,
        note=SWEEP_REPORTED, picture="map",
    ),
    PaperTable(
        "count", "How many categories", COUNTED, ("gcd", "dccl", "cms"), measures=COUNTS, baselines=COUNTABLE,
        note=OF_DCCL,
    ),
    PaperTable("cost", "What CPF costs", ("cub",), ("simgcd",), ("none", "cpf"), measures=COSTS, baselines=()),
    PaperTable(
        "plugin", "Hosts and what is plugged into them", (), HOSTS, measures=COMPARED, any_data=True,
        suits_backbone=True,
    ),
    PaperTable(
        "all", "Every system", (), (), also=(("gcd", "pim"),),
        measures=(*ACCURACY, "parameters", "seconds"), any_data=True, note=SHRUNK, quick=True, suits_backbone=True,
    ),
)}  # fmt: skip


def comparisons(
    table: PaperTable, outcomes: Mapping[Cell, Outcome], rows: Sequence[Cell] | None = None,
    left_out: Mapping[Cell, Refused] | None = None,
) -> list[Comparison]:  # fmt: skip
    """The table of each data set, one more if runs were evaluated on test images too, and the average of data sets.
    `rows`: those that are shown, whether they were run or not; the table's by default. `left_out`: runs that are not.
    """
    tested = {cell: replace(run, figures=run.test) for cell, run in outcomes.items() if run.test is not None}
    found = []
    for data in table.data:
        of_data = [row for row in (table.cells() if rows is None else rows) if row.data == data]
        found.append(_comparison(table, data, of_data, outcomes))
        found[-1].left_out = [
            _left_out(table, cell, run) for cell, run in (left_out or {}).items() if cell.data == data
        ]
        if table.evaluated and any(cell.data == data for cell in tested):
            on_test = replace(table, on_test_images=True, measures=ACCURACY)
            found.append(_comparison(on_test, data, [row for row in of_data if not row.is_quoted], tested))
    average = average_over_data([each for each in found if each.parts["evaluated"] != "test"])
    return found if average is None else [*found, average]


def title_of(row: Cell, runs: Sequence[Outcome]) -> str:
    """A row's name; it also says the read-out if runs called CPF do not have the paper's: `SimGCD + CPF gated`."""
    if row.variant["organizer"]["name"] != "cpf" or "readout" in row.variant["organizer"]:
        return row.title
    others = {str(run.settings.get("organizer.readout", PAPERS_READOUT)) for run in runs} - {PAPERS_READOUT}
    return " ".join([row.title, *sorted(others)])


def _comparison(table: PaperTable, data: str, cells: Sequence[Cell], outcomes: Mapping[Cell, Outcome]) -> Comparison:
    def figure(row: Cell, measure: str) -> OverSeeds | None:
        return OverSeeds.of({cell.seed: run.figures[measure] for cell, run in outcomes.items() if cell.row == row})

    silent = set() if table.evaluated else {"evaluated", "metric"}  # of the protocol: what the table does not show
    silent |= set() if "count" in table.measures else {"counting"}
    rows = []
    compared_for = {}  # row → the organizer, or the method, that it is compared for, as it is called
    for cell in cells:
        base = table.base_of(cell)
        paper = table.reported.get(data, {}).get(cell.method, {}).get(cell.organizer, {})
        runs = {each.seed: run for each, run in outcomes.items() if each.row == cell}
        name, parts = title_of(cell, [*runs.values()]), parts_of(cell)
        others = {str(run.settings[CLASSES]) for run in runs.values() if CLASSES in run.settings}
        if paper and (others := others - {table.published_classes(data)}):  # what is reported is about another task
            quoted = [Entry(COLUMNS[measure], None, reported=paper.get(measure)) for measure in table.measures]
            rows.append(Row(name, quoted, 0, parts=parts))
            name, paper = f"{name}, {', '.join(sorted(others))}", {}
        entries = []
        for measure in table.measures:
            compared = None if base is None else figure(base, measure)
            entries.append(Entry(COLUMNS[measure], figure(cell, measure), compared, reported=paper.get(measure)))
        merged = merge_protocols(run.protocol for run in runs.values())
        protocol = {field: value for field, value in merged.items() if field not in silent}
        collapsed = {seed: run.largest_share or 0.0 for seed, run in runs.items() if run.has_collapsed}
        rows.append(Row(name, entries, len(runs), protocol, parts, collapsed))
        plugged = name.removeprefix(f"{cell.method_title} + ") if cell.plugged_title else ""
        compared_for[name] = cell.method_title if table.is_against_method else plugged
    parts = {"table": table.name, "data": data, "evaluated": table.evaluated}
    if table.against != "none":
        parts["against"] = table.against
    averages = [] if "+" in table.against else average_gains(rows, lambda row: compared_for.get(row.name, ""))
    return Comparison(rows, shared_protocol(rows), table.note, table.title, parts, table.base_name, averages=averages)


def _left_out(table: PaperTable, cell: Cell, run: Refused) -> LeftOut:
    parts = {"table": table.name, "data": cell.data, "evaluated": table.evaluated, **parts_of(cell)}
    figures = {measure: run.outcome.figures[measure] for measure in table.measures} if run.outcome else {}
    return LeftOut(str(cell), run.reason, cell.seed, parts, figures)


def parts_of(cell: Cell) -> dict[str, str]:
    """What a row is, for CSV files."""
    named = ("none", cell.organizer) if "assigner" in cell.variant else (cell.organizer, "own")
    return {"method": cell.method, "organizer": named[0], "assigner": named[1]}
