"""Small facts about an image, measured when it is opened anyway: what the checks judge pixels by."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image

SIDE = 72  # px of the thumbnail that facts are measured on: a multiple of 8 and of 9
HASH_BITS = 256
EVEN = 2.0  # of 255 grey levels; a smaller step between two cells is noise, and no edge
GREY = np.array([0.299, 0.587, 0.114], np.float32)
COLUMNS = ("width", "height", "spread", "colour", "hash")  # of a table that keeps them


@dataclass(frozen=True)
class Facts:
    """Size, contrast, colour and a perceptual hash."""

    width: int  # px
    height: int
    spread: float  # standard deviation of the thumbnail's most varied colour channel, of 255 levels
    colour: str  # the mean as in HTML, without the #: "c08040"
    hash: str  # 64 hexadecimal digits, see `difference_hash`

    def cells(self) -> list[str]:
        """One per column; `facts_of` reads them again."""
        return [str(self.width), str(self.height), f"{self.spread:.2f}", self.colour, self.hash]


def measure(image: Image.Image) -> Facts:
    """The facts about an opened RGB image."""
    thumbnail = image.resize((SIDE, SIDE), Image.Resampling.BOX, reducing_gap=2.0)
    pixels = np.asarray(thumbnail, dtype=np.float32)  # (SIDE, SIDE, 3)
    spread, colour = float(pixels.std((0, 1)).max()), pixels.mean((0, 1)).round().astype(np.uint8)
    return Facts(*image.size, round(spread, 2), colour.tobytes().hex(), difference_hash(pixels @ GREY))


def difference_hash(grey: np.ndarray) -> str:
    """Where brightness rises (128 bits) and where it falls (128 bits) from one cell to the next, to the right and down.

    Cells are an 8th or a 9th of the side. A difference hash (Krawetz, 2013) that knows even areas, whose noise sets no
    bit. Copies that were resized, encoded again or cropped a little share most of the bits that either has; other
    images, also on equal backgrounds, do not. `grey`: (SIDE, SIDE).
    """
    right = np.diff(_cells(grey, 8, 9), axis=1)  # (8, 8)
    down = np.diff(_cells(grey, 9, 8), axis=0)  # (8, 8)
    steps = np.stack([right, down])
    return np.packbits(np.stack([steps > EVEN, steps < -EVEN])).tobytes().hex()


def _cells(grey: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Mean brightness of `rows` × `columns` equal parts."""
    return grey.reshape(rows, SIDE // rows, columns, SIDE // columns).mean((1, 3))


def facts_of(row: Mapping[str, str]) -> Facts | None:
    """From a row of a table; None if it does not have them."""
    try:
        facts = Facts(int(row["width"]), int(row["height"]), float(row["spread"]), row["colour"], row["hash"])
        lengths = len(bytes.fromhex(facts.colour)), len(bytes.fromhex(facts.hash))
        return facts if lengths == (3, HASH_BITS // 8) else None
    except (KeyError, TypeError, ValueError):
        return None
