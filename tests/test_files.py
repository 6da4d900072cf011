"""Whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from conftest import Killed
from newkinds.errors import NewkindsError
from newkinds.files import csv_text, make_folder, remove_leftovers, temporary_of, write_new, write_whole
from newkinds.ownership import OF_RUN, OwnFiles, remove_own_folder


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
    left = temporary_of(tmp_path / "model.safetensors")
    left.write_bytes(b"half")
    temporary_of(tmp_path / "exported").mkdir()
    theirs = [
        ".drafts.tmp",
        ".model.safetensors.0123abcd.tmp",
        ".model.safetensors.0123abcd89abcdef.tmp",
        left.name[1:],
    ]
    for name in theirs:
        (tmp_path / name).mkdir()
        (tmp_path / name / "draft").write_text("of somebody else")
    remove_leftovers(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(theirs)
    assert all((tmp_path / name / "draft").is_file() for name in theirs)


def test_writing_a_file_again_removes_what_a_killed_process_left_of_it(tmp_path: Path) -> None:
    left = [temporary_of(tmp_path / "a.csv").name for _ in range(2)]
    others = [".a.csv.tmp", ".a.csv.mine.tmp", ".a.csv.0123abcd.tmp", "a.csv.0123abcd.tmp"]
    others += [temporary_of(tmp_path / name).name for name in ("b.csv", "a.csv.b")]
    for name in (*left, *others):
        (tmp_path / name).write_text("half")
    write_whole(tmp_path / "a.csv", "whole")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([*others, "a.csv"])


def test_whoever_is_overtaken_while_writing_has_written_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A faster process tidies up after it has written the same file."""
    path, replace = tmp_path / "a.csv", os.replace

    def overtaken(temporary: Path, target: Path) -> None:
        monkeypatch.setattr(os, "replace", replace)
        write_whole(path, "the faster one's")
        replace(temporary, target)

    monkeypatch.setattr(os, "replace", overtaken)
    write_whole(path, "ours")
    assert path.read_text() == "the faster one's"
    assert list(tmp_path.iterdir()) == [path]


def test_names_as_long_as_names_can_be(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 251 + ".csv")
    write_whole(path, "whole")
    assert path.read_text() == "whole"


def test_a_folder_that_is_deleted_is_never_half_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    OwnFiles(make_folder(tmp_path / "plan" / "trial"), OF_RUN).write("config.yaml", "k: 3")

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(Killed):
            remove_own_folder(tmp_path / "plan")
    assert not (tmp_path / "plan").exists()
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert remove_own_folder(tmp_path / "plan")  # which is not there


def test_a_file_in_the_way_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(NewkindsError, match="cannot create the folder"):
        make_folder(tmp_path / "a" / "b")


@pytest.mark.parametrize("name", ["file.txt/p.csv", "n" * 300, "nowhere/p.csv"])
def test_places_that_cannot_be_written_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(NewkindsError, match="cannot write"):
        write_whole(tmp_path / name, "x")


@pytest.mark.parametrize("linked", [True, False])
def test_a_new_file_takes_no_other_ones_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool) -> None:
    if not linked:  # as on a drive that has no links

        def no_links(*_: object) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", no_links)
    (tmp_path / "a.png").write_bytes(b"theirs")
    assert write_new(tmp_path / "a.png", b"ours") == tmp_path / "a-2.png"
    assert write_new(tmp_path / "a.png", b"ours too") == tmp_path / "a-3.png"
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        "a.png": b"theirs", "a-2.png": b"ours", "a-3.png": b"ours too",
    }  # fmt: skip
    with pytest.raises(NewkindsError, match="cannot write"):
        write_new(tmp_path / "none" / "a.png", b"ours")
