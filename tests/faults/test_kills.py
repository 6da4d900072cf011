"""SIGKILL at random moments: what was acknowledged is there, files are whole, and the same command ends with the same
bits."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import newkinds
from conftest import TINY_TRAINING, save_image
from newkinds.cli import main
from newkinds.discovery.studio.state import Studio

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
LONG = os.environ.get("NEWKINDS_FAULTS") == "long"
Count = Callable[[str, int], None]
Acknowledge = Callable[[str], object]


def killed(work: Callable[[Acknowledge], object], seconds: float) -> tuple[list[str], bool]:
    """Do the work in a process that is killed after a while: what it acknowledged, and whether it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            work(lambda said: os.write(writing, f"{said}\n".encode()))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    said, end = b"", time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
        if not (piece := os.read(reading, 1 << 16)):
            break
        said += piece
    os.kill(child, signal.SIGKILL)  # it was not waited for yet: the number is still its own
    status = os.waitpid(child, 0)[1]
    while piece := os.read(reading, 1 << 16):
        said += piece
    os.close(reading)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the work failed by itself"
    return said.decode().splitlines(), os.WIFSIGNALED(status)


def undisturbed(work: Callable[[Acknowledge], object]) -> float:
    """Do all of the work in another process; how long that takes."""
    started = time.monotonic()
    assert not killed(work, 60)[1]
    return time.monotonic() - started


def by_python(run: Path) -> Callable[[Acknowledge], object]:
    def work(acknowledge: Acknowledge) -> None:
        for number in range(100_000):
            found = newkinds.Discovery.read(run)
            path = found.found_members[number % len(found.found_members)].path
            edits = [
                lambda: found.rename(0, f"name {os.getpid()} {number}"),  # noqa: B023
                lambda: found.move([path], 1),  # noqa: B023
                found.undo,
                found.redo,
                lambda: found.junk([path]),  # noqa: B023
            ]
            acknowledge(edits[number % 5]())

    return work


def by_studio(run: Path) -> Callable[[Acknowledge], object]:
    def work(acknowledge: Acknowledge) -> None:
        studio = Studio(run)
        for number in range(100_000):
            wanted = {"edit": "rename", "category": 0, "name": f"seen {os.getpid()} {number}"}
            seen = newkinds.Discovery.read(run).revision
            studio.edit({**wanted, "seen": seen, "found": studio.found})
            acknowledge(wanted["name"])

    return work


@pytest.mark.parametrize("way", [by_python, by_studio])
def test_edits(way: Callable[[Path], Callable[[Acknowledge], object]], table_run: Path, count_cases: Count) -> None:
    luck, kills, acknowledged = random.Random(1), 0, 0
    for _ in range(100 if LONG else 10):
        before = [edit["says"] for edit, _ in newkinds.Discovery.read(table_run).log()]
        said, was_killed = killed(way(table_run), luck.uniform(0.005, 0.15))
        after = [edit["says"] for edit, _ in newkinds.Discovery.read(table_run).log()]
        assert after[: len(before)] == before
        made = after[len(before) :]
        assert len(said) <= len(made) <= len(said) + 1
        assert all(one in other for one, other in zip(said, made, strict=False))
        kills += was_killed
        acknowledged += len(said)
    assert acknowledged > 10, "it was always killed before the first edit"
    count_cases(f"kills while edits are made ({way.__name__})", kills)


def content(folder: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}


def test_discovering(tmp_path: Path, caches: Path, count_cases: Count) -> None:
    """Caching tokens, training, embedding and assigning: killed again and again, the run ends as if it never was."""
    settings: dict[str, Any] = {
        **TINY_TRAINING,
        "method": {"projection_hidden": 8},
        "train": {**TINY_TRAINING["train"], "workers": 0, "cache_views": 2},
    }
    results = ("model.safetensors", "assignments.csv", "categories.json", "features.safetensors", "config.yaml")

    def discover(out: Path) -> Callable[[Acknowledge], object]:
        return lambda acknowledge: newkinds.discover("creatures", out, organizer="cpf", settings=settings)

    whole = undisturbed(discover(tmp_path / "sound"))
    sound, luck, kills = content(tmp_path / "sound", results), random.Random(2), 0
    for number in range(20 if LONG else 1):
        out = tmp_path / f"killed{number}"
        shutil.rmtree(caches)
        for _ in range(5 if LONG else 2):
            kills += killed(discover(out), luck.uniform(0, 0.6 * whole))[1]
        undisturbed(discover(out))
        assert content(out, results) == sound
        assert not list(out.glob(".*.tmp"))
    count_cases("kills of discover (cache, training, embedding, tables)", kills)


@pytest.mark.parametrize("verb", ["predict", "export"])
def test_outputs_are_whole_or_not_there(verb: str, whole_run: Path, tmp_path: Path, count_cases: Count) -> None:
    pictures = [save_image(tmp_path / "pictures" / f"{number}.png") for number in range(3)]
    out = {"predict": tmp_path / "out.csv", "export": tmp_path / "out"}[verb]
    words = {"predict": ["predict", whole_run, *pictures], "export": ["export", whole_run, "--to", "folders"]}[verb]

    def work(acknowledge: Acknowledge) -> object:
        return main([str(word) for word in (*words, "--out", out)])

    def there() -> dict[str, bytes]:
        files = [out] if out.is_file() else sorted(file for file in out.rglob("*") if file.is_file())
        return {str(file.relative_to(out.parent)): file.read_bytes() for file in files}

    whole = undisturbed(work)
    sound, luck, kills = there(), random.Random(3), 0
    assert sound
    for _ in range(30 if LONG else 3):
        shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
        kills += killed(work, luck.uniform(0, whole))[1]
        assert there() in ({}, sound)
    count_cases(f"kills of {verb}", kills)
