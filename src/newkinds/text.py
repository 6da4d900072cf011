"""Results as text for the terminal."""

import re
from collections.abc import Sequence
from typing import TextIO

from .errors import NewkindsError

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}  # of a duration
# control characters, what separates lines or turns the direction of writing, and bytes that are not UTF-8
CONTROL = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"


def escaped(text: str) -> str:
    r"""Text for one cell of a table, whatever a file is called; `unescaped` gives back the same text.

    \x0d is a control character or a byte that is not UTF-8, \u2028 another character that is not to be printed.
    A backslash is doubled only before what could be read as one of these. What a spreadsheet would run as a formula,
    because it begins with = + - or @ (also as wide as a Chinese letter), begins with such a code too.

    >>> escaped("Icon\r")
    'Icon\\x0d'
    """
    return re.sub(r"^[=+\-@＝＋－＠]", _code, spelt(text))


def spelt(text: str) -> str:
    """As `escaped`, for what no spreadsheet opens: two names that differ are spelt differently, on one line."""
    return re.sub(rf"\\(?=[\\xu{CONTROL}])|[{CONTROL}]", _code, text)


def unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = int(match[1] or match[2] or "5c", 16)
        return chr(0xDC00 + code if match[1] and code > 0x7F else code)

    return re.sub(r"\\(?:\\|x([0-9a-f]{2})|u([0-9a-f]{4}))", plain, text)


def visible(text: str) -> str:
    """Text for a terminal, which must not obey what is in a file's name; lines and tabs stay."""
    return re.sub(rf"(?![\n\t])[{CONTROL}]", _code, text)


def show(text: object, end: str = "\n", file: TextIO | None = None) -> None:
    """Print what may hold names of files."""
    print(visible(str(text)), end=end, file=file)


def _code(match: re.Match[str]) -> str:
    character, code = match[0], ord(match[0])
    if character == "\\":
        return r"\\"
    if code < 0x80 or 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code & 0xFF:02x}"
    return f"\\u{code:04x}"


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown that is aligned to be read as it is; all columns but the first are flush right.

    >>> print(text_table(["", "All"], [["host", "61.2"]]))
    |      |  All |
    |------|-----:|
    | host | 61.2 |
    """
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2)] + ["-" * (w + 1) + ":" for w in widths[1:]]) + "|"
    return "\n".join([line(columns), rule, *map(line, rows)])


def plural(number: int, what: str) -> str:
    """`1 image` or `2 images`; `1 known class` or `2 known classes`; `1 category` or `2 categories`."""
    if number == 1:
        return f"1 {what}"
    if what.endswith("y"):
        return f"{number:,} {what[:-1]}ies"
    return f"{number:,} {what}{'es' if what.endswith('s') else 's'}"


def percent(share: float | None) -> str:
    """`0.612` → "61.2"; a split without images is a dash."""
    return "–" if share is None else f"{100 * share:.1f}"


def protocol_lines(protocol: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in protocol)
    return "\n".join(f"{name.ljust(width)}  {' '.join(value.split())}" for name, value in protocol)


def duration(seconds: float) -> str:
    """As people say it: 45 s, 90 s, 7 min, 1 h 20 min."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def read_duration(text: str | float, setting: str) -> float:
    """`10m`, `2h`, `90s`, or a number of seconds → seconds. Text without a unit is refused: some would mean minutes by
    it, and others seconds. `setting`: what it is for, as people write it."""
    seconds = text
    if isinstance(seconds, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", seconds.lower())
        if found is None:
            raise NewkindsError(f"{setting} {text} is not a time: write 90s, 10m or 2h.")
        if not found[2]:
            number = found[1]
            raise NewkindsError(f"{setting} {number} has no unit: write {number}s, {number}m or {number}h.")
        seconds = float(found[1]) * UNITS[found[2]]
    if not 0 < seconds < float("inf"):
        raise NewkindsError(f"{setting} {seconds:g} is not a time: write 90s, 10m or 2h.")
    return float(seconds)
