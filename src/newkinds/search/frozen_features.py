"""Candidates that train nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..assigners.em import can_learn_whitening
from ..data.loader import seed_for
from .evidence import TrialEvidence
from .search import FAILURES
from .ways import USUAL_SHRINKAGE, Features, Way

FROZEN = "frozen features"
NOTHING_TRAINS = {"method": {"name": "frozen"}}
WHITENINGS: tuple[float | str, ...] = ("none", USUAL_SHRINKAGE)
# The first is the default: it is taken if nothing can be judged, or if others may be better by chance alone (but see
# `is_first_favoured`).
# Semi-supervised k-means, Ward, mean-shift, `balanced` alone, `em` with a fixed shrinkage and PIM with other entropies
# are left out: where they looked better on splits that was mostly chance (results/choosing.md).
USUAL = Way("em")
FROZEN_WAYS: tuple[Way, ...] = (
    USUAL,
    Way("pim"),  # in features as they are
)


class SomeRows(Protocol):
    """A split that says which images it is about."""

    @property
    def rows(self) -> NDArray[np.int64]: ...


class FrozenFeatures:
    """Features that are the same on every split: unit rows (n, P) of all images."""

    training = ""
    most_splits: int | None = None

    def __init__(
        self, rows: Tensor, name: str = FROZEN, settings: Mapping[str, Any] = NOTHING_TRAINS,
        evidence: TrialEvidence | None = None,
    ) -> None:  # fmt: skip
        self.name, self.settings = name, settings
        self.rows = rows
        self.images = len(rows)
        self._evidence = evidence

    def unfit(self) -> str:
        return ""

    def needs(self) -> float:
        return 0.0  # a first answer must come, however little time there is

    def features(self, split: SomeRows, number: int) -> Features:
        rows = self.rows[split.rows]
        if self._evidence is None:
            return Features(rows)
        return Features(rows, None, self._evidence.watch(self.name, rows, number))


class CloserFeatures(FrozenFeatures):
    """Features of the same images from another pass of the backbone, at a larger size for instance.

    `embed` gives unit rows (n, P), once somebody asks for them. The pass takes so many `seconds`, and may take no more
    than a `share` of the time that is left.
    """

    def __init__(
        self, embed: Callable[[], Tensor], seconds: float, share: float, images: int, name: str,
        settings: Mapping[str, Any], evidence: TrialEvidence | None = None,
    ) -> None:  # fmt: skip
        super().__init__(torch.empty(0), name, settings, evidence)
        self.images = images
        self._embed, self._needs = embed, seconds / share

    def needs(self) -> float:
        return self._needs

    def features(self, split: SomeRows, number: int) -> Features:
        if not len(self.rows):
            self.rows = self._embed()
        return super().features(split, number)


def frozen_ways(assigner: str | None = None, whiten: float | str | None = None) -> list[Way]:
    """The ways to find categories that are compared, with an assigner or a whitening that somebody has named."""
    ways = FROZEN_WAYS
    if assigner is not None:
        own = tuple(way for way in FROZEN_WAYS if way.assigner == assigner)
        ways = own or tuple(Way(assigner, each) for each in WHITENINGS)
    if whiten is not None:
        ways = tuple(replace(way, whiten=whiten) for way in ways)
    return list(dict.fromkeys(ways))


def is_first_favoured(ways: Sequence[Way], rows: Tensor, labels: NDArray[np.int64], categories: int, seed: int) -> bool:
    """Whether the first of some ways, `em`, stays unless another is better by more than chance, in unit rows (n, P).

    It does not where there are too few images to tell how to whiten them, the strength of `em`: there the best mean on
    the splits wins, which lost less (results/choosing.md).
    """
    if len(ways) < 2 or ways[0] != USUAL or not rows.isfinite().all():
        return True
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.default_generator.manual_seed(seed_for("categories", seed))
            return can_learn_whitening(rows, torch.from_numpy(labels), categories)
    except FAILURES:  # so will the candidates, which say why
        return True
