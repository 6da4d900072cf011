"""Parts of files, as W3C media fragments at the end of an image's name (https://www.w3.org/TR/media-frags/).

`photo.jpg#xywh=10,20,30,40` is a box in pixels of the upright photo: x, y, width, height. `clip.mp4#t=1.5` is the frame
of a video at 1.5 seconds, and `clip.mp4#t=1.5&xywh=10,20,30,40` a box in that."""

import math
import re
from pathlib import Path
from typing import NamedTuple

from ..files import exists

FARTHEST = 10_000_000  # px; no picture that can be opened reaches so far
# at the end of a name; what a person writes otherwise is part of the name
FRAGMENT = re.compile(
    r"#(?:t=(?P<time>\d{1,7}(?:\.\d{1,6})?)(?:&(?=x)|\Z))?(?:xywh=(?P<box>\d{1,8}(?:,\d{1,8}){3}))?\Z"
)


class Box(NamedTuple):
    """A rectangle in pixels of an upright image."""

    x: int
    y: int
    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.x},{self.y},{self.width},{self.height}"

    def inside(self, width: int, height: int) -> "Box | None":
        """What of it lies in an image of that size; None: nothing."""
        left, top = max(self.x, 0), max(self.y, 0)
        right, bottom = min(self.x + self.width, width), min(self.y + self.height, height)
        return Box(left, top, right - left, bottom - top) if right > left and bottom > top else None


class Part(NamedTuple):
    """Which part of a file an image is."""

    time: float | None = None  # seconds; None: it is no video
    box: Box | None = None  # None: all of the picture

    def __str__(self) -> str:
        """As it stands in a name; empty for a whole file."""
        time = "" if self.time is None else f"t={f'{self.time:.3f}'.rstrip('0').rstrip('.')}"
        box = "" if self.box is None else f"xywh={self.box}"
        return f"#{'&'.join(filter(None, [time, box]))}" if self != WHOLE else ""


WHOLE = Part()


def split_name(name: str) -> tuple[str, Part]:
    """The name of a file, and which part of it is meant.

    >>> split_name("a/photo.jpg#xywh=10,20,30,40")
    ('a/photo.jpg', Part(time=None, box=Box(x=10, y=20, width=30, height=40)))
    """
    found = FRAGMENT.search(name) if "#" in name else None
    if found is None or not (found["time"] or found["box"]):
        return name, WHOLE
    box = Box(*map(int, found["box"].split(","))) if found["box"] else None
    return name[: found.start()], Part(float(found["time"]) if found["time"] else None, box)


def find_part(root: Path, name: str) -> tuple[Path, Part]:
    """The file below `root` that an image is in, and which part of it the image is. A file that is really called so is
    meant itself."""
    file, part = split_name(name)
    if part == WHOLE or exists(root / name):
        return root / name, WHOLE
    return root / file, part


def read_box(text: str) -> Box:
    """A box as people write it: four numbers x, y, width, height, with commas or spaces, perhaps in brackets.

    What is left of or above the image is cut off; fractions of a pixel are rounded. `ValueError` says what is wrong.

    >>> read_box("[10, 20, 30.2, 40]")
    Box(x=10, y=20, width=30, height=40)
    """
    words = re.split(r"[\s,;]+", text.strip().strip("[](){}").strip())
    try:
        x, y, width, height = map(float, words)
    except ValueError:
        raise ValueError(f"the box '{text[:60]}' is not x, y, width, height") from None
    return box_of(x, y, width, height)


def box_of(x: float, y: float, width: float, height: float) -> Box:
    """The pixels of a box; `ValueError` says why there are none."""
    numbers = (x, y, width, height)
    said = ", ".join(f"{number:g}" for number in numbers)
    if not all(math.isfinite(number) and abs(number) <= FARTHEST for number in numbers):
        raise ValueError(f"the box {said} has numbers that are no pixels")
    if width <= 0 or height <= 0:
        raise ValueError(f"the box {said} has no size")
    left, top = max(round(x), 0), max(round(y), 0)
    right, bottom = round(x + width), round(y + height)
    if right <= left or bottom <= top:
        if max(abs(number) for number in numbers) <= 1:
            raise ValueError(f"the box {said} is smaller than a pixel: pixels are wanted, not shares of the image")
        outside = right <= 0 or bottom <= 0
        raise ValueError(f"the box {said} {'lies outside the image' if outside else 'is smaller than a pixel'}")
    return Box(left, top, right - left, bottom - top)
