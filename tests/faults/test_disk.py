"""The power is cut, disks are full, read-only or failing, clocks jump: what was acknowledged is there, and all of it is
readable."""

from __future__ import annotations

import builtins
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from disk import VARIANTS, ForgetfulDisk

import newkinds
from newkinds import files
from newkinds.discovery import editlog
from newkinds.errors import NewkindsError
from newkinds.files import make_folder, write_whole
from newkinds.runs.directory import RunDirectory

LONG = os.environ.get("NEWKINDS_FAULTS") == "long"
EDITS = 40 if LONG else 8
Count = Callable[[str, int], None]


def edit(run: Path, number: int) -> None:
    """One edit by one command: what people did before is read anew."""
    found = newkinds.Discovery.read(run)
    path = found.found_members[number % len(found.found_members)].path
    edits: list[Callable[[], str]] = [
        lambda: found.rename(0, f"name {number}"), lambda: found.move([path], 1), lambda: found.junk([path]),
        lambda: found.move([path], f"made {number}", new=True), found.undo,
    ]  # fmt: skip
    edits[number % 5]()


def made(run: Path) -> list[str]:
    return [edit["says"] for edit, _ in newkinds.Discovery.read(run).log()]


def test_edits_through_a_power_cut(
    table_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    count_cases: Count,
) -> None:
    disk = ForgetfulDisk(table_run)
    with disk.watched(monkeypatch):
        for number in range(EDITS):
            edit(table_run, number)
            disk.promised += 1
    everything, cases = made(table_run), 0
    assert len(everything) == EDITS
    for moment, cut in enumerate(disk.cuts):
        for variant in VARIANTS:
            after = made(cut.restore(tmp_path / f"{moment}-{cases}", variant))
            assert after == everything[: len(after)], (moment, variant)
            assert cut.promised <= len(after) <= cut.promised + 1, (moment, variant)
            cases += 1
    assert "were made" not in capfd.readouterr().err, "a false alarm: no edit was lost"
    count_cases("power cuts while people edit", cases)


def test_files_and_new_folders_through_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count_cases: Count
) -> None:
    root, cases = make_folder(tmp_path / "disk"), 0
    disk = ForgetfulDisk(root)
    folder = root / "a" / "new" / "run"  # its parents are new as well
    with disk.watched(monkeypatch):
        make_folder(folder)
        disk.promised += 1
        for version in range(1, EDITS):
            RunDirectory(folder).write_json("figures.json", {"version": version, "long": "x" * 500})
            disk.promised += 1
    for moment, cut in enumerate(disk.cuts):
        for variant in VARIANTS:
            left = cut.restore(tmp_path / f"{moment}-{cases}", variant) / folder.relative_to(root)
            assert left.is_dir() or not cut.promised, (moment, variant)
            there = (left / "figures.json").exists()
            version = RunDirectory(left).read_json("figures.json")["version"] if there else 0
            assert cut.promised - 1 <= version <= cut.promised, (moment, variant)
            cases += 1
    count_cases("power cuts while files and folders are written", cases)


def test_the_model_of_the_disk_does_forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tests above could not fail: what is not synced is gone."""
    root = make_folder(tmp_path / "disk")
    disk = ForgetfulDisk(root)
    with disk.watched(monkeypatch):
        (root / "careless.txt").write_text("all of it")
        write_whole(root / "careful.txt", "all of it")
        (root / "late.txt").write_text("all of it")
    lost_names, lost_contents, half = (disk.cuts[-1].restore(tmp_path / v, v) for v in VARIANTS)
    left = {file.name: file.read_text() for file in lost_names.iterdir()}
    assert left == {"careless.txt": "", "careful.txt": "all of it"}
    assert (lost_contents / "late.txt").read_text() == ""
    assert (half / "late.txt").read_text() == "all "
    assert (half / "careful.txt").read_text() == "all of it"


class HalfWritten:
    """A file on a disk that is full in the middle of a write."""

    def __init__(self, file: Any, error: OSError) -> None:
        self.file, self.error = file, error

    def __enter__(self) -> HalfWritten:
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()

    def write(self, data: bytes) -> None:
        self.file.write(data[: len(data) // 2])
        raise self.error


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, at: int, code: int) -> Iterator[Callable[[], bool]]:
    """The disk refuses its call number `at`, be it opening, writing, syncing or renaming, and the next."""
    calls, error = 0, OSError(code, os.strerror(code))

    def fails() -> bool:
        nonlocal calls
        calls += 1
        return at <= calls < at + 2

    def refuse(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(*arguments: Any) -> Any:
            if not fails():
                return original(*arguments)
            if name == "write":
                return original(arguments[0], arguments[1][: len(arguments[1]) // 2])  # a short write
            raise error

        return call

    def opened(path: Any, mode: str = "r", **options: Any) -> Any:
        writes = mode in ("xb", "ab")
        if writes and fails():
            raise error
        file = builtins.open(path, mode, **options)  # noqa: SIM115
        return HalfWritten(file, error) if writes and fails() else file

    with monkeypatch.context() as patched:
        for name in ("write", "fsync", "replace"):
            patched.setattr(os, name, refuse(name))
        patched.setattr(files, "open", opened, raising=False)
        yield lambda: calls >= at


def refusal(do: Callable[[], object]) -> str:
    """The sentence with which something is refused; empty if it was done. Anything else that is raised is a defect."""
    try:
        do()
    except NewkindsError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_failing_disks(
    code: int, table_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count_cases: Count
) -> None:
    cases = version = 0
    for at in range(1, 36 if LONG else 20):
        directory = RunDirectory(make_folder(tmp_path / "other" / str(at)))
        before, acknowledged, sure = made(table_run), [], 0
        with failing(monkeypatch, at, code) as has_failed:
            for number in range(4):
                said = refusal(lambda: edit(table_run, 5 * at + number))  # noqa: B023
                assert not said or str(table_run) in said
                if not said:
                    acknowledged.append(made(table_run)[-1])
                elif "not made" in said:
                    assert made(table_run) == before + acknowledged
                else:  # it is in the log, but may not be on the disk
                    before, acknowledged = made(table_run), []
                version += 1
                said = refusal(lambda: directory.write_json("figures.json", {"version": version}))  # noqa: B023
                assert not said or str(directory.folder) in said
                sure = sure if said else version
                if directory.path("figures.json").exists():
                    kept = RunDirectory(directory.folder).read_json("figures.json")["version"]
                    assert sure <= kept <= version
        assert made(table_run) == before + acknowledged
        assert has_failed()
        cases += 1
    count_cases(f"disks that fail at one call ({errno.errorcode[code]})", cases)


def test_clocks_that_jump(table_run: Path, monkeypatch: pytest.MonkeyPatch, count_cases: Count) -> None:
    years = [2026, 2031, 1970, 2026, 1999, 2106]
    for number, year in enumerate(years):
        then = datetime(year, 1, 1, tzinfo=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        monkeypatch.setattr(editlog, "_now", lambda then=then: then)
        edit(table_run, number)
        os.utime(table_run / "edits.jsonl", (year, year))
        os.utime(table_run / "assignments.csv", (year, year))
    found = newkinds.Discovery.read(table_run)
    assert [int(edit["at"][:4]) for edit, _ in found.log()] == years  # in the order in which they were made
    assert [edit["n"] for edit, _ in found.log()] == list(range(1, len(years) + 1))
    found.undo()
    assert not newkinds.Discovery.read(table_run).log()[-2][1]
    count_cases("jumps of the clock", len(years))
