"""Several processes as one, started by `torchrun`: the first does what one process would do, and calls the others where
work can be shared. They wait for it (`serve`), take their share, and neither write nor say anything.

A function under `@shared` runs in all of them at once. A batch is then encoded in shares, and features, labels and
indices are gathered before the method sees them: every process computes the loss of the whole batch, so that no loss
changes. The gradient of a feature goes back to the process that encoded it, times their number, because
DistributedDataParallel takes the mean: the encoder's gradient becomes the sum over all images, and the head's, which is
the same everywhere, stays as it is.

An error in a shared function that all of them meet is the first one's to deal with, and the others wait for its next
call. One that a single process meets ends them all (`RunEnded`), unless they exchange it (`agreed`)."""

import importlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor

from ..console import be_quiet, speaking
from ..data.world import World
from ..encoders.dropout import drawing_for
from ..errors import NewkindsError, RunEnded, reason_of
from ..process import one_speaks

T = TypeVar("T")
P = ParamSpec("P")
PATIENCE = timedelta(days=7)  # the others wait while the first clusters, counts or asks
# what gloo and NCCL say if another process is gone
LOST = ("Connection closed", "Connection reset", "Broken pipe", "Socket", "socket", "NCCL", "timed out", "Timeout")
TO_RESUME = "Nothing that was complete is lost: to resume, rerun the same command, with as many processes as you like."
ALIKE = timedelta(seconds=10)  # in which all processes meet an error, if all of them do
_together = False  # whether all processes are in the same function
_apart = False  # whether this one is alone with something, see `by_itself`
_kept: list[Any] = []  # what every process has, in the same order
_store: dist.Store | None = None  # where processes leave notes for each other that need no answer
_calls = 0  # of shared functions, so far


def world() -> World:
    """The processes that work on this together; outside of `shared` functions it is one alone."""
    return World(dist.get_rank(), dist.get_world_size()) if _together else World()


@contextmanager
def joined() -> Iterator[Callable[[], None] | None]:
    """Meet the other processes. The first gets None, and works; the others get what they have to do instead: `serve`.

    If another process dies, this one ends as well, and one of them says so.
    """
    global _store
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "nccl":
        with one_speaks():
            _take_gpu()
    # until they have met, SIGTERM, which torchrun sends if one of them has died, ends a process that waits at once
    store, rank, size = next(dist.rendezvous("env://", timeout=PATIENCE))
    _store = dist.PrefixStore(_met(store, rank, size), store)
    dist.init_process_group(backend, store=_store, rank=rank, world_size=size, timeout=PATIENCE)
    signal.signal(signal.SIGTERM, _stopped)
    if rank > 0:
        be_quiet()
    try:
        yield serve if rank > 0 else None
        if rank == 0:
            _tell(None)
    except Exception:
        if rank == 0:
            _tell(None)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends by itself
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _take_gpu() -> None:
    here, there = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if here > there:
        raise NewkindsError(f"{here} processes cannot share {there} GPU(s): start {there} (--nproc-per-node {there}).")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))


def _met(store: dist.Store, rank: int, size: int) -> str:
    """A name for this start of the processes. torchrun, when it starts them again, gives them the store of before, with
    the addresses of processes that are gone; and its count of restarts differs between machines.

    The first proposes a name. It counts when all others have answered, and is withdrawn before it does.
    """
    if rank == 0:
        name = uuid4().hex
        store.set("proposed", name)
        if others := [f"{name} {other}" for other in range(1, size)]:
            store.wait(others, PATIENCE)
        store.delete_key("proposed")
        store.set(name, "agreed")
        return name
    while True:
        name = store.get("proposed").decode()
        store.set(f"{name} {rank}", "heard")
        with suppress(dist.DistStoreError):  # proposed by one that died: there will be another
            store.wait([name], timedelta(seconds=5))
            return name


def _ended(why: str) -> RunEnded:
    """The end of all processes, said by the one that is the first to know it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun sends it now
    said = 0
    if _store is not None:
        with suppress(RuntimeError):  # torchrun may have gone with it
            said = _store.add("ended", 1)
    return RunEnded(f"{why.rstrip('.')}. {TO_RESUME}" if said <= 1 else "")


def _stopped(*_: object) -> None:
    raise _ended("another process of this run has died, or the run was ended from outside")


@contextmanager
def _noticing() -> Iterator[None]:
    """While it is open, a connection that breaks ends the run."""
    try:
        yield
    except (dist.DistError, RuntimeError) as error:
        if any(word in str(error) for word in LOST):
            raise _ended("another process of this run has died") from error
        raise


def serve() -> None:
    """Take part in every shared function that the first process calls, until it says that it is done."""
    while (call := _told()) is not None:
        if isinstance(call, NewkindsError):  # what it did alone has failed
            raise call
        module, name, arguments, options = call
        function = getattr(importlib.import_module(module), name)
        with suppress(Exception):  # all have met it: the first one deals with it
            function(*map(_found, arguments), **options)


def shared(function: Callable[P, T]) -> Callable[P, T]:
    """A function that all processes run at once if the first calls it; in a single process, the function itself.

    Its arguments are sent to the others, unless they are `kept` there. What it returns there is thrown away.
    """

    @wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> T:
        global _together, _calls
        if _together or _apart or not dist.is_available() or not dist.is_initialized():
            return function(*arguments, **options)
        if dist.get_rank() == 0:
            _tell((function.__module__, function.__name__, tuple(map(_reference, arguments)), options))
        _calls += 1
        _together, number = True, _calls
        try:
            with _noticing():
                return function(*arguments, **options)
        except Exception as error:
            if _all_failed(number):
                raise
            raise _ended(reason_of(error)) from error
        finally:
            _together = False

    return run


def _all_failed(number: int) -> bool:
    """Whether all processes end this call of a shared function with an error, and not this one alone."""
    assert _store is not None
    names = [f"failed {number} {rank}" for rank in range(dist.get_world_size())]
    with suppress(RuntimeError):  # nobody else: they wait for what this one had to send, or are gone
        _store.set(names[dist.get_rank()], "")
        _store.wait(names, ALIKE)
        return True
    return False


@contextmanager
def agreed() -> Iterator[None]:
    """Inside a shared function: what each process does for itself. An error that one of them meets is raised in all.

    >>> with agreed():
    ...     state = run.load_state() if world().first else None
    """
    try:
        yield
    except Exception as error:
        collected(reason_of(error))
        raise
    if met := [reason for reason in collected(None) if reason is not None]:
        raise NewkindsError(met[0])


@contextmanager
def alone() -> Iterator[bool]:
    """Inside a shared function: what only the first process does, while it may call shared functions of its own.
    An error that it meets is raised in all.

    >>> with alone() as mine:
    ...     if mine:
    ...         run.write_metrics(rows)
    """
    global _together
    if not _together:
        yield True
        return
    _together = False
    try:
        if dist.get_rank() == 0:
            try:
                yield True
            except Exception as error:
                _tell(NewkindsError(reason_of(error)))
                raise
            _tell(None)
        else:
            serve()
            yield False
    finally:
        _together = True


@contextmanager
def by_itself() -> Iterator[None]:
    """While it is open, this process works and speaks as if it were the only one, whatever the others do: for what it
    has met alone, such as a damaged row of a cache."""
    global _together, _apart
    before = _together, _apart
    _together, _apart = False, True
    try:
        with speaking():
            yield
    finally:
        _together, _apart = before


@contextmanager
def kept(*objects: Any) -> Iterator[None]:
    """While it is open, these objects, which every process has, are not sent as arguments of shared functions."""
    _kept.extend(objects)
    try:
        yield
    finally:
        del _kept[len(_kept) - len(objects) :]


def from_first(value: T) -> T:
    """The value that the first process has; the others' is ignored."""
    return from_one(value, 0)


def from_one(value: Any, rank: int) -> Any:
    """The value that one process has."""
    if world().size == 1:
        return value
    sent = [value]
    dist.broadcast_object_list(sent, src=rank)
    return sent[0]


def collected(value: T) -> list[T]:
    """The value of each process, in all of them."""
    if world().size == 1:
        return [value]
    values: list[Any] = [None] * world().size
    dist.all_gather_object(values, value)
    return values


@dataclass(frozen=True)
class _Reference:
    """An argument that every process has already."""

    number: int


def _reference(argument: Any) -> Any:
    return next((_Reference(n) for n, known in enumerate(_kept) if known is argument and known is not None), argument)


def _found(argument: Any) -> Any:
    return _kept[argument.number] if isinstance(argument, _Reference) else argument


def _tell(call: tuple[str, str, tuple[Any, ...], dict[str, Any]] | NewkindsError | None) -> None:
    with _noticing():
        dist.broadcast_object_list([call])


def _told() -> Any:
    heard: list[Any] = [None]
    with _noticing():
        dist.broadcast_object_list(heard)
    return heard[0]


class _Gather(torch.autograd.Function):
    """View-major rows (V·b, …) of each process → (V·B, …) of all."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, views: int, shares: Sequence[int]) -> Tensor:
        ctx.views, ctx.shares = views, shares
        most = max(shares)
        mine = rows.unflatten(0, (views, -1)).transpose(0, 1).contiguous()  # (b, V, …)
        padded = torch.cat([mine, mine.new_zeros(most - len(mine), *mine.shape[1:])])
        every = [torch.empty_like(padded) for _ in shares]
        dist.all_gather(every, padded)
        together = torch.cat([some[:share] for some, share in zip(every, shares, strict=True)])  # (B, V, …)
        return together.transpose(0, 1).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        start = sum(ctx.shares[: dist.get_rank()])
        own = gradient.unflatten(0, (ctx.views, -1))[:, start : start + ctx.shares[dist.get_rank()]]
        return own.flatten(0, 1) * len(ctx.shares), None, None


def gathered(value: Any, images: int) -> Any:
    """What all processes have of a batch of so many images: tensors of V·b rows become such of V·B rows, also in
    tuples, lists, dictionaries and dataclasses. A single number is taken for a mean over images."""
    shares = world().shares(images)
    if isinstance(value, Tensor):
        if value.ndim == 0:
            of_each = _Gather.apply(value[None], 1, [1] * len(shares))
            return (of_each * of_each.new_tensor(shares)).sum() / images
        if value.dtype == torch.bool:
            return gathered(value.to(torch.uint8), images).bool()
        return _Gather.apply(value, len(value) // shares[world().rank], shares)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value) if field.name != "grid"}
        return replace(value, **gathered(parts, images))
    if isinstance(value, (list, tuple)):
        return type(value)(gathered(item, images) for item in value)
    if isinstance(value, dict):
        return {name: gathered(item, images) for name, item in value.items()}
    return value


def encoding_share(images: int | None) -> AbstractContextManager[None]:
    """While it is open, dropout draws for a whole batch of so many images and takes this process's part."""
    return nullcontext() if images is None else drawing_for(images, world().share(images))
