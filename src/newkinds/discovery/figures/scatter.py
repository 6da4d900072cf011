"""A map of the features in two dimensions, with known and new categories."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .sheet import GRID, INK, KNOWN, NEW, new_figure, picture, place_apart, shown_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_MAPPED = 3000  # images: t-SNE of more takes minutes
FEWEST_TSNE = 12  # images; fewer are placed by their two main directions
DIRECTIONS = 50  # main ones that t-SNE sees
PERPLEXITY = 30
MOST_NAMED = 40  # categories: more names would hide the images


@dataclass(frozen=True)
class Scattered:
    """Images on a map."""

    title: str
    places: NDArray[np.float64]  # (n, 2)
    category: list[str]
    is_new: list[bool]


def places_of(embedding: NDArray, seed: int) -> tuple[NDArray[np.float64], str]:
    """Rows (n, P) → places (n, 2), and how: by t-SNE from their main directions, or by these alone if they are few."""
    from sklearn.manifold import TSNE

    count = len(embedding)
    middle = embedding.astype(np.float64) - embedding.mean(axis=0, dtype=np.float64)
    u, sizes, axes = np.linalg.svd(middle, full_matrices=False)
    signs = np.where(axes.sum(axis=1) < 0, -1, 1)  # arbitrary: fixed
    main = (u * sizes * signs)[:, :DIRECTIONS]  # (n, directions)
    flat = np.pad(main[:, :2], ((0, 0), (0, max(0, 2 - main.shape[1]))))
    if count < FEWEST_TSNE or np.allclose(flat, 0):
        return flat, "main directions (PCA)"
    start = flat / max(flat[:, 0].std(), 1e-12) * 1e-4
    perplexity = min(PERPLEXITY, (count - 1) / 3)
    return TSNE(init=start, perplexity=perplexity, random_state=seed).fit_transform(main).astype(np.float64), "t-SNE"


@picture
def map_figure(maps: Sequence[Scattered], note: str) -> "Figure":
    """The images of each map, each tied to the middle of its category; names of the largest, as far as there is room.

    Known categories are dark circles, new ones light triangles.
    """
    names = sorted({name for scattered in maps for name in scattered.category})
    side, foot = 5.2, 0.65
    figure = new_figure(side * len(maps), side + foot, [*names, *(scattered.title for scattered in maps)])
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    figure.subplots_adjust(0.02, foot / (side + foot), 0.98, 1 - 0.3 / (side + foot), wspace=0.04)
    shown = dict(zip(names, shown_names(names), strict=True))
    left = [_draw(axes, scattered, shown) for axes, scattered in zip(panels, maps, strict=True)]
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="lower right", ncols=2, frameon=False, fontsize=8, labelcolor=INK, handletextpad=0
    )
    if min(left) < len(names):
        note += f"\nNames where there is room: {' and '.join(map(str, left))} of {len(names)} categories."
    figure.text(0.02, (foot - 0.1) / (side + foot), note, fontsize=7.5, color=INK, va="top")
    return figure


def _draw(axes: "Axes", scattered: Scattered, shown: dict[str, str]) -> int:
    from matplotlib.collections import LineCollection
    from matplotlib.patheffects import withStroke

    places, new = scattered.places, np.array(scattered.is_new, dtype=bool)
    category = np.array(scattered.category, dtype=object)
    kinds, of, sizes = np.unique(category.astype(str), return_inverse=True, return_counts=True)
    middles = np.array([np.median(places[of == kind], axis=0) for kind in range(len(kinds))])
    dot = float(np.clip(9000 / len(places), 4, 24))
    axes.add_collection(LineCollection(list(np.stack([middles[of], places], axis=1)), colors="#d0d0d0", linewidths=0.4))
    for name, some, marker, size, colour, edge in (
        ("known", ~new, "o", dot, KNOWN, "white"),
        ("new", new, "^", 1.3 * dot, NEW, INK),
    ):
        x, y = places[some].T
        axes.scatter(x, y, size, colour, marker=marker, edgecolors=edge, linewidths=0.3, label=name, zorder=2)
    axes.set_title(scattered.title, fontsize=9, color=INK)
    axes.set(xticks=[], yticks=[])
    axes.margins(0.06)
    for spine in axes.spines.values():
        spine.set_color(GRID)
    halo = [withStroke(linewidth=2, foreground="white")]
    labels = [
        axes.annotate(
            shown[kinds[kind]], middles[kind], (0, 0), textcoords="offset points", ha="center", va="center",
            fontsize=6.5, color=INK, path_effects=halo, zorder=4,
        )
        for kind in np.argsort(-sizes, kind="stable")[:MOST_NAMED]
    ]  # fmt: skip
    return place_apart(labels, axes)
