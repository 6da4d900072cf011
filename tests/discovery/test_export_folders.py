"""A folder per category: what it is called, what is in it, and where images go that are nobody's."""

from collections.abc import Callable
from pathlib import Path

import pytest

import newkinds
from exporting import PATHS, photos_run, snapshot, table
from newkinds import Discovery
from newkinds.data import load_table

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return photos_run(tmp_path)


def pictures_in(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*.[pjP]*"))


def test_folders_are_called_as_categories_and_images_keep_their_names_where_they_can(run: Path, tmp_path: Path):
    newkinds.export(run, "folders", tmp_path / "out", keep_unlike=True)

    assert pictures_in(tmp_path / "out") == [
        "cat/1-2.png", "cat/1-3.PNG", "cat/1.png", "dog/1.jpg", "new-1/x.jpg", "new-1/y.png", "new-2/loose.png",
        "new-2/z.png",
    ]  # fmt: skip
    assert (tmp_path / "out/dog/1.jpg").stat().st_mtime_ns == (tmp_path / "photos/dog/1.jpg").stat().st_mtime_ns


def test_hostile_names_stay_inside_and_can_be_read_back(tmp_path: Path):
    names = ["../../evil", "/etc", "con", "images.csv", "Corgi", "corgi", "x" * 255, "..", "<script>", "a\nb"]
    paths = [f"{folder}/" + "y" * 251 + ".png" for folder in "abcdefghi"] + ["unlabeled/not-utf8-\udcff.png"]
    run = photos_run(tmp_path, paths, range(10), names)
    before = snapshot(tmp_path)

    newkinds.export(run, "folders", tmp_path / "out", keep_unlike=True)

    rows = table(tmp_path / "out" / "categories.csv")
    assert [row["category"] for row in rows] == names
    folder_of = {row["category_id"]: row["folder"] for row in rows}
    assert len({name.lower() for name in folder_of.values()}) == 10
    for row in table(tmp_path / "out" / "images.csv"):
        assert (tmp_path / "out" / row["file"]).read_bytes() == before[f"photos/{row['path']}"]
        assert Path(row["file"]).parts[:-1] == (folder_of[row["category_id"]],)
    after = snapshot(tmp_path)
    assert {file for file in after if not file.startswith("out/")} == set(before)


def test_images_unlike_every_category_have_a_folder_of_their_own(run: Path, tmp_path: Path, run_cli: Cli):
    """The last three are unlike every category; but a person's word on one, or its label, is the last."""
    status, said, _ = run_cli("export", run, "--to", "folders", "--out", tmp_path / "out")
    assert status == 0
    assert "3 images in the folder '(unlike every category)' (--keep-unlike: with the nearest category)" in said
    apart = [f"(unlike every category)/{name}" for name in ("loose.png", "y.png", "z.png")]
    assert pictures_in(tmp_path / "out")[:3] == apart
    rows = {row["path"]: row for row in table(tmp_path / "out" / "images.csv")}
    assert [rows["loose.png"][name] for name in ("file", "category", "unlike")] == [apart[0], "new-2", "1.500"]
    again = load_table({"name": "folder", "path": str(tmp_path / "out")})
    named = dict(zip(again.paths, again.labels, strict=True))
    assert [named[path] for path in (*apart, "cat/1.png")] == [None, None, None, "cat"], "they are no class"

    found = Discovery.read(run)
    found.accept(["loose.png"])
    found.rename("new-1", "(Unlike every CATEGORY)")
    assert run_cli("export", run, "--to", "folders", "--out", tmp_path / "after")[0] == 0
    assert pictures_in(tmp_path / "after") == [
        "(Unlike every CATEGORY)-2/x.jpg", "(unlike every category)/y.png", "(unlike every category)/z.png",
        "cat/1-2.png", "cat/1-3.PNG", "cat/1.png", "dog/1.jpg", "new-2/loose.png",
    ]  # fmt: skip
    folder_of = {row["category"]: row["folder"] for row in table(tmp_path / "after" / "categories.csv")}
    assert folder_of["(Unlike every CATEGORY)"] == "(Unlike every CATEGORY)-2"

    labelled = photos_run(tmp_path / "labelled", [*PATHS[:7], "dog/2.png"], [0, 1, 0, 0, 2, 2, 3, 1])
    newkinds.export(labelled, "folders", tmp_path / "third")
    assert "dog/2.png" in pictures_in(tmp_path / "third")
