"""How long a step of a training takes, known before anything is computed that the training would read."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..console import keep_quiet
from ..data.batch import CachedTokens, Inputs, Pixels
from ..data.loader import StoredBatches
from ..data.table import Table
from ..data.views import View
from ..encoders.backbones import VECTORS
from ..methods.base import Progress
from ..runs.config import TrainConfig
from .distributed import Unsent
from .loop import TrainingTooSlow, train_epochs
from .model import Model


@dataclass(frozen=True)
class NoiseViews:
    """Noise in the place of cached tokens, or of pixels (`ViewStore`)."""

    shape: tuple[int, ...]  # of one view: T, D of tokens; 3, H, W of pixels
    random_views: int
    kinds: tuple[View, ...]

    def holds(self, table: Table) -> bool:
        return True

    def rows_of(self, table: Table) -> np.ndarray:
        return np.arange(len(table))

    @classmethod
    def of(cls, model: Model, views: int) -> "NoiseViews":
        """Of so many random views of each image whose tokens a training of the model reads; 0: it reads pixels."""
        kinds, backbone = model.method.views.kinds, model.encoder.backbone
        if views == 0 and backbone.name != VECTORS:
            size = backbone.preprocessing.size
            return cls((3, size, size), 2 * len(kinds), kinds)
        return cls(backbone.sequence_shape(model.encoder.organizer.reads_patches), random_views_of(views), kinds)

    def inputs(self, rows: np.ndarray, numbers: np.ndarray) -> Inputs:
        generator = torch.Generator().manual_seed(int(rows[0]))
        if len(self.shape) == 3:
            return Pixels(torch.randint(256, (len(rows), *self.shape), dtype=torch.uint8, generator=generator))
        return CachedTokens(torch.randn(len(rows), *self.shape, generator=generator))


def measure_step(model: Model, table: Table, config: TrainConfig, views: int) -> float:
    """Seconds of a step, by the first ones of the training itself, on noise; what an epoch begins with is in them.

    `views`: how many of each image are cached (`train.cache_views`). The model is of no use afterwards.
    """
    measured: list[float] = []

    def stop(seconds: float) -> str:
        measured.append(seconds)
        return "it was measured"

    noise = NoiseViews.of(model, views)
    try:
        with keep_quiet():
            train_epochs(
                model, table, replace(config, epochs=1), None, noise, Unsent(None), Unsent(stop), Unsent(), Unsent()
            )
    except TrainingTooSlow:
        return measured[0]
    return 0.0  # an epoch of a few steps is over before they are measured


def bytes_for_gradient(model: Model, table: Table, config: TrainConfig, views: int) -> int:
    """Of what one step keeps of the images that it encodes until their gradient is computed, weights not among it."""
    at_once = min(config.micro_batch or config.batch_size, len(table))
    batches = StoredBatches(table, NoiseViews.of(model, views), at_once, 0, plan=model.method.views)
    batch = next(batches(0)).to(model.device)
    kept: dict[int, int] = {}  # where memory begins → how many bytes there are

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        losses = model.train()(batch, Progress(0, config.epochs, 0, len(batches)))
    weights = {value.untyped_storage().data_ptr() for value in model.state_dict().values()}
    del losses  # until here, nothing that was kept is freed and its place taken by another tensor
    return sum(size for place, size in kept.items() if place not in weights)


def random_views_of(views: int) -> int:
    """How many random views a cache of so many has; if it is one, that is the evaluation view."""
    return views if views > 1 else 0
