"""How one result of a run takes the place of another: the old one stays where it can be read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from newkinds.discovery.categories import Discovery
from newkinds.errors import NewkindsError
from newkinds.runs.directory import ANSWER, BEGINNING, MODEL, RunDirectory


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
    run.forget_answer()
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


def test_a_model_takes_the_place_of_another(run: RunDirectory, tmp_path: Path) -> None:
    other = RunDirectory(tmp_path / "other")
    other.folder.mkdir()
    for name in (*MODEL, "metrics.jsonl"):
        other.write(name, f"another {name}")
    protocol = run.path("protocol.json").read_bytes()
    run.take_over(other)
    assert not {*ANSWER, "categories.json"} & names_in(run.folder)
    assert all(run.path(name).read_text() == f"another {name}" for name in (*MODEL, "metrics.jsonl"))
    assert run.path("protocol.json").read_bytes() == protocol, "the other has none"
    assert not run.is_answered


def test_a_damaged_file_is_not_copied(run: RunDirectory, tmp_path: Path) -> None:
    run.path("protocol.json").write_bytes(run.path("protocol.json").read_bytes() + b" ")
    copy = RunDirectory(tmp_path / "copy")
    copy.folder.mkdir()
    with pytest.raises(NewkindsError, match=r"protocol\.json is damaged"):
        copy.copy_from(run, BEGINNING)
