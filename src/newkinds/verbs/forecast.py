"""What a training would take, before it is begun: `newkinds train … --dry-run`. Nothing is written."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from typing_extensions import Unpack

from ..data.table import Table, require_labels
from ..encoders.backbones import VECTORS
from ..methods.base import Progress
from ..runs.config import Config
from ..runs.run import Run
from ..text import duration, protocol_lines
from ..training.device import choose_device
from ..training.loop import PACE_STEPS
from ..training.model import Model
from ..training.optimizers import parameter_groups
from ..training.pace import bytes_for_gradient, measure_step, random_views_of
from ..training.store import gigabytes
from .choices import Choices, layers_of
from .count import require_possible
from .layers import resolve_layers, set_cache_views
from .stages import seconds_per_image
from .train import begin_model, load_images, uncached_views, views_to_cache

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Forecast:
    """What a training would take. Times are of this machine as it is now, without those of reading images."""

    images: int
    labelled: int
    known: int
    categories: int
    categories_assumed: bool  # k=auto is estimated from features before training; here it is taken for this
    parameters: dict[str, tuple[int, int]]  # part of the model → those that train, and all
    epochs: int
    steps: int  # in an epoch
    step_seconds: float
    weight_bytes: int
    training_bytes: int  # gradients, the optimizer's memory, an averaged teacher
    batch_bytes: int  # of the images that are encoded at once, until their gradient is computed
    cache_views: int  # of each image; 0: each step begins with the pixels
    views: int  # of all images that the cache would hold
    uncached: int  # of these, the ones that are still to be computed
    view_seconds: float
    epochs_done: int  # in the run directory

    @property
    def trained(self) -> int:
        return sum(trained for trained, _ in self.parameters.values())

    @property
    def seconds(self) -> float:
        """Of what is left to do."""
        return (self.epochs - self.epochs_done) * self.steps * self.step_seconds + self.uncached * self.view_seconds

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {trained:,} of {every:,}" for name, (trained, every) in self.parameters.items())
        every = sum(all_of for _, all_of in self.parameters.values())
        done = f", {self.epochs_done} of them done" if self.epochs_done else ""
        held = self.weight_bytes + self.training_bytes + self.batch_bytes
        assumed = " (assumed: --k auto estimates it first)" if self.categories_assumed else ""
        cached = "none: every step begins with the pixels"
        if self.views:
            cached = (
                f"{self.views - self.uncached:,} of {self.views:,} views are there; the others take about "
                f"{duration(self.uncached * self.view_seconds)}, once"
            )
        return protocol_lines([
            ("images", f"{self.images:,}, {self.labelled:,} labelled, {self.known} known classes"),
            ("categories", f"{self.categories}{assumed}"),
            ("parameters", f"{self.trained:,} of {every:,} train: {parts}"),
            ("steps", f"{self.epochs} epochs of {self.steps:,}{done}"),
            ("memory", f"at least {gigabytes(held)}: weights {gigabytes(self.weight_bytes)}, gradients and optimizer "
                       f"{gigabytes(self.training_bytes)}, a batch {gigabytes(self.batch_bytes)}"),
            ("token cache", cached),
            ("time", f"about {duration(self.seconds)}, at {self.step_seconds:.3g} s a step; to open images and to find "
                     "categories comes to it"),
        ])  # fmt: skip


def forecast_training(data: str | Path | None, out: str | Path, **choices: Unpack[Choices]) -> Forecast:
    """What `train` with the same arguments would take. The images are opened, a few steps are made with noise in
    their place, and nothing is written.

    >>> print(forecast_training("creatures", "runs/a", organizer="cpf", epochs=30))
    """
    run = Run(out)
    config = resolve_layers(layers_of(data, choices), run)
    table = load_images(config, run)
    if config.train.epochs:
        require_labels(table)
    assumed = config.k == "auto"
    k = 2 * len(table.known) if assumed else config.k
    config = replace(config, k=require_possible(k, table))
    run.refuse_other_settings(config)
    return forecast_of(table, config, assumed, len(run.metrics()))


def forecast_of(table: Table, config: Config, assumed: bool = False, epochs_done: int = 0) -> Forecast:
    """What a training with these settings would take."""
    assert isinstance(config.k, int)
    train, device = config.train, choose_device(config.train.device)
    batch = min(train.batch_size, len(table))
    few = _some_rows(table, (PACE_STEPS + 1) * batch, train.seed)
    model = begin_model(few, config)
    views = views_to_cache(model, table, config, device)
    is_cached = views > 0 and config.backbone["name"] != VECTORS
    held = len(set(table.contents or [])) * (random_views_of(views) + 1) if is_cached else 0
    uncached = uncached_views(table, set_cache_views(config, views)) if is_cached else 0
    step_seconds, batch_bytes = 0.0, 0
    if train.epochs:
        # as many images as there are draws: what an epoch begins with then has its true share of a step
        step_seconds = measure_step(model, few, replace(train, epoch_size=(PACE_STEPS + 1) * batch), views)
        batch_bytes = bytes_for_gradient(model, few, train, views)
    return Forecast(
        images=len(table),
        labelled=int((table.targets >= 0).sum()),
        known=len(table.known),
        categories=config.k,
        categories_assumed=assumed,
        parameters={name: _sizes(list(part.parameters())) for name, part in model.components().items()},
        epochs=train.epochs,
        steps=max(train.epoch_size or len(table), batch) // batch,
        step_seconds=step_seconds,
        weight_bytes=sum(value.numel() * value.element_size() for value in model.state_dict().values()),
        training_bytes=_training_bytes(model, config),
        batch_bytes=batch_bytes,
        cache_views=views,
        views=held,
        uncached=uncached,
        view_seconds=seconds_per_image(model.encoder.backbone, device) if uncached else 0.0,
        epochs_done=epochs_done,
    )


def _some_rows(table: Table, most: int, seed: int) -> Table:
    """So many images, drawn at random; all classes stay known."""
    rows = np.random.default_rng(seed).permutation(len(table))[:most]
    return replace(table.rows(np.sort(rows).tolist()), known_first=table.known)


def _sizes(parameters: list) -> tuple[int, int]:
    """How many numbers train, and how many there are."""
    return sum(p.numel() for p in parameters if p.requires_grad), sum(p.numel() for p in parameters)


def _training_bytes(model: Model, config: Config) -> int:
    """Of gradients, of what the optimizer remembers (AdamW: twice), and of an averaged teacher."""
    copies = 2 + (model.method.teacher_momentum(Progress(0, config.train.epochs)) is not None)
    adamw = config.train.organizer_optimizer == "adamw"
    return FLOAT * sum(
        parameter.numel() * (copies + (adamw and group["name"].startswith("organizer")))
        for group in (parameter_groups(model, config.train) if config.train.epochs else [])
        for parameter in group["params"]
    )
