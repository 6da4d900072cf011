"""What people decided about an image goes with what it shows, not with the name of its file."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import newkinds
from conftest import save_image
from newkinds.discovery.edits import JUNK
from newkinds.discovery.finished import load
from newkinds.errors import NewkindsError
from newkinds.runs.run import Run
from pages import Document

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def found(photos: Path, tmp_path: Path) -> newkinds.Discovery:
    return newkinds.discover(photos, tmp_path / "run", method="frozen", k=3)


def another(found: newkinds.Discovery, path: str) -> int:
    """A category that an image is not in."""
    there = next(member.category_id for member in found.members if member.path == path)
    return next(category.id for category in found.categories if category.id != there)


def category(run: Path, image: Path) -> int:
    return newkinds.predict(run, image)[0].category_id


def test_a_decision_needs_no_photo_of_the_run(found: newkinds.Discovery, photos: Path, tmp_path: Path) -> None:
    """Also on another machine, where the photo is called otherwise."""
    path = "unlabeled/red0.jpg"
    moved, junk = another(found, path), "unlabeled/blue1.jpg"
    found.move([path], moved)
    found.junk([junk])
    shutil.copy(photos / path, tmp_path / "elsewhere.jpg")
    Image.open(photos / junk).save(tmp_path / "converted.png")
    other = save_image(tmp_path / "other.jpg", (200, 40, 40))
    shutil.move(found.run, tmp_path / "brought")
    shutil.rmtree(photos)
    assert category(tmp_path / "brought", tmp_path / "elsewhere.jpg") == moved
    assert category(tmp_path / "brought", tmp_path / "converted.png") == JUNK
    assert category(tmp_path / "brought", other) not in (JUNK, moved)


def test_a_label_is_the_word_about_its_photo(found: newkinds.Discovery, photos: Path) -> None:
    """Also if the model alone would say otherwise, as it does here about a photo whose label is changed."""
    run, path = Run(found.run), "unlabeled/red0.jpg"
    alone = category(run.folder, photos / path)
    label = next(known for known in found.known if known.id != alone)
    rows = run.read_table("assignments.csv")
    for row in rows:
        if row["path"] == path:
            row |= {"given_label": label.name, "category": label.name, "category_id": f"{label.id}"}
            row |= {"is_new": "false", "model_category_id": f"{alone}", "model_confidence": "0.9000"}
    run.write_table("assignments.csv", tuple(rows[0]), [tuple(row.values()) for row in rows])
    assert newkinds.predict(run.folder, photos / path)[0].category == label.name


def test_another_photo_of_that_name_is_another_photo(found: newkinds.Discovery, photos: Path) -> None:
    path = "unlabeled/red0.jpg"
    before = category(found.run, photos / "unlabeled" / "green1.jpg")
    found.junk([path])
    assert category(found.run, photos / path) == JUNK
    shutil.copy(photos / "unlabeled" / "green1.jpg", photos / path)
    assert category(found.run, photos / path) == before


def test_copies_about_which_people_said_different_things(photos: Path, tmp_path: Path) -> None:
    path = "unlabeled/red0.jpg"
    shutil.copy(photos / path, photos / "unlabeled" / "copy.jpg")
    again = newkinds.discover(photos, tmp_path / "again", method="frozen", k=3)
    as_found = category(again.run, photos / path)
    moved = another(again, path)
    again.junk([path])
    again.move(["unlabeled/copy.jpg"], moved)
    shutil.copy(photos / path, tmp_path / "third.jpg")
    assert category(again.run, photos / path) == JUNK
    assert category(again.run, photos / "unlabeled" / "copy.jpg") == moved
    assert category(again.run, tmp_path / "third.jpg") == as_found


def test_a_run_without_its_list_of_images_says_so(
    found: newkinds.Discovery, photos: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found.junk(["unlabeled/red0.jpg"])
    (found.run / "images.csv").unlink()
    assert category(found.run, photos / "unlabeled" / "red0.jpg") != JUNK
    assert "your decision is not looked up" in capfd.readouterr().err


def test_a_run_that_was_being_assigned_again_answers_nothing(found: newkinds.Discovery, photos: Path) -> None:
    found.rename(0, "mine")
    Run(found.run).remove("assignments.csv")  # as `assign` does first
    with pytest.raises(NewkindsError, match=r"names and corrections cannot be applied. Rerun that command"):
        newkinds.predict(found.run, photos / "red" / "0.png")
    newkinds.assign(found.run)
    assert newkinds.predict(found.run, photos / "red" / "0.png")


def test_what_was_only_trained_answers(photos: Path, tmp_path: Path) -> None:
    newkinds.train(photos, tmp_path / "run", method="frozen", k=3)
    assert load(tmp_path / "run").predict(photos / "red" / "0.png")


# -- replaced photos -------------------------------------------------------------------------------------------------


@pytest.fixture
def replaced(found: newkinds.Discovery, photos: Path) -> str:
    """One photo is another now, and one was only saved again."""
    shutil.copy(photos / "unlabeled" / "green1.jpg", photos / "unlabeled" / "red0.jpg")
    Image.open(photos / "red" / "1.png").save(photos / "red" / "1.png", compress_level=1)
    return "unlabeled/red0.jpg"


def test_an_export_does_not_sort_what_the_run_has_not_seen(
    run_cli: Cli, found: newkinds.Discovery, replaced: str, tmp_path: Path
) -> None:
    status, out, err = run_cli("export", found.run, "--to", "folders", "--out", tmp_path / "sorted")
    assert status == 0, err
    assert "1 image is missing" in err
    assert f"{replaced}: another image is there now: it was replaced since the run began." in err
    assert "20 images" in out
    assert not list((tmp_path / "sorted").rglob("red0.jpg"))
    rows = list(csv.DictReader((tmp_path / "sorted" / "missing.csv").open()))
    assert [row["path"] for row in rows] == [replaced]


def test_the_page_does_not_show_what_the_run_has_not_seen(
    run_cli: Cli, found: newkinds.Discovery, replaced: str, tmp_path: Path
) -> None:
    status, _, err = run_cli("report", found.run)
    assert status == 0, err
    said = " ".join(Document((found.run / "report.html").read_text("utf-8")).text.split())
    for text in (err, said):
        assert "1 image was replaced by another since the run began" in text
        assert replaced in text


def test_photos_that_were_copied_are_no_others(run_cli: Cli, found: newkinds.Discovery, photos: Path) -> None:
    for file in photos.rglob("*.*"):
        file.touch()
    status, _, err = run_cli("report", found.run)
    assert (status, "replaced" in err) == (0, False), err
