"""Several processes as one, started by `torchrun`: the first does the verb, as a single process would, and calls the
others for what takes long: training, embedding, filling a cache. They wait for its calls (`help_first`).

A function under `@shared` is plain SPMD: all processes run it from its first line to its last, and each takes its share
of the images (`world`). Only the first one writes, reads what was written and decides by it (`in_first`). A batch is
encoded in shares, and features, labels and indices are gathered before the method sees them: every process computes
the loss of the whole batch, so that no loss changes. The gradient of a feature goes back to the process that encoded
it, times their number, because DistributedDataParallel takes the mean: the encoder's gradient becomes the sum over all
images, and the head's, which is the same everywhere, stays as it is.

An error in a shared function that all of them meet is the first one's to deal with, and the others wait for its next
call. One that a single process meets ends them all (`RunEnded`), unless they exchange it (`share_errors`)."""

import importlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar, cast
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor

from ..console import be_quiet, break_silence
from ..data.world import ALONE, World
from ..errors import NewkindsError, RunEnded, reason_of
from ..process import one_speaks
from .pieces import map_tensors

T = TypeVar("T")
P = ParamSpec("P")
PATIENCE = timedelta(days=7)  # the others wait while the first clusters, counts or asks
# what gloo and NCCL say if another process is gone
LOST = ("Connection closed", "Connection reset", "Broken pipe", "Socket", "socket", "NCCL", "timed out", "Timeout")
TO_RESUME = "Nothing that was complete is lost: to resume, rerun the same command, with as many processes as you like."
ALIKE = timedelta(seconds=10)  # in which all processes meet an error, if all of them do
_world: World | None = None  # who works on what this process does now; None if it is in no shared function
_store: dist.Store | None = None  # where processes leave notes for each other that need no answer
_calls = 0  # of shared functions, so far


def world() -> World:
    """The processes that work on this together; outside of `shared` functions it is one alone."""
    return _world or ALONE


@contextmanager
def join_others() -> Iterator[Callable[[], None] | None]:
    """Meet the other processes. The first gets None, and works; the others get `help_first`, to do that instead.

    If another process dies, this one ends as well, and one of them says so.
    """
    global _store
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "nccl":
        with one_speaks():
            _take_gpu()
    # until they have met, SIGTERM, which torchrun sends if one of them has died, ends a process that waits at once
    store, rank, size = next(dist.rendezvous("env://", timeout=PATIENCE))
    _store = dist.PrefixStore(_agree_on_name(store, rank, size), store)
    dist.init_process_group(backend, store=_store, rank=rank, world_size=size, timeout=PATIENCE)
    signal.signal(signal.SIGTERM, _stop)
    if rank > 0:
        be_quiet()
    try:
        yield help_first if rank > 0 else None
        if rank == 0:
            _broadcast(None)
    except Exception:
        if rank == 0:
            _broadcast(None)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends by itself
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _take_gpu() -> None:
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    there = torch.cuda.device_count()
    if here > there:
        raise NewkindsError(f"{here} processes cannot share {there} GPU(s): start {there} (--nproc-per-node {there}).")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))


def _agree_on_name(store: dist.Store, rank: int, size: int) -> str:
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


def _end(why: str) -> RunEnded:
    """The end of all processes, said by the one that is the first to know it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun sends it now
    said = 0
    if _store is not None:
        with suppress(RuntimeError):  # torchrun may have gone with it
            said = _store.add("ended", 1)
    return RunEnded(f"{why.rstrip('.')}. {TO_RESUME}" if said <= 1 else "")


def _stop(*_: object) -> None:
    raise _end("another process of this run has died, or the run was ended from outside")


@contextmanager
def _notice_loss() -> Iterator[None]:
    """While it is open, a connection that breaks ends the run."""
    try:
        yield
    except (dist.DistError, RuntimeError) as error:
        if any(word in str(error) for word in LOST):
            raise _end("another process of this run has died") from error
        raise


def help_first() -> None:
    """Take part in every shared function that the first process calls, until it says that it is done."""
    while (call := _broadcast(None)) is not None:
        module, name, arguments, options = call
        function = getattr(importlib.import_module(module), name)
        with suppress(Exception):  # all have met it: the first one deals with it
            function(*arguments, **options)


def shared(function: Callable[P, T]) -> Callable[P, T]:
    """A function that all processes run at once if the first calls it; in a single process, the function itself.

    Its arguments are sent to the others (see `Unsent`). What it returns there is thrown away.
    """

    @wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> T:
        global _world, _calls
        if _world is not None or not dist.is_available() or not dist.is_initialized():
            return function(*arguments, **options)
        if dist.get_rank() == 0:
            _broadcast((function.__module__, function.__name__, arguments, options))
        _calls += 1
        number = _calls
        _world = World(dist.get_rank(), dist.get_world_size())
        try:
            with _notice_loss():
                return function(*arguments, **options)
        except Exception as error:
            if _all_failed(number):
                raise
            raise _end(reason_of(error)) from error
        finally:
            _world = None

    return run


@dataclass(frozen=True)
class Unsent(Generic[T]):
    """An argument of a shared function that stays in the first process; the others get an empty one."""

    value: T | None = None

    def __reduce__(self) -> tuple[type["Unsent[T]"], tuple[()]]:
        return type(self), ()


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
def work_alone() -> Iterator[None]:
    """While it is open, this process works and speaks as if it were the only one, whatever the others do: for what it
    has met alone, such as a damaged row of a cache."""
    global _world
    before, _world = _world, ALONE
    try:
        with break_silence():
            yield
    finally:
        _world = before


# -- inside a shared function --------------------------------------------------------------------------------


@contextmanager
def share_errors() -> Iterator[None]:
    """What each process does for itself, without a word to the others. An error that one of them meets is raised in
    all."""
    try:
        yield
    except Exception as error:
        all_gather(reason_of(error))
        raise
    if reasons := [reason for reason in all_gather(None) if reason is not None]:
        raise NewkindsError(reasons[0])


def in_first(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """What a function returns in the first process, which alone calls it: such as one that reads or writes files.
    An error that it meets is raised in all. The others wait, so that it does by itself what it could share.

    >>> state = in_first(run.load_state)
    """
    value = None
    with share_errors():
        if world().first:
            with work_alone():
                value = function(*arguments, **options)
    return broadcast(value)


def broadcast(value: T | None, source: int = 0) -> T:
    """The value that one process has, in all of them; the others' is ignored."""
    return _broadcast(value, source) if world().size > 1 else cast(T, value)


def all_gather(value: T) -> list[T]:
    """The value of each process, in all of them."""
    if world().size == 1:
        return [value]
    values: list[Any] = [None] * world().size
    dist.all_gather_object(values, value)
    return values


def _broadcast(value: Any, source: int = 0) -> Any:
    sent = [value]
    with _notice_loss():
        dist.broadcast_object_list(sent, src=source)
    return sent[0]


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


def gather_batch(value: Any, images: int) -> Any:
    """What all processes have of a batch of so many images: tensors of V·b rows become such of V·B rows, also in
    tuples, lists, dictionaries and dataclasses. A single number is taken for a mean over images."""
    shares = world().shares(images)

    def gather(rows: Tensor) -> Tensor:
        if rows.ndim == 0:
            of_each = cast(Tensor, _Gather.apply(rows[None], 1, [1] * len(shares)))
            return (of_each * of_each.new_tensor(shares)).sum() / images
        if rows.dtype == torch.bool:
            return gather(rows.to(torch.uint8)).bool()
        return cast(Tensor, _Gather.apply(rows, len(rows) // shares[world().rank], shares))

    return map_tensors(gather, value)


def place_in_batch(whole: int | None) -> tuple[int, int] | None:
    """How many images a batch has that processes share, and the place of this one's first; None if they do not."""
    return None if whole is None else (whole, world().share(whole).start)
