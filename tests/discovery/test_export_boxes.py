"""Exports of a run whose images are boxes in photos: the photo once with all its boxes, or each box as a picture."""

import contextlib
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import newkinds
from conftest import save_image
from exporting import run_of, table
from newkinds import Discovery
from newkinds.data import load_table, source_of
from newkinds.runs.directory import IMAGES, RunDirectory

BOXES = {"a.png": ["0,0,20,10", "30,5,50,12", "10,20,8,8"], "turned.jpg": ["5,30,10,12"]}  # the second sticks out
PATHS = [f"{file}#xywh={box}" for file, boxes in BOXES.items() for box in boxes]
WHOLE = "b.png"
CATEGORIES = [0, 2, 1, 2, 1]
NAMES = ["cat", "dog", "new-1"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 60, 3), np.uint8)
    (tmp_path / "photos").mkdir()
    Image.fromarray(pixels).save(tmp_path / "photos" / "a.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side: 40 wide and 60 high
    Image.fromarray(pixels).resize((60, 40)).save(tmp_path / "photos" / "turned.jpg", exif=exif, quality=95)
    save_image(tmp_path / "photos" / WHOLE, size=(24, 18))
    listed = "path,label\n" + "".join(f'"{path}",\n' for path in [*PATHS, WHOLE])
    (tmp_path / "photos" / "list.csv").write_text(listed, "utf-8")
    made = run_of(source_of(tmp_path / "photos" / "list.csv"), tmp_path / "run", [*PATHS, WHOLE], CATEGORIES, NAMES)
    groups = [[path, "one" if path.startswith("a") else ""] for path in [*PATHS, WHOLE]]
    RunDirectory(made).write_table(IMAGES, ("path", "stamp", "content", "group"), [[p, "", "", g] for p, g in groups])
    found = Discovery.read(made)
    found.move([PATHS[2]], "owl", new=True)
    return made


def test_coco_has_each_photo_once_with_its_boxes(run: Path) -> None:
    coco = pytest.importorskip("pycocotools.coco", reason="pycocotools is not installed (the extra dev has it)")
    newkinds.export(run, "coco", run.parent / "coco")
    with contextlib.redirect_stdout(io.StringIO()):
        data = coco.COCO(run.parent / "coco" / "annotations.json")
    images = {image["path"]: image for image in data.loadImgs(data.getImgIds())}
    assert set(images) == {"a.png", "turned.jpg", "b.png"}
    assert len(list((run.parent / "coco" / "images").iterdir())) == 3
    own = data.loadAnns(data.getAnnIds(imgIds=images["a.png"]["id"]))
    assert [one["bbox"] for one in own] == [[0, 0, 20, 10], [30, 5, 30, 12], [10, 20, 8, 8]]
    assert [data.loadCats(one["category_id"])[0]["name"] for one in own] == ["cat", "new-1", "owl"]
    assert [one["path"] for one in own] == PATHS[:3]
    turned = images["turned.jpg"]
    assert (turned["width"], turned["height"]) == (40, 60)
    with Image.open(run.parent / "coco" / "images" / turned["file_name"]) as upright:
        assert upright.size == (40, 60)
        assert upright.getexif().get(0x0112, 1) == 1
    [whole] = data.loadAnns(data.getAnnIds(imgIds=images["b.png"]["id"]))
    assert whole["bbox"] == [0, 0, 24, 18]


def test_label_studio_gets_rectangles(run: Path) -> None:
    out = run.parent / "label-studio"
    newkinds.export(run, "label-studio", out)
    tasks = {task["data"]["path"]: task for task in json.loads((out / "tasks.json").read_text("utf-8"))}
    interface = ElementTree.fromstring((out / "config.xml").read_text("utf-8"))
    [labels], [choices] = interface.findall("RectangleLabels"), interface.findall("Choices")
    assert [label.get("value") for label in labels] == [choice.get("value") for choice in choices]
    [prediction] = tasks["a.png"]["predictions"]
    assert [region["value"]["rectanglelabels"] for region in prediction["result"]] == [["cat"], ["new-1"], ["dog"]]
    second = prediction["result"][1]
    assert (second["from_name"], second["to_name"], second["type"]) == (labels.get("name"), "image", "rectanglelabels")
    assert (second["original_width"], second["original_height"]) == (60, 40)
    place = [second["value"][name] for name in ("x", "y", "width", "height")]
    assert place == pytest.approx([50, 12.5, 50, 30])
    [annotation] = tasks["a.png"]["annotations"]
    [moved] = annotation["result"]
    assert moved["value"]["rectanglelabels"] == ["owl"]
    [whole] = tasks["b.png"]["predictions"]
    assert whole["result"][0]["value"] == {"choices": ["dog"]}


def test_fiftyone_gets_detections(run: Path) -> None:
    out = run.parent / "fiftyone"
    newkinds.export(run, "fiftyone", out)
    content = json.loads((out / "labels.json").read_text("utf-8"))
    assert {sample: len(found) for sample, found in content["labels"].items()} == {"a": 3, "b": 1, "turned": 1}
    assert content["labels"]["a"][1]["bounding_box"] == pytest.approx([0.5, 0.125, 0.5, 0.3])
    assert content["labels"]["b"][0]["bounding_box"] == [0, 0, 1, 1]
    assert content["classes"][content["labels"]["a"][2]["label"]] == "owl"


@pytest.mark.parametrize("to", ["folders", "imagefolder"])
def test_each_box_is_a_picture_of_its_own(run: Path, to: str) -> None:
    out = run.parent / to
    newkinds.export(run, to, out, files="symlink")
    listed = {row["path"]: row for row in table(out / "images.csv")}
    assert set(listed) == {*PATHS, WHOLE}
    originals = load_table(source_of(run.parent / "photos" / "list.csv"))
    for row, path in enumerate(originals.paths):
        with Image.open(out / listed[path]["file"]) as picture:
            assert np.array_equal(np.asarray(picture.convert("RGB")), np.asarray(originals.open(row)))
    assert (out / listed[WHOLE]["file"]).is_symlink()


def test_the_table_has_boxes_and_groups_and_can_be_read_again(run: Path) -> None:
    newkinds.export(run, "csv", run.parent / "photos" / "found.csv")
    rows = table(run.parent / "photos" / "found.csv")
    assert [row["box"] for row in rows] == [*BOXES["a.png"], *BOXES["turned.jpg"], ""]
    assert [row["group"] for row in rows] == ["one", "one", "one", "", ""]
    text = (run.parent / "photos" / "found.csv").read_text("utf-8").replace("given_label", "label")
    (run.parent / "photos" / "again.csv").write_text(text, "utf-8")
    again = load_table(source_of(run.parent / "photos" / "again.csv"))
    assert again.paths == [*PATHS, WHOLE]
    assert again.groups == ["one", "one", "one", None, None]
