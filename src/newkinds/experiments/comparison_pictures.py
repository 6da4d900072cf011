"""Comparisons as pictures: differences from the host with their intervals, or primitives × heads as a map. Each is
written as PNG and as SVG. Marks differ in shape and in being filled, maps in lightness: neither needs colour."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..comparison import MINUS, Comparison, Entry, Row
from ..discovery.figures.sheet import INK, PALE, new_figure, picture
from ..ownership import write_output
from .cells import SIZES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS, PAPER = "#0072b2", "#d55e00"
CELL = re.compile(r"cpf-M(\d+)-H(\d+)")


def draw_comparisons(tables: Sequence[Comparison], folder: Path, kind: Literal["differences", "map"]) -> list[Path]:
    """One picture for each table and host of which something has been run; returns the files."""
    files = []
    for table in tables:
        ran = [row for row in table.rows if row.runs]
        baselines = [row for row in ran if row.parts["assigner"] != "own"]
        for method in dict.fromkeys(row.parts["method"] for row in ran if row not in baselines):
            of_host = [row for row in ran if row.parts["method"] == method and row not in baselines]
            host = next((row for row in of_host if row.parts["organizer"] == table.parts.get("against", "none")), None)
            if host is None or (kind == "map" and not any(map(_sizes, of_host))):
                continue  # nothing to compare with, or nothing for the map
            drawn = {"differences": _differences, "map": _map}[kind](table, host, [*baselines, *of_host])
            of_test = ["test"] if table.parts["evaluated"] == "test" else []
            name = "-".join([table.parts["table"], table.parts["data"], method, *of_test])
            for file, content in drawn.files(name).items():
                files.append(folder / file)
                write_output(files[-1], content)
    return files


@picture
def _differences(table: Comparison, host: Row, rows: Sequence[Row]) -> "Figure":
    """A panel per accuracy, a line per row: the difference from the host, its 95 % interval, and what is reported."""
    from matplotlib.lines import Line2D  # slow to import, and tables do without

    shares = [index for index, column in enumerate(table.columns) if column.unit == "%"]
    height = 0.3 * len(rows) + 1.5
    figure = new_figure(2.6 + 2.5 * len(shares), height)
    panels = figure.subplots(1, len(shares), sharey=True, squeeze=False, gridspec_kw={"wspace": 0.08})[0]
    figure.subplots_adjust(left=2.3 / figure.get_figwidth(), right=0.98, top=1 - 0.5 / height, bottom=0.85 / height)
    for panel, index in zip(panels, shares, strict=True):
        base = host.entries[index]
        panel.axvline(0, color=INK, linewidth=0.8)
        for line, row in enumerate(rows):
            _mark(panel, line, row.entries[index], base, row is host)
        panel.set_title(f"{base.column.name}: {host.name} {base.text} %", fontsize=8.5, color=INK)
        panel.set_xlabel(f"difference from {host.name}, points", fontsize=8)
        panel.grid(axis="x", color=PALE, linewidth=0.6)
        panel.set_axisbelow(True)
        panel.tick_params(labelsize=7.5, length=0)
        panel.margins(x=0.08)
        for side in ("top", "right", "left"):
            panel.spines[side].set_visible(False)
    panels[0].set_yticks(range(len(rows)), [_short(row, host) for row in rows], fontsize=8)
    panels[0].set_ylim(len(rows) - 0.4, -0.6)  # the first row on top
    legend = [
        Line2D([], [], marker="o", color=OURS, label="ours, 95 % interval without 0"),
        Line2D([], [], marker="o", color=OURS, markerfacecolor="white", label="ours, may be chance"),
        Line2D([], [], marker="s", color=INK, markerfacecolor="white", linestyle="", label="frozen features (means)"),
    ]
    if any(entry.reported is not None for row in rows for entry in row.entries):
        legend.append(Line2D([], [], marker="d", color=PAPER, markerfacecolor="white", linestyle="", label="reported"))
    figure.legend(handles=legend, loc="lower center", ncols=len(legend), fontsize=7.5, frameon=False)
    return figure


def _mark(panel: Any, line: int, entry: Entry, base: Entry, is_host: bool) -> None:
    """One row of a panel."""
    if entry.reported is not None and base.reported is not None:
        panel.plot(entry.reported - base.reported, line + 0.25, "d", color=PAPER, markerfacecolor="white", markersize=5)
    if entry.ours is None or base.ours is None:
        return
    gain = entry.gain
    if is_host:
        panel.plot(0, line, "o", color=INK, markersize=5)
    elif gain is None:  # not compared seed by seed
        difference = entry.ours.mean - base.ours.mean
        panel.plot(difference, line, "s", color=INK, markerfacecolor="white", markersize=5)
    else:
        ends = gain.interval
        if ends is not None:
            panel.plot(ends, [line, line], color=OURS, linewidth=1.6)
        panel.plot(gain.mean, line, "o", color=OURS, markerfacecolor=OURS if entry.verdict else "white", markersize=6)


@picture
def _map(table: Comparison, host: Row, rows: Sequence[Row]) -> "Figure":
    """A panel per accuracy: lightness and figures of each number of primitives and heads."""
    cells = {sizes: row for row in rows if (sizes := _sizes(row))}
    shares = [index for index, column in enumerate(table.columns) if column.unit == "%"]
    figure = new_figure(3.1 * len(shares) + 0.7, 4.1)
    panels = figure.subplots(1, len(shares), sharey=True, squeeze=False, gridspec_kw={"wspace": 0.08})[0]
    figure.subplots_adjust(left=0.07, right=0.99, top=0.83, bottom=0.2)
    beside = [row for row in rows if row not in cells.values() and row.parts["assigner"] in ("own", "kmeans")]
    for panel, index in zip(panels, shares, strict=True):
        shown = np.full((len(SIZES), len(SIZES)), np.nan)  # [primitives, heads] in %
        for (primitives, heads), row in cells.items():
            if (ours := row.entries[index].ours) is not None:
                shown[SIZES.index(primitives), SIZES.index(heads)] = ours.mean
        panel.set_facecolor("white")
        panel.imshow(np.ma.masked_invalid(shown), cmap="cividis", origin="lower", aspect="auto")
        middle = (np.nanmin(shown) + np.nanmax(shown)) / 2
        for (primitives, heads), row in cells.items():
            entry, place = row.entries[index], (SIZES.index(heads), SIZES.index(primitives))
            if entry.ours is not None:
                gain = f"{entry.gain.mean:+.1f}".replace("-", MINUS) if entry.gain else ""
                words = f"{entry.ours.mean:.1f}\n{gain}{'*' if entry.verdict else ''}".rstrip()
                ink = "white" if entry.ours.mean < middle else "black"
                panel.text(*place, words, fontsize=7, color=ink, ha="center", va="center")
        for heads, primitives in zip(*np.nonzero(np.isnan(shown.T)), strict=True):
            panel.text(heads, primitives, "–", fontsize=7, color=INK, ha="center", va="center")
        names = [f"{_short(row, host)} {ours.mean:.1f}" for row in beside if (ours := row.entries[index].ours)]
        panel.set_title(f"{table.columns[index].title}\n{', '.join(names)}", fontsize=8, color=INK)
        panel.set_xticks(range(len(SIZES)), SIZES, fontsize=8)
        panel.set_yticks(range(len(SIZES)), SIZES, fontsize=8)
        panel.set_xlabel("heads (H)", fontsize=8)
        panel.tick_params(length=0)
    panels[0].set_ylabel("primitives (M)", fontsize=8)
    words = f"Below each figure the difference from {host.name}; *: its 95 % interval is without 0. –: not run."
    figure.text(0.5, 0.03, words, fontsize=8, color=INK, ha="center")
    return figure


def _sizes(row: Row) -> tuple[int, int] | None:
    """Primitives and heads of a row of the sensitivity."""
    found = CELL.fullmatch(row.parts["organizer"])
    return (int(found[1]), int(found[2])) if found else None


def _short(row: Row, host: Row) -> str:
    """Its name without that of its host."""
    return row.name.removeprefix("frozen + ").removeprefix(f"{host.name.partition(' + ')[0]} + ")
