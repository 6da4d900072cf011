"""The first part of the demonstration, the main job: a folder of partly labelled images → categories, named, counted,
shown on a page, and judged by the truth that the folder hides."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..comparison import Comparison, Entry, OverSeeds, Row
from ..console import keep_quiet, say
from ..data import load_table
from ..data.table import Table
from ..discovery.categories import Discovery
from ..discovery.report import render
from ..discovery.report.accuracy import read_number
from ..discovery.report.build import page_of
from ..evaluation.judge import evaluate
from ..files import csv_text, make_folder, write_new
from ..ownership import OwnFiles
from ..runs.run import Run
from ..text import plural, text_table
from ..verbs.discover import discover
from .outcomes import ACCURACY, COLUMNS

# creatures on which nothing was ever chosen, neither a setting nor this seed (results/creatures.md)
DATA: dict[str, Any] = {"name": "creatures", "seed": 101}
PHOTOS, TRUTH, FOUND, PAGE = "photos", "truth.csv", "found", "index.html"
UNLABELLED = "unlabeled"
TIME = "30s"


def find_kinds(out: Path) -> str:
    """Draw the folder, run `discover` and k-means on it, and write `index.html`; what was found, in a few lines."""
    OwnFiles(make_folder(out)).require(PAGE)  # before the work, not after it
    drawn = load_table(DATA)
    photos = draw_folder(drawn, out)
    say(f"newkinds discover {photos} --backbone tiny --time {TIME} --out {out / FOUND}")
    with keep_quiet():
        found = discover(photos, out / FOUND, backbone="tiny", time=TIME)
        figures = accuracies(out / FOUND, out / TRUTH)
    true_number = len(set(drawn.truth or ()))
    say(f"k-means on the same features, told that there are {true_number} kinds")
    with keep_quiet():
        k_means = {"backbone": "tiny", "method": "frozen", "assigner": "kmeans", "k": true_number}
        discover(photos, out / "k-means", page=False, **k_means)  # type: ignore[arg-type]
        beside = accuracies(out / "k-means", out / TRUTH)
    comparison = compared({f"k-means, told that there are {true_number}": beside, "newkinds discover": figures})
    page = page_of(Run(out / FOUND))
    protocol = page.comparison.protocol if page.comparison is not None else []
    page = replace(page, comparison=replace(comparison, protocol=protocol))
    OwnFiles(out).write(PAGE, render(page))
    return "\n\n".join([
        f"A folder of {plural(len(drawn), 'drawn picture')}, {photos}: {len(drawn.known)} kinds are labelled, "
        f"{true_number - len(drawn.known)} are not.",
        found_text(found, Run(out / FOUND), true_number),
        accuracy_text(comparison),
    ])  # fmt: skip


def where_to_look(out: Path) -> str:
    """The page of what was found, and how to correct it."""
    return f"look at {out / PAGE}; correct it: newkinds studio {out / FOUND}"


def draw_folder(drawn: Table, out: Path) -> Path:
    """Write the images that are not there yet: a folder per known class, `unlabeled` for the rest, the truth beside."""
    photos, truth = out / PHOTOS, []
    for row, (name, label, kind) in enumerate(zip(drawn.paths, drawn.labels, drawn.truth or (), strict=True)):
        file = photos / (label or UNLABELLED) / name
        if not file.exists():
            content = io.BytesIO()
            drawn.open(row).save(content, "PNG")
            write_new(make_folder(file.parent) / name, content.getvalue())
        truth.append((file.relative_to(out), kind))
    OwnFiles(out).write(TRUTH, csv_text(("path", "label"), truth))
    return photos


def accuracies(run: Path, truth: Path) -> dict[str, float]:
    """All, Old and New of the unlabelled images in %."""
    metrics = evaluate(run, truth)["metrics"]
    return {measure: 100 * metrics[f"acc_{measure}"] for measure in ACCURACY}


def compared(figures: dict[str, dict[str, float]]) -> Comparison:
    """Rows of single runs, each but the first beside the first."""
    rows: list[Row] = []
    for name, found in figures.items():
        of_row = {measure: OverSeeds({0: found[measure]}) for measure in ACCURACY}
        base = {entry.column.measure: entry.ours for entry in rows[0].entries} if rows else {}
        entries = [Entry(COLUMNS[measure], of_row[measure], base.get(measure)) for measure in ACCURACY]
        rows.append(Row(name, entries))
    return Comparison(rows, [], base=next(iter(figures)))


def found_text(found: Discovery, run: Run, true_number: int) -> str:
    """How many categories there are, and each with its size."""
    number = read_number(run)
    within = "" if number is None else f" (with 90 % probability between {number.low} and {number.high})"
    lines = [f"found {len(found.categories)} categories{within}; the truth is {true_number}:"]
    for kind, categories in (("known", found.known), ("new", found.new)):
        lines.append(f"  {kind:<6} " + ", ".join(f"{category.name} {category.size}" for category in categories))
    return "\n".join(lines)


def accuracy_text(comparison: Comparison) -> str:
    columns = ["unlabelled pictures in the right category", *(column.title for column in comparison.columns)]
    return text_table(columns, [[row.name, *(entry.text for entry in row.entries)] for row in comparison.rows])
