"""What the benchmarks share: runs timed in turns, one SimGCD training step, the host as published, the machine."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from statistics import median

import timm
import torch
from torch import Tensor

from newkinds.data.batch import Batch
from newkinds.encoders.backbone import Backbone
from newkinds.encoders.encoder import Encoder
from newkinds.encoders.organizers import Organizer
from newkinds.encoders.tokens import Tokens
from newkinds.methods import METHODS, Method
from newkinds.methods.base import Progress
from newkinds.process import keep_freed_memory
from newkinds.runs.config import TrainConfig
from newkinds.training.model import Model
from newkinds.training.optimizers import build_optimizer, parameter_groups
from newkinds.training.steps import step

KNOWN, CATEGORIES = 100, 200  # as on CUB
TURN_SECONDS = 0.5  # a run that is shorter is repeated within its turn


class AsPublished(Backbone):
    """A backbone that shares another one's network and computes all of it as timm does, whatever is read of it."""

    is_plain_vit = False  # so that no block is computed in another way

    @classmethod
    def of(cls, backbone: Backbone) -> AsPublished:
        return cls(backbone.network, backbone.preprocessing, backbone.train_blocks)


def simgcd_head(dim: int) -> Method:
    simgcd = METHODS["simgcd"]
    return simgcd(simgcd.Config(), dim, KNOWN, CATEGORIES)


class TrainingStep:
    """A call is one step of newkinds' training: the next batch, forward, loss, backward, SGD. It gives the loss.

    Steps have length 0, which costs what any other does: steps that share weights stay comparable.
    """

    def __init__(self, encoder: Encoder, head: Method, batches: Iterator[Batch]) -> None:
        keep_freed_memory()  # as the command does for any training
        config = TrainConfig()
        self.model = Model(encoder, head, [str(number) for number in range(KNOWN)], CATEGORIES).train()
        self.batches = batches
        self.optimizer = build_optimizer(parameter_groups(self.model, config), config)
        self.optimizer.set_lr(0.0)

    def __call__(self) -> Tensor:
        return step(self.model, next(self.batches), Progress(epoch=0, epochs=1), self.optimizer)["loss"]


def forward_and_backward(organizer: Organizer, tokens: Tokens) -> Callable[[], object]:
    """An organizer's own part of a training step, with losses of its own over two views of images without labels;
    tokens of a backbone that trains want their gradient too."""
    cls, patches = tokens.cls.clone().requires_grad_(), tokens.patches.clone().requires_grad_()
    labels = torch.full((len(cls) // 2,), -1)
    leaves = [cls, patches, *(parameter for parameter in organizer.parameters() if parameter.requires_grad)]

    def run() -> object:
        encoded = organizer.organize(Tokens(cls, patches, tokens.grid))
        own = organizer.loss(encoded, labels, 0).values()
        return torch.autograd.grad(encoded.feature.sum() + sum(own), leaves, allow_unused=True)

    return run


def times_in_turns(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each run in each round. All take turns in a round, so whatever else the machine does hits all."""
    names = list(runs)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for run in runs.values():  # warm up: memory is allocated, kernels are chosen
        run()
    for round_ in range(rounds):
        first = round_ % len(names)  # nobody always runs first
        for name in names[first:] + names[:first]:
            seconds[name].append(_turn(runs[name]))
    return seconds


def _turn(run: Callable[[], object]) -> float:
    """Seconds a run, over as many as it takes to be sure."""
    start, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - start < TURN_SECONDS:
        run()
        count += 1
    return (time.perf_counter() - start) / count


def ratio(seconds: list[float], other: list[float]) -> float:
    """Median of the ratios of the same round."""
    return median(a / b for a, b in zip(seconds, other, strict=True))


def machine() -> str:
    """Versions, threads, processor and date, for the head of a table."""
    versions = f"torch {torch.__version__}, timm {timm.__version__}"
    return f"{versions}, {torch.get_num_threads()} threads, {processor()}, {date.today()}"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
