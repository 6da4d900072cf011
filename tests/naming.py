"""Runs with pictures, and models that know what is in them, for tests of proposed names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from discovered import discovered
from newkinds import Discovery
from newkinds.runs.directory import RunDirectory

Colour = tuple[int, int, int]


def pictured(folder: Path, colour_of: Callable[[int, int], Colour], name: str = "run", **how: int) -> Path:
    """A run whose images are there: each of one colour, which depends on its category and its place in it."""
    run, photos = discovered(folder / name, **how), folder / "photos"
    counts: dict[int, int] = {}
    for member in Discovery.read(run).found_members:
        place = counts[member.category_id] = counts.get(member.category_id, -1) + 1
        (photos / member.path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), colour_of(member.category_id, place)).save(photos / member.path, "PNG")
    RunDirectory(run).write("config.yaml", json.dumps({"data": {"name": "folder", "path": str(photos)}}))  # YAML too
    return run


class Lookup:
    """Two towers whose rows are given: of an image by its colour, of a sentence by the word in it."""

    name = "lookup"

    def __init__(self, images: Mapping[Colour, np.ndarray], words: Mapping[str, np.ndarray]) -> None:
        self.images, self.words = images, words

    def image_rows(self, images: Sequence[Image.Image]) -> np.ndarray:
        return np.stack([self.images[image.getpixel((0, 0))] for image in images]).astype(np.float32)

    def text_rows(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self.words[text] for text in texts]).astype(np.float32)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)
