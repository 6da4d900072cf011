"""Text for tables and terminals, whatever files are called."""

from __future__ import annotations

import csv
import io
import itertools
import os

import pytest

from newkinds.files import csv_text
from newkinds.text import duration, escaped, unescaped, visible

CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E)]


def test_every_character_comes_back() -> None:
    for code in range(0x110000):
        assert unescaped(escaped(chr(code))) == chr(code), hex(code)


def test_what_looks_like_an_escape_comes_back() -> None:
    pieces = ["\\", "x", "u", "0d", "\r", "a", "\udcff", "\udc41", "\x9b", "\u2028", "\ud83d", "\u00ff"]
    for count in (2, 3, 4):
        for text in map("".join, itertools.product(pieces, repeat=count)):
            assert unescaped(escaped(text)) == text, ascii(text)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("Icon\r", r"Icon\x0d"),
        (os.fsdecode(b"\xff.png"), r"\xff.png"),
        ("\x9b31m", r"\u009b31m"),
        (r"folder\photo.png", r"folder\photo.png"),  # a path of Windows stays as it is
        (r"folder\x.png", r"folder\\x.png"),
        ("Grünspecht ☃", "Grünspecht ☃"),
    ],
)
def test_escapes(text: str, cell: str) -> None:
    assert escaped(text) == cell


def test_a_row_is_a_line_whatever_it_holds() -> None:
    names = [f"{control}a{control}" for control in CONTROLS] + ['x,"y"', " b ", "c\\"]
    text = csv_text(["path", "number"], [(name, 1.5) for name in names])
    assert len(text.splitlines()) == len(names) + 1
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [unescaped(row["path"]) for row in rows] == names
    assert {row["number"] for row in rows} == {"1.5"}


def test_lines_and_tabs_stay_visible() -> None:
    assert visible("a\n\tb\\x0d") == "a\n\tb\\x0d"
    for control in set(CONTROLS) - {"\n", "\t"}:
        assert control not in visible(f"a{control}b")


def test_times_are_said_as_they_were_given() -> None:
    said = [duration(seconds) for seconds in (45, 90, 119, 120, 600, 3600, 4800)]
    assert said == ["45 s", "90 s", "119 s", "2 min", "10 min", "1 h", "1 h 20 min"]
