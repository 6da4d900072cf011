"""The training loop, the only one: every method, organizer and data set goes through it."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer

from ..console import console, progress_bar, say
from ..data.batch import Batch
from ..data.loader import StoredBatches, TrainingBatches, no_longer_readable, seed_for
from ..data.table import Table
from ..errors import NewkindsError
from ..methods.base import Embed, Method, Progress
from ..methods.schedules import cosine_lr
from ..runs.config import TrainConfig
from ..runs.run import Run
from .device import choose_device, choose_workers
from .model import Model
from .precision import MixedPrecision

Evaluator = Callable[[Model], dict[str, float | None]]


def fit(model: Model, table: Table, config: TrainConfig, run: Run, evaluate: Evaluator | None = None) -> Model:
    """Train `model` on `table`, epoch by epoch into `run`; goes on where an earlier call stopped.

    On the CPU the result is the same, bit for bit, however often the process was killed in between:
    an epoch's randomness depends on the seed and the epoch's number alone.
    """
    device = choose_device(config.device)
    precision = MixedPrecision(config.precision, device)
    model.to(device)
    if config.freeze_organizer:
        model.encoder.organizer.requires_grad_(False)
    say(trainable_parameters(model, allow_frozen_organizer=config.freeze_organizer))
    optimizer = SGD(parameter_groups(model, config), lr=config.lr, momentum=config.momentum)
    first_epoch = _restore(model, optimizer, precision, run)
    batches = batches_of(model, table, config, device)
    rows = run.metrics()[:first_epoch]
    with progress_bar("training", config.epochs * len(batches), done=first_epoch * len(batches)) as bar:
        for epoch in range(first_epoch, config.epochs):
            started = time.perf_counter()
            torch.manual_seed(seed_for("training", config.seed, epoch))
            lr = cosine_lr(epoch, config.epochs, config.lr, config.min_lr_ratio)
            for group in optimizer.param_groups:
                group["lr"] = lr * group["lr_ratio"]
            model.method.on_epoch_start(epoch, gatherer(model, table, batches, precision, epoch))
            model.train()
            sums: dict[str, torch.Tensor] = defaultdict(lambda: torch.zeros((), device=device))
            for batch in batches(epoch):
                on_device = Batch(
                    views=model.encoder.backbone.ready(batch.views.to(device)),
                    labels=batch.labels.to(device),
                    index=batch.index.to(device),
                )
                for name, value in step(model, on_device, Progress(epoch, config.epochs), optimizer, precision).items():
                    sums[name] += value
                bar.advance(note=f"epoch {epoch + 1}/{config.epochs}")
            means = {name: value.item() / len(batches) for name, value in sums.items()}
            last = epoch + 1 == config.epochs  # no further step would show that the last one went wrong
            if not (math.isfinite(means["loss"]) and _sound(model, on_device.views if last else None)):
                raise NewkindsError(
                    f"training diverged in epoch {epoch + 1} (loss {means['loss']:.3g}): lower the learning rate "
                    f"(train.lr is {config.lr}). The epochs before are kept in {run.folder}."
                )
            row: dict[str, Any] = {"epoch": epoch, "lr": lr, **means}
            if evaluate is not None and config.eval_every and (epoch + 1) % config.eval_every == 0:
                find_categories(model, table, config)
                row |= evaluate(model)
            row["seconds"] = round(time.perf_counter() - started, 3)
            rows.append(row)
            _tell(row, config.epochs)
            run.write_metrics(rows)
            run.save_state(_state(model, optimizer, precision, epoch + 1))
    find_categories(model, table, config)
    model.save(run.model_file)
    return model.eval()


def batches_of(
    model: Model, table: Table, config: TrainConfig, device: torch.device
) -> TrainingBatches | StoredBatches:
    """Views of the images: from the model's cache, if it has one, else made anew at every step."""
    if model.cache is not None:
        return StoredBatches(table, model.cache, config.batch_size, config.seed, config.draw)
    preprocessing, workers = model.encoder.backbone.preprocessing, choose_workers(config.workers, device)
    return TrainingBatches(table, preprocessing, config.batch_size, config.seed, workers, config.draw)


def find_categories(model: Model, table: Table, config: TrainConfig) -> None:
    """Let a method that finds its categories by clustering do so, on the training images as they are now."""
    if type(model.method).on_fit_end is Method.on_fit_end:
        return  # nothing would look at the features
    embedded = model.embed(table, config.batch_size, config.workers)
    if embedded.skipped:
        raise no_longer_readable(embedded.skipped[0])
    torch.manual_seed(seed_for("categories", config.seed))
    labels = torch.from_numpy(table.targets)
    model.method.on_fit_end(embedded.features.to(model.device), labels.to(model.device))


def gatherer(
    model: Model, table: Table, batches: TrainingBatches | StoredBatches, precision: MixedPrecision, epoch: int
) -> Embed:
    """What `Method.on_epoch_start` is given: nothing is computed before it is called."""

    @torch.no_grad()
    def embed(views: int) -> tuple[torch.Tensor, torch.Tensor]:
        model.eval()
        features = []
        for batch in batches.of_all_rows(epoch, views):
            with precision.autocast():
                encoded = model.encoder(model.encoder.backbone.ready(batch.views.to(model.device)))
            features.append(encoded.feature.float().unflatten(0, (views, -1)))  # (views, b, D)
        return torch.cat(features, dim=1), torch.from_numpy(table.targets)

    return embed


def step(
    model: Model, batch: Batch, progress: Progress, optimizer: Optimizer, precision: MixedPrecision
) -> dict[str, torch.Tensor]:
    """One update; the losses, detached."""
    with precision.autocast():
        encoded = model.encoder(batch.views)
    losses = model.method.loss(batch, encoded.feature.float(), progress)
    total = losses["loss"] + sum(value.float() for value in encoded.losses.values())
    optimizer.zero_grad(set_to_none=True)
    precision.scaler.scale(total).backward()
    precision.scaler.step(optimizer)
    precision.scaler.update()
    return {name: value.detach() for name, value in {**losses, **encoded.losses, "loss": total}.items()}


def parameter_groups(model: Model, config: TrainConfig) -> list[dict[str, Any]]:
    """Trainable parameters with their decay and their share of the learning rate.

    Biases and other one-dimensional parameters are not decayed unless the method's authors do.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
    ratios = {"backbone": config.backbone_lr_ratio, "organizer": config.organizer_lr_ratio}
    for component, module in model.components().items():
        lr_ratio = ratios.get(component, 1.0)
        for parameter in module.parameters():
            if parameter.requires_grad:
                # an organizer's scalars are gates, never decayed, whatever the host does with its biases
                decayed = parameter.ndim > 1 or (config.decay_biases and component != "organizer")
                groups[config.weight_decay if decayed else 0.0, lr_ratio].append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "lr_ratio": lr_ratio}
        for (decay, lr_ratio), parameters in groups.items()
    ]


def trainable_parameters(model: Model, allow_frozen_organizer: bool = False) -> str:
    """"trainable parameters: backbone 111,840 of 694,272 · …"; refuses an organizer that would learn nothing."""
    parts = []
    for component, module in model.components().items():
        total = sum(p.numel() for p in module.parameters())
        trainable = sum(p.numel() for p in module.parameters() if p.requires_grad)
        if component == "organizer" and total and not trainable and not allow_frozen_organizer:
            raise NewkindsError(
                "the organizer has parameters but none of them is trainable, so it would stay at its random start: "
                "call requires_grad_() on it, or set train.freeze_organizer=true if that is what you want to measure."
            )
        parts.append(f"{component} {trainable:,} of {total:,}")
    return "trainable parameters: " + " · ".join(parts)


def _state(model: Model, optimizer: Optimizer, precision: MixedPrecision, epochs_done: int) -> dict[str, Any]:
    """What training changes; frozen weights come from their file again."""
    trained = _trained_names(model)
    return {
        "epochs_done": epochs_done,
        "model": {name: value for name, value in model.state_dict().items() if name in trained},
        "optimizer": optimizer.state_dict(),
        "scaler": precision.scaler.state_dict(),
    }


def _trained_names(model: Model) -> set[str]:
    """Entries of the state that training changes."""
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    return trained | {name for name, _ in model.named_buffers()}


@torch.no_grad()
def _sound(model: Model, views: torch.Tensor | None) -> bool:
    """Whether all weights are finite and, if views are given, also their features."""
    values: list[torch.Tensor] = [p for p in model.parameters() if p.requires_grad]
    if views is not None:
        values.append(model.encoder(views).feature)
    return all(bool(torch.isfinite(value).all()) for value in values)


def _restore(model: Model, optimizer: Optimizer, precision: MixedPrecision, run: Run) -> int:
    """Load the last complete epoch, if there is one; the number of epochs done."""
    state = run.load_state()
    if state is None:
        return 0
    try:
        loaded = model.load_state_dict(state["model"], strict=False)
        forgotten = set(loaded.missing_keys) & _trained_names(model)
        if forgotten or loaded.unexpected_keys:
            raise ValueError(f"{next(iter([*forgotten, *loaded.unexpected_keys]))} does not belong to it")
        optimizer.load_state_dict(state["optimizer"])
        precision.scaler.load_state_dict(state["scaler"])
        epochs_done = int(state["epochs_done"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise NewkindsError(
            f"{run.state_file} is not a checkpoint of this model ({reason}): delete it to train from the beginning, "
            "or choose another --out."
        ) from None
    say(f"going on after epoch {epochs_done}")
    return epochs_done


def _tell(row: dict[str, Any], epochs: int) -> None:
    """In a log file, where no bar moves: a line every tenth of the way."""
    done = row["epoch"] + 1
    if not console.is_terminal and (done * 10 // epochs) > ((done - 1) * 10 // epochs):
        left = (epochs - done) * row["seconds"]
        say(f"epoch {done}/{epochs}  loss {row['loss']:.4f}  lr {row['lr']:.4g}  about {left:.0f} s left")
