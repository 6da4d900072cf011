"""Copies of the published data sets with something missing, damaged or of another kind are refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from layouts import (
    car_names,
    car_rows,
    lay_out_aircraft,
    lay_out_cars,
    lay_out_cub,
    lay_out_herbarium,
    lay_out_imagenet,
    lay_out_repackaged_cars,
    load,
    put,
    save_annotations,
)
from newkinds.data.published import load_test_images
from newkinds.data.table import readable
from newkinds.errors import NewkindsError


def replace_line(file: Path, line: int, text: str | None) -> None:
    lines = file.read_text().splitlines()
    lines[line - 1 : line] = [] if text is None else [text]
    file.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("file", "line", "text", "message"),
    [
        ("images.txt", 5, "broken", r"images\.txt line 5 is not a number and a text"),
        ("images.txt", 5, "² 002.Bird_2/Bird_2_1.jpg", r"images\.txt line 5 is not a number and a text"),
        ("images.txt", 5, f"{'9' * 5000} a.jpg", r"images\.txt line 5 is not a number and a text"),
        ("images.txt", 6, "5 001.Bird_1/Bird_1_0.jpg", r"images\.txt line 6 repeats the number 5 of line 5"),
        ("images.txt", 6, "6 002.Bird_2/Bird_2_1.jpg", r"images\.txt line 6 names .* as images\.txt line 5 does"),
        ("images.txt", 6, "6 003.Bird_3/Bird_3_1.jpg", r"labels\.txt line 6 gives the class 002.*images\.txt line 6"),
        ("image_class_labels.txt", 8, "8 999", r"image_class_labels\.txt line 8 gives the class '999'"),
        ("image_class_labels.txt", 8, "8 ²", r"image_class_labels\.txt line 8 gives the class '²'"),
        ("image_class_labels.txt", 8, None, r"image_class_labels\.txt does not list image 8 \(images\.txt line 8\)"),
        ("train_test_split.txt", 8, "8 2", r"train_test_split\.txt line 8 says '2'"),
        ("classes.txt", 200, None, "which classes.txt does not have"),
    ],
)
def test_damaged_cub(tmp_path: Path, file: str, line: int, text: str | None, message: str) -> None:
    folder = lay_out_cub(tmp_path)
    replace_line(folder / file, line, text)
    with pytest.raises(NewkindsError, match=message):
        load("cub", tmp_path)


def test_an_index_that_is_gone_or_no_text(tmp_path: Path) -> None:
    folder = lay_out_cub(tmp_path)
    (folder / "classes.txt").write_bytes(b"1 001.Bird_1\n\xff\xfe\x00")
    with pytest.raises(NewkindsError, match=r"classes\.txt line 2 is not text"):
        load("cub", tmp_path)
    (folder / "classes.txt").unlink()
    with pytest.raises(NewkindsError, match=r"cannot read .*classes\.txt: No such file"):
        load("cub", tmp_path)


def test_an_index_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    folder = lay_out_cub(tmp_path)
    before = load("cub", tmp_path).fingerprint()
    for name in ("images.txt", "classes.txt"):
        put(folder / name, b"\xef\xbb\xbf" + (folder / name).read_bytes())
    assert load("cub", tmp_path).fingerprint() == before
    put(folder / "images.txt", b"\xef\xbb\xbf1 a.jpg\n\xff")
    with pytest.raises(NewkindsError, match=r"images\.txt line 2 is not text"):
        load("cub", tmp_path)


def test_another_number_of_classes_is_another_data_set(tmp_path: Path) -> None:
    lay_out_cub(tmp_path, classes=199)
    with pytest.raises(NewkindsError, match="has 199 classes, but CUB-200-2011 has 200"):
        load("cub", tmp_path)


def test_images_the_index_names_in_vain_are_passed_over_with_the_line(tmp_path: Path) -> None:
    folder = lay_out_cub(tmp_path)
    (folder / "images/001.Bird_1/Bird_1_2.jpg").unlink()
    put(folder / "images/002.Bird_2/Bird_2_1.jpg", b"\xff\xd8 cut")
    whole = load("cub", tmp_path)
    table = readable(whole)
    reasons = {skipped.path: skipped.reason for skipped in table.skipped}
    assert reasons["images/001.Bird_1/Bird_1_2.jpg"] == "file not found (images.txt line 3)"
    assert "images.txt line 5" in reasons["images/002.Bird_2/Bird_2_1.jpg"]
    kept = dict(zip(table.paths, table.labels, strict=True))
    assert all(kept[path] == label for path, label in zip(whole.paths, whole.labels, strict=True) if path in kept)


def test_damaged_aircraft(tmp_path: Path) -> None:
    folder = lay_out_aircraft(tmp_path)
    index = folder / "images_variant_trainval.txt"
    replace_line(index, 4, "1000003 Zeppelin")
    with pytest.raises(NewkindsError, match=r"trainval\.txt line 4 gives the variant 'Zeppelin'"):
        load("aircraft", tmp_path)
    replace_line(index, 4, "1000003")
    with pytest.raises(NewkindsError, match=r"trainval\.txt line 4 gives the variant ''"):
        load("aircraft", tmp_path)
    index.write_text("".join(index.read_text().splitlines(keepends=True)[5:90]))  # cut
    with pytest.raises(NewkindsError, match=r"no training image of \d+ class"):
        load("aircraft", tmp_path)


def test_damaged_cars(tmp_path: Path) -> None:
    folder = lay_out_cars(tmp_path)
    annotations = folder / "devkit" / "cars_train_annos.mat"
    whole = annotations.read_bytes()
    annotations.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(NewkindsError, match=r"cars_train_annos\.mat is damaged"):
        load("cars", tmp_path)
    save_annotations(annotations, [{"class": 1, "bbox_x1": 0}])
    with pytest.raises(NewkindsError, match=r"cars_train_annos\.mat have no 'fname'"):
        load("cars", tmp_path)
    save_annotations(annotations, [{"fname": "a.jpg", "class": 1}, {"fname": "b.jpg", "class": 197}])
    with pytest.raises(NewkindsError, match=r"cars_train_annos\.mat entry 2 gives the class 197"):
        load("cars", tmp_path)
    rows = [{"fname": f"{i}.jpg", "class": row["class"]} for i, row in enumerate(car_rows()) if row["class"] != 7]
    save_annotations(annotations, rows)
    with pytest.raises(NewkindsError, match=r"no training image of 1 class.*'Car 7'"):
        load("cars", tmp_path)
    (folder / "devkit" / "cars_meta.mat").unlink()
    with pytest.raises(NewkindsError, match=r"no devkit/cars_meta\.mat or cars_meta\.mat in"):
        load("cars", tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("class", "7", "the class '7', which is not a whole number"),
        ("class", [1, 2], r"the class array\(\[1, 2\]\), which is not a whole number"),
        ("class", [], r"the class array\(\[\].*, which is not a whole number"),
        ("class", 2.5, "the class 2.5, which is not a whole number"),
        ("class", float("nan"), "the class nan, which is not a whole number"),
        ("class", 197.0, "the class 197, but there are 196 classes"),
        ("test", "no", "the test 'no', which is not a whole number"),
        ("bbox_x2", 1e300, r"the bbox_x2 1e\+300, which is not a whole number"),
        ("relative_im_path", 7, "the relative_im_path 7, which is not a text"),
    ],
)
def test_annotations_of_cars_that_are_of_another_kind(tmp_path: Path, field: str, value: object, said: str) -> None:
    folder = lay_out_repackaged_cars(tmp_path)
    rows = [{"relative_im_path": f"car_ims/{i:06d}.jpg", **row} for i, row in enumerate(car_rows(), start=1)]
    damaged = next(i for i, row in enumerate(rows) if i > 5 and not row["test"])
    assert any(row["test"] for row in rows[:damaged])  # entries are counted in the file, not among training images
    rows[damaged][field] = value
    save_annotations(folder / "cars_annos.mat", rows, class_names=car_names())
    with pytest.raises(NewkindsError, match=rf"cars_annos\.mat entry {damaged + 1} gives {said}"):
        load("cars", tmp_path)


def test_whole_numbers_of_cars_may_be_floating_point_ones(tmp_path: Path) -> None:
    folder = lay_out_cars(tmp_path)
    before = load("cars", tmp_path).fingerprint()
    rows = [{**row, "class": float(str(row["class"]))} for row in car_rows() if not row["test"]]
    rows = [{**row, "fname": f"{i:05d}.jpg"} for i, row in enumerate(rows, start=1)]
    save_annotations(folder / "devkit" / "cars_train_annos.mat", rows)
    assert load("cars", tmp_path).fingerprint() == before


def test_class_folders_that_do_not_match_the_list(tmp_path: Path) -> None:
    imagenet, herbarium = lay_out_imagenet(tmp_path), lay_out_herbarium(tmp_path)
    for file in (imagenet / "train" / "n01443537").iterdir():
        file.unlink()
    with pytest.raises(NewkindsError, match=r"no training image of 1 class.*n01443537"):
        load("imagenet100", tmp_path)
    (imagenet / "train" / "n01443537").rmdir()
    with pytest.raises(NewkindsError, match="lacks 1 of the 100 class folders, the first is n01443537"):
        load("imagenet100", tmp_path)
    put(herbarium / "small-train" / "plant" / "a.jpg")
    with pytest.raises(NewkindsError, match="has 684 classes, but Herbarium 19 has 683"):
        load("herbarium19", tmp_path)
    put(herbarium / "small-validation" / "moss" / "a.jpg")
    with pytest.raises(NewkindsError, match="has a class folder moss, which small-train does not have"):
        load_test_images("herbarium19", str(tmp_path))
