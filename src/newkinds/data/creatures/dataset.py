"""Creatures: the data set that needs no files, because it is drawn by code."""

from __future__ import annotations

from functools import partial

import numpy as np
from PIL import Image

from ...errors import NewkindsError
from ..splits import hide_labels
from ..table import DATASETS, Table
from . import drawing

MOST_KINDS = 1000  # far more can be composed, but telling them apart would need larger images


@DATASETS.register("creatures")
def creatures_table(categories: int = 16, per_category: int = 36, seed: int = 0) -> Table:
    """Drawn animals: the first half of the kinds is known, half of the known kinds' images are labelled."""
    if not 2 <= categories <= MOST_KINDS or per_category < 2 or seed < 0:
        raise NewkindsError(
            f"creatures need 2 to {MOST_KINDS} categories, at least 2 images of each and a seed from 0 on, "
            f"not categories={categories}, per_category={per_category}, seed={seed}."
        )
    drawn = drawing.make(categories, per_category, seed)
    names = [kind.name for kind in drawn.kinds]
    table = Table(
        paths=[f"creature-{row:05d}.png" for row in range(len(drawn.categories))],
        labels=[names[category] for category in drawn.categories],
        open=partial(_open_drawn, drawn.images),
    )
    return hide_labels(table, known=names[: categories // 2])


def _open_drawn(images: np.ndarray, row: int) -> Image.Image:
    return Image.fromarray(images[row])
