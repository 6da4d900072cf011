"""How long a search may take, and on what its time was spent."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..console import say
from ..runs.records import Stage
from ..text import duration, read_duration

LACK = "needs about"  # how the reason begins why something is not begun for want of time
OVERRUN = 1.25  # × the time: what takes longer than that is worth a line
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
        self._longer: dict[str, tuple[float, float]] = {}  # stage → how long it took, and what was measured before

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
    def stage(self, name: str, expected: float | None = None) -> Iterator[None]:
        """Say what is done now, and note how long it took; `expected`: seconds, if that was measured before."""
        say(f"[{duration(self.spent)}] {name}")
        started = time.monotonic()
        yield
        took = time.monotonic() - started
        self.stages.append(Stage(name, round(took, 2), round(self.spent, 2)))
        if expected and took > OVERRUN * expected:
            self._longer[name] = took, expected

    def overrun(self) -> str:
        """By how much the time was overrun, and what took it; empty if by no more than a quarter."""
        if self.spent <= OVERRUN * self.seconds:
            return ""
        more = f"{duration(self.spent - self.seconds)} more than --time {duration(self.seconds)}"
        said = f"this took {duration(self.spent)}, {more}"
        if self._longer:
            name, (took, expected) = max(self._longer.items(), key=lambda entry: entry[1][0] - entry[1][1])
            if took - expected > (self.spent - self.seconds) / 2:
                return f"{said}: '{name}' took {duration(took)} instead of the expected {duration(expected)}"
        longest = max(self.stages, key=lambda stage: stage.seconds, default=None)
        return said if longest is None else f"{said}, most of it for '{longest.name}' ({duration(longest.seconds)})"


def seconds_of(time: str | float | None, default: float) -> float:
    """`10m`, `2h`, `90s`, or a number of seconds → seconds; the default if nothing is said.

    Text without a unit is refused: some would mean minutes by it, and others seconds.
    """
    return default if time is None else read_duration(time, "--time")
