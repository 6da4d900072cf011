"""Exported data sets: what goes in, that nothing is lost or overwritten, and that they are whole or not there."""

import csv
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import newkinds
from conftest import Killed
from exporting import DATA_SETS, NAMES, PATHS, photos_run, run_of, snapshot, table
from newkinds import Discovery, NewkindsError
from newkinds.data.creatures.dataset import creatures_table
from newkinds.discovery.edits import POOL
from newkinds.discovery.export import EXPORTS

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return photos_run(tmp_path)


def corrected(run: Path) -> Discovery:
    """loose.png is junk, y.png was moved to a category made for it, new-1 is called corgi and accepted."""
    found = Discovery.read(run)
    found.rename("new-1", "corgi")
    found.move(["unlabeled/y.png"], "shiba inu", new=True)
    found.accept(category="corgi")
    found.junk(["loose.png"])
    return found


def test_the_table_shows_what_people_corrected(run: Path, tmp_path: Path, run_cli: Cli):
    corrected(run)

    status, said, _ = run_cli("export", run, "--to", "csv", "--out", tmp_path / "found.csv")

    assert (status, said.strip()) == (0, f"{tmp_path / 'found.csv'}: 8 rows")
    rows = {row["path"]: row for row in table(tmp_path / "found.csv")}
    assert list(rows) == PATHS
    assert rows["unlabeled/x.jpg"] == {
        "path": "unlabeled/x.jpg", "given_label": "", "category": "corgi", "category_id": "2", "is_new": "true",
        "confidence": "0.5400", "unlike": "1.000", "model_category_id": "", "model_confidence": "", "since": "0",
        "status": "accepted",
    }  # fmt: skip
    moved, junk, labelled = (rows[path] for path in ("unlabeled/y.png", "loose.png", "dog/1.jpg"))
    assert moved | {"category": "shiba inu", "category_id": "4", "is_new": "true", "status": "moved"} == moved
    assert [junk[name] for name in ("category_id", "status")] == ["-1", "junk"]
    assert [labelled[name] for name in ("given_label", "category", "status")] == ["dog", "dog", ""]
    assert run_cli("export", run, "--to", "csv", "--out", "-")[1] == (tmp_path / "found.csv").read_text()


def test_no_cell_of_a_table_is_a_formula(tmp_path: Path):
    names = ["=1+1", "@SUM(A1)", "-new", '=HYPERLINK("http://x")']
    run = photos_run(tmp_path, ["=cmd|' /C calc'!A0.png", "+1.png", "@a/-b.png", "x,=1.png"], [0, 1, 2, 3], names)

    newkinds.export(run, "folders", tmp_path / "out")
    newkinds.export(run, "csv", tmp_path / "found.csv")

    for file in (tmp_path / "found.csv", *(tmp_path / "out").glob("*.csv")):
        cells = [cell for row in csv.reader(file.open(newline="")) for cell in row]
        assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@")]
    assert [row["path"] for row in table(tmp_path / "found.csv")] == [m.path for m in Discovery.read(run).members]
    assert [row["category"] for row in table(tmp_path / "out" / "categories.csv")] == names


def test_an_image_that_waits_is_not_said_to_be_of_a_category(tmp_path: Path, run_cli: Cli) -> None:
    run = photos_run(tmp_path, categories=[0, 1, 0, 0, 2, 2, 3, POOL])
    status, said, _ = run_cli("export", run, "--to", "folders", "--out", tmp_path / "out")
    assert status == 0
    assert "8 images of 4 categories copied, 1 of them not placed yet" in said


@pytest.mark.parametrize("to", DATA_SETS)
def test_every_image_goes_in_once_and_nothing_else_is_touched(to: str, run: Path, tmp_path: Path, run_cli: Cli):
    corrected(run)
    photos, before = snapshot(tmp_path / "photos"), snapshot(run)

    status, said, _ = run_cli("export", run, "--to", to, "--out", tmp_path / "deep" / "out")

    assert status == 0
    assert "7 images of 5 categories copied; 1 junk left out (--junk includes them)" in said
    rows = table(tmp_path / "deep" / "out" / "images.csv")
    assert [row["path"] for row in rows] == [path for path in PATHS if path != "loose.png"]
    for row in rows:
        assert (tmp_path / "deep" / "out" / row["file"]).read_bytes() == photos[row["path"]]
    pictures = [file for file in (tmp_path / "deep" / "out").rglob("*") if file.suffix.lower() in (".png", ".jpg")]
    assert len(pictures) == 7
    shown = {member.path: member for member in Discovery.read(run).members}
    assert all(row["category_id"] == str(shown[row["path"]].category_id) for row in rows)
    counted = {row["category"]: row["images"] for row in table(tmp_path / "deep" / "out" / "categories.csv")}
    assert counted == {"cat": "3", "dog": "1", "corgi": "1", "new-2": "1", "shiba inu": "1"}
    assert (snapshot(tmp_path / "photos"), snapshot(run)) == (photos, before)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["deep", "photos", "run"]
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["out"]


@pytest.mark.parametrize("to", DATA_SETS)
def test_junk_goes_in_if_it_is_asked_for(to: str, run: Path, tmp_path: Path):
    corrected(run)

    newkinds.export(run, to, tmp_path / "out", junk=True)

    rows = {row["path"]: row for row in table(tmp_path / "out" / "images.csv")}
    assert (len(rows), rows["loose.png"]["status"]) == (8, "junk")
    assert (tmp_path / "out" / rows["loose.png"]["file"]).is_file()


def test_links(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A symbolic link is absolute, so that it survives if the export is moved; an image may be a link itself."""
    (tmp_path / "photos" / "loose.png").rename(tmp_path / "elsewhere.png")
    (tmp_path / "photos" / "loose.png").symlink_to("../elsewhere.png")
    monkeypatch.chdir(tmp_path)

    newkinds.export("run", "folders", "soft", files="symlink", images="photos", keep_unlike=True)
    newkinds.export("run", "coco", "hard", files="hardlink")
    (tmp_path / "soft").rename(tmp_path / "photos" / "moved")

    linked = tmp_path / "photos" / "moved" / "cat" / "1.png"
    assert os.readlink(linked) == str(tmp_path / "photos" / "cat" / "1.png")
    assert (tmp_path / "photos/moved/new-2/loose.png").read_bytes() == (tmp_path / "elsewhere.png").read_bytes()
    images = {row["path"]: tmp_path / "hard" / row["file"] for row in table(tmp_path / "hard" / "images.csv")}
    for path, file in images.items():
        assert os.path.samefile(file, tmp_path / "photos" / path)
        assert not file.is_symlink()


def other_disk() -> Path | None:
    shm = Path("/dev/shm")
    return shm if shm.is_dir() and os.access(shm, os.W_OK) and shm.stat().st_dev != Path("/tmp").stat().st_dev else None


@pytest.mark.skipif(other_disk() is None, reason="there is no second disk to link to")
def test_a_hard_link_to_another_disk_is_refused_and_not_silently_a_copy(run: Path, run_cli: Cli):
    disk = other_disk()
    assert disk is not None
    out = disk / f"newkinds-{os.getpid()}" / "out"

    try:
        status, _, error = run_cli("export", run, "--to", "folders", "--out", out, "--files", "hardlink")

        assert status == 1
        assert "the export is on another disk, where no hard link leads" in error
        assert "choose --files copy" in error
        assert list(out.parent.iterdir()) == []
    finally:
        shutil.rmtree(out.parent)


@pytest.mark.parametrize("problem", [OSError(errno.ENOSPC, "No space left on device"), Killed(), KeyboardInterrupt()])
def test_an_export_that_fails_in_the_middle_leaves_nothing(
    problem: BaseException, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    copied: list[Path] = []
    copyfile = shutil.copyfile

    def copy(source: Path, to: Path) -> None:
        if len(copied) == 3:
            raise problem
        copied.append(to)
        copyfile(source, to)

    monkeypatch.setattr(shutil, "copyfile", copy)
    (tmp_path / "out").mkdir()

    expected = NewkindsError if isinstance(problem, OSError) else type(problem)
    with pytest.raises(expected, match="No space left" if isinstance(problem, OSError) else None):
        newkinds.export(run, "coco", tmp_path / "out")

    assert copied
    assert list((tmp_path / "out").iterdir()) == []
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out", "photos", "run"]


def test_missing_and_damaged_images_are_left_out_and_listed(run: Path, tmp_path: Path, run_cli: Cli):
    """Also what an image was replaced by that is none: a link to a secret, a pipe, a folder."""
    (tmp_path / "secret.txt").write_text("secret")
    photos = tmp_path / "photos"
    for path in ("cat/1.png", "loose.png", "unlabeled/x.jpg", "unlabeled/y.png", "unlabeled/z.png"):
        (photos / path).unlink()
    (photos / "loose.png").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(photos / "unlabeled/x.jpg")
    (photos / "unlabeled/y.png").mkdir()
    (photos / "unlabeled/z.png").touch()

    status, said, warned = run_cli("export", run, "--to", "folders", "--out", tmp_path / "out")

    assert status == 0
    assert "3 images of 2 categories copied" in said
    assert "5 images are missing, listed in missing.csv; the first is cat/1.png: file not found." in warned
    assert {row["path"]: row["reason"] for row in table(tmp_path / "out" / "missing.csv")} == {
        "cat/1.png": "file not found", "unlabeled/x.jpg": "not a file", "unlabeled/y.png": "not a file",
        "loose.png": "not an image, or of a kind that cannot be read", "unlabeled/z.png": "the file is empty (0 bytes)",
    }  # fmt: skip
    assert not [file for file, content in snapshot(tmp_path / "out").items() if b"secret" in content]
    assert newkinds.export(run, "csv", tmp_path / "found.csv") == "8 rows"


def test_images_that_have_moved(run: Path, tmp_path: Path, run_cli: Cli):
    (tmp_path / "photos").rename(tmp_path / "archive")

    status, _, error = run_cli("export", run, "--to", "coco", "--out", tmp_path / "out")

    assert (status, error.count("\n")) == (1, 1)
    assert f"are not in {tmp_path / 'photos'} any more" in error
    assert "--images FOLDER" in error
    assert not (tmp_path / "out").exists()
    assert "8 images" in newkinds.export(run, "coco", tmp_path / "out", images=tmp_path / "archive")
    (tmp_path / "photos").mkdir()
    with pytest.raises(NewkindsError, match=r"none of the 8 images .* cat/1.png: file not found.* --images FOLDER"):
        newkinds.export(run, "coco", tmp_path / "again")
    with pytest.raises(NewkindsError, match="there is no folder"):
        newkinds.export(run, "coco", tmp_path / "again", images=tmp_path / "nowhere")


def test_nothing_that_is_there_is_replaced(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Cli):
    full, link, file = tmp_path / "full", tmp_path / "link", tmp_path / "file.csv"
    (full / "sub").mkdir(parents=True)
    link.symlink_to(tmp_path / "outside")  # leads to nothing yet
    file.write_text("mine")
    (tmp_path / "here").mkdir()
    for to, out, why in [
        ("folders", full, "is not empty"), ("csv", full, "is not empty"), ("coco", link, "is there already"),
        ("csv", file, "is there already"), ("csv", full / "sub", "is a folder"),
        ("folders", tmp_path / "photos" / "sorted", "holds the run's images"), ("folders", file / "x", "cannot create"),
    ]:  # fmt: skip
        before = snapshot(tmp_path)
        status, _, error = run_cli("export", run, "--to", to, "--out", out)
        assert status == 1
        assert why in error
        assert "\n" not in error.strip()
        assert snapshot(tmp_path) == before
    assert (full / "sub").is_dir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(NewkindsError, match="you are in the folder"):
        newkinds.export(run, "folders", ".")


def test_wrong_choices(run: Path, tmp_path: Path, run_cli: Cli):
    for options, why in [
        (["--to", "coc"], "Did you mean 'coco'?"),
        (["--to", "csv", "--files", "copy"], "--files does not apply to the export 'csv'"),
        (["--to", "coco", "--files", "move"], "choose copy, hardlink, symlink"),
        (["--to", "coco", "--compare-on", "a"], "--compare-on does not apply to the export 'coco'"),
    ]:
        status, _, error = run_cli("export", run, "--out", tmp_path / "out", *options)
        assert (status, why in error) == (1, True), error
    assert "only csv can be printed" in run_cli("export", run, "--to", "coco", "--out", "-")[2]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["photos", "run"]


def test_a_run_of_a_folder_names_nothing_outside_of_it(tmp_path: Path):
    run = photos_run(tmp_path, ["a.png", "../secret.png"], [0, 1])

    with pytest.raises(NewkindsError, match=r"names \.\./secret.png, which is not below"):
        newkinds.export(run, "folders", tmp_path / "out")


def test_a_list_may_name_images_anywhere(tmp_path: Path):
    paths = [str(tmp_path / "photos" / PATHS[0]), f"../photos/{PATHS[1]}"]
    photos_run(tmp_path)
    (tmp_path / "lists").mkdir()
    data = {"name": "csv", "path": str(tmp_path / "lists" / "all.csv")}
    run = run_of(data, tmp_path / "listed", paths, [0, 1], NAMES)

    newkinds.export(run, "imagefolder", tmp_path / "out")

    files = [row["file"] for row in table(tmp_path / "out" / "images.csv")]
    assert files == ["train/1.png", "train/1.jpg"]


def test_images_that_are_no_files_are_written_as_png(tmp_path: Path):
    data = {"name": "creatures", "categories": 2, "per_category": 2, "seed": 0}
    drawn = creatures_table(2, 2, 0)
    run = run_of(data, tmp_path / "run", drawn.paths, [0, 1, 2, 3], NAMES)

    assert newkinds.export(run, "coco", tmp_path / "out") == "4 images of 4 categories written"

    for row, path in enumerate(drawn.paths):
        with Image.open(tmp_path / "out" / "images" / path) as written:
            assert written.format == "PNG"
            np.testing.assert_array_equal(np.asarray(written), np.asarray(drawn.open(row)))
    with pytest.raises(NewkindsError, match="are no files that --files symlink could lead to"):
        newkinds.export(run, "folders", tmp_path / "links", files="symlink")
    with pytest.raises(NewkindsError, match="are in no folder"):
        newkinds.export(run, "folders", tmp_path / "moved", images=tmp_path)


def test_no_data_set_needs_torch(run: Path, tmp_path: Path):
    program = (
        "import sys; sys.modules['torch'] = sys.modules['torchvision'] = sys.modules['sklearn'] = None\n"
        "from newkinds.cli import main\n"
        f"for to in {['csv', *DATA_SETS]!r}:\n"
        f"    assert main(['export', {str(run)!r}, '--to', to, '--out', {str(tmp_path)!r} + '/' + to]) == 0, to\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert set(DATA_SETS) < {entry.name for entry in tmp_path.iterdir()}
    assert {"csv", "onnx", "torch", *DATA_SETS} <= set(EXPORTS)


def test_a_run_of_vectors_has_no_pictures(tmp_path: Path):
    data = {"name": "vectors", "path": str(tmp_path / "vectors.npy"), "labels": None}
    run = run_of(data, tmp_path / "run", ["row-00000", "row-00001"], [0, 1], NAMES)

    with pytest.raises(NewkindsError, match="is of vectors, which have no pictures: export its table by --to csv"):
        newkinds.export(run, "folders", tmp_path / "out")
    assert newkinds.export(run, "csv", tmp_path / "found.csv") == "2 rows"


def test_a_picture_without_an_ending_gets_one(tmp_path: Path):
    photos_run(tmp_path, ["a.png", "b.jpg"], [0, 1])
    (tmp_path / "photos" / "a.png").rename(tmp_path / "photos" / "a")
    (tmp_path / "photos" / "b.jpg").rename(tmp_path / "photos" / "b.2024")
    data = {"name": "folder", "path": str(tmp_path / "photos")}
    run = run_of(data, tmp_path / "other", ["a", "b.2024"], [0, 1], NAMES)

    newkinds.export(run, "folders", tmp_path / "out")

    assert [row["file"] for row in table(tmp_path / "out" / "images.csv")] == ["cat/a.png", "dog/b.2024.jpg"]
