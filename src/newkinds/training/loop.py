"""The training loop, the only one: every method, organizer and data set goes through it."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from ..assigners.calibration import HeldOutImages
from ..console import console, progress_bar, say
from ..data.batch import Batch
from ..data.loader import ReadyVectors, StoredBatches, TrainingBatches, ViewStore, no_longer_readable, seed_for
from ..data.table import Table
from ..data.views import Gathered
from ..encoders.backbone import blocks_of
from ..errors import NewkindsError
from ..methods.base import Embed, Progress
from ..methods.schedules import cosine_lr
from ..runs.config import TrainConfig
from ..runs.records import Reliability
from ..runs.run import Run
from .cache import TokenCache
from .checkpoints import HELD_OUT, Best, checkpoint_name
from .device import MixedPrecision, choose_device, choose_workers, compute_as
from .distributed import Unsent, all_gather, broadcast, in_first, share_errors, shared, world
from .embedding import Embedded, embed, sample_tokens
from .model import Model, describe_loss
from .optimizers import Optimizers, build_optimizer, describe_groups, parameter_groups
from .slots import with_slots
from .steps import replicate, step
from .teacher import Teacher
from .watching import Watcher, Watchers

T = TypeVar("T")
PACE_STEPS = 5  # by which the pace of a training is measured, after the first one, which allots memory

# what looks at a model now and then, with the features (n, D) of the training images as it makes them now
Evaluator = Callable[[Model, Tensor], dict[str, float | None]]
Judge = Callable[[Model, Tensor], float]  # likewise, how good the model is, by labels that training does not see
Pace = Callable[[float], str]  # seconds a step takes → why that is too slow, or nothing


class TrainingTooSlow(NewkindsError):
    """A training that would not be finished in time, found out after a few steps."""


class Diverged(NewkindsError):
    """A training whose loss or weights are no longer finite."""


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
    evidence: Sequence[HeldOutImages] | None = None,
    watchers: Sequence[Watcher] = (),
    judge: Judge | None = None,
) -> Fitted:
    """Train `model` on `table`, epoch by epoch into `run`; continues where an earlier call stopped.

    On the CPU the result is the same, bit for bit, however often the process was killed in between:
    an epoch's randomness depends on the seed and the epoch's number alone. Several processes give it to rounding.
    Without a run nothing is written. `embedded`: the features of the images, if they are known already and nothing
    trains. `evaluate` looks at the model every `train.eval_every` epochs. `pace` is asked after a few steps whether
    they are too slow, which ends the training (`TrainingTooSlow`). `evidence` is for `Model.calibrate`.
    `watchers` look on. `judge` says after each epoch how good it is, and the best one's weights are kept.
    """
    functions = (Unsent(evaluate), Unsent(pace), Unsent(watchers), Unsent(judge))
    store = train_epochs(model, table, config, run, cache, *functions)
    return _finish(model, table, config, run, store, None if config.epochs else embedded, evidence)


@shared
def train_epochs(
    model: Model,
    table: Table,
    config: TrainConfig,
    run: Run | None,
    cache: ViewStore | None,
    evaluate: Unsent[Evaluator],
    pace: Unsent[Pace],
    watched: Unsent[Sequence[Watcher]],
    judge: Unsent[Judge],
) -> ViewStore | None:
    """All epochs that are missing; returns the views that were trained on, if they are stored."""
    device = choose_device(config.device)
    with compute_as(config, device):
        return _train_epochs(model.to(device), table, config, run, cache, evaluate, pace, watched, judge)


def _train_epochs(
    model: Model, table: Table, config: TrainConfig, run: Run | None, cache: ViewStore | None,
    evaluate: Unsent[Evaluator], pace: Unsent[Pace], watched: Unsent[Sequence[Watcher]], judge: Unsent[Judge],
) -> ViewStore | None:  # fmt: skip
    device = model.device
    model.precision = MixedPrecision(config.precision, device)
    model.micro_batch = config.micro_batch
    if config.compile and config.epochs:
        for block in blocks_of(model.encoder.backbone.network):
            block.compile()
    groups = parameter_groups(model, config)
    for line in describe_groups(groups, config.lr):
        say(f"training {line}")
    needs_tokens = model.encoder.organizer.starts_from_tokens and not model.begins_organized
    if needs_tokens and not (run is not None and in_first(run.state_file.is_file)):
        with share_errors():
            _start_organizer(model, table, config, cache)
    with share_errors():
        store = with_slots(model.encoder, cache, table)
    if not config.epochs:
        if model.frozen:
            say("nothing is trained (train.epochs=0): categories are found in the backbone's features")
        if run is not None:
            in_first(run.write_metrics, [])
        return store
    if model.method.teacher_momentum(Progress(0, config.epochs)) is not None:
        model.teacher = Teacher(model.encoder, model.method)
    optimizer = build_optimizer(groups, config)
    first_epoch = _restore(model, optimizer, run)
    batches = batches_of(model, table, config, device, store)
    warmup = config.organizer_warmup * len(batches)  # steps
    rows = [] if run is None else in_first(run.metrics)[:first_epoch]
    is_evaluated = broadcast(evaluate.value is not None) and bool(config.eval_every)
    is_judged = broadcast(judge.value is not None)
    best = Best(run, rows)
    replica = replicate(model)
    watchers = Watchers(watched.value or ())
    watching = watchers.watch(None if run is None else run.home, asdict(config), first_epoch * len(batches))
    bar_of_steps = progress_bar("training", config.epochs * len(batches), done=first_epoch * len(batches))
    with watching, bar_of_steps as bar:
        for epoch in range(first_epoch, config.epochs):
            started = time.perf_counter()
            torch.manual_seed(seed_for("training", config.seed, epoch))
            lr = cosine_lr(epoch, config.epochs, config.lr, config.min_lr_ratio, config.lr_cycle)
            optimizer.set_lr(lr)
            model.method.on_epoch_start(epoch, gatherer(model, table, batches, epoch))
            gathering = time.perf_counter() - started  # seconds, once an epoch
            _share_method(model)
            model.train()
            sums: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=device))
            lost: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=device))  # steps in which it is NaN …
            paced_from = time.perf_counter()
            for number, batch in enumerate(batches(epoch)):
                if number == 1:
                    paced_from = time.perf_counter()
                on_device = batch.to(device)
                if (taken := epoch * len(batches) + number + 1) <= warmup:
                    optimizer.set_lr(lr, organizer=taken / warmup)
                progress = Progress(epoch, config.epochs, number, len(batches))
                losses = step(model, on_device, progress, optimizer, replica)
                for name, value in losses.items():
                    sums[name] += value
                    lost[name] += ~torch.isfinite(value)
                watchers.step(progress, losses)
                if epoch == first_epoch and number == PACE_STEPS:
                    alone = (time.perf_counter() - paced_from) / PACE_STEPS
                    in_first(_require_pace, pace.value, alone + gathering / len(batches))
                bar.advance(note=f"epoch {epoch + 1}/{config.epochs}")
            means = {name: value.item() / len(batches) for name, value in sums.items()}
            is_last = epoch + 1 == config.epochs  # no further step would show that the last one went wrong
            is_finite = math.isfinite(means["loss"]) and _is_finite(model, on_device if is_last else None)
            if not all(all_gather(is_finite)):
                kept = f" The epochs before are kept in {run.folder}." if run is not None and epoch else ""
                what = f"loss {means['loss']:.3g}{_first_not_finite(model, lost)}"
                raise Diverged(
                    f"training diverged in epoch {epoch + 1} ({what}): lower the learning rate "
                    f"(train.lr is {config.lr}).{kept}"
                )
            row: dict[str, Any] = {"epoch": epoch, "lr": lr, **means}
            looks = is_evaluated and (epoch + 1) % config.eval_every == 0
            if looks or is_judged:
                with put_teacher_in_place(model):
                    embedded = embed_training_images(model, table, config, store)
                    if looks:
                        row |= in_first(_look, evaluate.value, model, embedded.features, table, config)
                    if is_judged:
                        row[HELD_OUT] = in_first(_look, judge.value, model, embedded.features, table, config)
                        in_first(best.keep, model, row[HELD_OUT])
            row["seconds"] = round(time.perf_counter() - started, 3)
            rows.append(row)
            _report(row, config.epochs)
            if run is not None:
                in_first(_save, run, rows, model, optimizer, epoch + 1)
                if config.keep_every and (epoch + 1) % config.keep_every == 0:
                    in_first(run.write, checkpoint_name(epoch + 1), model.checkpoint())
            watchers.epoch(epoch, row)
    if is_judged:
        in_first(best.restore, model)
    return store


def _start_organizer(model: Model, table: Table, config: TrainConfig, cache: ViewStore | None) -> None:
    """Let the organizer see a sample of tokens before its first step."""
    seed = seed_for("start of the organizer", config.seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        tokens = sample_tokens(model.encoder, table, model.device, seed, config.workers, cache)
        model.encoder.organizer.start(tokens)


def _look(
    evaluate: Callable[[Model, Tensor], T] | None, model: Model, features: Tensor, table: Table, config: TrainConfig
) -> T:
    """What is to be seen of a model in training, which first finds its categories as a finished one does."""
    assert evaluate is not None
    model.find_categories(features, torch.from_numpy(table.targets), config.seed)
    return evaluate(model, features)


def _save(run: Run, rows: list[dict[str, Any]], model: Model, optimizer: Optimizers, epochs_done: int) -> None:
    """Keep what the epochs so far have made, so that the training can be resumed."""
    run.write_metrics(rows)
    state = {
        "model": model.changing_state(),
        "optimizer": optimizer.state_dict(),
        "scaler": model.precision.scaler.state_dict(),
    }
    run.save_state({"epochs_done": epochs_done, **state})


def _require_pace(pace: Pace | None, seconds: float) -> None:
    """Refuse a training whose steps take so many seconds, if that is too slow."""
    if pace is not None and (why := pace(seconds)):
        raise TrainingTooSlow(why)


def _share_method(model: Model) -> None:
    """What `on_epoch_start` found in the first process, in every one, with the random numbers that come next: on other
    machines, rounding may have given clusters other numbers."""
    if world().size == 1:
        return
    method = model.method
    plain = {name: value for name, value in vars(method).items() if not name.startswith("_")}
    buffers, plain, state = broadcast((dict(method.named_buffers()), plain, torch.get_rng_state()))
    vars(method).update(plain)
    for name, value in buffers.items():
        place, _, leaf = name.rpartition(".")
        method.get_submodule(place)._buffers[leaf] = value.to(model.device)  # some have another size than before
    torch.set_rng_state(state)


def _finish(
    model: Model, table: Table, config: TrainConfig, run: Run | None, store: ViewStore | None,
    embedded: Embedded | None, evidence: Sequence[HeldOutImages] | None,
) -> Fitted:  # fmt: skip
    if model.teacher is not None and model.method.teacher_answers:
        model.teacher.change_places()
    model.teacher = None
    if embedded is None:
        embedded = embed_training_images(model, table, config, store)
    labels = torch.from_numpy(table.targets)
    model.find_categories(embedded.features, labels, config.seed)
    if run is not None:  # a trial is thrown away: nobody asks it how sure it is
        model.calibrate(embedded.features, torch.from_numpy(table.targets_once()), config.seed, evidence)
        for part, note in model.describe_found().items():
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
    preprocessing = model.encoder.backbone.preprocessing
    workers = choose_workers(config.workers, device)
    return TrainingBatches(
        table, preprocessing, config.batch_size, config.seed, workers, *of_epoch, device.type == "cuda"
    )


def embed_training_images(model: Model, table: Table, config: TrainConfig, store: ViewStore | None) -> Embedded:
    """The features of all images, of which none may have become unreadable."""
    # in batches as everywhere else, not as in training: the last bits differ, and these features are the answer's
    embedded = embed(model.encoder, table, model.device, workers=config.workers, cache=store)
    if embedded.skipped:
        raise no_longer_readable(embedded.skipped[0])
    return embedded


def gatherer(model: Model, table: Table, batches: TrainingBatches | StoredBatches, epoch: int) -> Embed:
    """What `Method.on_epoch_start` is given: nothing is computed before it is called."""

    def embed_views(views: Gathered) -> tuple[Tensor, Tensor]:
        return embed_views_of_all(model, batches, epoch, views), torch.from_numpy(table.targets)

    return embed_views


@torch.no_grad()
def embed_views_of_all(model: Model, batches: TrainingBatches | StoredBatches, epoch: int, views: Gathered) -> Tensor:
    """Features (V, n, D) of all images, by the model as it is now."""
    model.eval()
    features = []
    with share_errors():
        for batch in batches.of_all_rows(epoch, views):
            with model.precision.autocast():
                encoded = model.encoder(batch.to(model.device).inputs)
            features.append(encoded.feature.float().unflatten(0, (-1, len(batch.index))).cpu())  # (V, b, D)
    return torch.cat(world().in_turn(all_gather(features)), dim=1).to(model.device)


@contextmanager
def put_teacher_in_place(model: Model) -> Iterator[None]:
    """While it is open, the model is the one that would be kept now: of some methods, the averaged one."""
    teacher = model.teacher if model.method.teacher_answers else None
    if teacher is not None:
        teacher.change_places()
    try:
        yield
    finally:
        if teacher is not None:
            teacher.change_places()


def _first_not_finite(model: Model, lost: Mapping[str, Tensor]) -> str:
    """Which terms of the loss were the first that were not finite, and whose they are; if all were finite, that it is
    the weights. `lost`: in how many steps each was not; those that follow from the weights come a step later."""
    steps = {name: int(value) for name, value in lost.items()}
    first = [name for name, count in steps.items() if count and count == max(steps.values())]
    terms = [name for name in first if name != "loss"] or first  # the sum falls with them
    if not terms:
        return "; its weights are no longer finite"
    is_organizers = all(name.startswith("organizer/") for name in terms)
    owner: nn.Module = model.encoder.organizer if is_organizers else model.method
    return f"; not finite first: {', '.join(map(repr, terms))} in {describe_loss(type(owner))}"


@torch.no_grad()
def _is_finite(model: Model, batch: Batch | None) -> bool:
    """Whether all weights are finite and, if a batch is given, also its features."""
    values: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    if batch is not None:
        values.append(model.encoder(batch.inputs).feature)
    return all(bool(torch.isfinite(value).all()) for value in values)


def _restore(model: Model, optimizer: Optimizers, run: Run | None) -> int:
    """Load the last complete epoch, if there is one; the number of epochs done."""
    if run is None:
        return 0
    state = in_first(run.load_state)
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
