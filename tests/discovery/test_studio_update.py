"""A collection that lives, by way of the studio: images are added, an update places them, and it is undone."""

import io
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import newkinds
from conftest import save_image
from windows import Studio, Window

COLOURS = {"red": (220, 20, 20), "cyan": (20, 200, 210), "blue": (20, 20, 160), "white": (235, 235, 235)}
PATIENCE = 60  # s, on a machine that does other things as well


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two known colours and two new ones."""
    for colour, (red, green, blue) in COLOURS.items():
        for number in range(8):
            known = colour in ("red", "cyan") and number < 5
            file = tmp_path / "photos" / (colour if known else "unlabeled") / f"{colour}-{number}.png"
            save_image(file, (red, green, min(255, blue + 3 * number)))
    settings = {"train": {"epochs": 0}}
    newkinds.discover(tmp_path / "photos", tmp_path / "run", k=4, backbone="tiny", settings=settings, page=False)
    return tmp_path / "run"


def ended(window: Window) -> dict[str, Any]:
    ends = time.monotonic() + PATIENCE
    while (job := window.ask("/api/job"))["state"] == "running":
        assert time.monotonic() < ends
        time.sleep(0.1)
    assert job["state"] == "done", job
    window.look()
    return job


def test_an_image_is_added_placed_and_taken_back(run: Path) -> None:
    window = Window(Studio(run))
    assert window.state["growable"]
    blue = next(member.category_id for member in newkinds.Discovery.read(run).members if "blue" in member.path)
    window.edit(edit="rename", category=blue, name="sea")
    before = window.state
    file = io.BytesIO()
    Image.new("RGB", (40, 40), (20, 20, 171)).save(file, "PNG")
    answer = window.client.post("/api/add", params={"name": "deep.png"}, content=file.getvalue())
    assert answer.status_code == 200, answer.text
    assert Path(answer.json()["file"]) == run.parent / "photos" / "unlabeled" / "deep.png"
    assert ended(window)["says"].startswith("update 1: 1 new")
    assert window.state["found"] != before["found"], "other windows learn of it"
    assert (window.state["images"], window.state["fresh"]) == (33, 1)
    assert window.state["update"]["came"] == 1
    (group,) = window.ask("/api/new")["groups"]
    assert [image["path"] for image in group["images"]] == ["unlabeled/deep.png"]
    assert group["id"] in (blue, -2)
    assert window.names()[blue] == "sea", "what was named stays"
    window.edit(edit="move", rows=[group["images"][0]["row"]], to=blue)
    assert window.state["fresh"] == 0

    assert window.client.post("/api/job/start", json={"job": "undo-update"}).status_code == 200
    ended(window)
    assert (window.state["images"], window.state["update"], window.names()[blue]) == (32, None, "sea")
    assert (run.parent / "photos" / "unlabeled" / "deep.png").is_file(), "photos stay"
