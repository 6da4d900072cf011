"""How one result of a run takes the place of another: the old one stays where it can be read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Killed
from newkinds.discovery.categories import Discovery
from newkinds.errors import NewkindsError
from newkinds.runs.directory import BEGINNING, JOURNAL, NEXT, RunDirectory

MODEL = ("calibration.json", "model.safetensors", "config.yaml")


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> RunDirectory:
    shutil.copytree(trained_run, tmp_path / "run", ignore=shutil.ignore_patterns("figures"))
    return RunDirectory(tmp_path / "run")


def names_in(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_the_earlier_result_can_be_read_shown_and_corrected_apart(run: RunDirectory) -> None:
    found = Discovery.read(run.folder)
    found.rename(found.known[0].name, "heron")
    before = {name: run.path(name).read_bytes() for name in names_in(run.folder) if not name.startswith(".")}
    kept = run.archive()
    assert kept == run.folder / "earlier" / "1"
    assert {name: (kept / name).read_bytes() for name in names_in(kept)} == before
    run.path("assignments.csv").unlink()
    run.write("model.safetensors", b"another model")
    run.path("categories.json").write_text("[]")  # in place, as some editors do
    old = Discovery.read(kept)
    assert "heron" in {category.name for category in old.categories}
    old.rename("heron", "egret")
    assert len(run.path("edits.jsonl").read_bytes()) == len(before["edits.jsonl"]), "the logs are two"
    assert RunDirectory(kept).about_model()["k"]


def test_large_files_take_no_room_twice(run: RunDirectory) -> None:
    kept = run.archive()
    assert os.path.samefile(kept / "model.safetensors", run.model_file)
    assert not os.path.samefile(kept / "checksums.txt", run.path("checksums.txt")), "lines are added to it"


def test_without_links_files_are_copied(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert (run.archive() / "model.safetensors").read_bytes() == run.model_file.read_bytes()


def test_each_result_gets_a_number_of_its_own_and_no_other_file_is_taken(run: RunDirectory) -> None:
    run.path("mine.txt").write_text("not of the run")
    with open(run.path("checksums.txt"), "a") as file:
        file.write("\n0123456789abcdef  ../outside.txt\n0123456789abcdef  /etc/hostname")
    run.folder.with_name("outside.txt").write_text("not of the run")
    first = run.archive()
    (run.folder / "earlier" / "notes").mkdir()
    (run.folder / "earlier" / "7").mkdir()
    assert run.archive().name == "8"
    assert not {"mine.txt", "outside.txt", "hostname"} & {Path(name).name for name in names_in(first.parent)}
    assert not any(name.startswith("earlier/") for name in names_in(first)), "results are not nested"


def test_a_failure_leaves_nothing_half_made(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", fail)
    with pytest.raises(NewkindsError, match=r"cannot keep the earlier result in .*1: No space left"):
        run.archive()
    assert list((run.folder / "earlier").iterdir()) == []


def test_there_must_be_a_result(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match="has no result yet"):
        RunDirectory(tmp_path).archive()


def following(run: RunDirectory) -> RunDirectory:
    """A result that is going to replace the present one."""
    other = RunDirectory(run.path(NEXT))
    other.folder.mkdir()
    for name in (*MODEL, "assignments.csv"):
        other.write(name, f"another {name}")
    return other


def test_a_result_takes_the_place_of_another_whole(run: RunDirectory) -> None:
    Discovery.read(run.folder).rename(0, "heron")
    following(run)
    run.write("plan.json", "{}")
    run.replace_by_next()
    assert all(run.path(name).read_text() == f"another {name}" for name in (*MODEL, "assignments.csv"))
    assert not {"categories.json", "edits.jsonl", NEXT, JOURNAL} & names_in(run.folder)
    assert run.path("plan.json").read_text() == "{}", "it belongs to the run, not to one result"
    assert run.verified("config.yaml"), "its checksum came along"


@pytest.mark.parametrize("steps", range(1, 8))
def test_killed_in_between_whoever_opens_it_next_finishes_it(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    following(run)
    done = 0

    def count(step: Callable[..., None]) -> Callable[..., None]:
        def counted(*arguments: Any, **named: Any) -> None:
            nonlocal done
            if JOURNAL in names_in(run.folder):
                done += 1
                if done == steps:
                    raise Killed
            step(*arguments, **named)

        return counted

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", count(os.replace))
        patch.setattr(Path, "unlink", count(Path.unlink))
        with pytest.raises(Killed):
            run.replace_by_next()
    again = RunDirectory(run.folder)
    assert all(again.path(name).read_text() == f"another {name}" for name in (*MODEL, "assignments.csv"))
    assert not {"categories.json", NEXT, JOURNAL} & names_in(run.folder)


def test_a_journal_of_a_stranger_reaches_no_other_folder(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    run.write_json(JOURNAL, {"arriving": [], "leaving": ["../mine.txt", str(tmp_path / "mine.txt")]})
    with pytest.raises(NewkindsError, match=r"replacing\.json is damaged"):
        RunDirectory(run.folder)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_damaged_file_is_not_copied(run: RunDirectory, tmp_path: Path) -> None:
    run.path("protocol.json").write_bytes(run.path("protocol.json").read_bytes() + b" ")
    copy = RunDirectory(tmp_path / "copy")
    copy.folder.mkdir()
    with pytest.raises(NewkindsError, match=r"protocol\.json is damaged"):
        copy.copy_from(run, BEGINNING)
