"""Weights of single epochs: kept every so many, or of the epoch that is best on labels that training does not see."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load
from torch import Tensor

from ..console import say, warn
from ..data.loader import seed_for
from ..data.table import Table
from ..runs.run import Run
from .model import Model

HELD_OUT = "held_out"  # the column of metrics.jsonl: the share of held-out labels that the model finds
SHARE = 0.2  # of the labels of each class that are held out
BEST = "checkpoint-best.safetensors"


def checkpoint_name(epochs: int) -> str:
    """Of the weights after so many epochs."""
    return f"checkpoint-{epochs:04d}.safetensors"


@dataclass(frozen=True)
class HeldOut:
    """Labelled images whose labels training does not see."""

    rows: NDArray[np.int64]
    classes: NDArray[np.int64]  # of each of them

    def judge(self, model: Model, features: Tensor) -> float:
        """The share of them that the model, which has found its categories, puts into their class."""
        category = model.assign(features[torch.from_numpy(self.rows)]).category
        return float((category.cpu() == torch.from_numpy(self.classes)).float().mean())


def hold_out(table: Table, seed: int) -> tuple[Table, HeldOut]:
    """The table without a fifth of the labels of each class, which keeps one at least; and these. Groups of images that
    are of one kind lose all their labels or none."""
    random = np.random.default_rng(seed_for("plan", seed))
    targets, groups = table.targets, table.group_numbers()
    hidden: list[int] = []
    for label in np.unique(targets[targets >= 0]).tolist():
        of_class = np.flatnonzero(targets == label)
        units = random.permutation(np.unique(groups[of_class]))
        chosen = units[: min(len(units) - 1, max(1, round(SHARE * len(units))))]
        hidden += of_class[np.isin(groups[of_class], chosen)].tolist()
    rows = np.array(sorted(hidden), dtype=np.int64)
    without = set(hidden)
    labels = [None if row in without else label for row, label in enumerate(table.labels)]
    return replace(table, labels=labels, known_first=table.known), HeldOut(rows, targets[rows])


class Best:
    """The weights of the best epoch so far: in the run, or in memory if there is none."""

    def __init__(self, run: Run | None, rows: Sequence[Mapping[str, Any]]) -> None:
        """`rows`: of metrics.jsonl, if the training is resumed."""
        self.run = run
        self.score = max((row[HELD_OUT] for row in rows if HELD_OUT in row), default=-1.0)
        self.weights = b""

    def keep(self, model: Model, score: float) -> None:
        """After an epoch: its weights, if no earlier ones are as good."""
        if score <= self.score:
            return
        self.score = score
        if self.run is None:
            self.weights = model.checkpoint()
        else:
            self.run.write(BEST, model.checkpoint())

    def restore(self, model: Model) -> None:
        """After the last epoch: the model gets the best one's weights, and has no teacher any more."""
        model.teacher = None
        weights = self.weights if self.run is None else self.run.verified(BEST).read_bytes()
        model.load_state_dict(load(weights), strict=False)
        if self.score <= 0:
            warn("no epoch finds any of the held-out labels: the weights of the first one are taken, by chance alone")
        else:
            say(f"the best epoch finds {self.score:.1%} of the held-out labels: its weights are taken")
