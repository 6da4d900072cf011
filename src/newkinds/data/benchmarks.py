"""Data sets with ground truth, split into labelled and unlabelled images the way the field does."""

from __future__ import annotations

from functools import partial

import numpy as np
from PIL import Image

from . import creatures
from .splits import gcd_split
from .table import DATASETS, Table


@DATASETS.register("creatures")
def creatures_table(categories: int = 20, per_category: int = 40, seed: int = 0) -> Table:
    """Drawn animals: the first half of the kinds is known, half of the known kinds' images are labelled."""
    drawn = creatures.make(categories, per_category, seed)
    names = [kind.name for kind in drawn.kinds]
    known = names[: categories // 2]
    labelled, _ = gcd_split(drawn.categories, range(len(known)))
    truth = [names[category] for category in drawn.categories]
    labels: list[str | None] = [None] * len(truth)
    for row in labelled:
        labels[row] = truth[row]
    return Table(
        paths=[f"creature-{row:05d}.png" for row in range(len(truth))],
        labels=labels,
        open=partial(_open_drawn, drawn.images),
        truth=truth,
        known_first=known,
    )


def _open_drawn(images: np.ndarray, row: int) -> Image.Image:
    return Image.fromarray(images[row])
