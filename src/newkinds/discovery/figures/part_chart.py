"""On which parts of the creatures the primitives lie, beside other ways of grouping the same patches."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .sheet import INK, new_figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL_WIDTH, CELL_HEIGHT = 0.42, 0.24  # inches


@picture
def parts_figure(counts: Mapping[str, NDArray[np.float64]], parts: Sequence[str], note: str) -> "Figure":
    """For each way of grouping patches, counts (M, P): how the patches of each group are spread over the parts, in %.

    The last row is all patches: a group that looks like it has nothing to do with parts.
    """
    groups = max(len(table) for table in counts.values())
    margin, head, foot, gap = 0.7, 0.75, 0.3, 0.65
    panel = CELL_WIDTH * len(parts)
    width = margin + len(counts) * (panel + gap) - 0.2
    height = head + CELL_HEIGHT * (groups + 1) + foot
    figure = new_figure(width, height)
    for place, (way, table) in enumerate(counts.items()):
        order = np.argsort(-table.sum(axis=1), kind="stable")
        every = table.sum(axis=0)  # (P,)
        rows = np.vstack([table[order], every])
        share = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1e-12)
        tall = CELL_HEIGHT * len(rows)
        left, bottom = margin + place * (panel + gap), height - head - tall
        axes = figure.add_axes((left / width, bottom / height, panel / width, tall / height))
        axes.imshow(share, cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        axes.axhline(len(rows) - 1.5, color="#d55e00", linewidth=1)
        for (row, column), value in np.ndenumerate(share):
            if value >= 0.005:
                colour = "white" if value > 0.5 else INK
                axes.text(column, row, f"{100 * value:.0f}", fontsize=6, color=colour, ha="center", va="center")
        names = [f"{group} ({100 * table[group].sum() / max(every.sum(), 1e-12):.0f} %)" for group in order]
        axes.set_yticks(range(len(rows)), [*names, "all"], fontsize=6)
        axes.set_xticks(range(len(parts)), parts, rotation=45, ha="left", fontsize=6.5)
        axes.xaxis.tick_top()
        axes.tick_params(length=0, colors=INK, pad=2)
        axes.set_title(way, fontsize=8.5, color=INK, pad=3)
    figure.text(0.1 / width, (foot - 0.1) / height, note, fontsize=7.5, color=INK, va="top")
    return figure
