"""Problems that the user can fix, in one sentence that names the problem and the next step."""

from collections.abc import Iterable
from dataclasses import dataclass


class NewkindsError(Exception):
    """A problem in the input, the settings or the machine; shown without a traceback by the command line."""


class InvalidValue(NewkindsError, ValueError):
    """An argument that cannot be used, where people of scikit-learn expect a ValueError."""


@dataclass(frozen=True)
class Skipped:
    """An image that was skipped, and why."""

    path: str
    reason: str


def reason_of(error: BaseException) -> str:
    """What went wrong, in one line: one of our sentences as it is, anything else with its type.

    >>> reason_of(KeyError("labels"))
    "KeyError: 'labels'"
    """
    if isinstance(error, NewkindsError):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"


def nearest(word: str, options: Iterable[str]) -> str:
    """A hint for a misspelt name, or an empty string.

    >>> nearest("simgdc", ["simgcd", "cms"])
    " Did you mean 'simgcd'?"
    """
    import difflib

    close = difflib.get_close_matches(word, list(options), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""
