"""From an image file to what the model expects. Needs numpy and Pillow alone."""

import json

import numpy as np
from checked import HERE  # beside this file, as is images.py; it looks for damage
from images import open_image
from PIL import Image

HOW = json.loads((HERE / "preprocessing.json").read_text(encoding="utf-8"))
LABELS = json.loads((HERE / "labels.json").read_text(encoding="utf-8"))


def view(path: str) -> np.ndarray:
    """(1, 3, size, size) float32 between 0 and 1: the shorter side resized, then the middle cropped."""
    image, shorter, size = open_image(path), HOW["shorter"], HOW["size"]
    width, height = image.size
    longer = int(shorter * max(width, height) / min(width, height))
    wanted = (shorter, longer) if width <= height else (longer, shorter)
    resized = image if image.size == wanted else image.resize(wanted, Image.Resampling.BICUBIC)
    left, top = (round((side - size) / 2) for side in wanted)
    pixels = np.asarray(resized.crop((left, top, left + size, top + size)), dtype=np.float32)  # (size, size, 3)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None]) / np.float32(255)


def shown(text: str) -> str:
    """A name for a terminal, which must not obey what is in it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def line(path: str, category: int, confidence: float, unlike: float) -> str:
    """What is printed about an image, with tabs between: file, category, its id, confidence, unlike (above 1: none)."""
    label = LABELS[category]
    return f"{shown(path)}\t{shown(label['name'])}\t{label['id']}\t{confidence:.4f}\t{unlike:.3f}"
