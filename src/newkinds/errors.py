"""Problems that the user can fix, in one sentence that names the problem and the next step."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TRACEBACK = "Traceback (most recent call last):"
# what is said, in small letters, by those who find no memory and raise no MemoryError
NO_MEMORY = (
    "allocate memory", "out of memory", "not enough memory", "failed to map segment", "bad_alloc", "bad allocation",
    "unable to mmap", "can't start new thread",
)  # fmt: skip


_outside: set[str] = set()  # top-level names of modules with parts that are not ours: plugins and other packages


class NewkindsError(Exception):
    """A problem in the input, the settings or the machine; shown without a traceback by the command line."""


class InvalidValue(NewkindsError, ValueError):
    """An argument that cannot be used, where people of scikit-learn expect a ValueError."""


class Busy(NewkindsError):
    """Another process is working there: what is wrong now will be right later."""


class KeptApart(NewkindsError):
    """Other code made what is there: it is not wrong, and it is not mixed with what the present code makes."""


class RunEnded(BaseException):
    """One of several processes is gone, and this one cannot go on. Like a KeyboardInterrupt it is no Exception: what
    goes on after an error, such as a grid of runs, cannot go on after this one.

    Its text is for the user; it is empty if another process has said it.
    """


class Skipped(NamedTuple):
    """An image that was skipped, and why."""

    path: str
    reason: str


def note_outside(module: str) -> None:
    """A module has parts that are not ours: errors that happen in it, or in its package, name their file and line."""
    _outside.add(module.partition(".")[0])


def place_outside(error: BaseException) -> str | None:
    """Where in a plugin or another package an error happened, by the innermost line of it that was running; None: in
    no such place.

    >>> place_outside(error)
    '/home/me/mine.py, line 12, in Mine.loss'
    """
    if isinstance(error, SyntaxError) and error.filename is not None:  # that line never runs
        return f"{error.filename}, line {error.lineno}"
    if (frames := _frames_of_reader(error)) is not None:
        return _last_outside(frames)
    place, trace = None, error.__traceback__
    while trace is not None:
        code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__"))
        if module.partition(".")[0] in _outside:
            function = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has the last part of it only
            place = f"{code.co_filename}, line {trace.tb_lineno}" + (f", in {function}" if function[0] != "<" else "")
        trace = trace.tb_next
    return place


def outside_names() -> list[str]:
    """The modules and packages with parts that are not ours."""
    return sorted(_outside)


def _frames_of_reader(error: BaseException) -> str | None:
    """Where an error happened in a process that reads images: torch sends it as text; None: it happened here."""
    _, mark, frames = str(error).rpartition(TRACEBACK)
    return frames if mark and "worker process" in str(error) else None


def _last_outside(frames: str) -> str | None:
    """The innermost of the lines of a traceback that is in a plugin or another package."""
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in _outside}
    homes = [Path(file).parent if Path(file).stem == "__init__" else Path(file) for file in files.values() if file]
    place = None
    for file, line, function in re.findall(r'^ +File "(.+)", line (\d+), in (.+)$', frames, re.MULTILINE):
        if any(Path(file).is_relative_to(home) for home in homes):
            place = f"{file}, line {line}, in {function}"
    return place


def reason_of(error: BaseException) -> str:
    """What went wrong, in one line: one of our sentences as it is, anything else with its type; and if it happened in a
    plugin, its file and line.

    >>> reason_of(KeyError("labels"))
    "KeyError: 'labels'"
    """
    place = place_outside(error)
    return _what_went_wrong(error) + ("" if place is None else f" ({place})")


def _what_went_wrong(error: BaseException) -> str:
    if (frames := _frames_of_reader(error)) is not None:
        said = re.sub(r"\A(\s.*\n|\n)*", "", frames)  # the lines of the traceback are indented
        ours = re.compile(r"\A[\w.]*\b(NewkindsError|InvalidValue|BadImage): ")
        return _shortened(" ".join(ours.sub("", said).split()), 3000)
    if isinstance(error, NewkindsError):
        return _shortened(str(error), 3000)  # it may name what is thousands of letters long
    if isinstance(error, OSError) and error.strerror:  # a full disk, a name that is too long
        named = f"{_shortened(str(error.filename))}: " if error.filename is not None else ""
        return f"{named}{error.strerror}."
    if is_out_of_memory(error) and isinstance(error, ImportError):
        return "there is not enough memory to load the libraries that this needs: close other programs, or allow more."
    if is_out_of_memory(error):
        return "there is not enough memory: take smaller batches (train.batch_size), images or fewer categories."
    return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, numpy, torch or the loader of libraries wanted more memory than there is."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or any(words in said for words in NO_MEMORY)


def is_expected(error: BaseException) -> bool:
    """Whether the user or the machine is the cause, not a bug."""
    return isinstance(error, (NewkindsError, OSError)) or is_out_of_memory(error)


def _shortened(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 :]}"


def nearest(word: str, options: Iterable[str]) -> str:
    """A hint for a misspelt name, or an empty string.

    >>> nearest("simgdc", ["simgcd", "cms"])
    " Did you mean 'simgcd'?"
    """
    import difflib

    names = list(options)
    first_words = {name.split("_")[0]: name for name in reversed(names)}  # memax → memax_weight
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    close = close or [first_words[found] for found in difflib.get_close_matches(word, first_words, n=1, cutoff=0.8)]
    return f" Did you mean '{close[0]}'?" if close else ""
