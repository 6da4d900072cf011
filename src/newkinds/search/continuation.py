"""Features of a training that goes on from a run's weights with the labels that people gave."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..console import say
from ..data.table import Table
from ..runs.config import Config, resolve
from ..runs.records import Timing
from ..runs.run import Run
from ..training.loop import Fitted, Pace
from ..training.model import Model
from .clock import Clock
from .folds import Fold, Lessons
from .ways import TRIALS, Features

CONTINUED = "training continued"
STEPS = 300  # of training, unless the run itself took fewer
SLOWER = 0.1  # than the run's learning rate: it has arrived somewhere already

Begin = Callable[[Config, Lessons], Model]  # a model with the run's weights that has found what the lessons say
Continue = Callable[[Table, Config, Model, Pace | None], Fitted]


@dataclass(frozen=True)
class Continuation:
    """How the training of a run goes on: `source`, whose weights it begins with, and what it is to learn."""

    source: Run
    config: Config  # of the refined run
    table: Table
    lessons: Lessons
    begin: Begin

    def train_config(self) -> Config:
        """The settings of the training."""
        has_warmup = "warmup_teacher_epochs" in self.config.method
        train = {
            "epochs": self.epochs(),
            "lr": SLOWER * self.config.train.lr,
            "start": str(self.source.folder.resolve()),
            "eval_every": 0,
        }
        method: dict[str, Any] = {"warmup_teacher_epochs": 0} if has_warmup else {}
        return resolve(self.config.as_dict(), {"train": train, "method": method})

    def epochs(self) -> int:
        return min(self.config.train.epochs, max(1, round(STEPS / self.steps_of_epoch(len(self.table)))))

    def steps(self) -> int:
        return self.epochs() * self.steps_of_epoch(len(self.table))

    def steps_of_epoch(self, images: int) -> int:
        train = self.config.train
        return max(1, (train.epoch_size or images) // min(train.batch_size, images))

    def step_seconds(self) -> float:
        """Of one step, by what the run's own training took."""
        took = [row["seconds"] for row in self.source.metrics()[-5:]]
        if not took:
            return 1.0
        return float(np.median(took)) / self.steps_of_epoch(self.source.protocol().images)

    def table_of(self, lessons: Lessons) -> Table:
        """The images with the labels of these lessons."""
        known = self.table.known
        return replace(self.table, labels=[None if label < 0 else known[label] for label in lessons.labels])


class ContinuedFeatures:
    """The features that continued training makes, if the labels of a fold are hidden; thrown away after judging."""

    def __init__(self, continuation: Continuation, clock: Clock, train: Continue) -> None:
        self.name = self.training = CONTINUED
        self.settings: Mapping[str, Any] = {}
        self.most_splits: int | None = TRIALS
        self.images = len(continuation.table)
        self._continuation, self._clock, self._train = continuation, clock, train

    def unfit(self) -> str:
        if not self._continuation.config.train.epochs:
            return "nothing was trained in the run"
        if (self._continuation.lessons.labels >= 0).all():
            return "all images have a label"
        return ""

    def needs(self) -> float:
        return self._seconds(self._continuation.step_seconds(), TRIALS + 1)

    def _seconds(self, per_step: float, trainings: int) -> float:
        timing = Timing.find(self._continuation.source)
        embedding = 0.0 if timing is None else timing.embedding_seconds
        return trainings * (self._continuation.steps() * per_step + embedding)

    def features(self, split: Fold, number: int) -> Features:
        def why_too_slow(per_step: float) -> str:
            lack = self._clock.lack(self._seconds(per_step, TRIALS - number + 1))
            return f"by its first steps it {lack}" if lack else ""

        more = self._continuation
        lessons = more.lessons.hide(split.hidden)
        config = more.train_config()
        say(f"training with a part of the labels hidden ({number + 1} of {TRIALS})")
        model, embedded = self._train(more.table_of(lessons), config, more.begin(config, lessons), why_too_slow)
        with torch.no_grad():
            return Features(model.rows(embedded.features.to(model.device)).float().cpu())
