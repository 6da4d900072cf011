"""The table of what was compared with published implementations names tests that there are, and all of its parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parity import SYSTEMS, Part, functions

ROOT = Path(__file__).resolve().parents[1]
PARTS = [part for parts in SYSTEMS.values() for part in parts]
SHOWN = re.findall(
    r"^\| ([^|]+) \| ([^|]+) \| (\d+) \| ([\d,]+|all) \| ([\de-]+) \|$",
    (ROOT / "docs" / "reproducibility.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.file}, {part.what}")
def test_the_tests_of_a_part_exist(part: Part) -> None:
    text = (ROOT / "tests" / part.file).read_text(encoding="utf-8")
    assert [name for name in part.tests if f"def test_{name}(" not in text] == []


def test_the_page_shows_every_part_and_how_far_it_is() -> None:
    assert [(system, what) for system, what, *_ in SHOWN] == list(dict.fromkeys(functions().values()))
    assert all(int(cases) > 0 and float(largest) < 1e-5 for _, _, cases, _, largest in SHOWN)
