"""Candidates that train nothing."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .ways import USUAL_SHRINKAGE, Features, Way

FROZEN = "frozen features"
NOTHING_TRAINS = {"method": {"name": "frozen"}}
WHITENINGS: tuple[float | str, ...] = ("none", USUAL_SHRINKAGE)
# The first is the default if nothing can be judged. PIM and plain k-means are left out: on 50 kinds of birds PIM is
# no better than `balanced` and takes minutes, and k-means does not look at labels at all.
ASSIGNERS_TRIED = ("balanced", "sskmeans", "ward", "meanshift")


class SomeRows(Protocol):
    """A split that says which images it is about."""

    @property
    def rows(self) -> NDArray[np.int64]: ...


class FrozenFeatures:
    """Features that are the same on every split: unit rows (n, P) of all images."""

    def __init__(self, rows: Tensor, name: str = FROZEN, settings: Mapping[str, Any] = NOTHING_TRAINS) -> None:
        self.name, self.training, self.settings = name, "", settings
        self.most_splits: int | None = None
        self.rows = rows
        self.images = len(rows)

    def unfit(self) -> str:
        return ""

    def needs(self) -> float:
        return 0.0  # a first answer must come, however little time there is

    def features(self, split: SomeRows, number: int) -> Features:
        return Features(self.rows[split.rows])


def frozen_ways(
    assigners: Sequence[str] = ASSIGNERS_TRIED, whitenings: Sequence[float | str] = WHITENINGS
) -> list[Way]:
    """The ways to find categories in frozen features that are compared."""
    return [Way(assigner, whiten) for assigner in assigners for whiten in whitenings]
