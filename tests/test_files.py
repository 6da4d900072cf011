"""Whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from newkinds.errors import NewkindsError
from newkinds.files import csv_text, make_folder, remove_leftovers, write_whole


def test_replaces_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "old")

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(NewkindsError, match=r"a\.txt: No space left on device"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_odd_names_do_not_cost_the_table(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.png")  # a file name that is not Unicode
    write_whole(tmp_path / "a.csv", csv_text(["path"], [[name], ['x,"y"\nz']]))
    assert (tmp_path / "a.csv").read_text(encoding="utf-8") == 'path\n\\xff.png\n"x,""y""\\x0az"\n'


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".model.safetensors.123.tmp").write_bytes(b"half")
    (tmp_path / "kept").write_bytes(b"whole")
    remove_leftovers(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]


def test_a_file_in_the_way_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(NewkindsError, match="cannot create the folder"):
        make_folder(tmp_path / "a" / "b")


@pytest.mark.parametrize("name", ["file.txt/p.csv", "n" * 300, "nowhere/p.csv"])
def test_places_that_cannot_be_written_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(NewkindsError, match="cannot write"):
        write_whole(tmp_path / name, "x")
