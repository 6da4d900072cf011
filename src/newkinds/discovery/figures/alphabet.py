"""The visual alphabet: for each primitive the patches that activate it most, in images of different categories."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from .field_maps import PALETTE
from .sheet import INK, new_figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXAMPLES = 10  # patches of a primitive
CONTEXT = 1.0  # patches of surroundings on each side
CROP_SIDE = 96  # px
CELL = 0.72  # inches, with the gap
GAP = 6  # px between two crops


@dataclass(frozen=True)
class Letter:
    """A primitive, and where it is strongest."""

    primitive: int
    images: list[int]  # the places of the images, strongest first; none twice
    patches: list[int]  # of each image, the patch
    shares: list[float]  # of the primitive there
    used: float  # fraction of all patches in which its share is the largest


def letters(
    peak: np.ndarray, patch: np.ndarray, won: np.ndarray, category: Sequence[str], examples: int = EXAMPLES
) -> list[Letter]:
    """Of each primitive the images it is strongest in: one per category as far as there are categories, best first.

    `peak` (n, M): its largest share in each image, `patch` (n, M): where; `won` (M,): patches in which it is the
    largest, of all; `category` (n,).
    """
    _, kind = np.unique(np.asarray(category, dtype=object).astype(str), return_inverse=True)
    found = []
    for primitive in range(peak.shape[1]):
        order = np.argsort(-peak[:, primitive], kind="stable")
        firsts = np.zeros(len(order), dtype=bool)
        firsts[np.unique(kind[order], return_index=True)[1]] = True  # the best image of each category
        chosen = np.concatenate([order[firsts], order[~firsts]])[:examples]
        chosen = chosen[np.argsort(-peak[chosen, primitive], kind="stable")]
        shares = peak[chosen, primitive].tolist()
        found.append(
            Letter(primitive, chosen.tolist(), patch[chosen, primitive].tolist(), shares, float(won[primitive]))
        )
    return found


def crop(view: np.ndarray, patch: int, grid: tuple[int, int]) -> tuple[np.ndarray, tuple[float, float, float, float]]:
    """The patch and its surroundings, (CROP_SIDE, CROP_SIDE, 3); and where the patch lies in it: x, y, width, height.

    At the border of an image the window is moved inwards: nothing is made up.
    """
    height, width = view.shape[:2]
    side = np.array([height / grid[0], width / grid[1]])
    corner = np.array(divmod(patch, grid[1])) * side  # of the patch: y, x
    size = np.minimum((1 + 2 * CONTEXT) * side, [height, width])
    start = np.clip(corner - CONTEXT * side, 0, np.array([height, width]) - size)
    box = (start[1], start[0], start[1] + size[1], start[0] + size[0])
    cut = Image.fromarray(view).resize((CROP_SIDE, CROP_SIDE), Image.Resampling.BICUBIC, box=box)
    y, x = (corner - start) / size * CROP_SIDE
    tall, wide = side / size * CROP_SIDE
    return np.asarray(cut), (float(x), float(y), float(wide), float(tall))


@picture
def alphabet_figure(
    found: Sequence[Letter], crops: Sequence[Sequence[tuple[np.ndarray, tuple[float, float, float, float]] | None]],
    is_new: Sequence[bool], categories: Sequence[str], note: str,
) -> "Figure":  # fmt: skip
    """One row per primitive, most used first; `crops[i][j]` is the crop of `found[i].images[j]`, None if it is gone.

    A frame around the patch is drawn in full for images of known categories and dashed for new ones.
    """
    from matplotlib.patches import Rectangle

    columns = max((len(letter.images) for letter in found), default=1)
    margin, head, foot = 1.5, 0.12, 0.5  # inches
    width, height = margin + columns * CELL + 0.1, head + len(found) * CELL + foot
    figure = new_figure(width, height)
    pixel = CROP_SIDE + GAP
    canvas = np.full((len(found) * pixel, columns * pixel, 3), 255, np.uint8)  # one picture: quick to draw
    size = (margin / width, foot / height, columns * CELL / width, len(found) * CELL / height)
    axes = figure.add_axes(size)
    axes.set_axis_off()
    for row, i in enumerate(sorted(range(len(found)), key=lambda i: -found[i].used)):
        letter = found[i]
        top = height - head - row * CELL - 0.1 * CELL
        kinds = len({categories[image] for image in letter.images})
        about = f"{100 * letter.used:.0f} % of patches\nshare {letter.shares[-1]:.2f} to {letter.shares[0]:.2f}\n"
        about += f"{kinds} {'category' if kinds == 1 else 'categories'}"
        figure.text(0.1 / width, top / height, str(letter.primitive), fontsize=11, color=INK, va="top")
        figure.text(0.42 / width, top / height, about, fontsize=6, color=INK, va="top")
        bar = Rectangle((0.1 / width, (top - 0.8 * CELL) / height), 0.22 / width, 0.12 * CELL / height)
        bar.set(facecolor=PALETTE[letter.primitive % len(PALETTE)], edgecolor="none", transform=figure.transFigure)
        figure.add_artist(bar)
        for column, (image, cut) in enumerate(zip(letter.images, crops[i], strict=True)):
            if cut is None:
                continue
            pixels, (x, y, wide, tall) = cut
            left, upper = column * pixel, row * pixel
            canvas[upper : upper + CROP_SIDE, left : left + CROP_SIDE] = pixels
            for colour, line in (("black", 1.6), ("white", 0.8)):  # seen on any ground
                style = (0, (3, 2)) if is_new[image] and colour == "white" else "solid"
                corner = (left + x - 0.5, upper + y - 0.5)
                axes.add_patch(Rectangle(corner, wide, tall, fill=False, edgecolor=colour, lw=line, ls=style))
    axes.imshow(canvas, interpolation="antialiased", aspect="auto")
    figure.text(0.1 / width, (foot - 0.1) / height, note, fontsize=7, color=INK, va="top")
    return figure
