"""How long a step of a training takes, known before anything is computed that the training would read."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from ..console import keep_quiet
from ..data.batch import CachedTokens
from ..data.table import Table
from ..data.views import View
from ..runs.config import TrainConfig
from .distributed import Unsent
from .loop import TrainingTooSlow, train_epochs
from .model import Model


@dataclass(frozen=True)
class NoiseViews:
    """Noise in the place of cached tokens (`ViewStore`)."""

    shape: tuple[int, int]  # of one view: T, D
    random_views: int
    kinds: tuple[View, ...]

    def holds(self, table: Table) -> bool:
        return True

    def rows_of(self, table: Table) -> np.ndarray:
        return np.arange(len(table))

    def inputs(self, rows: np.ndarray, numbers: np.ndarray) -> CachedTokens:
        generator = torch.Generator().manual_seed(int(rows[0]))
        return CachedTokens(torch.randn(len(rows), *self.shape, generator=generator))


def measure_step(model: Model, table: Table, config: TrainConfig, views: int) -> float:
    """Seconds of a step, by the first ones of the training itself, on noise; what an epoch begins with is in them.

    `views`: random ones of each image that it would read. The model is of no use afterwards.
    """
    measured: list[float] = []

    def stop(seconds: float) -> str:
        measured.append(seconds)
        return "it was measured"

    shape = model.encoder.backbone.sequence_shape(model.encoder.organizer.reads_patches)
    noise = NoiseViews(shape, views, model.method.views.kinds)
    try:
        with keep_quiet():
            train_epochs(model, table, replace(config, epochs=1), None, noise, Unsent(None), Unsent(stop))
    except TrainingTooSlow:
        return measured[0]
    return 0.0  # an epoch of a few steps is over before they are measured
