"""Rows that come to an estimator later: placed in its categories, waiting, or opening categories of their own."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..assigners.base import Assignment
from ..assigners.extension import Extension
from ..assigners.opening import PER_CLASS, OpeningRule, choose_rule, settled_centres, unconfirmed_rule
from ..discovery.kinds import OUTSIDE
from ..training.model import Model

WAITS = -1  # in the place of a category: none yet


@dataclass
class GrowingRows:
    """What an estimator remembers of the rows that it has seen, so that more can come.

    Categories are numbers 0..K-1 of the model, and from K on those that came later.
    """

    model: Model
    sizes: list[int]  # rows in each category
    examples: Tensor  # (e, P) unit rows before whitening: some of each category
    example_of: Tensor  # (e,) their categories
    is_labelled: Tensor  # (e,) whether a label says so
    centres: Tensor  # (E, P) of later categories
    waiting: list[int] = field(default_factory=list)  # the rows, of all so far, that are in no category yet
    waiting_features: Tensor | None = None  # (w, D)

    @classmethod
    def begin(
        cls, model: Model, features: Tensor, category: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> "GrowingRows":
        """After a fit to features (n, D), whose categories and labels (-1: none) are those of the model."""
        kept = some_of_each(category, labels)
        rows = model.rows(features[kept])
        sizes = np.bincount(category, minlength=model.categories).tolist()
        of, labelled = torch.from_numpy(category[kept]), torch.from_numpy(labels[kept] >= 0)
        return cls(model, sizes, rows, of, labelled, model.calibration.centres[:0])

    @property
    def extension(self) -> Extension:
        return Extension(self.model.calibration, self.centres)

    @torch.no_grad()
    def place(
        self, features: Tensor, labels: Sequence[int], first: int
    ) -> tuple[NDArray[np.int64], Assignment, dict[int, int]]:
        """The category (n,) of each row of features (n, D), or WAITS; how sure that is; and where rows that had been
        waiting are now, by their numbers. `labels`: a category, a new one to be opened (the next number), or WAITS.
        `first`: the number of the first row."""
        rows, given = self.model.rows(features), torch.tensor(labels)
        for number in range(len(self.sizes), max([*labels, -1]) + 1):
            self._add(rows[given == number].mean(dim=0))
        free = given == WAITS
        old = features[:0] if self.waiting_features is None else self.waiting_features
        candidates = torch.cat([old, features[free]])
        rule = self.rule()
        if len(candidates) >= rule.smallest:
            opened = settled_centres(
                rule, self.model.rows(candidates), self.extension.centres, self.model.space,
                lambda every: self._assigned(candidates, every).category,
            )  # fmt: skip
            for centre in opened:
                self._add(centre)
        again = self._assigned(old) if len(old) else None
        found = self._assigned(features)
        assert found.unlike is not None, "it was calibrated"
        category = torch.where(free, found.category.where(found.unlike <= OUTSIDE, WAITS), given)
        now: dict[int, int] = {}
        if again is not None:
            assert again.unlike is not None
            placed = again.category.where(again.unlike <= OUTSIDE, WAITS).tolist()
            now = {row: number for row, number in zip(self.waiting, placed, strict=True) if number != WAITS}
        self._remember(features, rows, category, ~free, first, now)
        own = replace(found, category=torch.where(free, found.category, given))
        judged = self.model.calibration(rows, own, self.model.whitening, self.extension.centres)
        return category.numpy(), replace(found, confidence=judged.confidence), now

    def _add(self, centre: Tensor) -> None:
        self.centres = torch.cat([self.centres, centre[None].to(self.centres)])
        self.sizes.append(0)

    def rule(self) -> OpeningRule:
        """When a category may be opened."""
        labelled, space = self.is_labelled, self.model.space
        rows, of = self.examples[labelled], self.example_of[labelled]
        sizes = torch.tensor(self.sizes).clamp(min=1)
        rule = choose_rule(rows, of, self.extension.centres, sizes, space) if len(rows) else None
        return rule if rule is not None and rule.hidden else unconfirmed_rule(self.examples, self.example_of, space)

    def _assigned(self, features: Tensor, centres: Tensor | None = None) -> Assignment:
        others = self.centres if centres is None else centres[len(self.model.calibration.centres) :]
        return self.model.assign(features, Extension(self.model.calibration, others))

    def _remember(
        self, features: Tensor, rows: Tensor, category: Tensor, labelled: Tensor, first: int, now: dict[int, int]
    ) -> None:
        """What the next rows need of these."""
        for number in [*category[category >= 0].tolist(), *now.values()]:
            self.sizes[number] += 1
        kept = [place for place, row in enumerate(self.waiting) if row not in now]
        old = features[:0] if self.waiting_features is None else self.waiting_features[kept]
        waits = (category == WAITS).nonzero()[:, 0]
        self.waiting = [*(self.waiting[place] for place in kept), *(first + waits).tolist()]
        self.waiting_features = torch.cat([old, features[waits]])
        placed = category >= 0
        every = torch.cat([self.examples, rows[placed]])
        of = torch.cat([self.example_of, category[placed]])
        told = torch.cat([self.is_labelled, labelled[placed]])
        few = some_of_each(of.numpy(), np.where(told.numpy(), of.numpy(), WAITS))
        self.examples, self.example_of, self.is_labelled = every[few], of[few], told[few]


def some_of_each(category: NDArray[np.int64], labels: NDArray[np.int64]) -> Tensor:
    """The first rows of each category, no more than PER_CLASS labelled ones (`labels`, -1: none) and as many others."""
    kept = []
    for labelled in (True, False):
        for number in np.unique(category[category >= 0]).tolist():
            kept += np.flatnonzero((category == number) & ((labels >= 0) == labelled))[:PER_CLASS].tolist()
    return torch.tensor(sorted(kept), dtype=torch.long)
