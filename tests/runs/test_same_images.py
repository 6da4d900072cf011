"""A run goes on with the images it was begun with: pixels are compared, where a file's size or time differ."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import newkinds
from conftest import save_image
from newkinds.data import load_table
from newkinds.data.table import DATASETS, Table, readable
from newkinds.errors import NewkindsError
from newkinds.runs.protocol import earlier_images, require_same_images
from newkinds.runs.run import Run

SETTINGS = {"train": {"epochs": 2, "batch_size": 8, "workers": 0}, "backbone": {"image_size": 32}}
Kill = Callable[[], AbstractContextManager[None]]


def discover(photos: Path, out: Path) -> Any:
    return newkinds.discover(photos, out, k=3, settings=SETTINGS)


def repaint(file: Path) -> None:
    """Another picture in the same place, as an editor saves it."""
    Image.new("RGB", (40, 30), (1, 2, 3)).save(file)


@pytest.fixture
def begun(photos: Path, tmp_path: Path, killed_after_an_epoch: Kill) -> Path:
    with killed_after_an_epoch():
        discover(photos, tmp_path / "run")
    return tmp_path / "run"


def test_changed_pixels_are_refused_and_named(begun: Path, photos: Path) -> None:
    repaint(photos / "loose.png")
    with pytest.raises(NewkindsError, match=r"1 image was replaced by others \(loose\.png\): restore"):
        discover(photos, begun)
    for number in range(4):
        repaint(photos / "red" / f"{number}.png")
    with pytest.raises(NewkindsError, match=r"5 images were .* \(loose\.png, red/0\.png, red/1\.png, …\)"):
        discover(photos, begun)
    assert Run(begun).load_state()["epochs_done"] == 1  # type: ignore[index]


def test_a_finished_run_is_not_shown_with_changed_pixels(photos: Path, tmp_path: Path) -> None:
    newkinds.train(photos, tmp_path / "run", k=3, settings=SETTINGS)
    repaint(photos / "loose.png")
    for again in (discover, lambda _, out: newkinds.evaluate(out, truth=photos)):
        with pytest.raises(NewkindsError, match=r"1 image was replaced by others"):
            again(photos, tmp_path / "run")
    assert not (tmp_path / "run" / "assignments.csv").exists()


def test_a_touched_or_copied_folder_goes_on(begun: Path, photos: Path) -> None:
    for file in photos.rglob("*.*"):
        os.utime(file, ns=(1, 1))
    content = (photos / "loose.png").read_bytes()
    (photos / "loose.png").unlink()
    (photos / "loose.png").write_bytes(content)
    assert len(discover(photos, begun).members) == 21


def test_images_that_came_or_went_are_named(begun: Path, photos: Path) -> None:
    (photos / "loose.png").unlink()
    save_image(photos / "unlabeled" / "more.png")
    with pytest.raises(
        NewkindsError, match=r"1 image was added \(unlabeled/more\.png\), 1 image was removed \(loose\.png\)"
    ):
        discover(photos, begun)


def test_an_unchanged_image_is_not_opened_again(begun: Path, photos: Path) -> None:
    table = load_table({"name": "folder", "path": str(photos)})
    opened: list[int] = []

    def noting(row: int) -> Image.Image:
        opened.append(row)
        return table.open(row)

    earlier = earlier_images(Run(begun))
    assert len(earlier) == 21
    os.utime(photos / "loose.png")
    again = readable(replace(table, open=noting), contents=True, earlier=earlier)
    assert [table.paths[row] for row in opened] == ["loose.png"]
    assert again.contents == [earlier[path].content for path in again.paths]
    require_same_images(Run(begun), again)


def test_images_without_files_are_compared_by_their_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_after_an_epoch: Kill
) -> None:
    drawn = {"data": {"categories": 4, "per_category": 8}, **SETTINGS}
    with killed_after_an_epoch():
        newkinds.train("creatures", tmp_path / "run", settings=drawn)
    original = DATASETS["creatures"]

    def redrawn(categories: int = 16, per_category: int = 36, seed: int = 0, tune: bool = False) -> Table:
        table = original(categories, per_category, seed, tune)
        return replace(table, open=lambda row: table.open(row).transpose(Image.Transpose.FLIP_LEFT_RIGHT))

    with monkeypatch.context() as patched:
        patched.setitem(DATASETS._entries, "creatures", redrawn)
        with pytest.raises(NewkindsError, match=r"32 images were replaced"):
            newkinds.train("creatures", tmp_path / "run", settings=drawn)
    newkinds.train("creatures", tmp_path / "run", settings=drawn)
