"""Opening parts of files: a box in a photo, a frame of a video, a box in that."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from .fragments import WHOLE, Part
from .headers import upright_size
from .images import BadImage, check_shape, open_full, open_image
from .videos import open_frame

MOST_HELD = 128_000_000  # bytes of decoded pictures that wait for another box in them; one is held whatever its size
BYTES_OF_PIXEL = 4  # as Pillow keeps RGB


def open_part(file: Path, part: Part = WHOLE, enough: int | None = None) -> Image.Image:
    """An image that is a part of a file, as `open_image` opens a whole one; `BadImage` says why there is none.

    Boxes are in pixels of the upright picture. They are cut out of the full size, whatever is `enough`, and what of a
    box lies outside the picture is cut off.
    """
    if part == WHOLE:
        return open_image(file, enough)
    picture, factor = _held.get(_key(file, part.time), lambda: _whole(file, part.time))
    if part.box is None:
        return picture.copy()  # whoever gets it may change it
    size = picture.width * factor, picture.height * factor
    box = part.box.inside(*size)
    if box is None:
        where = "has no size" if 0 in part.box[2:] else f"lies outside the image ({size[0]}×{size[1]} pixels)"
        raise BadImage(f"the box {part.box} {where}")
    check_shape(box.width, box.height)
    left, top = box.x // factor, box.y // factor
    right, bottom = -(-(box.x + box.width) // factor), -(-(box.y + box.height) // factor)
    return picture.crop((left, top, min(right, picture.width), min(bottom, picture.height)))


def size_of_whole(file: Path, part: Part) -> tuple[int, int]:
    """Width and height of the upright picture that a part is cut out of; photos are not decoded for it."""
    if part.time is None:
        return upright_size(file)
    return _held.get(_key(file, part.time), lambda: _whole(file, part.time))[0].size


def _whole(file: Path, time: float | None) -> tuple[Image.Image, int]:
    """The upright picture, and how many pixels a side of it became one."""
    return open_full(file) if time is None else (open_frame(file, time), 1)


def _key(file: Path, time: float | None) -> tuple[Any, ...]:
    """Of a picture as its file is now."""
    try:
        status = file.stat()
    except (OSError, ValueError):
        raise BadImage("file not found") from None
    return str(file.absolute()), status.st_size, status.st_mtime_ns, status.st_ino, time


class _HeldPictures:
    """The decoded pictures that were used last: a photo may have thousands of boxes, and is decoded once for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], tuple[Image.Image, int]] = OrderedDict()
        self._decoding: dict[tuple[Any, ...], threading.Lock] = {}

    def get(self, key: tuple[Any, ...], decode: Callable[[], tuple[Image.Image, int]]) -> tuple[Image.Image, int]:
        """The picture of that key; of several threads that want it, one decodes it, and the others wait."""
        with self._lock:
            own = self._decoding.setdefault(key, threading.Lock())
        with own:
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    return self._kept[key]
            made = decode()
            with self._lock:
                self._kept[key] = made
                while len(self._kept) > 1 and sum(map(_bytes_of, self._kept.values())) > MOST_HELD:
                    self._kept.popitem(last=False)
                self._decoding = {waiting: lock for waiting, lock in self._decoding.items() if lock.locked()}
            return made


def _bytes_of(held: tuple[Image.Image, int]) -> int:
    return BYTES_OF_PIXEL * held[0].width * held[0].height


_held = _HeldPictures()


def _after_fork() -> None:
    """Locks that another thread held when a process was split off would never be released."""
    global _held
    _held = _HeldPictures()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
