"""How long a search may take, and on what its time was spent."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..console import say
from ..runs.records import Stage
from ..text import duration, read_duration

LACK = "needs about"  # how the reason begins why something is not begun for want of time
MARGIN = 1.25  # how much longer than expected something may take, where a time is proposed


class Clock:
    """A budget of seconds, of which an earlier command may have spent some.

    >>> clock = Clock(600.0)
    >>> with clock.stage("embed every image once"):
    ...     embed()
    >>> clock.left
    """

    def __init__(self, seconds: float, spent: float = 0.0, stages: Sequence[Stage] = ()) -> None:
        self.seconds = seconds
        self.stages = list(stages)
        self._earlier = spent
        self._started = time.monotonic()

    @property
    def spent(self) -> float:
        return self._earlier + time.monotonic() - self._started

    @property
    def left(self) -> float:
        return max(self.seconds - self.spent, 0.0)

    def lack(self, needs: float) -> str:
        """Why something that needs so many seconds is not begun; empty if there is time for it."""
        if needs <= self.left:
            return ""
        enough = math.ceil((self.spent + MARGIN * needs) / 60)
        return f"{LACK} {duration(needs)}, {duration(self.left)} are left (--time {enough}m would do for it)"

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Say what is done now, and note how long it took."""
        say(f"[{duration(self.spent)}] {name}")
        started = time.monotonic()
        yield
        self.stages.append(Stage(name, round(time.monotonic() - started, 2), round(self.spent, 2)))


def seconds_of(time: str | float | None, default: float) -> float:
    """`10m`, `2h`, `90s`, or a number of seconds → seconds; the default if nothing is said.

    Text without a unit is refused: some would mean minutes by it, and others seconds.
    """
    return default if time is None else read_duration(time, "--time")
