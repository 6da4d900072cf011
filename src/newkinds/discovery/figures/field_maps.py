"""Pictures of primitive fields, which give for each patch the share of each of M primitives. Trained fields are often
close to even (1/M), so an even share has no colour and the most decided patches have full colour. How wide that range
is, colours cannot tell: `FieldOverlays.describe` says it in words; show it next to the pictures.

A map of one primitive is light where it is strong and dark where it is not, also without colours; of the winners, each
region is numbered."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from .sheet import INK, PALE, new_figure, picture, shown_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The first six are Okabe and Ito's; each further colour is the one farthest (in Oklab) from all before it, as
# seen with normal vision and with simulated protanopia, deuteranopia and tritanopia. Primitive m always has
# colour m; beyond 24 the colours repeat.
PALETTE = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#78000f", "#78ffe1",
    "#003c78", "#e1f04b", "#4b00f0", "#a52d3c", "#a569ff", "#a5c396", "#a5d2ff", "#874b78",
    "#6900b4", "#d2d269", "#5a2d4b", "#d20fc3", "#c33c1e", "#c3f0a5", "#ff78d2", "#ff3c78",
)  # fmt: skip

PALETTE_RGB = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in PALETTE], dtype=np.float64)
PICTURE_SIDE = 224  # pixels of the longer side: small images get smooth maps, large ones small files
FULL_OPACITY = 0.85  # some of the image stays visible below the strongest colour
EVEN_TOLERANCE = 1e-3  # a share must exceed 1/M by this fraction to count: half precision alone makes 4e-4
FULL_QUANTILE = 0.95  # of the winners' shares: a single extreme patch must not pale all others
MAPS = 4  # primitives that get a map of their own
FEWEST_NUMBERED = 3  # patches of a region that is numbered
LIGHT = 190  # of 255: how light a primitive's colour is made for its map
NO_WINNER = -1


@dataclass(frozen=True)
class Primitive:
    """One primitive among the images drawn together."""

    index: int  # its column in the field
    colour: str  # "#rrggbb", the same in every picture
    won: float  # fraction of all patches in which its share is the largest


@dataclass(frozen=True)
class FieldOverlay:
    """The field of one image; all pictures are (h, w, 3) uint8 of one size."""

    image: np.ndarray  # the image itself
    winners: np.ndarray  # the colour of each patch's winning primitive; opacity is the winner's share
    winner_of: np.ndarray  # (rows, columns) of the grid: the primitive, or NO_WINNER
    maps: list[np.ndarray]  # one per entry of `FieldOverlays.mapped`: the share of that primitive, smoothed
    low: float  # smallest share of any primitive in any patch of this image
    high: float  # largest
    leaders: list[tuple[int, float]]  # (primitive, fraction of this image's patches it wins), most first


@dataclass(frozen=True)
class FieldOverlays:
    """The fields of several images, drawn with one colour scale so that they can be compared."""

    overlays: list[FieldOverlay]
    primitives: list[Primitive]  # all M, strongest first: most patches won, then largest mean share
    mapped: list[Primitive]  # the strongest few, which have a map of their own in every overlay
    low: float  # smallest share of any primitive in any patch of any image
    high: float  # largest
    full: float  # shares from here on are drawn in full colour
    broken: int  # patches without a finite value, left uncoloured

    @property
    def even(self) -> float:
        """The share of every primitive if the field said nothing; drawn without colour."""
        return 1 / len(self.primitives)

    @property
    def is_even(self) -> bool:
        """Whether no primitive exceeds its even share anywhere, so that there is nothing to draw."""
        return self.high <= self.even * (1 + EVEN_TOLERANCE)

    @property
    def winning(self) -> list[Primitive]:
        """The primitives that win at least one patch: what the key to the winner pictures has to explain."""
        return [primitive for primitive in self.primitives if primitive.won > 0]

    def share(self, value: float) -> str:
        """A share as text, with enough digits to tell the values of these fields apart."""
        digits = 3 if self.is_even else 1 - math.floor(math.log10(self.high - self.even))
        return f"{value:.{min(max(digits, 2), 6)}f}"

    def describe(self) -> str:
        """What the colours mean and how much the shares differ, in plain words."""
        even = f"1/{len(self.primitives)} = {self.share(self.even)}"
        low, high, full = self.share(self.low), self.share(self.high), self.share(self.full)
        text = (
            f"Shares run from {low} to {high}; an even share is {even}. "
            f"A primitive has no colour up to its even share, and full colour from {full} on."
        )
        if self.is_even:
            text = f"The fields are even: no primitive exceeds its share of {even}; nothing is coloured."
        elif self.high < 1.5 * self.even:
            text += " These fields are nearly even: full colour still means a small difference."
        if self.broken:
            text += f" {self.broken} patches have no finite value and are left uncoloured."
        return text


def field_overlays(
    images: Sequence[np.ndarray], fields: Sequence[np.ndarray], grid: tuple[int, int], maps: int = MAPS
) -> FieldOverlays:
    """Draw the field of each image over it: the winner of each patch, and maps of the strongest primitives.

    `images` are (H, W, 3) uint8, exactly the views the encoder saw (its crop, not the whole file), or the
    patches would lie elsewhere; `fields` are (rows · columns, M) shares, row by row over `grid`.

    >>> drawn = field_overlays(images, encoded.field.numpy(), encoded.grid)
    >>> Image.fromarray(drawn.overlays[0].winners).save("winners.png")
    >>> print(drawn.describe())
    """
    if len(images) == 0 or len(images) != len(fields):
        raise ValueError(f"each image needs one field: got {len(images)} images and {len(fields)} fields")
    for field in fields:
        if field.ndim != 2 or field.shape[0] != grid[0] * grid[1] or field.shape[1] == 0:
            raise ValueError(f"a field on the grid {grid} has the shape (rows · columns, M), not {field.shape}")
    shares: np.ndarray = np.stack(fields).astype(np.float64)  # (n, N, M)
    count = shares.shape[2]
    finite = np.isfinite(shares).all(axis=2)  # (n, N)
    shares = np.where(finite[:, :, None], shares, 1 / count)
    threshold = (1 + EVEN_TOLERANCE) / count
    winners = np.where(shares.max(axis=2) > threshold, shares.argmax(axis=2), NO_WINNER)  # (n, N)

    won = (winners[:, :, None] == np.arange(count)).mean(axis=1)  # (n, M)
    mean_won, mean_share = won.mean(axis=0), shares.mean(axis=(0, 1))  # (M,), (M,)
    ranking = np.lexsort((-mean_share, -mean_won))  # the last key counts first
    primitives = [Primitive(int(m), PALETTE[m % len(PALETTE)], float(mean_won[m])) for m in ranking]

    winning_shares = shares.max(axis=2)[winners != NO_WINNER]  # (patches with a winner,)
    full = float(np.quantile(winning_shares, FULL_QUANTILE)) if winning_shares.size else threshold
    strength = np.clip((shares - 1 / count) / (full - 1 / count), 0, 1)  # (n, N, M): 1 is full colour
    strength[shares <= threshold] = 0
    overlays = []
    for image, share, strong, winner, won_here in zip(images, shares, strength, winners, won, strict=True):
        pixels = at_picture_size(image)
        grey = _greyed(pixels)
        drawn = _winner_picture(grey, winner.reshape(grid), strong.max(axis=1).reshape(grid))
        lit = [spotlight(pixels, strong[:, m].reshape(grid), _colour(m)) for m in ranking[:maps]]
        leaders = [(int(m), float(won_here[m])) for m in np.argsort(-won_here) if won_here[m] > 0]
        extremes = float(share.min()), float(share.max())
        overlays.append(FieldOverlay(pixels, drawn, winner.reshape(grid), lit, *extremes, leaders))
    low, high, broken = float(shares.min()), float(shares.max()), int((~finite).sum())
    return FieldOverlays(overlays, primitives, primitives[:maps], low, high, full, broken)


@picture
def fields_figure(
    images: Sequence[np.ndarray],
    fields: Sequence[np.ndarray],
    grid: tuple[int, int],
    captions: Sequence[str] = (),
    maps: int = MAPS,
) -> "Figure":
    """One row per image: the image, the winner of each patch, and the strongest primitives; else as `field_overlays`.

    >>> write_whole(Path("fields.png"), fields_figure(images, fields, grid).png)
    """
    drawn = field_overlays(images, fields, grid, maps)
    rows, columns = len(drawn.overlays), 2 + len(drawn.mapped)
    cell = 1.55 if columns <= 6 else 1.15  # inches
    words = textwrap.fill(drawn.describe(), int(16.5 * cell * columns))
    head, foot, between = 0.3, 0.5 + 0.13 * len(words.splitlines()), 0.2 if captions else 0.06
    width, height = cell * columns, (cell + between) * rows + head + foot
    figure = new_figure(width, height, captions)
    cells = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(
        left=0.01,
        right=0.99,
        top=1 - head / height,
        bottom=(foot + between) / height,
        wspace=0.05,
        hspace=between / cell,
    )

    headings = [("image", PALE), ("winner", PALE)]
    headings += [(f"primitive {primitive.index}", primitive.colour) for primitive in drawn.mapped]
    for axes, (heading, colour) in zip(cells[0], headings, strict=True):
        axes.set_title(heading, fontsize=8, color=INK, pad=5)
        axes.plot([0, 1], [1.02, 1.02], color=colour, linewidth=2.5, transform=axes.transAxes, clip_on=False)
    for row, overlay in zip(cells, drawn.overlays, strict=True):
        for axes, pixels in zip(row, [overlay.image, overlay.winners, *overlay.maps], strict=True):
            axes.imshow(pixels, interpolation="antialiased")
            axes.set_axis_off()
        _number_regions(row[1], overlay, 72 * cell / max(grid))
    for row, caption in zip(cells, shown_names(captions, int(28 * cell)), strict=False):
        row[0].text(0, -0.03, caption, fontsize=6.5, color=INK, va="top", transform=row[0].transAxes)

    # The key to the winners on the left; on the right the range of shares on a ruler from 0 to 1, which shows
    # at a glance how much of the possible range the colours stand for.
    bottom = (foot - 0.27) / height
    key = figure.add_axes((0.01, bottom, 0.62, 0.17 / height))
    key.set(xlim=(0, len(drawn.primitives)), ylim=(0, 1))
    for place, primitive in enumerate(drawn.winning):
        key.barh(0.5, 0.3, 0.9, left=place, color=primitive.colour)
        key.text(place + 0.38, 0.45, str(primitive.index), fontsize=7, color=INK, va="center")
    ruler = figure.add_axes((0.72, bottom, 0.24, 0.17 / height))
    ruler.set(xlim=(0, 1), ylim=(0, 1))
    ruler.barh(0.5, 1, 0.35, color=PALE)
    ruler.barh(0.5, drawn.high - drawn.low, 0.35, left=drawn.low, color=INK)
    ruler.text(-0.02, 0.45, "share 0", fontsize=7, color=INK, ha="right", va="center")
    ruler.text(1.02, 0.45, "1", fontsize=7, color=INK, va="center")
    for axes in (key, ruler):
        axes.set_axis_off()
    figure.text(0.01, (foot - 0.35) / height, words, fontsize=7.5, color=INK, va="top")
    return figure


def _number_regions(axes: "Axes", overlay: FieldOverlay, points: float) -> None:
    """The number of the winner on each region of a few patches, which are so many points wide."""
    from matplotlib.patheffects import withStroke
    from scipy import ndimage

    height, width = overlay.winners.shape[:2]
    scale = np.array([height, width]) / overlay.winner_of.shape
    for primitive, _ in overlay.leaders:
        regions, count = ndimage.label(overlay.winner_of == primitive)
        for region in range(1, count + 1):
            patches = np.argwhere(regions == region)  # (patches, 2)
            if len(patches) >= FEWEST_NUMBERED:
                middle = patches[np.abs(patches - patches.mean(axis=0)).sum(axis=1).argmin()]  # one of its own patches
                y, x = (middle + 0.5) * scale
                size = min(max(0.7 * points, 3.5), 7)
                halo = [withStroke(linewidth=1.2, foreground="white")]
                axes.text(x, y, str(primitive), fontsize=size, color=INK, ha="center", va="center", path_effects=halo)


def at_picture_size(image: np.ndarray) -> np.ndarray:
    """(H, W, 3) uint8 → the same with the longer side at PICTURE_SIDE."""
    height, width = image.shape[:2]
    scale = PICTURE_SIDE / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))


def spotlight(pixels: np.ndarray, patches: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """A picture (h, w, 3) uint8, dark where `patches` (rows, columns) of its grid are 0 and lit where they are 1."""
    dark = _greyed(pixels, darkest=12, contrast=0.3)
    luminance = float(colour @ (0.299, 0.587, 0.114))
    light = colour + (255 - colour) * max(0.0, (LIGHT - luminance) / (255 - luminance))  # also in greyscale
    return _tinted(dark, _smooth(patches, dark), light)


def _greyed(pixels: np.ndarray, darkest: float = 70, contrast: float = 0.6) -> np.ndarray:
    """(h, w, 3) uint8 → grey of low contrast; as it is, both the light and the dark colours stand out on it."""
    grey = np.asarray(Image.fromarray(pixels).convert("L"), dtype=np.float64)
    return np.repeat((darkest + contrast * grey)[:, :, None], 3, axis=2)


def _smooth(patches: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """(rows, columns) → (h, w), bicubic without its over- and undershoot."""
    size = (pixels.shape[1], pixels.shape[0])
    resized = Image.fromarray(patches.astype(np.float32)).resize(size, Image.Resampling.BICUBIC)
    return np.clip(np.asarray(resized, dtype=np.float64), 0, 1)


def _tinted(grey: np.ndarray, strength: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """(h, w, 3) below, strength (h, w) in 0…1, one colour (3,) or (h, w, 3) colours → (h, w, 3) uint8."""
    opacity = FULL_OPACITY * strength[:, :, None]
    return np.round(grey * (1 - opacity) + colour * opacity).astype(np.uint8)


def _winner_picture(grey: np.ndarray, winner: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """Patches as blocks, not smoothed: between two winners there is no third."""
    height, width = grey.shape[:2]
    row = np.arange(height) * winner.shape[0] // height  # the grid row of each pixel row
    column = np.arange(width) * winner.shape[1] // width
    blocks = np.ix_(row, column)
    pixel_winner = winner[blocks]  # (h, w)
    drawn = _tinted(grey, np.where(winner == NO_WINNER, 0, strength)[blocks], _colour(pixel_winner))
    # A thin pale line where the winner changes: borders stay visible where two colours look alike.
    border = np.zeros((height, width), dtype=bool)
    border[1:] |= pixel_winner[1:] != pixel_winner[:-1]
    border[:, 1:] |= pixel_winner[:, 1:] != pixel_winner[:, :-1]
    drawn[border] = np.round(0.5 * drawn[border] + 0.5 * 255).astype(np.uint8)
    return drawn


def _colour(primitive: int | np.ndarray) -> np.ndarray:
    """RGB (…, 3) of one primitive, or of each in an array."""
    return PALETTE_RGB[primitive % len(PALETTE)]
