"""Detections of MegaDetector and annotations in COCO's form as data, also such as a stranger may have made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from conftest import save_image
from newkinds.data import load_table, source_of
from newkinds.data.table import Table, readable
from newkinds.errors import NewkindsError
from newkinds.runs.config import resolve

CATEGORIES = {"1": "animal", "2": "person", "3": "vehicle"}


def write(file: Path, content: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return file


def load(file: Path, **settings: Any) -> Table:
    return readable(load_table(resolve({"data": {**source_of(file), **settings}}).data), contents=True)


def found(category: str, conf: float, *bbox: float) -> dict[str, Any]:
    return {"category": category, "conf": conf, "bbox": list(bbox)}


@pytest.fixture
def detections(tmp_path: Path) -> Path:
    """Of photos of 100×50 pixels."""
    for name in ("a.jpg", "b.jpg", "c/d.jpg", "nothing.jpg"):
        save_image(tmp_path / name, size=(100, 50))
    exif = Image.Exif()
    exif[0x0112] = 6
    with Image.open(tmp_path / "c" / "d.jpg") as image:
        image.copy().save(tmp_path / "c" / "d.jpg", exif=exif)  # 50 wide and 100 high
    images = [
        {"file": "a.jpg", "detections": [found("1", 0.9, 0.1, 0.2, 0.5, 0.4), found("1", 0.25, 0.5, 0, 0.5, 1)]},
        {"file": "b.jpg", "detections": [found("2", 0.9, 0, 0, 0.5, 0.5), found("1", 0.1, 0, 0, 1, 1)]},
        {"file": "c/d.jpg", "detections": [found("1", 0.2, 0.5, 0.5, 0.5, 0.5)]},
        {"file": "nothing.jpg", "detections": []},
        {"file": "broken.jpg", "failure": "Failure image access", "detections": None},
        {"file": "gone.jpg", "detections": [found("1", 0.9, 0, 0, 1, 1)]},
    ]
    return write(tmp_path / "md.json", {"images": images, "detection_categories": CATEGORIES, "info": {}})


def test_megadetector_gives_a_box_per_animal(detections: Path) -> None:
    assert source_of(detections)["name"] == "megadetector"
    table = load(detections)
    boxes = ["a.jpg#xywh=10,10,50,20", "a.jpg#xywh=50,0,50,50", "c/d.jpg#xywh=25,50,25,50"]
    assert table.paths == boxes
    assert table.labels == [None] * 3
    assert [table.open(row).size for row in range(3)] == [(50, 20), (50, 50), (25, 50)]
    reasons = {skipped.path: skipped.reason for skipped in table.skipped}
    assert reasons == {"broken.jpg": "MegaDetector: Failure image access", "gone.jpg": "file not found"}
    assert load(detections, min_confidence=0.5).paths == boxes[:1]
    assert load(detections, objects=["person"]).paths == ["b.jpg#xywh=0,0,50,25"]
    with pytest.raises(NewkindsError, match=r"is 'animals' \(data.objects\).*animal"):
        load(detections, objects=["animals"])


def test_labels_of_photos_are_those_of_their_boxes(detections: Path) -> None:
    labels = write(detections.with_name("labels.csv"), "path,label\na.jpg,lynx\nc/d.jpg,unknown\n")
    assert load(detections, labels=str(labels)).labels == ["lynx", "lynx", None]


def test_another_root_and_the_list_with_corners(detections: Path, tmp_path: Path) -> None:
    boxes = [{"category": "animal", "confidence": 0.93, "bbox": [10, 10, 60, 30]}]
    entries = [{"file": "a.jpg", "detections": boxes}, {"file": "b.jpg", "detections": []}]
    elsewhere = write(tmp_path / "other" / "list.json", entries)
    table = load(elsewhere, root=str(tmp_path))
    assert table.paths == ["a.jpg#xywh=10,10,50,20"]
    assert table.file(0) == tmp_path / "a.jpg"


@pytest.fixture
def coco(tmp_path: Path) -> dict[str, Any]:
    for name in ("a.png", "b.png", "c.png"):
        save_image(tmp_path / "images" / name, size=(40, 30))
    sizes = {"width": 40, "height": 30}
    return {
        "images": [{"id": 1, "file_name": "a.png", **sizes}, {"id": 2, "file_name": "b.png", **sizes},
                   {"id": "x", "file_name": "c.png"}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 7, "bbox": [0, 0, 10, 10], "iscrowd": 0},
            {"id": 2, "image_id": 1, "category_id": 8, "bbox": [9.6, 5, 20, 12]},
            {"id": 3, "image_id": 2, "category_id": 7, "bbox": [0, 0, 40, 30]},
            {"id": 4, "image_id": 2, "bbox": [3, 4, 9, 9]},
            {"id": 5, "image_id": 2, "category_id": 7, "bbox": [1, 1, 20, 20], "iscrowd": 1},
        ],
        "categories": [{"id": 7, "name": "cat"}, {"id": 8, "name": "unlabeled"}],
    }  # fmt: skip


def test_coco_gives_a_labelled_item_per_annotation(coco: dict[str, Any], tmp_path: Path) -> None:
    table = load(write(tmp_path / "coco.json", coco))
    assert dict(zip(table.paths, table.labels, strict=True)) == {
        "images/a.png#xywh=0,0,10,10": "cat",
        "images/a.png#xywh=10,5,20,12": None,
        "images/b.png": "cat",
        "images/b.png#xywh=3,4,9,9": None,
    }
    assert table.skipped == []


def test_camera_traps_have_sequences_and_no_boxes(coco: dict[str, Any], tmp_path: Path) -> None:
    for one in coco["annotations"]:
        del one["bbox"]
    coco["annotations"] = coco["annotations"][:1]
    coco["images"][0]["seq_id"] = coco["images"][1]["seq_id"] = "night 1"
    table = load(write(tmp_path / "cct.json", coco))
    assert table.labels == ["cat", None, None]
    assert table.groups == ["night 1", "night 1", None]


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "{}", "7", '"images"', "\ufeff\ufeff{}", "[" * 100_000, '{"images":' * 100_000, '{"images": {}}',
        '{"images": [], "annotations": []}', '{"images": [1, null, []], "annotations": [2]}', "9" * 5000,
        '[{"file": 3, "detections": [[]]}]', '{"images": [{"detections": {"a": 1}}]}',
    ],
)  # fmt: skip
def test_hostile_lists_are_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    file = write(tmp_path / "list.json", text)
    with pytest.raises(NewkindsError, match=r"list\.json"):
        load(file)


@pytest.mark.parametrize(
    "bbox",
    ["1e999", "NaN", "-5", "1" * 400, "true", "null", '"3"', "[1]", "{}", "1e300"],
)  # fmt: skip
def test_hostile_numbers_leave_out_one_box(coco: dict[str, Any], tmp_path: Path, bbox: str) -> None:
    text = json.dumps(coco).replace("[3, 4, 9, 9]", f"[3, 4, {bbox}, 9]")
    table = load(write(tmp_path / "coco.json", text))
    assert len(table) == 3
    assert [skipped.path for skipped in table.skipped] == ["images/b.png"]
    boxes = (
        f'{{"conf": 1, "category": 1, "bbox": [0, 0, {bbox}, 1]}}, {{"conf": 1, "category": 1, "bbox": [0, 0, 1, 1]}}'
    )
    text = f'{{"images": [{{"file": "images/a.png", "detections": [{boxes}]}}], "detection_categories": {{}}}}'
    assert load(write(tmp_path / "md.json", text)).paths == ["images/a.png#xywh=0,0,40,30"]


@pytest.mark.parametrize("name", ["../outside.png", "a\0b.png", "x" * 5000, "\ud800.png", "/dev/zero", ".", "images"])
def test_hostile_names_are_skipped_or_are_files(coco: dict[str, Any], tmp_path: Path, name: str) -> None:
    """As in a CSV file, a path may lead to a picture anywhere; what is none is skipped."""
    coco["images"][0]["file_name"] = "images/a.png"
    coco["images"][1]["file_name"] = name
    root = tmp_path / "inner"
    root.mkdir()
    (tmp_path / "images").rename(root / "images")
    save_image(tmp_path / "outside.png", size=(40, 30))
    table = load(write(root / "coco.json", coco))
    names = {path.partition("#")[0] for path in table.paths}
    assert names == ({"images/a.png", name} if name.startswith("..") else {"images/a.png"})
    assert len(table.skipped) == (0 if name.startswith("..") else 2)
