"""One step of training: the losses of a batch, their gradients, and what they change; in one process or several."""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..data.batch import Batch
from ..methods.base import Progress
from .distributed import world
from .model import Model
from .optimizers import Optimizers, has_gradients


class _Replica(nn.Module):
    """The model as DistributedDataParallel wants it: all that it returns is differentiated."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
        losses = self.model(batch, progress)
        return {name: value if name == "loss" else value.detach() for name, value in losses.items()}


def replicate(model: Model) -> nn.Module:
    """The model, with gradients that are the mean over all processes; they all begin with the first one's weights."""
    if world().size == 1:
        return model
    # some parameters wait for their turn, and some heads for their epoch: not all have a gradient in each step
    devices = [model.device] if model.device.type == "cuda" else None
    # the buffers are the same everywhere without being sent: every process computes all losses
    takes = signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in takes else "broadcast_buffers"  # before torch 2.12
    options: dict[str, Any] = {"device_ids": devices, "find_unused_parameters": True, name: False}
    return DistributedDataParallel(_Replica(model), **options)


def step(
    model: Model, batch: Batch, progress: Progress, optimizer: Optimizers, replica: nn.Module | None = None
) -> dict[str, Tensor]:
    """One update; the losses, detached. `replica` is what `replicate` gave, if there are several processes."""
    scaler = model.precision.scaler
    for part in optimizer.parts:
        part.zero_grad(set_to_none=True)
    with take_turns(model, progress):
        losses = (replica or model)(batch, progress)
        scaler.scale(losses["loss"]).backward()
    parts = [part for part in optimizer.parts if has_gradients(part)]  # the others wait for their turn
    if optimizer.clip:
        for part in parts:
            scaler.unscale_(part)
        nn.utils.clip_grad_norm_(model.encoder.organizer.parameters(), optimizer.clip)
    for part in parts:
        scaler.step(part)
    scaler.update()
    if model.teacher is not None and (momentum := model.method.teacher_momentum(progress)) is not None:
        model.teacher.follow(momentum)
    return {name: value.detach() for name, value in losses.items()}


@contextmanager
def take_turns(model: Model, progress: Progress) -> Iterator[None]:
    """While it is open, only what this step trains wants gradients: some tunings alternate with all else."""
    tuning = model.encoder.backbone.tuning
    tuning.now = tuning.turn(progress.taken, progress.step)
    waiting: list[nn.Parameter] = []
    if tuning.now != "all":
        of_tuning = set(tuning.parameters())
        tuning_waits = tuning.now == "rest"
        waiting = [p for p in model.parameters() if p.requires_grad and (p in of_tuning) == tuning_waits]
    for parameter in waiting:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in waiting:
            parameter.requires_grad_(True)
        tuning.now = "all"
