"""Small pictures: each in its place, all of them within the bytes that were allowed."""

import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from newkinds.data.folder import table_below
from newkinds.data.images import BadImage
from newkinds.data.table import Table, table_of_pixels
from newkinds.discovery.report import sheets as sheets_module
from newkinds.discovery.report.sheets import SIDES, Sheet, Tile, draw_sheets


def plain(count: int, side: int = 64) -> tuple[Table, np.ndarray]:
    """Images of one colour each."""
    colours = np.random.default_rng(0).integers(0, 256, (count, 3))
    pixels = np.broadcast_to(colours[:, None, None], (count, side, side, 3)).astype(np.uint8)
    return table_of_pixels("x", pixels, [""] * count), colours


def noise(count: int, side: int) -> Table:
    """What is hardest to compress."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return table_of_pixels("x", pixels, [""] * count)


def seen(tile: Tile, sheets: list[Sheet]) -> np.ndarray:
    """The pixels that a browser shows of a sheet, by the rule for background-position and background-size."""
    sheet = sheets[tile.sheet]
    picture = np.asarray(Image.open(io.BytesIO(sheet.jpeg)).convert("RGB"))
    height, width = picture.shape[0] / sheet.rows, picture.shape[1] / sheet.columns
    x, y = (float(part) / 100 for part in re.findall(r"([\d.]+)%", tile.position))
    left, top = round(x * (picture.shape[1] - width)), round(y * (picture.shape[0] - height))
    return picture[top : top + round(height), left : left + round(width)]


def assert_shows(tile: Tile, sheets: list[Sheet], colour: np.ndarray) -> None:
    """Hardly changed by JPEG, and nothing of a neighbour but a trace of its colour along the edge."""
    away = np.abs(seen(tile, sheets) - colour)
    assert away[1:-1, 1:-1].max() < 12
    assert away.mean() < 4


@pytest.mark.parametrize("groups", [[[0]], [[3, 1, 2], [0]], [list(range(13)), list(range(13, 20))]])
def test_every_image_is_where_its_tile_says(groups: list[list[int]]) -> None:
    table, colours = plain(20)
    sheets, tile_of = draw_sheets(table, groups, 1_000_000)
    assert sorted(tile_of) == sorted(row for group in groups for row in group)
    for row, tile in tile_of.items():
        assert_shows(tile, sheets, colours[row])


def test_a_large_group_has_several_sheets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheets_module, "MOST_TILES", 4)
    table, colours = plain(11)
    sheets, tile_of = draw_sheets(table, [list(range(10)), [10]], 1_000_000)
    assert [tile_of[row].sheet for row in range(11)] == [0] * 4 + [1] * 4 + [2] * 2 + [3]
    for row, tile in tile_of.items():
        assert_shows(tile, sheets, colours[row])


def test_sheets_are_numbered_from_the_first() -> None:
    table, _ = plain(4)
    _, tile_of = draw_sheets(table, [[0, 1], [2, 3]], 1_000_000, first=7)
    assert [tile_of[row].sheet for row in range(4)] == [7, 7, 8, 8]


@pytest.mark.parametrize("allowed", [2_000, 20_000, 200_000])
def test_the_bytes_allowed_are_never_exceeded_and_well_used(allowed: int) -> None:
    sheets, _ = draw_sheets(noise(40, 128), [list(range(30)), list(range(30, 40))], allowed)
    spent = sum(len(sheet.jpeg) for sheet in sheets)
    assert allowed / 5 < spent <= allowed


def test_a_sample_that_is_easier_than_the_rest_does_not_break_the_promise() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (480, 64, 64, 3), dtype=np.uint8)
    pixels[::10] = 0  # exactly the images by which the size is chosen
    table = table_of_pixels("x", pixels, [""] * len(pixels))
    sheets, _ = draw_sheets(table, [list(range(480))], 300_000)
    assert len(sheets[0].jpeg) <= 300_000


def test_small_images_are_not_enlarged_and_large_ones_bounded() -> None:
    for side, expected in ((20, 32), (33, 48), (900, SIDES[0])):
        table, _ = plain(3, side)
        sheets, tile_of = draw_sheets(table, [[0, 1, 2]], 10_000_000)
        assert seen(tile_of[0], sheets).shape == (expected, expected, 3)


def test_vanished_images_have_no_tile() -> None:
    table, colours = plain(5)

    def open_some(row: int) -> Image.Image:
        if row in (0, 3):
            raise BadImage("file not found")
        return table.open(row)

    sheets, tile_of = draw_sheets(replace(table, open=open_some), [[0, 1, 2], [3]], 100_000)
    assert sorted(tile_of) == [1, 2]
    assert_shows(tile_of[2], sheets, colours[2])
    assert len(sheets) == 2


def test_files_of_any_shape_become_squares_of_their_middle(tmp_path: Path) -> None:
    wide = Image.new("RGB", (3000, 1000), "red")
    wide.paste("blue", (1000, 0, 2000, 1000))
    wide.save(tmp_path / "wide.jpg")
    Image.new("CMYK", (40, 90)).save(tmp_path / "cmyk.jpg")
    table = table_below(tmp_path, ["wide.jpg", "cmyk.jpg"], [None, None])
    sheets, tile_of = draw_sheets(table, [[0], [1]], 100_000)
    assert np.abs(seen(tile_of[0], sheets).mean(axis=(0, 1)) - [0, 0, 255]).max() < 12
    assert np.abs(seen(tile_of[1], sheets) - 255).max() < 12


def test_no_images_no_sheets() -> None:
    assert draw_sheets(plain(1)[0], [], 1000) == ([], {})
