"""Creatures: the data set that needs no files, because it is drawn by code."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from ...settings import Range, WholeNumber
from ..splits import for_tuning, hide_labels
from ..table import DATASETS, Table, table_of_pixels
from . import drawing

MOST_KINDS = 1000  # far more can be composed, but telling them apart would need larger images
Kinds = Annotated[int, Range(2, MOST_KINDS)]
Images = Annotated[int, Range(2)]


@DATASETS.register("creatures")
def creatures_table(
    categories: Kinds = 16, per_category: Images = 36, seed: WholeNumber = 0, tune: bool = False
) -> Table:
    """Drawn animals: the first half of the kinds is known, half of the known kinds' images are labelled."""
    drawn = drawing.make(categories, per_category, seed)
    names = [kind.name for kind in drawn.kinds]
    table = hide_labels(_all_labelled(drawn), known=names[: categories // 2])
    return for_tuning(table) if tune else table


@DATASETS.register("creatures-large")
def large_creatures_table(
    categories: Kinds = 40, per_category: Images = 60, seed: WholeNumber = 0, tune: bool = False
) -> Table:
    """The same drawn animals, in a size at which differences of a few points are significant."""
    return creatures_table(categories, per_category, seed, tune)


def part_maps(paths: Sequence[str], tune: bool = False, **settings: Any) -> np.ndarray:
    """The true parts (n, s, s) uint8 of some images of `creatures_table(**settings)`: see `drawing.PARTS`."""
    drawn = drawing.make(**settings)  # all of them, whichever are taken to tune
    row_of = {path: row for row, path in enumerate(_all_labelled(drawn).paths)}
    return drawn.parts[[row_of[path] for path in paths]]


def _all_labelled(drawn: drawing.Creatures) -> Table:
    return table_of_pixels("creature", drawn.images, [drawn.kinds[category].name for category in drawn.categories])
