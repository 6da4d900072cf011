"""Which true class became which category: a matrix in the order of the best match."""

import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from .sheet import INK, new_figure, picture, shown_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NAMED = 40  # rows or columns; of more, only the largest confusions are named
MOST_COUNTED = 16  # rows or columns with a number in every cell
LISTED = 12  # confusions


@dataclass(frozen=True)
class Confusion:
    """How many images of each true class (rows) are in each category (columns).

    The first `pairs` rows and columns are the best match, one to one: what is right lies on the diagonal.
    """

    classes: list[str]
    categories: list[str]
    counts: NDArray[np.int64]  # (classes, categories)
    pairs: int
    known: int  # the first so many rows are known classes

    @property
    def accuracy(self) -> float:
        return float(self.counts.diagonal()[: self.pairs].sum() / self.counts.sum())

    def largest(self, count: int = LISTED) -> list[tuple[int, int]]:
        """The cells besides the diagonal with the most images, (row, column), most first."""
        wrong = self.counts.copy()
        np.fill_diagonal(wrong[: self.pairs, : self.pairs], 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:count]
        cells = [divmod(int(cell), wrong.shape[1]) for cell in order]
        fewest = min(2, int(wrong.max()))  # single images are named only if there is nothing else
        return [cell for cell in cells if wrong[cell] >= max(fewest, 1)]


def confusion_of(true: Sequence[str], category: Sequence[str], known: Collection[str]) -> Confusion:
    """Of images with their true classes and categories; known classes come first, then those with a match.

    >>> confusion_of(["cat", "cat", "owl"], ["new-1", "new-1", "cat"], {"cat"}).counts.tolist()
    [[2, 0], [0, 1]]
    """
    classes, row = np.unique(np.asarray(true, dtype=object).astype(str), return_inverse=True)
    categories, column = np.unique(np.asarray(category, dtype=object).astype(str), return_inverse=True)
    shape = len(classes), len(categories)
    counts = np.bincount(row * shape[1] + column, minlength=shape[0] * shape[1]).reshape(shape)
    match = dict(zip(*linear_sum_assignment(counts, maximize=True), strict=True))
    is_known = np.array([name in known for name in classes])
    # a class that shares its category's column with others, because there are fewer categories, comes last of its kind
    rows = sorted(range(shape[0]), key=lambda i: (i not in match, not is_known[i]))
    if len(match) == shape[0]:
        columns = [int(match[i]) for i in rows]
        columns += [j for j in range(shape[1]) if j not in set(columns)]
    else:
        columns = [int(match[i]) for i in rows if i in match]
    ordered = counts[np.ix_(rows, columns)]
    matched_known = int(sum(is_known[i] for i in rows[: len(match)]))
    return Confusion([classes[i] for i in rows], [categories[j] for j in columns], ordered, len(match), matched_known)


@picture
def confusion_figure(confusion: Confusion, note: str) -> "Figure":
    """The share of each true class in each category; few categories are all named, of many the largest confusions."""
    from matplotlib.colors import PowerNorm

    counts = confusion.counts
    rows, columns = counts.shape
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    few = max(rows, columns) <= MOST_NAMED
    cell = float(np.clip(7.0 / max(rows, columns), 0.02, 0.34))  # inches
    names, found = shown_names(confusion.classes), shown_names(confusion.categories)
    margin = 0.4 + (0.062 * max(map(len, names)) if few else 0.25)
    above = 0.4 + (0.062 * max(map(len, found)) if few else 0.25)
    wide, tall = max(cell * columns, 1.2), max(cell * rows, 1.2)
    largest = confusion.largest()
    lines = []
    for number, (row, column) in enumerate(largest, 1):
        into = found[column]
        if confusion.classes[row] == confusion.categories[column]:  # more of its images are of another class
            into = f"its own, matched with {names[column]}"
        lines.append(f"{number}. {names[row]} → {into}: {counts[row, column]} of {counts[row].sum()}")
    beside = 0.4 + 0.06 * max(map(len, ["largest confusions (images)", *lines])) + 0.2
    width = margin + wide + beside
    words = textwrap.fill(note, int(15 * width))
    foot = 0.2 + 0.14 * len(words.splitlines())
    height = above + max(tall, 2.4) + 0.55 + foot
    figure = new_figure(width, height, [*confusion.classes, *confusion.categories])
    bottom = height - above - tall
    axes = figure.add_axes((margin / width, bottom / height, wide / width, tall / height))
    drawn = axes.imshow(share, cmap="Greys", norm=PowerNorm(0.5, 0, 1), aspect="auto", interpolation="nearest")
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    if few:
        size = min(7.0, 60 * cell)
        axes.set_xticks(range(columns), found, rotation=90, fontsize=size)
        axes.set_yticks(range(rows), names, fontsize=size)
    else:
        axes.set(xticks=[], yticks=[])
    axes.tick_params(length=0, colors=INK)
    axes.set_xlabel("category", fontsize=8, color=INK)
    axes.set_ylabel("true class", fontsize=8, color=INK)
    if 0 < confusion.known < confusion.pairs:
        at = confusion.known - 0.5
        for line in (axes.axhline, axes.axvline):
            line(at, color="#d55e00", linewidth=0.9, linestyle=(0, (4, 2)))
    if max(rows, columns) <= MOST_COUNTED:
        for (row, column), count in np.ndenumerate(counts):
            if count:
                colour = "white" if share[row, column] > 0.3 else INK
                axes.text(column, row, str(count), fontsize=6, color=colour, ha="center", va="center")
    if not few:
        ys, xs = zip(*largest, strict=True) if largest else ((), ())
        axes.scatter(xs, ys, s=40, facecolor="none", edgecolor="#d55e00", linewidth=0.9, clip_on=False)

    left = (margin + wide + 0.3) / width
    text = "\n".join(["largest confusions (images)", *lines] if lines else ["no confusion at all"])
    figure.text(left, (height - above) / height, text, fontsize=7, color=INK, va="top", linespacing=1.5)
    bar = figure.add_axes((left, (foot + 0.2) / height, 1.6 / width, 0.1 / height))
    figure.colorbar(drawn, cax=bar, orientation="horizontal", ticks=[0, 0.1, 0.3, 1])
    bar.set_xticklabels(["0", "10 %", "30 %", "100 %"])
    bar.tick_params(labelsize=6.5, length=2, colors=INK)
    bar.set_title("of the true class", fontsize=7, color=INK, pad=3)
    figure.text(0.12 / width, 0.1 / height, words, fontsize=7.5, color=INK, va="bottom")
    return figure
