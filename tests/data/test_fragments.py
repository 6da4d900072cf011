"""Boxes and frames as parts of files: their names, how people write them, and what is opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from newkinds.data import load_table, source_of
from newkinds.data.fragments import WHOLE, Box, Part, box_of, find_part, read_box, split_name
from newkinds.data.headers import upright_size
from newkinds.data.images import MOST_KEPT, BadImage
from newkinds.data.parts import open_part
from newkinds.data.table import readable


@pytest.fixture
def photo(tmp_path: Path) -> np.ndarray:
    """`photo.png` of 60×40 pixels, of which no two are alike; its pixels."""
    pixels = np.stack(np.broadcast_arrays(*np.ogrid[0:40, 0:60], 7), -1).astype(np.uint8) * 4  # (40, 60, 3)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    return pixels


@pytest.mark.parametrize(
    ("name", "file", "part"),
    [
        ("a/p.jpg#xywh=10,20,30,40", "a/p.jpg", Part(box=Box(10, 20, 30, 40))),
        ("c.mp4#t=1.5", "c.mp4", Part(time=1.5)),
        ("c.mp4#t=12&xywh=1,2,3,4", "c.mp4", Part(12.0, Box(1, 2, 3, 4))),
        ("a#1.jpg#xywh=0,0,5,5", "a#1.jpg", Part(box=Box(0, 0, 5, 5))),
        ("a\nb.jpg#t=0", "a\nb.jpg", Part(time=0.0)),
    ],
)
def test_names_are_read_and_written(name: str, file: str, part: Part) -> None:
    assert split_name(name) == (file, part)
    assert f"{file}{part}" == name


@pytest.mark.parametrize(
    "name",
    [
        "p.jpg", "p#1.jpg", "#", "p.jpg#", "p.jpg#xywh=1,2,3", "p.jpg#xywh=-1,2,3,4", "p.jpg#t=", "p.jpg#t=1&",
        "p.jpg#xywh=1,2,3,4\n", "p.jpg#xywh=1,2,3,4&t=1", "p.jpg#xywh=1.5,2,3,4", "p.jpg#xywh=111111111,2,3,4",
    ],
)  # fmt: skip
def test_what_is_no_fragment_belongs_to_the_name(name: str) -> None:
    assert split_name(name) == (name, WHOLE)


def test_a_file_that_is_really_called_so_is_meant_itself(tmp_path: Path) -> None:
    name = "p.jpg#xywh=1,2,3,4"
    assert find_part(tmp_path, name) == (tmp_path / "p.jpg", Part(box=Box(1, 2, 3, 4)))
    (tmp_path / name).write_bytes(b"")
    assert find_part(tmp_path, name) == (tmp_path / name, WHOLE)


@pytest.mark.parametrize(
    "text", ["10,20,30,40", "10 20 30 40", "[10, 20, 30, 40]", "(10; 20;30; 40)", "9.6,20.2,30,40"]
)
def test_boxes_as_people_write_them(text: str) -> None:
    assert read_box(text) == Box(10, 20, 30, 40)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10,20,30", "is not x, y, width, height"),
        ("left", "is not x, y, width, height"),
        ("1,2,0,4", "has no size"),
        ("1,2,-3,4", "has no size"),
        ("nan,2,3,4", "no pixels"),
        ("1,2,1e999,4", "no pixels"),
        ("1,2,3e9,4", "no pixels"),
        ("-50,2,30,4", "lies outside the image"),
        ("0.1,0.2,0.3,0.3", "not shares"),
        ("10,20,0.3,7", "smaller than a pixel"),
    ],
)
def test_boxes_that_are_none_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_box(text)


def test_what_lies_left_of_the_image_is_cut_off() -> None:
    assert box_of(-5, -7, 10, 10) == Box(0, 0, 5, 3)
    assert Box(50, 30, 20, 20).inside(60, 40) == Box(50, 30, 10, 10)
    assert Box(60, 0, 5, 5).inside(60, 40) is None


def test_a_box_is_cut_out_of_the_photo(tmp_path: Path, photo: np.ndarray) -> None:
    opened = open_part(tmp_path / "photo.png", Part(box=Box(10, 20, 30, 9)))
    assert np.array_equal(np.asarray(opened), photo[20:29, 10:40])
    beyond = open_part(tmp_path / "photo.png", Part(box=Box(50, 30, 999, 999)))
    assert np.array_equal(np.asarray(beyond), photo[30:, 50:])


@pytest.mark.parametrize(
    ("box", "why"),
    [((60, 0, 5, 5), r"outside the image \(60×40 pixels\)"), ((1, 1, 0, 5), "no size"), ((1, 1, 2, 30), "too small")],
)
def test_a_box_without_a_picture(tmp_path: Path, photo: np.ndarray, box: tuple[int, ...], why: str) -> None:
    with pytest.raises(BadImage, match=why):
        open_part(tmp_path / "photo.png", Part(box=Box(*box)))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["png", "tif"])
def test_boxes_are_those_of_the_upright_photo(tmp_path: Path, photo: np.ndarray, orientation: int, ending: str) -> None:
    file, exif = tmp_path / f"turned.{ending}", Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(photo).save(file, exif=exif)
    upright = np.asarray(open_part(file))
    assert upright_size(file) == (upright.shape[1], upright.shape[0])
    assert (upright.shape[0] > upright.shape[1]) == (orientation > 4)
    part = np.asarray(open_part(file, Part(box=Box(3, 5, 20, 11))))
    assert np.array_equal(part, upright[5:16, 3:23])


def test_boxes_of_a_large_jpeg_are_in_its_own_pixels(tmp_path: Path) -> None:
    """An image of more than 2 × 2,048 pixels a side is decoded at a half; a box in it is not."""
    large = Image.new("RGB", (5000, 4200), "white")
    large.paste((200, 0, 0), (4000, 4000, 4080, 4060))
    large.save(tmp_path / "large.jpg", quality=95)
    part = open_part(tmp_path / "large.jpg", Part(box=Box(4000, 4000, 80, 60)), enough=32)
    assert part.size == (80, 60)
    assert np.asarray(part)[4:-4, 4:-4].mean((0, 1)) == pytest.approx([200, 0, 0], abs=6)


def test_boxes_of_what_is_averaged_are_found_in_it(tmp_path: Path) -> None:
    side = int(MOST_KEPT**0.5) + 200
    huge = Image.new("L", (side, side), 255)
    huge.paste(30, (side - 101, side - 201, side - 1, side - 1))
    huge.save(tmp_path / "huge.png", compress_level=1)
    part = open_part(tmp_path / "huge.png", Part(box=Box(side - 99, side - 199, 98, 196)))
    assert part.size in [(49, 98), (50, 98), (50, 99), (49, 99)]
    assert np.asarray(part)[1:-1, 1:-1].max() == 30


def test_a_list_of_boxes(tmp_path: Path, photo: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "list.csv"
    rows = [
        'photo.png,a,"0,0,10,10",one', 'photo.png,,"[20, 5, 12, 10]",one', "photo.png,b,,nan",
        'photo.png,,"50,30,33,20",', 'photo.png,,"70,0,5,5",', 'photo.png,,"1,1,0,9",', "photo.png,,somewhere,",
        'photo.png,,"0 0 10 10",', '"photo.png#xywh=1,2,8,8",,,', '"photo.png#xywh=1,2,8,8",,"3,3,8,8",',
    ]  # fmt: skip
    file.write_text("path,label,box,group\n" + "\n".join(rows) + "\n", "utf-8")
    table = readable(load_table(source_of(file)), contents=True)
    crops = ["0,0,10,10", "20,5,12,10", "", "50,30,33,20", "1,2,8,8"]
    assert table.paths == [f"photo.png#xywh={box}" if box else "photo.png" for box in crops]
    assert table.labels == ["a", None, "b", None, None]
    assert table.groups == ["one", "one", None, None, None]
    assert table.group_numbers().tolist() == [0, 0, 2, 3, 4]
    assert {table.file(row) for row in range(5)} == {tmp_path / "photo.png"}
    sizes = [(seen.facts.width, seen.facts.height) for seen in table.seen]
    assert sizes == [(10, 10), (12, 10), (60, 40), (10, 10), (8, 8)]
    assert len(set(table.contents)) == 5
    reasons = {(skipped.path, skipped.reason) for skipped in table.skipped}
    assert reasons == {
        ("photo.png", "line 7: the box 1, 1, 0, 9 has no size"),
        ("photo.png", "line 8: the box 'somewhere' is not x, y, width, height"),
        ("photo.png#xywh=0,0,10,10", "line 9 repeats line 2"),
        ("photo.png#xywh=1,2,8,8", "line 11: the box is 1,2,8,8 in the path and 3,3,8,8 in its own column"),
        ("photo.png#xywh=70,0,5,5", "the box 70,0,5,5 lies outside the image (60×40 pixels)"),
    }
    assert "1 box reaches beyond the image" in capsys.readouterr().err
    kept = table.rows([3, 1])
    assert kept.groups == [None, "one"]
    assert kept.part_of(1) == Part(box=Box(20, 5, 12, 10))
    assert kept.open_small(1, 4).size == (12, 10)


def test_ten_thousand_boxes_in_one_photo(tmp_path: Path, photo: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    from newkinds.data import parts

    decoded = []
    monkeypatch.setattr(parts, "open_full", lambda file, real=parts.open_full: decoded.append(file) or real(file))
    lines = [f'photo.png,,"{x},{y},{w},8"' for x in range(25) for y in range(20) for w in range(8, 28)]
    (tmp_path / "list.csv").write_text("path,label,box\n" + "\n".join(lines), "utf-8")
    table = readable(load_table(source_of(tmp_path / "list.csv")), contents=True)
    assert len(table) == len(set(table.paths)) == 10_000
    assert len(decoded) == 1, "by several threads at once"
