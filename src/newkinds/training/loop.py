"""The training loop, the only one: every method, organizer and data set goes through it."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..console import console, progress_bar, say
from ..data.batch import Batch
from ..data.loader import ReadyVectors, StoredBatches, TrainingBatches, ViewStore, no_longer_readable, seed_for
from ..data.table import Table
from ..errors import NewkindsError
from ..methods.base import Embed, Progress
from ..methods.schedules import cosine_lr
from ..runs.config import TrainConfig
from ..runs.records import Reliability
from ..runs.run import Run
from .cache import TokenCache
from .device import MixedPrecision, choose_device, choose_workers
from .distributed import agreed, alone, collected, from_first, kept, shared, world
from .embedding import Embedded, embed, sample_of_tokens
from .model import Model
from .optimizers import Optimizers, build_optimizer, describe_groups, has_gradients, parameter_groups
from .slots import with_slots
from .teacher import Teacher

PACE_STEPS = 5  # by which the pace of a training is measured, after the first one, which allots memory

Evaluator = Callable[[Model], dict[str, float | None]]
Pace = Callable[[float], str]  # seconds a step takes → why that is too slow, or nothing
_evaluate: Evaluator | None = None  # see `watching`
_pace: Pace | None = None


class TooSlow(NewkindsError):
    """A training that would not be finished in time, found out after a few steps."""


class Fitted(NamedTuple):
    """A trained model, and the features of its images by which its categories were found."""

    model: Model
    embedded: Embedded


def fit(
    model: Model,
    table: Table,
    config: TrainConfig,
    run: Run | None = None,
    evaluate: Evaluator | None = None,
    cache: TokenCache | None = None,
    embedded: Embedded | None = None,
    pace: Pace | None = None,
) -> Fitted:
    """Train `model` on `table`, epoch by epoch into `run`; continues where an earlier call stopped.

    On the CPU the result is the same, bit for bit, however often the process was killed in between:
    an epoch's randomness depends on the seed and the epoch's number alone. Several processes give it to rounding.
    Without a run nothing is written. `embedded`: the features of the images, if they are known already and nothing
    trains. `pace` is asked after a few steps whether they are too slow, which ends the training (`TooSlow`).
    """
    with watching(evaluate, pace):
        store = train_epochs(model, table, config, run, cache)
    return _finish(model, table, config, run, store, None if config.epochs else embedded)


@contextmanager
def watching(evaluate: Evaluator | None, pace: Pace | None = None) -> Iterator[None]:
    """While it is open, these look at the model every `train.eval_every` epochs, and at the pace of its training; only
    in the first process."""
    global _evaluate, _pace
    before = _evaluate, _pace
    _evaluate, _pace = evaluate, pace
    try:
        yield
    finally:
        _evaluate, _pace = before


@shared
def train_epochs(
    model: Model, table: Table, config: TrainConfig, run: Run | None, cache: TokenCache | None
) -> ViewStore | None:
    """All epochs that are missing; returns the views that were trained on, if they are stored."""
    device = choose_device(config.device)
    model.to(device)
    model.precision = MixedPrecision(config.precision, device)
    groups = parameter_groups(model, config)
    for line in describe_groups(groups, config.lr):
        say(f"training {line}")
    looks = model.encoder.organizer.starts_from_tokens and not model.begins_organized
    if looks and not from_first(run is not None and run.state_file.is_file()):
        with agreed(), torch.random.fork_rng(devices=[]):
            seed = seed_for("start of the organizer", config.seed)
            torch.default_generator.manual_seed(seed)
            model.encoder.organizer.start(sample_of_tokens(model.encoder, table, device, seed, config.workers, cache))
    with agreed():
        store = with_slots(model.encoder, cache, table)
    if not config.epochs:
        say("nothing is trained (train.epochs=0): categories are found in the backbone's features")
        with alone() as mine:
            if mine and run is not None:
                run.write_metrics([])
        return store
    if model.method.teacher_momentum(Progress(0, config.epochs)) is not None:
        model.teacher = Teacher(model.encoder, model.method)
    optimizer = build_optimizer(groups, config)
    first_epoch = _restore(model, optimizer, run)
    batches = batches_of(model, table, config, device, store)
    warmup = config.organizer_warmup * len(batches)  # steps
    with agreed():
        rows = run.metrics()[:first_epoch] if run is not None and world().first else []
    replica = replicated(model)
    with (
        kept(model, model.encoder, table, store, batches),
        progress_bar("training", config.epochs * len(batches), done=first_epoch * len(batches)) as bar,
    ):
        for epoch in range(first_epoch, config.epochs):
            started = time.perf_counter()
            torch.manual_seed(seed_for("training", config.seed, epoch))
            lr = cosine_lr(epoch, config.epochs, config.lr, config.min_lr_ratio)
            optimizer.set_lr(lr)
            with alone() as mine:
                if mine:
                    model.method.on_epoch_start(epoch, gatherer(model, table, batches, epoch))
            _share_gathered(model)
            model.train()
            sums: dict[str, torch.Tensor] = defaultdict(lambda: torch.zeros((), device=device))
            paced_from = time.perf_counter()
            for number, batch in enumerate(batches(epoch)):
                if number == 1:
                    paced_from = time.perf_counter()
                on_device = batch.to(device)
                if (taken := epoch * len(batches) + number + 1) <= warmup:
                    optimizer.set_lr(lr, organizer=taken / warmup)
                progress = Progress(epoch, config.epochs, number, len(batches))
                for name, value in step(model, on_device, progress, optimizer, replica).items():
                    sums[name] += value
                _require_pace(epoch - first_epoch, number, paced_from)
                bar.advance(note=f"epoch {epoch + 1}/{config.epochs}")
            means = {name: value.item() / len(batches) for name, value in sums.items()}
            last = epoch + 1 == config.epochs  # no further step would show that the last one went wrong
            sound = math.isfinite(means["loss"]) and _sound(model, on_device if last else None)
            if not all(collected(sound)):
                raise NewkindsError(
                    f"training diverged in epoch {epoch + 1} (loss {means['loss']:.3g}): lower the learning rate "
                    f"(train.lr is {config.lr})."
                    + ("" if run is None else f" The epochs before are kept in {run.folder}.")
                )
            with alone() as mine:
                if mine:
                    row: dict[str, Any] = {"epoch": epoch, "lr": lr, **means}
                    if _evaluate is not None and config.eval_every and (epoch + 1) % config.eval_every == 0:
                        with as_it_answers(model):
                            find_categories(model, table, config, store)
                            row |= _evaluate(model)
                    row["seconds"] = round(time.perf_counter() - started, 3)
                    rows.append(row)
                    _report(row, config.epochs)
                    if run is not None:
                        _save(run, rows, model, optimizer, epoch + 1)
    return store


def _save(run: Run, rows: list[dict[str, Any]], model: Model, optimizer: Optimizers, epochs_done: int) -> None:
    """Keep what the epochs so far have made, so that the training can be resumed."""
    run.write_metrics(rows)
    state = {
        "model": model.changing_state(),
        "optimizer": optimizer.state_dict(),
        "scaler": model.precision.scaler.state_dict(),
    }
    run.save_state({"epochs_done": epochs_done, **state})


def _require_pace(epochs: int, number: int, started: float) -> None:
    """After a few steps of the first epoch, ask whether they are too slow; all processes hear the first one's answer."""
    if epochs == 0 and number == PACE_STEPS:
        seconds = (time.perf_counter() - started) / PACE_STEPS
        if why := from_first("" if _pace is None else _pace(seconds)):
            raise TooSlow(why)


def _share_gathered(model: Model) -> None:
    """What `on_epoch_start` found, in every process, with the random numbers that come next."""
    if world().size == 1:
        return
    method = model.method
    plain = {name: value for name, value in vars(method).items() if not name.startswith("_")}
    buffers, plain, state = from_first((dict(method.named_buffers()), plain, torch.get_rng_state()))
    vars(method).update(plain)
    for name, value in buffers.items():
        place, _, leaf = name.rpartition(".")
        method.get_submodule(place)._buffers[leaf] = value.to(model.device)  # some have another size than before
    torch.set_rng_state(state)


def _finish(
    model: Model, table: Table, config: TrainConfig, run: Run | None, store: ViewStore | None, embedded: Embedded | None
) -> Fitted:
    if model.teacher is not None and model.method.teacher_answers:
        model.teacher.change_places()
    model.teacher = None
    if embedded is None:
        embedded = embed_training_images(model, table, config, store)
    labels = torch.from_numpy(table.targets)
    model.find_categories(embedded.features, labels, config.seed)
    model.calibrate(embedded.features, labels, config.seed)
    if run is not None:
        for part, note in model.found().items():
            say(f"{part}: {note}")
        Reliability.of_json(model.calibration.record).write(run)
        run.write(run.model_file.name, model.as_safetensors())
    return Fitted(model.eval(), embedded)


def batches_of(
    model: Model, table: Table, config: TrainConfig, device: torch.device, store: ViewStore | None
) -> TrainingBatches | StoredBatches:
    """Views of the images: from the cache, if there is one, else made again at every step."""
    of_epoch = (config.draw, config.epoch_size, model.method.views, world())
    store = ReadyVectors.of(table) or store
    if store is not None:
        return StoredBatches(table, store, config.batch_size, config.seed, *of_epoch)
    preprocessing, workers = model.encoder.backbone.preprocessing, choose_workers(config.workers, device)
    return TrainingBatches(table, preprocessing, config.batch_size, config.seed, workers, *of_epoch)


def find_categories(model: Model, table: Table, config: TrainConfig, store: ViewStore | None) -> None:
    """Let whitening and assigner be fitted to the training images as they are now."""
    if model.whitening is None and model.chosen_assigner.learnt:
        return  # nothing would look at the features
    embedded = embed_training_images(model, table, config, store)
    model.find_categories(embedded.features, torch.from_numpy(table.targets), config.seed)


def embed_training_images(model: Model, table: Table, config: TrainConfig, store: ViewStore | None) -> Embedded:
    """The features of all images, of which none may have become unreadable."""
    embedded = embed(model.encoder, table, model.device, config.batch_size, config.workers, store)
    if embedded.skipped:
        raise no_longer_readable(embedded.skipped[0])
    return embedded


def gatherer(model: Model, table: Table, batches: TrainingBatches | StoredBatches, epoch: int) -> Embed:
    """What `Method.on_epoch_start` is given: nothing is computed before it is called."""

    def embed_views(views: int) -> tuple[torch.Tensor, torch.Tensor]:
        return views_of_all(model, batches, epoch, views), torch.from_numpy(table.targets)

    return embed_views


@shared
@torch.no_grad()
def views_of_all(model: Model, batches: TrainingBatches | StoredBatches, epoch: int, views: int) -> torch.Tensor:
    """Features (views, n, D) of all images in random views, by the model as it is now."""
    model.eval()
    features = []
    with agreed():
        for batch in batches.of_all_rows(epoch, views):
            with model.precision.autocast():
                encoded = model.encoder(batch.to(model.device).inputs)
            features.append(encoded.feature.float().unflatten(0, (views, -1)).cpu())  # (views, b, D)
    return torch.cat(world().in_turn(collected(features)), dim=1).to(model.device)


class _Replica(nn.Module):
    """The model as DistributedDataParallel wants it: all that it returns is differentiated."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, progress: Progress) -> dict[str, torch.Tensor]:
        losses = self.model(batch, progress)
        return {name: value if name == "loss" else value.detach() for name, value in losses.items()}


def replicated(model: Model) -> nn.Module:
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
) -> dict[str, torch.Tensor]:
    """One update; the losses, detached. `replica` is what `replicated` gave, if there are several processes."""
    scaler = model.precision.scaler
    for part in optimizer.parts:
        part.zero_grad(set_to_none=True)
    with taking_turns(model, progress):
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
def taking_turns(model: Model, progress: Progress) -> Iterator[None]:
    """While it is open, only what this step trains wants gradients: some tunings alternate with all else."""
    tuning = model.encoder.backbone.tuning
    tuning.now = tuning.turn(progress.epoch * progress.steps + progress.step, progress.step)
    of_tuning = set(tuning.parameters())
    waiting = [
        parameter
        for parameter in (model.parameters() if tuning.now != "all" else ())
        if parameter.requires_grad and (parameter in of_tuning) == (tuning.now == "rest")
    ]
    for parameter in waiting:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in waiting:
            parameter.requires_grad_(True)
        tuning.now = "all"


@contextmanager
def as_it_answers(model: Model) -> Iterator[None]:
    """While it is open, the model is the one that would be kept now: some methods keep the averaged one."""
    teacher = model.teacher if model.method.teacher_answers else None
    if teacher is not None:
        teacher.change_places()
    try:
        yield
    finally:
        if teacher is not None:
            teacher.change_places()


@torch.no_grad()
def _sound(model: Model, batch: Batch | None) -> bool:
    """Whether all weights are finite and, if a batch is given, also its features."""
    values: list[torch.Tensor] = [p for p in model.parameters() if p.requires_grad]
    if batch is not None:
        values.append(model.encoder(batch.inputs).feature)
    return all(bool(torch.isfinite(value).all()) for value in values)


def _restore(model: Model, optimizer: Optimizers, run: Run | None) -> int:
    """Load the last complete epoch, if there is one; the number of epochs done."""
    if run is None:
        return 0
    with agreed():
        state = run.load_state() if world().first else None
    state = from_first(state)
    if state is None:
        return 0
    try:
        wanted = model.changing_state().keys()
        if differing := sorted(wanted ^ state["model"].keys()):
            raise ValueError(f"{differing[0]} is not in both")
        model.load_state_dict(state["model"], strict=False)
        optimizer.load_state_dict(state["optimizer"])
        model.precision.scaler.load_state_dict(state["scaler"])
        epochs_done = int(state["epochs_done"])
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise NewkindsError(
            f"{run.state_file} is not a checkpoint of this model ({reason}): delete it to train from the beginning, "
            "or choose another --out."
        ) from None
    say(f"resuming after epoch {epochs_done}")
    return epochs_done


def _report(row: dict[str, Any], epochs: int) -> None:
    """In a log file, which shows no bar: one line per tenth of the epochs."""
    done = row["epoch"] + 1
    if not console.is_terminal and (done * 10 // epochs) > ((done - 1) * 10 // epochs):
        left = (epochs - done) * row["seconds"]
        say(f"epoch {done}/{epochs}  loss {row['loss']:.4f}  lr {row['lr']:.4g}  about {left:.0f} s left")
