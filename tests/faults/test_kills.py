"""SIGKILL at random moments: what was acknowledged is there, and outputs are whole or not there."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import filelock  # noqa: F401  (before the children that are killed: importing it takes as long as some edits)
import pytest
from killing import LONG, Acknowledge, Count, Work, content, killed, undisturbed

import newkinds
from conftest import save_image
from newkinds.cli import main
from newkinds.discovery.studio.state import Studio

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def by_python(run: Path) -> Work:
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


def by_studio(run: Path) -> Work:
    def work(acknowledge: Acknowledge) -> None:
        studio = Studio(run)
        for number in range(100_000):
            wanted = {"edit": "rename", "category": 0, "name": f"seen {os.getpid()} {number}"}
            seen = newkinds.Discovery.read(run).revision
            studio.edit({**wanted, "seen": seen, "found": studio.found})
            acknowledge(wanted["name"])

    return work


@pytest.mark.parametrize("way", [by_python, by_studio])
def test_edits(way: Callable[[Path], Work], table_run: Path, count_cases: Count) -> None:
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


@pytest.mark.parametrize("verb", ["predict", "export"])
def test_outputs_are_whole_or_not_there(verb: str, whole_run: Path, tmp_path: Path, count_cases: Count) -> None:
    pictures = [save_image(tmp_path / "pictures" / f"{number}.png") for number in range(3)]
    out = {"predict": tmp_path / "out.csv", "export": tmp_path / "out"}[verb]
    words = {"predict": ["predict", whole_run, *pictures], "export": ["export", whole_run, "--to", "folders"]}[verb]

    def work(acknowledge: Acknowledge) -> object:
        return main([str(word) for word in (*words, "--out", out)])

    whole = undisturbed(work)
    sound, luck, kills = content(out), random.Random(3), 0
    assert sound
    while kills < (12 if LONG else 3):
        shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
        kills += killed(work, luck.uniform(0, whole))[1]
        assert content(out) in ({}, sound)
        whole *= 0.97  # the machine may have less to do than before
    shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
    undisturbed(work)
    assert content(out) == sound
    assert not list(tmp_path.rglob(".*.tmp"))
    count_cases(f"kills of {verb}", kills)
