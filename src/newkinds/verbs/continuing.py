"""Training that goes on from a run's weights with the labels that people gave, as far as that pays."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..console import say
from ..data.table import Table
from ..errors import NewkindsError
from ..runs.config import Config, resolve
from ..runs.run import Run
from ..text import duration
from ..training.embedding import embed
from ..training.model import Model
from .candidates import standard_error
from .folds import Judged, Taught, Whiten
from .train import train_on

STEPS = 300  # of training, unless the run itself took fewer
SLOWER = 0.1  # than the run's learning rate: it has arrived somewhere already
TRIALS = 3  # folds on which it is judged


@dataclass(frozen=True)
class Trained:
    """Features that training has changed, and what it changed them by."""

    run: Run
    config: Config
    features: Tensor  # (n, D)
    judged: Judged


class Continuation:
    """The training of one run, continued: judged on a few folds of the labels, then on all images if it pays.

    `begun(taught)` gives a model with the run's weights that has found the categories of what is `taught`. What was
    trained is kept in the folder `plan` until the end, so that the same command continues.
    """

    def __init__(
        self, source: Run, target: Run, config: Config, table: Table, taught: Taught, begun: Callable[[Taught], Model]
    ) -> None:
        self.source, self.target, self.config, self.begun = source, target, config, begun
        self.table, self.taught = table, taught
        self.folder = target.path("plan")

    def unfit(self, seconds: float) -> str:
        """Why it is not tried, if so many seconds are left; or nothing."""
        if not self.config.train.epochs:
            return "nothing was trained in the run"
        if (self.taught.labels >= 0).all():
            return "all images have a label"
        needs = self.needs()
        if needs > seconds:
            return f"it needs about {duration(needs)}, {duration(max(seconds, 0))} are left"
        return ""

    def needs(self) -> float:
        """Seconds, by those that the run's own training and embedding took."""
        took = [row["seconds"] for row in self.source.metrics()[-5:]]
        step = float(np.median(took)) / self._steps_of_epoch(self.source.protocol().images) if took else 1.0
        timing = self.source.read_json("timing.json") if self.source.path("timing.json").is_file() else {}
        return (TRIALS + 1) * (self._epochs() * self._steps_of_epoch(len(self.table)) * step) + (TRIALS + 1) * float(
            timing.get("embedding_seconds", 0.0)
        )

    def _steps_of_epoch(self, images: int) -> int:
        train = self.config.train
        return max(1, (train.epoch_size or images) // min(train.batch_size, images))

    def _epochs(self) -> int:
        return min(self.config.train.epochs, max(1, round(STEPS / self._steps_of_epoch(len(self.table)))))

    def _config(self, start: Run) -> Config:
        method = {"warmup_teacher_epochs": 0} if "warmup_teacher_epochs" in self.config.method else {}
        train = {
            "epochs": self._epochs(), "lr": SLOWER * self.config.train.lr, "start": str(start.folder), "eval_every": 0,
        }  # fmt: skip
        return resolve(self.config.as_dict(), {"train": train, "method": method})

    def trial(self, whitenings: list[Whiten], deadline: float) -> Judged | str:
        """The best whitening of continued features, judged on a few folds; or why there is none."""
        folds = self.taught.folds()[:TRIALS]
        right: dict[Whiten, list[float]] = {whiten: [] for whiten in whitenings}
        decided: dict[Whiten, list[bool]] = {whiten: [] for whiten in whitenings}
        is_decided = self.taught.decided
        for number, fold in enumerate(folds):
            if time.monotonic() > deadline:
                return "it turned out to take too long"
            try:
                trained = self._trained(f"fold-{number}", self.taught.hidden(fold))
            except NewkindsError as error:
                return f"it stopped: {error}"
            for whiten in whitenings:
                found = self.taught.right(trained[1], whiten, fold)
                right[whiten].append(float(found.mean()))
                decided[whiten] += found[is_decided[fold]].tolist()
        best = max(whitenings, key=lambda whiten: float(np.mean(right[whiten])))
        share = float(np.mean(decided[best])) if decided[best] else None
        return Judged("training continued", best, right[best], share)

    def pays(self, continued: Judged, refitted: Judged) -> tuple[bool, str]:
        """By the rule of `newkinds discover`: more than the standard error of the gain."""
        gains = np.subtract(continued.folds, refitted.folds[: len(continued.folds)])
        gain, error = float(gains.mean()), standard_error(gains.tolist()) or 0.0
        figures = f"{100 * gain:+.1f} ± {100 * error:.1f} points of hidden labels against the run's own features"
        return gain > error, f"training continued for {self._epochs()} epoch(s): {figures}"

    def finish(self, judged: Judged) -> Trained:
        """Train on all images and labels."""
        loaded, _, features = self._trained("chosen", self.taught)
        whiten = {"embedding": {"whiten": judged.whiten}}
        config = resolve(loaded.run.config().as_dict(), whiten, {"train": {"start": str(self.source.folder.resolve())}})
        return Trained(loaded.run, config, features, judged)

    def _trained(self, name: str, taught: Taught) -> tuple[Any, Tensor, Tensor]:
        """The run that was trained on what is taught, unit rows (n, P) and features (n, D) of all images."""
        start, inner = Run(self.folder / f"{name}-start"), Run(self.folder / name)
        if not start.model_file.is_file():
            start.begin(self.config)
            start.write(start.model_file.name, self.begun(taught).as_safetensors())
        known = self.table.known
        labels = [None if label < 0 else known[label] for label in taught.labels]
        loaded, cache, _ = train_on(replace(self.table, labels=labels), self._config(start), inner)
        say(f"embedding the images by what was trained ({name})")
        features = embed(loaded.model.encoder, self.table, loaded.model.device, cache=cache).features
        with torch.no_grad():
            rows = loaded.model.rows(features.to(loaded.model.device)).float().cpu()
        return loaded, rows, features
