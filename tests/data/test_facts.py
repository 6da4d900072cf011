"""What is measured of an image when it is opened: held to plain loops, kept in runs, never measured twice."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import save_image
from newkinds.data.facts import COLUMNS, EVEN, SIDE, Facts, difference_hash, facts_of, measure
from newkinds.data.folder import read_folder
from newkinds.data.table import ImageRecord, look_at_all, readable


def hash_by_loops(grey: np.ndarray) -> str:
    """Bit by bit, as the docstring says it."""

    def cell(row: int, column: int, rows: int, columns: int) -> float:
        high, wide = SIDE // rows, SIDE // columns
        return float(grey[row * high : (row + 1) * high, column * wide : (column + 1) * wide].mean())

    steps = [cell(r, c + 1, 8, 9) - cell(r, c, 8, 9) for r in range(8) for c in range(8)]
    steps += [cell(r + 1, c, 9, 8) - cell(r, c, 9, 8) for r in range(8) for c in range(8)]
    bits = [step > EVEN for step in steps] + [step < -EVEN for step in steps]
    return f"{int(''.join('01'[bit] for bit in bits), 2):064x}"


@pytest.mark.parametrize("seed", range(3))
def test_the_hash_is_that_of_plain_loops(seed: int) -> None:
    grey = np.random.default_rng(seed).uniform(0, 40, (SIDE, SIDE)).cumsum(1).astype(np.float32) % 255
    assert difference_hash(grey) == hash_by_loops(grey)


def test_facts_of_an_image() -> None:
    image = Image.new("RGB", (200, 100), (192, 128, 64))
    assert measure(image) == Facts(200, 100, 0.0, "c08040", "0" * 64)
    image.paste((0, 128, 64), (0, 0, 100, 100))
    facts = measure(image)
    assert facts.colour == "608040"
    assert facts.spread == pytest.approx(96, abs=0.5)
    assert facts.hash.count("0") < 64


def test_facts_come_back_from_a_table() -> None:
    facts = measure(Image.effect_noise((90, 60), 50).convert("RGB"))
    row = dict(zip(COLUMNS, facts.cells(), strict=True))
    assert facts_of(row) == facts
    assert facts_of({**row, "hash": "beef"}) is None
    assert facts_of({**row, "width": "wide"}) is None
    assert facts_of({"path": "a.png", "stamp": "", "content": ""}) is None


def test_an_image_that_is_known_by_its_stamp_is_opened_again_only_for_its_facts(tmp_path: Path) -> None:
    save_image(tmp_path / "a.png")
    table = read_folder(str(tmp_path))
    opened: list[int] = []

    def noting(row: int) -> Image.Image:
        opened.append(row)
        return table.open(row)

    [seen] = readable(table, contents=True).seen or []
    noted = replace(table, open=noting)
    assert look_at_all(noted, contents=True, earlier={"a.png": seen}) == [seen]
    assert opened == []
    old = ImageRecord(seen.stamp, seen.content)  # of a run that kept no facts
    assert look_at_all(noted, contents=True, earlier={"a.png": old}) == [seen]
    assert opened == [0]


def test_two_files_of_equal_size_and_time_that_were_swapped_are_seen(tmp_path: Path) -> None:
    one, other = (
        save_image(tmp_path / name, colour) for name, colour in (("a.bmp", (200, 0, 0)), ("b.bmp", (0, 0, 200)))
    )
    for file in (one, other):
        os.utime(file, ns=(10**18, 10**18))
    before = readable(read_folder(str(tmp_path)), contents=True)
    assert before.seen is not None
    earlier = dict(zip(before.paths, before.seen, strict=True))
    one.rename(tmp_path / "c.bmp")
    other.rename(one)
    (tmp_path / "c.bmp").rename(other)
    assert one.stat().st_size == other.stat().st_size
    assert one.stat().st_mtime_ns == other.stat().st_mtime_ns
    after = readable(read_folder(str(tmp_path)), contents=True, earlier=earlier)
    assert before.contents is not None
    assert after.contents == before.contents[::-1]
