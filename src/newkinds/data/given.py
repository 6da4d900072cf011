"""Images that a program holds: paths, pictures of Pillow or arrays become a table."""

import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..errors import NewkindsError
from .fragments import find_part
from .images import BadImage, as_rgb
from .parts import open_part
from .table import Table


def are_images(X: Any) -> bool:
    """Whether these are images (paths, pictures, arrays of pixels) rather than a table of numbers."""
    ndim = getattr(X, "ndim", None)
    if ndim is not None:
        return ndim > 2 or (ndim == 1 and np.asarray(X).dtype.kind in "OUS")
    first = next(iter(X), None) if isinstance(X, Iterable) else None
    return isinstance(first, (str, os.PathLike, Image.Image)) or getattr(first, "ndim", 1) > 1


def table_of_images(images: Any) -> Table:
    """A table without labels: paths keep their names, other images are called image-00000 and so on.

    >>> table_of_images([Path("holiday.jpg"), Image.new("RGB", (64, 64)), np.zeros((64, 64, 3), np.uint8)])
    """
    if isinstance(images, (str, bytes, os.PathLike)) or not isinstance(images, Iterable):
        raise NewkindsError("images are a list of paths, of pictures, or an array (n, height, width, 3).")
    items = list(images)
    names = [os.fsdecode(item) if is_path(item) else f"image-{row:05d}" for row, item in enumerate(items)]
    return Table(names, [None] * len(items), partial(_open, items))


def is_path(item: Any) -> bool:
    return isinstance(item, (str, bytes, os.PathLike))


def _open(items: Sequence[Any], row: int) -> Image.Image:
    item = items[row]
    if is_path(item):
        return open_part(*find_part(Path(), os.fsdecode(item)))
    if isinstance(item, Image.Image):
        return as_rgb(item)
    pixels = np.asarray(item)
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)):
        shape = f"an array of shape {pixels.shape} and type {pixels.dtype}"
        raise BadImage(f"{shape} is no image: (height, width, 3) or (height, width), uint8")
    return as_rgb(Image.fromarray(pixels))
