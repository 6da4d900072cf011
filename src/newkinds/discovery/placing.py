"""Where images go that a run has never seen: by its model, and by the centres of categories that the model does not
know, seen through people's edits."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..assigners.base import Assignment
from ..assigners.extension import Extension
from ..training.model import Model
from .categories import Discovery
from .edits import JUNK, Corrections
from .lens import Lens


class Placer:
    """Places images in the categories of a run as they are now.

    >>> placer = Placer(loaded.model, Discovery.read(run.folder), partial(read_features, run))
    >>> ids, assignment = placer.place(features)       # (n,) ids as people see them; how sure that is
    """

    def __init__(self, model: Model, found: Discovery, features: Callable[[], Tensor]) -> None:
        """`features` gives (n, D) of the run's own images; it is asked only if something was split, made or opened."""
        self.model = model
        own = cache(features)
        self.lens = Lens(found, lambda: self.embedding(own()))
        state = found.corrections()
        opened = [category.id for category in found.found_categories[model.categories :]]
        made = [edit["to"] for edit in state.in_force if edit["edit"] == "move" and "name" in edit]
        others = list(dict.fromkeys([*opened, *made]))
        self.ids = np.array([*(c.id for c in found.found_categories[: model.categories]), *others], dtype=np.int64)
        centres = model.calibration.centres.new_zeros(len(others), model.calibration.centres.shape[1])  # (E, P)
        for place, rows in enumerate(_rows_inside(found, state, others)):
            if rows:
                centres[place] = self._centre(own()[rows])
        self.extension = Extension(model.calibration, centres)

    @torch.inference_mode()
    def embedding(self, features: Tensor) -> NDArray[np.float32]:
        """Unit rows (n, P) of features (n, D): the space in which images are compared."""
        return self.model.compare(features.to(self.model.device)).float().cpu().numpy()

    @torch.inference_mode()
    def _centre(self, features: Tensor) -> Tensor:
        """(P,) the mean of the rows of features (m, D), before whitening."""
        return self.model.rows(features.to(self.model.device)).float().mean(dim=0)

    def place(self, features: Tensor) -> tuple[NDArray[np.int64], Assignment]:
        """(n,) the ids of categories for features (n, D), and the assignment that they come from."""
        assignment = self.model.assign(features, self.extension)
        found = self.ids[assignment.category.cpu().numpy()]
        return self.lens.shown(found, self.embedding(features) if self.lens.compares else None), assignment


def _rows_inside(found: Discovery, state: Corrections, categories: list[int]) -> list[list[int]]:
    """The rows of the images that are in each of some categories: where they were found, or put one by one. Merges and
    splits are left to the lens."""
    put: dict[str, int] = {}
    for edit in state.in_force:
        if edit["edit"] in ("move", "junk"):
            put.update(dict.fromkeys(edit["images"], edit.get("to", JUNK)))
    inside: dict[int, list[int]] = {category: [] for category in categories}
    for row, member in enumerate(found.found_members if categories else ()):
        place = put.get(member.path, member.category_id)
        if place in inside:
            inside[place].append(row)
    return list(inside.values())
