"""Folders and CSV files of one's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import save_image
from newkinds.data import load_table, source_of
from newkinds.data.csv_list import read_csv
from newkinds.data.folder import read_folder
from newkinds.data.table import Skipped, Table, readable, require_discoverable, require_labels
from newkinds.errors import NewkindsError


def test_folder_labels(photos: Path) -> None:
    table = read_folder(str(photos))
    labels = dict(zip(table.paths, table.labels, strict=True))
    assert labels[str(Path("red") / "0.png")] == "red"
    assert labels[str(Path("unlabeled") / "blue0.jpg")] is None
    assert labels["loose.png"] is None
    assert len(table) == 4 + 4 + 12 + 1
    assert table.known == ["green", "red"]
    assert table.targets.tolist().count(-1) == 13


@pytest.mark.parametrize("name", ["unlabelled", "Unlabeled"])
def test_other_spellings_of_unlabeled(tmp_path: Path, name: str) -> None:
    save_image(tmp_path / name / "a.png")
    save_image(tmp_path / "cat" / "b.png")
    assert read_folder(str(tmp_path)).known == ["cat"]


def test_nested_class_folders_and_hidden_files(tmp_path: Path) -> None:
    save_image(tmp_path / "cat" / "2024" / "a.png")
    save_image(tmp_path / "cat" / ".b.png")
    save_image(tmp_path / ".git" / "c.png")
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"x")
    table = read_folder(str(tmp_path))
    assert table.paths == [str(Path("cat") / "2024" / "a.png")]
    assert table.labels == ["cat"]


def test_a_link_to_the_parent_is_not_followed_for_ever(tmp_path: Path) -> None:
    save_image(tmp_path / "cat" / "a.png")
    (tmp_path / "cat" / "loop").symlink_to(tmp_path)
    table = read_folder(str(tmp_path))
    assert len(table) == 1
    assert table.skipped == [Skipped(str(Path("cat") / "loop"), "a link back into the same folders")]


def test_links_give_no_image_a_second_place_or_another_class(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "photos", tmp_path / "elsewhere"
    for file in (root / "cat" / "a.png", root / "dog" / "b.png", root / ".store" / "c.png", elsewhere / "d.png"):
        save_image(file)
    (root / "cat" / "dogs").symlink_to(Path("..") / "dog")
    (root / "a dog").symlink_to("dog")
    (root / "cat" / "all").symlink_to(tmp_path)  # not only these photos
    (root / "bird").symlink_to(".store")
    (root / "unlabeled").symlink_to(elsewhere)
    (elsewhere / "loop").symlink_to(elsewhere)
    (elsewhere / "e.png").symlink_to(root / "cat" / "a.png")
    table = read_folder(str(root))
    labels = {Path(path).as_posix(): label for path, label in zip(table.paths, table.labels, strict=True)}
    assert labels == {
        "bird/c.png": "bird", "cat/a.png": "cat", "dog/b.png": "dog", "unlabeled/d.png": None, "unlabeled/e.png": None
    }  # fmt: skip
    assert {Path(s.path).as_posix() for s in table.skipped} == {"cat/dogs", "a dog", "cat/all"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_cannot_be_read_is_listed(photos: Path) -> None:
    (photos / "red").chmod(0)
    table = read_folder(str(photos))
    (photos / "red").chmod(0o755)
    assert [s.path for s in table.skipped] == ["red"]


def test_images_in_are_images_kept_plus_skipped(photos: Path) -> None:
    (photos / "red" / "broken.png").write_bytes(b"nope")
    (photos / "empty.JPG").write_bytes(b"")
    table = readable(read_folder(str(photos)))
    assert len(table) + len(table.skipped) == 23
    assert {s.path for s in table.skipped} == {str(Path("red") / "broken.png"), "empty.JPG"}
    table.open(len(table) - 1)  # rows still open the right files
    assert all(table.open(i).size for i in range(len(table)))


def test_files_that_are_no_images_are_ignored_and_mentioned_once(
    photos: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.txt", "b.txt", "c.json", "song.mp3", "Makefile", "empty", ".DS_Store", "red/notes.txt"):
        (photos / name).write_bytes(b"" if name == "empty" else b"not an image")
    for name in ("no ending", "odd.jpg_large", "photo.dat"):
        save_image(photos / "new.png").rename(photos / name)
    table = readable(read_folder(str(photos)))
    assert table.skipped == []
    assert len(table) == 24
    assert {"no ending", "odd.jpg_large", "photo.dat"} <= set(table.paths)
    err = capfd.readouterr().err
    assert err == "7 files that are no images are ignored (.txt, no ending, .json, .mp3)\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_among_the_photos_is_not_waited_for(photos: Path) -> None:
    os.mkfifo(photos / "pipe")
    assert len(read_folder(str(photos))) == 21


def test_a_folder_without_images(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    with pytest.raises(NewkindsError, match="there is no image in the folder"):
        read_folder(str(tmp_path))
    save_image(tmp_path / "dog" / "a.png")
    assert read_folder(str(tmp_path)).known == ["dog"]
    assert "the class folder 'cat' has no image" in capfd.readouterr().err


def write_csv(folder: Path, text: str | bytes, name: str = "list.csv") -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_csv(photos: Path) -> None:
    table = read_csv(write_csv(photos, "path,label,truth\nred/0.png,red,red\nunlabeled/blue0.jpg,,blue\n"))
    assert table.labels == ["red", None]
    assert table.truth == ["red", "blue"]
    assert table.open(1).size == (40, 30)


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_csv_with_another_delimiter(photos: Path, delimiter: str) -> None:
    text = f"path{delimiter}label\nred/0.png{delimiter}red\n"
    assert read_csv(write_csv(photos, text)).labels == ["red"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_csv_encodings(tmp_path: Path, encoding: str, capfd: pytest.CaptureFixture[str]) -> None:
    save_image(tmp_path / "é.png")
    table = read_csv(write_csv(tmp_path, "path,label\né.png,Grünspecht\n".encode(encoding)))
    assert table.labels == ["Grünspecht"]
    assert table.open(0)
    assert ("Windows-1252" in capfd.readouterr().err) == (encoding == "cp1252")


def test_csv_missing_files_duplicates_and_unknown_columns(photos: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = (
        "path,label,photographer\nred/0.png,,ann\nred/0.png,red,ann\n./red/0.png,red,bob\n"
        "gone.png,,ann\nunlabeled/blue0.jpg,,ann\n,,ann\nloose.png,cat, domestic,ann\n"
    )
    table = readable(read_csv(write_csv(photos, text)))
    assert table.paths == ["red/0.png", "unlabeled/blue0.jpg"]
    reasons = {s.path: s.reason for s in table.skipped}
    assert len(table.skipped) == 5
    assert "more fields than columns" in reasons["list.csv line 8"]
    assert reasons["gone.png"] == "file not found"
    assert "line 3 repeats line 2" in reasons["red/0.png"]
    assert "line 4 repeats line 2" in reasons["./red/0.png"]
    assert table.labels == ["red", None]
    assert "photographer" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pth,label\na.png,\n", "no column 'path'"),
        ("path,lable\na.png,\n", "Did you mean 'lable'"),
        ("", "empty"),
        ("path,label,path\na.png,,b\n", "names a column twice"),
        ('path,label\n"a.png,cat\nb.png,\n', "is not CSV"),
        ("path,label\n", "lists no image"),
    ],
)
def test_csv_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(NewkindsError, match=message):
        read_csv(write_csv(tmp_path, text))


def test_nothing_to_learn_or_to_discover(photos: Path) -> None:
    table = read_folder(str(photos))
    labelled = table.rows([i for i, label in enumerate(table.labels) if label])
    unlabelled = table.rows([i for i, label in enumerate(table.labels) if not label])
    with pytest.raises(NewkindsError, match="nothing to discover"):
        require_discoverable(labelled)
    require_discoverable(unlabelled)  # without labels there is something to discover, but nothing to learn
    with pytest.raises(NewkindsError, match="none of the 13 images has a label, and training learns from labels"):
        require_labels(unlabelled)
    with pytest.raises(NewkindsError, match="no readable image"):
        require_discoverable(table.rows([]))


def test_one_class_only_is_said(photos: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = read_folder(str(photos))
    require_labels(table.rows([i for i, label in enumerate(table.labels) if label != "green"]))
    assert "only one known class ('red')" in capfd.readouterr().err


def test_sources(photos: Path) -> None:
    assert source_of("creatures") == {"name": "creatures"}
    assert source_of(photos)["name"] == "folder"
    with pytest.raises(NewkindsError, match="Did you mean 'creatures'"):
        source_of("creature")
    with pytest.raises(NewkindsError, match="neither a folder nor a CSV"):
        source_of(photos / "loose.png")


def test_creatures_table_hides_the_truth_from_training() -> None:
    table = load_table({"name": "creatures", "categories": 6, "per_category": 6, "seed": 0})
    assert isinstance(table, Table)
    assert table.truth is not None
    assert len(table) == 36
    assert len(table.known) == 3
    labelled = [i for i, label in enumerate(table.labels) if label]
    assert len(labelled) == 9  # half of the known kinds' 18 images
    assert all(table.labels[i] == table.truth[i] for i in labelled)
    assert not any(name in path for name in set(table.truth) for path in table.paths)
