"""What every method promises, with every organizer."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from ..discovery.categories import Discovery
from ..discovery.finished import load
from ..methods import METHODS
from ..runs.run import Run
from ..training.device import MixedPrecision
from ..training.watching import Watcher
from ..verbs.discover import discover
from ..verbs.train import train
from .base import AskedPart, Broken, NotAsked, contract, require
from .small import (
    CATEGORIES,
    IMAGES,
    NOTHING,
    Plugged,
    all_at_once,
    creatures_of,
    loss_on,
    losses_on,
    own_settings,
    small_config,
    small_model,
    small_training,
)

# reads no patches; trains; a codebook; starts from a sample of tokens; has losses of its own
KINDS_OF_ORGANIZERS = ("none", "adapter", "cpf", "cpf-parts", "coge")


def require_trained(part: AskedPart) -> None:
    if not METHODS[part.name].trains:
        raise NotAsked("it does not train")


@contract("method")
def builds(part: AskedPart) -> None:
    """It is built for any number of known classes and of categories."""
    config = METHODS[part.name].Config(**own_settings(small_config(part).method))
    for known, categories in ((1, 2), (2, 4), (3, 3), (40, 90)):
        method = METHODS[part.name](config, 16, known, categories)
        rows = method.embedding(torch.randn(5, 16))
        require(
            rows.ndim == 2 and len(rows) == 5 and bool(rows.isfinite().all()),
            f"`embedding` makes {tuple(rows.shape)} of features (5, 16), not one finite row for each image.",
        )
        require(
            rows.shape[1] == method.embedding_dim,
            f"`embedding` gives rows of {rows.shape[1]} numbers, but `embedding_dim` is {method.embedding_dim}.",
        )
        method.assigner()


@contract("method", keeper="loss")
def gradients_reach_all_that_trains(part: AskedPart, plugged: Plugged = NOTHING) -> None:
    """The loss is a finite number, and its gradient reaches all that trains."""
    require_trained(part)
    config = small_config(part, plugged)
    table = creatures_of(config)
    model = small_model(config, table)
    losses = losses_on(model, all_at_once(model, table))
    require_finite(losses["loss"], "the loss")
    for parameter in (*model.encoder.organizer.parameters(), *model.encoder.backbone.tuning.parameters()):
        if not parameter.any():  # nothing goes through a map that starts at zero
            nn.init.normal_(parameter, std=1e-3)
    loss_on(model, all_at_once(model, table)).backward()
    missed = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and (parameter.grad is None or not bool(parameter.grad.any()))
    ]
    require(
        not missed,
        f"no gradient reaches {', '.join(missed[:3])}{' …' if len(missed) > 3 else ''}: what does not train is frozen "
        "(requires_grad_(False)) or a buffer.",
    )


@contract("method", keeper="loss")
def a_batch_without_labels_has_a_loss(part: AskedPart) -> None:
    """A batch without any label has a finite loss, and gradients."""
    ask_of_labels(part, lambda labels: torch.full_like(labels, -1))


@contract("method", keeper="loss")
def a_labelled_batch_has_a_loss(part: AskedPart) -> None:
    """A batch in which every image has a label has a finite loss, and gradients."""
    ask_of_labels(part, lambda labels: torch.arange(len(labels)) % (CATEGORIES // 2))


@contract("method", keeper="loss")
def a_batch_of_one_class_has_a_loss(part: AskedPart) -> None:
    """A batch with labels of one class alone, or with a single label, has a finite loss, and gradients."""
    ask_of_labels(part, lambda labels: torch.where(labels == 0, 0, -1))
    ask_of_labels(part, lambda labels: torch.where(torch.arange(len(labels)) == 3, 1, -1))


@contract("method", keeper="loss")
def bfloat16_has_a_loss(part: AskedPart) -> None:
    """Features of an encoder that computes in bfloat16 have a finite loss, and gradients."""
    ask_of_labels(part, lambda labels: labels, "bfloat16")


def ask_of_labels(part: AskedPart, change: Any, precision: str = "float32") -> None:
    """Require a finite loss, and finite gradients that are not all zero, of a batch whose labels are changed."""
    require_trained(part)
    config = small_config(part)
    table = creatures_of(config)
    model = small_model(config, table)
    model.precision = MixedPrecision(precision, torch.device("cpu"))
    batch = all_at_once(model, table)
    loss = loss_on(model, replace(batch, labels=change(batch.labels)))
    require_finite(loss, "the loss")
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    for name, gradient in gradients.items():
        require_finite(gradient, f"the gradient of {name}")
    require(any(bool(gradient.any()) for gradient in gradients.values()), "no gradient reaches anything.")


@contract("method", keeper="loss")
def every_kind_of_organizer_can_be_plugged_in(part: AskedPart) -> None:
    """Every kind of organizer can be plugged in before it."""
    require_trained(part)
    for organizer in KINDS_OF_ORGANIZERS[1:]:
        try:
            gradients_reach_all_that_trains(part, {"organizer": {"name": organizer}})
        except Broken as broken:
            raise Broken(f"with the organizer {organizer}, {broken}") from broken


@contract("method", keeper="loss")
def it_trains(part: AskedPart, plugged: Plugged = NOTHING) -> str | None:
    """It trains for two epochs: every image gets a category, and the loss falls."""
    found = trained(part, plugged)
    require(len(found.members) == IMAGES, f"{len(found.members)} of {IMAGES} images have a category.")
    rows = Run(found.run).metrics()
    for row in rows:
        require_finite(torch.tensor(row["loss"]), f"the loss of epoch {row['epoch'] + 1}")
    if not METHODS[part.name].trains:
        return None
    table = creatures_of(small_config(part))
    before = small_model(small_config(part, plugged), table)
    after = load(found.run).model
    first, last = (float(loss_on(model, all_at_once(model, table)).detach()) for model in (before, after))
    falls = last < first
    return None if falls else f"the loss of the same images rose from {first:.4g} to {last:.4g} in two epochs"


@contract("method", keeper="assigner")
def what_was_saved_answers_the_same(part: AskedPart, plugged: Plugged = NOTHING) -> None:
    """What was saved gives the same categories, and some to images and features that it has never seen."""
    found = trained(part, plugged)
    loaded = load(found.run)
    again = loaded.discover(creatures_of(loaded.config), page=False)
    require(again.members == found.members, "the model that was saved gives its images other categories.")
    unseen = torch.randn(5, loaded.model.encoder.dim, generator=torch.Generator().manual_seed(0))
    assigned = loaded.model.assign(unseen)
    inside = (assigned.category >= 0) & (assigned.category < loaded.model.categories)
    require(bool(inside.all()), f"images never seen get the categories {assigned.category.tolist()}.")
    sure = (assigned.confidence >= 0) & (assigned.confidence <= 1)
    require(bool(sure.all()), f"images never seen get confidences of {assigned.confidence.tolist()}.")
    require(len(loaded.predict(noise_image(part.folder / "never-seen.png"))) == 1, "an image never seen gets nothing.")


class _EndsItself(BaseException):
    """Stands for the end of the process: nothing in the program catches it."""


class _EndsAfterAnEpoch(Watcher):
    def on_epoch(self, epoch: int, row: Mapping[str, Any]) -> None:
        raise _EndsItself


@contract("method", keeper="loss")
def a_killed_run_ends_with_the_same_bits(part: AskedPart, plugged: Plugged = NOTHING) -> None:
    """A run that is killed after an epoch and resumed ends with the same bits."""
    require_trained(part)
    whole = Run(trained(part, plugged).run).model_file
    killed = Run(part.folder / "-".join(["killed", *names_of(plugged)]))
    settings = [*small_training(part), plugged]
    with suppress(_EndsItself):
        train(None, killed.folder, settings=settings, watchers=[_EndsAfterAnEpoch()])
    require(not killed.model_file.exists(), "the training was not interrupted.")
    train(None, killed.folder, settings=settings)
    same = killed.model_file.read_bytes() == whole.read_bytes()
    require(
        same,
        "the resumed run has other weights: what the loss remembers must be in buffers (register_buffer, "
        "newkinds.methods.queue.Queue), and random numbers must come from torch's generator.",
    )


def trained(part: AskedPart, plugged: Plugged) -> Discovery:
    """A run of the method, trained once."""
    folder = part.folder / "-".join(["trained", *names_of(plugged)])
    if Run(folder).path("assignments.csv").is_file():
        return Discovery.read(folder)
    return discover(None, folder, page=False, settings=[*small_training(part), plugged])


def names_of(plugged: Plugged) -> list[str]:
    return [str(section["name"]) for section in plugged.values()]


def require_finite(value: Tensor, what: str) -> None:
    require(bool(value.isfinite().all()), f"{what} is not finite.")


def noise_image(file: Path) -> Path:
    """A picture of noise."""
    pixels = np.random.default_rng(0).integers(0, 255, (30, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file)
    return file
