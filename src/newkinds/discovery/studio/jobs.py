"""Long work on the run: each job is a command of its own (`newkinds refine RUN …`), one at a time, which ends with the
studio. It says how far it is, can be stopped, and ends with a sentence."""

import inspect
import json
import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from ...errors import NewkindsError, reason_of
from ...process import CHILD, END_WITHIN
from .wanted import Json, text

TIMES = ("1m", "10m", "1h", "4h")
LONGEST_TEXT = 4096  # of what is typed: a path, the name of a model
MOST_LINES = 2000  # that are kept
LONGEST_LINE = 4000
LARGEST_RESULT = 16_000_000  # letters of a result that the page shows by itself
KILL_AFTER = END_WITHIN + 5  # seconds, after it was asked to end
TO_GO = re.compile(r"\bto go$")  # how a line of progress ends
TELLS = {
    "update": re.compile(r"update \d+: |.*: nothing new$")
}  # which line of a job says what came of it; else the last
SO_FAR = re.compile(r"([\d,]+) of ([\d,]+)\b")
# as `python -m newkinds`, but nothing in the folder that the studio was started in is taken for a module
START = "import sys; sys.path[:] = filter(None, sys.path); from newkinds.__main__ import main; sys.exit(main())"

State = Literal["running", "done", "failed", "stopped"]


class Place(NamedTuple):
    """A run, and where its images are now, if they have moved."""

    run: Path
    moved_to: Path | None

    def images(self) -> list[str]:
        """The option that says so."""
        return [] if self.moved_to is None else [f"--images={self.moved_to}"]


def _update(place: Place, wanted: Json) -> list[str]:
    return ["update", str(place.run)]


def _undo_update(place: Place, wanted: Json) -> list[str]:
    return ["update", str(place.run), "--undo"]


def _refine(place: Place, wanted: Json) -> list[str]:
    time = wanted.get("time", TIMES[1])
    if time not in TIMES:
        raise NewkindsError(f"the time is one of {', '.join(TIMES)}.")
    return ["refine", str(place.run), "--time", time]


def _names(place: Place, wanted: Json) -> list[str]:
    given = {name: text(wanted[name], f"'{name}'").strip() for name in ("words", "clip", "weights") if name in wanted}
    for name, value in given.items():
        if len(value) > LONGEST_TEXT or "\0" in value:
            raise NewkindsError(f"'{name}' must be a name or a path.")
    options = [f"--{name}={value}" for name, value in given.items() if value]
    return ["name", str(place.run), "--suggest", "--json", *options, *place.images()]


def _report(place: Place, wanted: Json) -> list[str]:
    return ["report", str(place.run), *place.images()]


def _export(place: Place, wanted: Json) -> list[str]:
    to = text(wanted.get("to"), "'to'")
    if to not in formats():
        raise NewkindsError(f"an export is one of {', '.join(formats())}.")
    folder, ending, number = place.run, ".csv" if to == "csv" else "", 2
    out = folder.with_name(f"{folder.name}-{to}{ending}")
    while os.path.lexists(out):
        out = folder.with_name(f"{folder.name}-{to}-{number}{ending}")
        number += 1
    return ["export", str(folder), "--to", to, "--out", str(out), *(place.images() if formats()[to] else [])]


JOBS: dict[str, Callable[[Place, Json], list[str]]] = {
    "update": _update, "undo-update": _undo_update, "refine": _refine, "names": _names, "report": _report,
    "export": _export,
}  # fmt: skip


def formats() -> dict[str, bool]:
    """The formats that there are, and whether the images are needed for each."""
    from ..export import EXPORTS

    return {name: "images" in inspect.signature(EXPORTS[name]).parameters for name in EXPORTS}


class Job:
    """A command that is running, or that has ended."""

    def __init__(self, number: int, name: str, arguments: Sequence[str]) -> None:
        self.number, self.name = number, name
        self.state: State = "running"
        self.progress, self.says = "", ""
        self._lines, self._count = deque[str](maxlen=MOST_LINES), 0
        self._output, self._last = list[str](), ""  # what came on stdout, and the last line of it
        self._is_stopped = False
        environment = {**os.environ, CHILD: "1", "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"}
        try:
            # in a session of its own, Ctrl-C in the terminal is not for it: the studio ends it
            self._process = subprocess.Popen(
                [sys.executable, "-c", START, *arguments], env=environment, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="backslashreplace",
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise NewkindsError(f"newkinds {arguments[0]} cannot be started: {reason_of(error)}") from None
        self._lock = threading.Lock()
        self._waiter = threading.Thread(target=self._wait, daemon=True)
        self._waiter.start()

    def stop(self) -> None:
        """Ask it to end, as Ctrl-C would; if it does not, it is killed."""
        with suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._is_stopped = True
                self._process.stdin.close()
        killing = threading.Timer(KILL_AFTER, self._kill)
        killing.daemon = True
        killing.start()

    def end(self) -> None:
        """Stop it, and wait until it has ended."""
        self.stop()
        self._waiter.join(KILL_AFTER + 5)

    def _kill(self) -> None:
        if self.state == "running":
            self._process.kill()

    def status(self, after: int) -> Json:
        """How it is, and the lines after the first `after`."""
        with self._lock:
            lines = list(self._lines)[max(0, after - (self._count - len(self._lines))) :]
            status: Json = {
                "number": self.number, "job": self.name, "state": self.state, "progress": self.progress,
                "says": self.says, "lines": lines, "count": self._count,
            }  # fmt: skip
        if (share := SO_FAR.search(self.progress)) is not None:
            done, total = (int(part.replace(",", "")) for part in share.groups())
            status["share"] = min(1.0, done / max(total, 1))
        if self.state == "done" and self.name == "names":
            with suppress(ValueError):
                status["names"] = json.loads("".join(self._output))
        return status

    def _wait(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        beside = threading.Thread(target=self._read, args=[self._process.stderr, False], daemon=True)
        beside.start()
        self._read(self._process.stdout, True)
        beside.join()
        status = self._process.wait()
        with self._lock:
            self.says = self._sentence(status)
            self.progress = ""
            self.state = "done" if status == 0 else "stopped" if self._is_stopped else "failed"

    def _read(self, stream: IO[str], is_result: bool) -> None:
        kept = 0
        for line in stream:
            said = line.rstrip()
            with self._lock:
                if is_result:
                    kept += len(line)
                    if kept <= LARGEST_RESULT:
                        self._output.append(line)
                    if said:
                        self._last = said
                if TO_GO.search(said):
                    self.progress = said
                elif not (is_result and self.name == "names"):  # that is no text
                    self._lines.append(said[:LONGEST_LINE])
                    self._count += 1

    def _sentence(self, status: int) -> str:
        if self._is_stopped and status != 0:
            return "stopped; what was there before is untouched."
        if status == 0 and self.name in TELLS:
            return next((line for line in reversed(self._lines) if TELLS[self.name].match(line)), self._last)
        if status == 0:
            return "nothing was renamed: press a word to give it." if self.name == "names" else self._last
        errors = [line for line in self._lines if line.startswith("error: ")]
        last = errors or [line for line in self._lines if line] or [f"it ended with status {status}."]
        return last[-1].removeprefix("error: ")


class Jobs:
    """The jobs of a studio: at most one is running."""

    def __init__(self, run: Path, images: Path | None) -> None:
        self._place = Place(run.resolve(), None if images is None else images.resolve())
        self._last: Job | None = None
        self._lock = threading.Lock()

    @property
    def stamp(self) -> str:
        """Changes when a job starts or ends."""
        last = self._last
        return "" if last is None else f"{last.number} {last.state}"

    def require_none(self) -> None:
        """Refuse a second job."""
        if self._last is not None and self._last.state == "running":
            raise NewkindsError("another job is running: wait until it has ended, or stop it.")

    def start(self, wanted: Json, more: Sequence[Path] = ()) -> Json:
        """Start a job: {"job": "refine", "time": "10m"}; `more`: files that an update begins with."""
        name = text(wanted.get("job"), "'job'")
        if name not in JOBS:
            raise NewkindsError(f"there is no job {name!r}.")
        with self._lock:
            self.require_none()
            arguments = [*JOBS[name](self._place, wanted), *map(str, more)]
            self._last = Job(1 if self._last is None else self._last.number + 1, name, arguments)
            return self._last.status(0)

    def status(self, after: int = 0) -> Json:
        """The job that is running, or the last one; {} if there was none."""
        return {} if self._last is None else self._last.status(after)

    def stop(self) -> Json:
        """Stop the job that is running."""
        if self._last is None or self._last.state != "running":
            raise NewkindsError("no job is running.")
        self._last.stop()
        return self._last.status(0)

    def end(self) -> None:
        """The studio ends, and what is running ends with it."""
        if self._last is not None and self._last.state == "running":
            self._last.end()


def options() -> dict[str, Any]:
    """What a window may choose."""
    return {"times": list(TIMES), "formats": list(formats())}
