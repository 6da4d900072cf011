"""Names of files and folders that are safe on every disk, whatever categories and images are called."""

import re
import unicodedata
from collections.abc import Iterable

from ...text import CONTROL

LONGEST = 255  # bytes that a name may have on most disks
FORBIDDEN = re.compile(rf'[{CONTROL}<>:"/\\|?*]')  # on Windows, or separators, or not to be shown
DEVICES = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])\s*(\..*)?", re.IGNORECASE | re.DOTALL)


class Names:
    """Names in one folder: each is safe, and unlike all others also on a disk that ignores case.

    >>> names = Names()
    >>> [names.make(wanted) for wanted in ("../cat", "Corgi", "corgi", "NUL")]
    ['_._cat', 'Corgi', 'corgi-2', '_NUL']
    """

    def __init__(self, taken: Iterable[str] = (), stems: bool = False) -> None:
        """`taken` names are given to nobody; with `stems`, names differ without their endings as well."""
        self._stems = stems
        self._taken = set(map(_fold, taken))
        self._next: dict[str, int] = {}  # stem → the number to try next, for thousands may want the same name

    def make(self, wanted: str, ending: str = "") -> str:
        """The name for something that is called so; `ending`, such as .jpg, stays at its end."""
        stem, compared = _safe(wanted), "" if self._stems else ending
        made = _fitting(stem, len(ending.encode()))
        first = _fold(made + compared)
        number = self._next.get(first, 2)
        while _fold(made + compared) in self._taken:
            made = _fitting(stem, len(f"-{number}{ending}".encode())) + f"-{number}"
            number += 1
        self._next[first] = number
        self._taken.add(_fold(made + compared))
        return made + ending


def _fold(name: str) -> str:
    """As a disk compares names that ignores case, and how letters with marks are written."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _safe(name: str) -> str:
    """The name with everything replaced that a disk, a shell or a person could misunderstand; never empty."""
    name = FORBIDDEN.sub("_", name)
    name = re.sub(r"^[. ]|[. ]$", "_", name) or "_"
    return f"_{name}" if DEVICES.fullmatch(name) else name


def _fitting(stem: str, besides: int) -> str:
    """What of a stem fits into a name that has so many other bytes; not half a letter."""
    shortened = stem.encode()[: LONGEST - besides].decode("utf-8", "ignore")
    return stem if shortened == stem else re.sub(r"[. ]$", "_", shortened)
