"""What contracts are tried on: a few drawn creatures, seen by the bundled backbone, and a training of a moment."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..data import load_table
from ..data.batch import Batch
from ..data.loader import TrainingBatches
from ..data.table import Table
from ..encoders.tunings import TUNINGS
from ..methods import METHODS, Progress
from ..runs.config import Config, resolve
from ..settings import settings_of
from ..training.loop import gatherer
from ..training.model import Model, build_model
from ..training.teacher import Teacher
from .base import AskedPart

CREATURES = {"name": "creatures", "categories": 4, "per_category": 8}
CATEGORIES, IMAGES = 4, 32
HEADS = {"output_dim": 1024, "projection_hidden": 128}  # of many methods; the published ones take most of the time
FIRST_EPOCH = Progress(0, 2)
Plugged = Mapping[str, Mapping[str, Any]]  # other parts in a training: {"organizer": {"name": "cpf"}}
NOTHING: Plugged = {}


def small_training(part: AskedPart) -> list[dict[str, Any]]:
    """Settings of a small and slow training of a method: small heads, second stages without their first, turns of one
    step."""
    method = METHODS[part.name]
    fields = method.Config.__dataclass_fields__
    tuning = method.tuning_defaults.get("name", "blocks")
    takes_turns = "alternate" in settings_of(TUNINGS[tuning])
    train: dict[str, Any] = {
        "epochs": 2, "batch_size": 16, "lr": 0.005, "tuning_lr_ratio": 1.0, "workers": 0, "device": "cpu",
    }  # fmt: skip
    if method.starts_from is not None:
        train["start"] = "none"
    return [
        {"data": CREATURES, "backbone": {"name": "tiny"}, "train": train},
        {"method": {"name": part.name, **{name: size for name, size in HEADS.items() if name in fields}}},
        {"tuning": {"alternate": 1} if takes_turns else {}},
        {"method": dict(part.settings)},
    ]


def small_config(part: AskedPart, plugged: Plugged = NOTHING) -> Config:
    """All settings of that training."""
    return resolve(*small_training(part), plugged)


def creatures_of(config: Config) -> Table:
    return load_table(config.data)


def small_model(config: Config, table: Table) -> Model:
    """A model as it is before its first step."""
    model = build_model(config, table.known, CATEGORIES)
    model.method.begin(torch.from_numpy(table.targets))
    return model


def all_at_once(model: Model, table: Table) -> Batch:
    """As many images as there are, in the method's views; the same each time. What the method gathers is gathered."""
    preprocessing, size = model.encoder.backbone.preprocessing, len(table)
    batches = TrainingBatches(table, preprocessing, size, seed=7, workers=0, plan=model.method.views)
    torch.manual_seed(0)
    model.method.on_epoch_start(0, gatherer(model, table, batches, epoch=0))
    (batch,) = batches(1)
    return batch


def losses_on(model: Model, batch: Batch) -> dict[str, Tensor]:
    """Of the first epoch."""
    if model.teacher is None and model.method.teacher_momentum(FIRST_EPOCH) is not None:
        model.teacher = Teacher(model.encoder, model.method)
    model.method.eval()
    model.encoder.organizer.train()  # with the losses of its own
    return model(batch, FIRST_EPOCH)


def loss_on(model: Model, batch: Batch) -> Tensor:
    """What is minimised."""
    return losses_on(model, batch)["loss"]


def own_settings(section: Mapping[str, Any]) -> dict[str, Any]:
    """A section without the name of the part."""
    return {name: value for name, value in section.items() if name != "name"}
