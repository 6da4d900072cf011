"""Tasks of which some wait for others, and which several commands may share: each is done once, whoever does it."""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from ..console import say, warn
from ..errors import Busy, KeptApart, NewkindsError, reason_of

Call = Callable[[], Any]
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds until a task is looked at again that another process is at
SAY_AGAIN = 300.0  # seconds until people are told again that a command waits


@dataclass(frozen=True)
class Task:
    """Something to be done once, and its name, which tells people what it is."""

    name: Hashable
    prepare: Callable[[], Call]  # gives what is to be called, once all that it `needs` is done
    needs: tuple[Hashable, ...] = ()  # names of others
    log: str = ""  # what its output is called, if that goes to a file


class Ended(NamedTuple):
    """What became of a call."""

    name: Hashable
    result: Any = None
    error: BaseException | None = None


class Pool(Protocol):
    """Who does the tasks."""

    @property
    def is_full(self) -> bool:
        """Whether it can begin none at the moment."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to take."""

    def begin(self, task: Task, call: Call) -> None:
        """Do a task."""

    def take(self) -> Ended:
        """Wait until one has ended."""


class InTurn:
    """One after the other, in this process."""

    def __init__(self) -> None:
        self._next: tuple[Task, Call] | None = None

    @property
    def is_full(self) -> bool:
        return self._next is not None

    @property
    def is_idle(self) -> bool:
        return self._next is None

    def begin(self, task: Task, call: Call) -> None:
        self._next = (task, call)

    def take(self) -> Ended:
        assert self._next is not None, "begin"
        (task, call), self._next = self._next, None
        try:
            return Ended(task.name, result=call())
        except Exception as error:  # also out of memory, a full disk, a bug: the others may still succeed
            return Ended(task.name, error=error)


@dataclass
class Worked:
    """What came of a queue of tasks."""

    finished: dict[Any, Any] = field(default_factory=dict)  # name → result
    failed: list[Any] = field(default_factory=list)  # names; why was said
    kept_apart: list[Any] = field(default_factory=list)  # names of those among the failed that other code made
    busy: list[Any] = field(default_factory=list)  # names of those that another process is at, and of what needs them

    def only(self, wanted: Callable[[Any], bool]) -> "Worked":
        """The same of some tasks."""
        finished = {name: result for name, result in self.finished.items() if wanted(name)}
        lists = (self.failed, self.kept_apart, self.busy)
        return Worked(finished, *([*filter(wanted, names)] for names in lists))


class TaskQueue:
    """Does tasks in their order, each after what it needs. One that fails is reported and does not stop the others.

    One that another process is at is passed over, and looked at again when all else is done: with `wait`, until it is
    finished there, or done here because the other process has gone.
    """

    def __init__(self, tasks: Sequence[Task], pool: Pool, wait: bool = True) -> None:
        self._tasks = {task.name: task for task in tasks}
        self._place = {name: place for place, name in enumerate(self._tasks, start=1)}
        self._pool = pool
        self._wait = wait
        self._waiting = list(self._tasks)
        self._pauses: dict[Hashable, float] = {}  # tasks that were busy → how long they are left alone now
        self._again_at: dict[Hashable, float] = {}  # … and until when
        self._said_at = 0.0  # when people were last told that we wait
        self._worked = Worked()

    def work_off(self) -> Worked:
        """Do all of them."""
        while self._waiting or not self._pool.is_idle:
            self._begin_some()
            if not self._pool.is_idle:
                self._note(self._pool.take())
            elif self._waiting and not self._pause():
                break
        self._worked.busy = list(self._waiting)
        return self._worked

    def _begin_some(self) -> None:
        """Begin what can be begun."""
        for name in list(self._waiting):
            task = self._tasks[name]
            lost = next((other for other in task.needs if other in self._worked.failed), None)
            if lost is not None:
                self._waiting.remove(name)
                if lost in self._worked.kept_apart:
                    self._fail(name, KeptApart(f"it starts from {lost}, which is kept apart."))
                else:
                    self._fail(name, NewkindsError(f"it starts from {lost}, which failed."))
                continue
            is_ready = all(other in self._worked.finished for other in task.needs)
            if self._pool.is_full or not is_ready or time.monotonic() < self._again_at.get(name, 0.0):
                continue
            self._waiting.remove(name)
            if name not in self._pauses:
                say(f"{name} ({self._place[name]} of {len(self._tasks)})")
            try:
                call = task.prepare()
            except Exception as error:
                call = partial(_raise, error)
            self._pool.begin(task, call)

    def _note(self, ended: Ended) -> None:
        name, error = ended.name, ended.error
        if isinstance(error, Busy):
            if name not in self._pauses:
                say(f"{name} is passed over: another process is working on it")
            pause = min(LONGEST_PAUSE, 1.5 * self._pauses.get(name, FIRST_PAUSE / 1.5))
            self._pauses[name] = pause
            self._again_at[name] = time.monotonic() + pause
            self._waiting.append(name)  # behind all others
        elif error is not None:
            self._fail(name, error)
        else:
            self._worked.finished[name] = ended.result

    def _fail(self, name: Hashable, error: BaseException) -> None:
        self._worked.failed.append(name)
        if isinstance(error, KeptApart):
            self._worked.kept_apart.append(name)
        warn(f"{name} {'is kept apart' if isinstance(error, KeptApart) else 'failed'}: {reason_of(error)}")

    def _pause(self) -> bool:
        """Nothing can be begun: wait for other processes; whether we do."""
        busy = [name for name in self._waiting if name in self._pauses]
        if not self._wait or not busy:
            return False
        is_new = any(self._pauses[name] <= FIRST_PAUSE for name in busy)
        if is_new or time.monotonic() - self._said_at >= SAY_AGAIN:
            self._said_at = time.monotonic()
            say(f"waiting for {len(busy)} that other processes are at: {', '.join(map(str, busy))}")
        time.sleep(max(0.0, min(self._again_at[name] for name in busy) - time.monotonic()))
        return True


def _raise(error: Exception) -> None:
    raise error
