"""Tasks in several processes of one command (`bench --jobs N`): each has its share of the threads, and of several GPUs
one; what it says goes to a file. All end with the command."""

import multiprocessing
import os
import pickle
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from .. import process
from ..console import say
from ..errors import Busy, KeptApart, NewkindsError, reason_of
from ..files import make_folder
from ..plugins import load_plugin, loaded_plugins
from .tasks import Call, Ended, Task

LOGS = "logs"  # the folder of their output, among the runs
Answer = tuple[str, Any]  # "done" and the result, or "busy", "kept apart" or "failed" and a sentence


class Worker(NamedTuple):
    """A process that does one task after the other."""

    process: Any
    connection: Connection


class SideBySide:
    """A pool of `jobs` processes, to be closed in the end: it is a context.

    >>> with SideBySide(4, Path("runs")) as pool:
    ...     TaskQueue(tasks, pool).work_off()
    """

    def __init__(self, jobs: int, out: Path, spread: bool = True) -> None:
        """`spread`: on a machine with several GPUs, each process sees one of them."""
        if process.is_one_of_several():
            raise NewkindsError("--jobs starts processes of its own: leave it out, or leave out torchrun.")
        self.jobs = jobs
        self._out = out
        self._spread = spread
        self._free: dict[int, Worker] = {}
        self._at_work: dict[int, tuple[Worker, Task]] = {}

    @property
    def is_full(self) -> bool:
        return len(self._at_work) >= self.jobs

    @property
    def is_idle(self) -> bool:
        return not self._at_work

    def begin(self, task: Task, call: Call) -> None:
        try:
            sent = pickle.dumps(call)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            why = f"what it is given cannot be sent to another process ({reason_of(error)})"
            raise NewkindsError(f"{task.name}: {why}: leave out --jobs.") from None
        number = next(n for n in range(self.jobs) if n not in self._at_work)
        worker = self._free.pop(number, None)
        if worker is None:
            worker = self._start(number)
        worker.connection.send((make_folder(self._out / LOGS) / f"{task.log}.log", sent))
        self._at_work[number] = (worker, task)

    def take(self) -> Ended:
        of_connection = {worker.connection: number for number, (worker, _) in self._at_work.items()}
        ready = wait(list(of_connection))[0]
        number = of_connection[ready]  # type: ignore[index]
        worker, task = self._at_work.pop(number)
        log = self._out / LOGS / f"{task.log}.log"
        try:
            kind, value = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            died = f"its process died (exit status {worker.process.exitcode}); see the end of {log}."
            return Ended(task.name, error=NewkindsError(died))
        self._free[number] = worker
        if kind == "busy":
            return Ended(task.name, error=Busy(value))
        if kind == "kept apart":
            return Ended(task.name, error=KeptApart(value))
        if kind == "failed":
            return Ended(task.name, error=NewkindsError(f"{value} (all it said is in {log})"))
        say(f"{task.name} is finished")
        return Ended(task.name, result=value)

    def _start(self, number: int) -> Worker:
        # a new interpreter: a copy of this one would share locks and threads of torch that do not survive copying
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (theirs, loaded_plugins(), bool(process.may_download()))
        with _environment(share_of_machine(number, self.jobs, self._spread)), _hold_interrupts():
            started = context.Process(target=_work, args=arguments, name=f"newkinds-job-{number}")
            started.start()
        theirs.close()
        return Worker(started, ours)

    def __enter__(self) -> "SideBySide":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes: those at work are interrupted, as by Ctrl-C, and killed if that does not help."""
        workers = [*self._free.values(), *(worker for worker, _ in self._at_work.values())]
        for worker, _ in self._at_work.values():
            if worker.process.is_alive():
                os.kill(worker.process.pid, signal.SIGINT if os.name == "posix" else signal.SIGTERM)
        for worker in workers:
            worker.connection.close()
        for worker in workers:
            worker.process.join(process.END_WITHIN)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._free.clear()
        self._at_work.clear()


def share_of_machine(number: int, jobs: int, spread: bool) -> dict[str, str]:
    """Variables by which one of several processes takes its share: threads, readers of images, a GPU.

    >>> share_of_machine(0, jobs=4, spread=True)["OMP_NUM_THREADS"]     # on a machine with 16 cores
    '4'
    """
    import torch  # not at the top: a process that has begun imports it when it is given work, and can be ended before

    threads = str(max(1, torch.get_num_threads() // jobs))
    share = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, process.SIDE_BY_SIDE: str(jobs)}
    share[process.CHILD] = "0"  # it is ended by this command
    cards = torch.cuda.device_count() if spread else 0
    if cards > 1:
        named = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(cards)))
        share["CUDA_VISIBLE_DEVICES"] = named.split(",")[number % cards]
    return share


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """While it is open, processes that are started have these variables."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _hold_interrupts() -> Iterator[None]:
    """While it is open, Ctrl-C waits; in a process that is started meanwhile, until it can be ended in good order."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection, plugins: list[str], download: bool) -> None:
    """What a process does: calls, one after the other, until the command closes the connection or is gone."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # Ctrl-C in the terminal is for the command, which ends its processes
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts = process.Interrupts(listen=True)
    try:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        process.prepare(download=download)
        process.end_with(multiprocessing.parent_process())
        while True:
            log, sent = connection.recv()
            connection.send(_answer(log, sent, plugins))
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        interrupts.ignore()


def _answer(log: Path, sent: bytes, plugins: list[str]) -> Answer:
    """What a call returns or raises; whatever it says goes to a file. It comes from the command, by no file."""
    with open(log, "ab", buffering=0) as file:
        file.write(f"--- {datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S} UTC\n".encode())
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            for plugin in plugins:  # each once
                load_plugin(plugin)
            return "done", pickle.loads(sent)()
        except Busy as error:
            return "busy", str(error)
        except KeptApart as error:
            return "kept apart", str(error)
        except Exception as error:  # also out of memory, a full disk, a bug: others may still succeed
            return "failed", reason_of(error).rstrip(".")
