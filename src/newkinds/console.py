"""What users see while they wait: messages, warnings, progress bars with the time left. All on stderr."""

import io
import logging
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from .process import end_if_interrupted, is_child
from .text import duration, visible

T = TypeVar("T")
LINE_EVERY = 1.0  # seconds between two lines of progress

# soft_wrap: a path in a message must stay in one piece; width is the terminal's business
console = Console(stderr=True, soft_wrap=True, highlight=False)
_bar_shown = False
_quiet = False
_warns = True  # although quiet
_says = True  # unless quiet: else there are only bars and warnings


def be_quiet() -> None:
    """Say and show nothing from now on: one of several processes speaks for all."""
    global _quiet, _warns
    _quiet, _warns = True, False


def break_silence() -> AbstractContextManager[None]:
    """While it is open, this process speaks, quiet or not."""
    return _be(quiet=False)


def keep_quiet(but_warnings: bool = False) -> AbstractContextManager[None]:
    """While it is open, nothing is said or shown, or nothing but warnings: what goes on is of no concern to users."""
    return _be(quiet=True, warns=but_warnings)


def show_only_bars() -> AbstractContextManager[None]:
    """While it is open, nothing is said but warnings, and bars move: what goes on is a step of what was announced."""
    return _be(quiet=_quiet, says=False)


@contextmanager
def _be(quiet: bool, warns: bool = True, says: bool = True) -> Iterator[None]:
    global _quiet, _warns, _says
    was_quiet, warned, said = _quiet, _warns, _says
    _quiet = quiet
    _warns = warns and (warned or not quiet)
    _says = says
    try:
        yield
    finally:
        _quiet = was_quiet
        _warns = warned
        _says = said


@contextmanager
def silence() -> Iterator[None]:
    """While it is open, libraries that talk to their developers are not heard: we say what concerns users."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def say(message: str) -> None:
    """A plain line; never markup, for names of files end up in messages."""
    if _says:
        _print_line(message)


def _print_line(message: str) -> None:
    if not _quiet:
        console.print(Text(visible(message)))


def warn(message: str) -> None:
    if _warns:
        console.print(Text.assemble(("warning: ", "yellow"), visible(message)))


def can_ask() -> bool:
    """Whether somebody sits at a terminal; of several processes only the first may ask."""
    streams = (sys.stdin, sys.stderr)
    return not _quiet and all(stream is not None and not stream.closed and stream.isatty() for stream in streams)


def ask(question: str) -> bool:
    """Yes or no, by somebody at a terminal; anything but "y" is no."""
    console.print(Text(f"{visible(question)} [y/N] "), end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


class ProgressBar:
    """The handle that `progress_bar` gives."""

    def __init__(self, progress: Progress | None = None, task: int = 0) -> None:
        self._progress = progress
        self._task = task

    def advance(self, note: str = "") -> None:
        end_if_interrupted()
        if self._progress is not None:
            self._progress.update(self._task, advance=1, note=visible(note))  # type: ignore[arg-type]


class ProgressLines(ProgressBar):
    """Says in lines what a bar would show, for a program that reads them: "embedding images: 3 of 9, 20 s to go"."""

    def __init__(self, description: str, total: int, done: int) -> None:
        super().__init__()
        self._description, self._total, self._done, self._before = description, total, done, done
        self._started = self._said = time.monotonic()

    def advance(self, note: str = "") -> None:
        super().advance(note)
        self._done += 1
        now = time.monotonic()
        if now - self._said >= LINE_EVERY and self._done < self._total:
            self._said = now
            left = (now - self._started) / (self._done - self._before) * (self._total - self._done)
            _print_line(f"{self._description}: {self._done:,} of {self._total:,}, about {duration(left)} to go")


@contextmanager
def progress_bar(description: str, total: int, done: int = 0) -> Iterator[ProgressBar]:
    """A bar with the time left; lines, if a program reads them; in a log file (no terminal) there is none."""
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(), TextColumn("{task.fields[note]}", markup=False),
    )  # fmt: skip
    global _bar_shown
    # a terminal holds one moving bar: an inner one stays hidden
    if not (console.is_terminal or is_child()) or _bar_shown or _quiet:
        yield ProgressBar()
        return
    _bar_shown = True
    try:
        if not console.is_terminal:
            yield ProgressLines(description, total, done)
            return
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(visible(description), total=total, completed=done, note="")
            yield ProgressBar(progress, task)
    finally:
        _bar_shown = False


def track(items: Iterable[T], description: str, total: int) -> Iterator[T]:
    """The items, with a bar while they are taken."""
    with progress_bar(description, total) as bar:
        for item in items:
            yield item
            bar.advance()
