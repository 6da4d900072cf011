"""Groups by the times that cameras write into photos, and times that are nonsense."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from PIL import Image

from conftest import save_image
from newkinds.data import load_table, source_of
from newkinds.data.bursts import group_photos, read_shot
from newkinds.data.folder import read_folder
from newkinds.errors import NewkindsError

NOON = "2026:05:01 12:00:"


def photo(
    file: Path, taken: str | bytes | None, fraction: str = "", camera: str = "Trap 3000", tag: int = 0x9003
) -> None:
    """A photo with a time (and the fraction of its second), as cameras write it."""
    save_image(file)
    exif = Image.Exif()
    exif[0x0110] = camera
    about: dict[int, str | bytes] = {}
    if taken is not None:
        about[tag] = taken
    if fraction:
        about[tag + 0x28E if tag == 0x9003 else 0x9292] = fraction
    exif[0x8769] = about
    with Image.open(file) as image:
        image.copy().save(file, exif=exif)


def test_photos_right_after_each_other_are_a_group(tmp_path: Path) -> None:
    times = {"b.jpg": "00", "a.jpg": "09", "c.jpg": "18", "d.jpg": "29", "e.jpg": "50", "f.jpg": "55"}
    for name, second in times.items():
        photo(tmp_path / "unlabeled" / name, NOON + second)
    table = group_photos(read_folder(str(tmp_path)), "10s")
    found = dict(zip((Path(path).name for path in table.paths), table.groups, strict=True))
    first, last = str(Path("unlabeled") / "b.jpg"), str(Path("unlabeled") / "e.jpg")
    assert found == {"a.jpg": first, "b.jpg": first, "c.jpg": first, "d.jpg": None, "e.jpg": last, "f.jpg": last}


def test_folders_and_cameras_are_apart_and_fractions_count(tmp_path: Path) -> None:
    photo(tmp_path / "x" / "1.jpg", NOON + "00", "05")
    photo(tmp_path / "x" / "2.jpg", NOON + "01", "10")  # 1.05 s later
    photo(tmp_path / "x" / "3.jpg", NOON + "01", camera="another")
    photo(tmp_path / "y" / "4.jpg", NOON + "01")
    photo(tmp_path / "y" / "5.png", NOON + "01", tag=0x9004)
    table = read_folder(str(tmp_path), group_by_time="1s")
    assert table.groups == [None, None, None, *[str(Path("y") / "4.jpg")] * 2]
    assert read_folder(str(tmp_path), group_by_time="1.1s").groups[:2] == [str(Path("x") / "1.jpg")] * 2
    assert read_folder(str(tmp_path)).groups is None, "off by default"


@pytest.mark.parametrize(
    "taken",
    [
        "0000:00:00 00:00:00", "    :  :     :  :  ", "yesterday", "2026:13:45 12:00:00", "1970:01:01 00:00:00",
        (datetime.now() + timedelta(days=400)).strftime("%Y:01:01 00:00:00"), "9999:99:99 99:99:99",
    ],
)  # fmt: skip
def test_nonsense_is_no_time(tmp_path: Path, taken: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("1.jpg", "2.jpg"):
        photo(tmp_path / name, taken)
    photo(tmp_path / "3.jpg", None)
    assert read_folder(str(tmp_path), group_by_time="10s").groups is None
    said = capsys.readouterr().err
    assert ("2 photos have times that cannot be right" in said) == bool(taken.strip(": "))
    assert "no photo says when it was taken" in said


def test_files_without_a_header_have_no_time(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no image")
    assert read_shot(tmp_path / "a.jpg") == read_shot(tmp_path / "gone.jpg") == (None, "", "")


def test_groups_of_a_list_stay_and_boxes_of_one_photo_are_not_one_kind(tmp_path: Path) -> None:
    for number in range(5):
        photo(tmp_path / f"{number}.jpg", NOON + f"0{number}")
    lines = ['0.jpg,a,"0,0,9,9",', '0.jpg,b,"9,9,9,9",', '1.jpg,,"0,0,9,9",', "2.jpg,,,", "3.jpg,,,mine", "4.jpg,,,"]
    (tmp_path / "list.csv").write_text("path,label,box,group\n" + "\n".join(lines), "utf-8")
    table = load_table({**source_of(tmp_path / "list.csv"), "group_by_time": "2s"})
    burst = "1.jpg#xywh=0,0,9,9"
    assert table.groups == [None, None, burst, burst, "mine", burst]


@pytest.mark.parametrize(
    ("within", "why"), [("10", "has no unit: write 10s"), ("soon", "is not a time"), (0, "not a time")]
)
def test_what_is_no_time_is_refused(tmp_path: Path, within: str | float, why: str) -> None:
    save_image(tmp_path / "a.png")
    with pytest.raises(NewkindsError, match=f"--group-by-time {within} {why}|{why}"):
        read_folder(str(tmp_path), group_by_time=within)


def test_a_benchmark_hides_the_labels_of_a_group_together(tmp_path: Path) -> None:
    lines = [f"{kind}{number}.png,{kind},{kind}{number // 3}" for kind in "abcd" for number in range(12)]
    for line in lines:
        save_image(tmp_path / line.partition(",")[0])
    (tmp_path / "list.csv").write_text("path,label,group\n" + "\n".join(lines), "utf-8")
    table = load_table({**source_of(tmp_path / "list.csv"), "known": ["a", "b"], "split_seed": 3})
    kept = {group for group, label in zip(table.groups, table.labels, strict=True) if label is not None}
    hidden = {group for group, label in zip(table.groups, table.labels, strict=True) if label is None}
    assert kept
    assert not kept & hidden
