"""Files may be called nearly anything: from the folder to the tables and back."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

import newkinds
from conftest import save_image
from newkinds.files import csv_text, write_whole
from newkinds.runs.run import Run
from newkinds.text import unescaped

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs such names")
NAMES = ["Icon\r", "two\nlines", "\x1b[31m", "tab\t", "\x7f", "\x9b", r"back\x41slash", "end\\"]
NAMES.append(os.fsdecode(b"\xff\xfe"))  # not UTF-8
SETTINGS = {"train": {"epochs": 1}, "backbone": {"image_size": 32}}


@pytest.fixture
def odd(photos: Path) -> Path:
    """As macOS (Icon and a carriage return), old file servers and jokers leave folders; one image is broken."""
    for name in NAMES:
        os.rename(save_image(photos / "unlabeled" / "new.png"), photos / "unlabeled" / f"{name}.png")
    (photos / "unlabeled" / "Icon\r").write_bytes(b"")
    (photos / "unlabeled" / "bro\rken.png").write_bytes(b"")
    (photos / "red").rename(photos / "re\x1bd\r")
    return photos


def test_odd_names_come_back_from_the_tables_of_a_run(odd: Path, tmp_path: Path) -> None:
    found = newkinds.discover(odd, tmp_path / "run", k=3, settings=SETTINGS)
    members = [member.path for member in found.members]
    assert {f"unlabeled/{name}.png" for name in NAMES} <= set(members)
    run = Run(tmp_path / "run")
    assert [row["path"] for row in run.read_table("assignments.csv")] == members
    assert {row["given_label"] for row in run.read_table("assignments.csv")} == {"", "green", "re\x1bd\r"}
    assert [row["path"] for row in run.read_table("skipped.csv")] == ["unlabeled/bro\rken.png"]
    for name in ("assignments.csv", "skipped.csv", "README.md"):
        text = (tmp_path / "run" / name).read_bytes().decode()
        assert all(character.isprintable() or character == "\n" for character in text), name
    truth = [(row["path"], row["category"]) for row in run.read_table("assignments.csv") if not row["given_label"]]
    with open(tmp_path / "run" / "assignments.csv", newline="") as file:  # the user edits a copy of our table
        lines = [[row["path"], row["category"]] for row in csv.DictReader(file) if not row["given_label"]]
    with open(odd / "truth.csv", "w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *lines])
    assert newkinds.evaluate(tmp_path / "run", truth=odd / "truth.csv")["evaluated"] == len(truth)
    assert newkinds.count_categories(tmp_path / "run").known == 2


def test_odd_names_come_back_from_a_list(odd: Path) -> None:
    paths = newkinds.data.load_table({"name": "folder", "path": str(odd)}).paths
    write_whole(odd / "list.csv", csv_text(("path", "label"), [(path, "") for path in paths]))
    table = newkinds.data.load_table({"name": "csv", "path": str(odd / "list.csv")})
    assert table.paths == paths
    assert all(file.exists() for file in table.files())


def test_odd_names_come_back_from_predictions(odd: Path, trained_run: Path, tmp_path: Path) -> None:
    from newkinds.cli import main

    assert main(["predict", str(trained_run), str(odd / "unlabeled"), "--out", str(tmp_path / "p.csv")]) == 0
    for name, expected in {"p.csv": {f"{name}.png" for name in NAMES}, "p.skipped.csv": {"bro\rken.png"}}.items():
        with open(tmp_path / name, newline="", encoding="utf-8") as file:
            paths = [unescaped(row["path"]) for row in csv.DictReader(file, strict=True)]
        assert expected <= {Path(path).name for path in paths}
        assert all(Path(path).exists() for path in paths)
