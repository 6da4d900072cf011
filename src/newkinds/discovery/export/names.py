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
        self._taken = {self._key(name) for name in taken}
        self._next: dict[str, int] = {}  # stem → the number to try next, for thousands may want the same name

    def make(self, wanted: str, ending: str = "") -> str:
        """The name for something that is called so; `ending`, such as .jpg, stays at its end."""
        stem = _safe(wanted)
        made = _fitting(stem, ending)
        first = self._key(made)
        number = self._next.get(first, 2)
        while self._key(made) in self._taken:
            made = _fitting(stem, f"-{number}{ending}")
            number += 1
        self._next[first] = number
        self._taken.add(self._key(made))
        return made

    def _key(self, name: str) -> str:
        if self._stems:
            name = name.rpartition(".")[0] or name
        return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _safe(name: str) -> str:
    """The name with everything replaced that a disk, a shell or a person could misunderstand; never empty."""
    name = FORBIDDEN.sub("_", name)
    name = re.sub(r"^[. ]|[. ]$", "_", name) or "_"
    return f"_{name}" if DEVICES.fullmatch(name) else name


def _fitting(stem: str, ending: str) -> str:
    """Both together, the stem shortened to what fits; not in the middle of a letter."""
    room = LONGEST - len(ending.encode())
    shortened = stem.encode()[:room].decode("utf-8", "ignore")
    return (re.sub(r"[. ]$", "_", shortened) if shortened != stem else stem) + ending
