"""Small pictures of many images within a fixed number of bytes: JPEGs of many images each, which the page cuts into
tiles. A JPEG of its own for every image would spend most of its bytes on headers."""

import io
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np
from PIL import Image, ImageOps

from ...console import track
from ...data.images import BadImage
from ...data.table import Table

SIDES = (256, 224, 192, 160, 128, 112, 96, 80, 64, 48, 32)  # px; multiples of 16, so that no tile bleeds into the next
QUALITIES = (76, 64, 50, 36, 22)  # of the JPEG; the first unless the images turn out harder than the sample
MOST_TILES = 400  # of a sheet: a browser decodes what is in view, and a sheet whole
SAMPLE = 48  # images by which the side is chosen


@dataclass(frozen=True)
class Sheet:
    """Tiles of one side, row by row in a picture of `columns` × `rows` of them."""

    jpeg: bytes
    columns: int
    rows: int


@dataclass(frozen=True)
class Tile:
    """Where an image is: the number of its sheet, and its place there as CSS wants it for `background-position`."""

    sheet: int
    position: str


def draw_sheets(
    table: Table, groups: Sequence[Sequence[int]], most_bytes: int, first: int = 0
) -> tuple[list[Sheet], dict[int, Tile]]:
    """A sheet for each group of rows of the table (several for a large one), numbered from `first`; and every tile.

    The tiles are as large as `most_bytes` for all sheets together allow. An image that has vanished has no tile.

    >>> sheets, tile_of = draw_sheets(table, [[0, 1, 2], [3, 4]], most_bytes=5_000_000)
    """
    rows = [row for group in groups for row in group]
    side = _affordable_side(table, rows, most_bytes)

    def tile(row: int) -> np.ndarray | None:
        image = _opened(table, row, side)
        return None if image is None else _square(image, side)

    pieces = [group[start : start + MOST_TILES] for group in groups for start in range(0, len(group), MOST_TILES)]
    present, mosaics = [], []
    with ThreadPoolExecutor(max_workers=4) as pool:
        drawn = pool.map(tile, rows)
        for piece in track(pieces, "drawing the page", total=len(pieces)):  # what is drawn is held once, in its sheet
            tiles = list(islice(drawn, len(piece)))
            present.append([row for row, picture in zip(piece, tiles, strict=True) if picture is not None])
            mosaics.append(_mosaic([picture for picture in tiles if picture is not None]))
    jpegs = _encoded_within(mosaics, most_bytes)
    sheets = [Sheet(jpeg, *_grid(len(group))) for jpeg, group in zip(jpegs, present, strict=True)]
    tile_of = {
        row: Tile(first + number, _position(place, *_grid(len(group))))
        for number, group in enumerate(present)
        for place, row in enumerate(group)
    }
    return sheets, tile_of


def _affordable_side(table: Table, rows: Sequence[int], most_bytes: int) -> int:
    """The largest side at which all rows should fit, judged by a few of them; none is enlarged for nothing."""
    sample = [_opened(table, row, SIDES[0]) for row in rows[:: max(1, len(rows) // SAMPLE)][:SAMPLE]]
    images = [image for image in sample if image is not None]
    if not images:
        return SIDES[-1]
    own_side = np.quantile([min(image.size) for image in images], 0.9)
    useful = [side for side in SIDES if side < own_side]  # and the next larger one
    for side in SIDES[max(0, len(SIDES) - len(useful) - 1) :]:
        (jpeg,) = _encoded([_mosaic([_square(image, side) for image in images])], QUALITIES[0])
        if len(jpeg) / len(images) * len(rows) <= most_bytes:
            return side
    return SIDES[-1]


def _opened(table: Table, row: int, side: int) -> Image.Image | None:
    """At least `side` pixels of an image; a large photograph is not decoded in full for a small tile."""
    try:
        return table.open_small(row, side)
    except BadImage:
        return None


def _square(image: Image.Image, side: int) -> np.ndarray:
    """The middle of an image as (side, side, 3) uint8."""
    return np.asarray(ImageOps.fit(image.convert("RGB"), (side, side), Image.Resampling.LANCZOS))


def _grid(count: int) -> tuple[int, int]:
    """Columns and rows of a sheet for so many tiles, about square: a JPEG may have 65,535 pixels a side."""
    columns = max(1, math.ceil(math.sqrt(count)))
    return columns, max(1, math.ceil(count / columns))


def _position(place: int, columns: int, rows: int) -> str:
    """0 % is the first column or row and 100 % the last."""
    x, y = place % columns / max(columns - 1, 1), place // columns / max(rows - 1, 1)
    return f"{100 * x:.4g}% {100 * y:.4g}%"


def _mosaic(tiles: Sequence[np.ndarray]) -> np.ndarray:
    """Tiles (s, s, 3) row by row in one picture; grey where there is none."""
    columns, rows = _grid(len(tiles))
    side = len(tiles[0]) if tiles else SIDES[-1]
    cells = np.full((rows * columns, side, side, 3), 128, dtype=np.uint8)
    if tiles:
        cells[: len(tiles)] = tiles
    return cells.reshape(rows, columns, side, side, 3).swapaxes(1, 2).reshape(rows * side, columns * side, 3)


def _encoded_within(mosaics: Sequence[np.ndarray], most_bytes: int) -> list[bytes]:
    """At the best quality that fits; if none does, at half the size, and so on."""
    while True:
        for quality in QUALITIES:
            jpegs = _encoded(mosaics, quality)
            smallest = all(max(mosaic.shape[:2]) <= 16 for mosaic in mosaics)
            if sum(map(len, jpegs)) <= most_bytes or smallest:
                return jpegs
        mosaics = [np.asarray(Image.fromarray(mosaic).reduce(2)) for mosaic in mosaics]


def _encoded(mosaics: Sequence[np.ndarray], quality: int) -> list[bytes]:
    jpegs = []
    for mosaic in mosaics:
        jpeg = io.BytesIO()
        Image.fromarray(mosaic).save(jpeg, "JPEG", quality=quality, subsampling="4:2:0", optimize=True)
        jpegs.append(jpeg.getvalue())
    return jpegs
