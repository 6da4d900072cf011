"""Where the class token looks, as two networks see it."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .field_maps import at_picture_size, spotlight
from .sheet import INK, new_figure, picture, shown_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAMP = np.array([253.0, 231.0, 100.0])  # of the spotlight
FULL_QUANTILE = 0.99  # of a row's weights: a single patch must not darken all others
CELL, BLOCKS = 1.35, 2  # inches; images side by side


def attention_spread(weights: np.ndarray) -> np.ndarray:
    """How evenly attention (…, N) is spread over the patches: entropy over log N, 1 is even, 0 a single patch.

    >>> attention_spread(np.array([[0.25, 0.25, 0.25, 0.25], [1, 0, 0, 0]])).tolist()
    [1.0, 0.0]
    """
    share = weights / weights.sum(axis=-1, keepdims=True)
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return -(share * logs).sum(axis=-1) / np.log(max(weights.shape[-1], 2)) + 0.0


@picture
def attention_figure(
    views: Sequence[np.ndarray],
    seen: Sequence[tuple[str, np.ndarray, tuple[int, int]]],
    captions: Sequence[str],
    note: str = "",
) -> "Figure":
    """One row per image, two rows side by side: the image, then the attention of each network.

    `views` (n) of (H, W, 3) uint8; `seen`: name of the network, weights (n, N) and grid of each. All networks of a row
    share one scale, so that they can be compared.
    """
    count, across = len(views), 1 + len(seen)
    blocks = BLOCKS if count > 1 else 1
    rows = -(-count // blocks)
    words = [note] if note else []
    words += [
        f"{name}: {100 * weights.sum(axis=1).mean():.0f} % of the attention is on patches (the rest on class and "
        f"register tokens); spread over them {attention_spread(weights).mean():.3f} (1 is even)."
        for name, weights, _ in seen
    ]
    gap = 0.35  # inches between the blocks
    margin = 0.12
    width = blocks * across * CELL + (blocks - 1) * gap + 2 * margin
    lines = [line for word in words for line in textwrap.wrap(word, int(17 * width))]
    head, foot, between = 0.35, 0.12 + 0.13 * len(lines), 0.22
    height = rows * (CELL + between) + head + foot
    figure = new_figure(width, height, [*captions, *(name for name, *_ in seen)])
    titles = ["image", *shown_names([name for name, *_ in seen], 24)]
    for place, (view, caption) in enumerate(zip(views, shown_names(captions, 42), strict=True)):
        row, block = place // blocks, place % blocks
        top = max(max(float(np.quantile(weights[place], FULL_QUANTILE)) for _, weights, _ in seen), 1e-9)
        pixels = at_picture_size(view)
        drawn = [pixels]
        for _, weights, grid in seen:
            drawn.append(spotlight(pixels, np.clip(weights[place] / top, 0, 1).reshape(grid), LAMP))
        for column, shown in enumerate(drawn):
            left = margin + block * (across * CELL + gap) + column * CELL
            bottom = foot + (rows - 1 - row) * (CELL + between) + between
            axes = figure.add_axes((left / width, bottom / height, 0.97 * CELL / width, 0.97 * CELL / height))
            axes.imshow(shown, interpolation="antialiased")
            axes.set_axis_off()
            if row == 0:
                axes.set_title(titles[column], fontsize=7.5, color=INK, pad=4)
            if column == 0:
                axes.text(0, -0.03, caption, fontsize=7, color=INK, va="top", transform=axes.transAxes)
    figure.text(margin / width, (foot - 0.02) / height, "\n".join(lines), fontsize=7, color=INK, va="top")
    return figure
