"""A run of boxes and groups from beginning to end: it is what a run of the cut-out pictures would be."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import newkinds
from newkinds.data.creatures import drawing
from newkinds.discovery.studio.pictures import Pictures
from newkinds.runs.directory import RunDirectory

KINDS, EACH, SIDE = 6, 8, 64


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six kinds of creatures: as pictures of their own (cut/), and on sheets with all eight of a kind (sheets/)."""
    folder = tmp_path_factory.mktemp("items")
    (folder / "cut").mkdir()
    (folder / "sheets").mkdir()
    cut, boxes = [["path", "label", "group"]], [["path", "label", "box", "group"]]
    for number, kind in enumerate(drawing.kinds(KINDS, 5, "evaluated")):
        sheet = Image.new("RGB", (4 * SIDE, 2 * SIDE))
        for one in range(EACH):
            pixels, _ = drawing.draw_creature(kind, np.random.default_rng(100 * number + one), SIDE)
            picture = Image.fromarray(pixels)
            picture.save(folder / "cut" / f"{number}-{one}.png")
            x, y = one % 4 * SIDE, one // 4 * SIDE
            sheet.paste(picture, (x, y))
            label = f"kind {number}" if number < 4 and one < 4 else ""
            group = f"pair {number}" if one in (6, 7) else ""
            cut.append([f"{number}-{one}.png", label, group])
            boxes.append([f"{number}.png", label, f"{x},{y},{SIDE},{SIDE}", group])
        sheet.save(folder / "sheets" / f"{number}.png")
    for name, rows in (("cut", cut), ("sheets", boxes)):
        with open(folder / name / "list.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
    return folder


@pytest.fixture(scope="module")
def runs(places: Path) -> dict[str, Path]:
    for name in ("cut", "sheets"):
        newkinds.discover(
            places / name / "list.csv", places / f"run-{name}", backbone="tiny", k=KINDS, assigner="balanced",
            settings={"train": {"epochs": 0}, "method": {"name": "frozen"}},
        )  # fmt: skip
    return {name: places / f"run-{name}" for name in ("cut", "sheets")}


def rows(run: Path) -> list[dict[str, str]]:
    with open(run / "assignments.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_boxes_are_found_like_pictures_of_their_own(runs: dict[str, Path]) -> None:
    cut, sheets = rows(runs["cut"]), rows(runs["sheets"])
    assert sheets[9]["path"] == "1.png#xywh=64,0,64,64"
    said = ("given_label", "category", "category_id", "is_new", "confidence", "unlike")
    assert [[row[name] for name in said] for row in sheets] == [[row[name] for name in said] for row in cut]
    pairs = [row["category"] for row in sheets if "#xywh=128,64" in row["path"] or "#xywh=192,64" in row["path"]]
    assert pairs[::2] == pairs[1::2], "one vote"
    assert "1.png#xywh=64,0,64,64" in (runs["sheets"] / "report.html").read_text("utf-8")


def test_the_studio_shows_the_box(runs: dict[str, Path], places: Path) -> None:
    found = newkinds.Discovery.read(runs["sheets"])
    pictures = Pictures(RunDirectory(runs["sheets"]), found.members)
    assert pictures.look() == 0
    assert len(set(pictures.versions)) == KINDS * EACH
    with Image.open(places / "cut" / "1-1.png") as own:
        np.testing.assert_array_equal(np.asarray(pictures.opened(9)), np.asarray(own))


def test_boxes_can_be_predicted_in_any_way_they_are_named(runs: dict[str, Path], places: Path) -> None:
    model = newkinds.load(runs["cut"])
    sheet = places / "sheets" / "4.png"
    listed = {Path(one.path).name: one.category for one in model.predict(places / "sheets" / "list.csv")}
    assert len(listed) == KINDS * EACH
    [alone] = model.predict([f"{sheet}#xywh=64,0,64,64"])
    [picture] = model.predict([places / "cut" / "4-1.png"])
    assert alone.category == picture.category == listed["4.png#xywh=64,0,64,64"]
    found = [{"category": "1", "conf": 0.9, "bbox": [0.25, 0, 0.25, 0.5]}]
    detections = places / "sheets" / "md.json"
    content = {"images": [{"file": "4.png", "detections": found}], "detection_categories": {"1": "animal"}}
    detections.write_text(json.dumps(content), "utf-8")
    [detected] = model.predict(detections)
    assert (detected.path, detected.category) == (alone.path, alone.category)


def test_boxes_come_to_a_run_later(runs: dict[str, Path], places: Path) -> None:
    """By an update with detections in a photo that the run has, of which one is in it already."""
    run = shutil.copytree(runs["sheets"], places / "updated")
    boxes = [[0.0, 0.0, 0.25, 0.5], [0.02, 0.04, 0.21, 0.42]]
    found = [{"category": "animal", "confidence": 0.9, "bbox": corners(*box)} for box in boxes]
    detections = places / "sheets" / "later.json"
    detections.write_text(json.dumps([{"file": "2.png", "detections": found}]), "utf-8")
    before = {row["path"]: row["category_id"] for row in rows(run)}
    newkinds.update(run, [detections])
    after = {row["path"]: row for row in rows(run)}
    [new] = [path for path in after if path not in before]
    assert new == f"{places / 'sheets' / '2.png'}#xywh=5,5,54,54"
    assert after[new]["since"] == "1"
    assert {path: row["category_id"] for path, row in after.items() if path != new} == before


def corners(x: float, y: float, width: float, height: float) -> list[float]:
    """In pixels of a sheet."""
    return [x * 4 * SIDE, y * 2 * SIDE, (x + width) * 4 * SIDE, (y + height) * 2 * SIDE]


def test_what_was_exported_as_coco_is_data_again(runs: dict[str, Path], places: Path) -> None:
    newkinds.export(runs["sheets"], "coco", places / "coco")
    from newkinds.data import load_table, source_of

    table = load_table(source_of(places / "coco" / "annotations.json"))
    found = newkinds.Discovery.read(runs["sheets"]).members
    assert [Path(path).name for path in table.paths] == [member.path for member in found]
    assert table.labels == [member.category for member in found]
