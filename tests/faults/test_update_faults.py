"""An update that is killed, or whose disk is full, at any moment: the run is as before or as after, and a second update
completes it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import LONG, Count, killed, undisturbed
from test_disk import failing, refusal

import newkinds
from conftest import Killed
from growing import Kinds, write_vectors
from newkinds import Discovery
from newkinds.runs.changes import UpdateHistory
from newkinds.runs.directory import RunDirectory

State = tuple[Any, ...]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corrected run, and vectors that came: some of a kind never seen."""
    folder, kinds = tmp_path_factory.mktemp("begun"), Kinds()
    x, labels = write_vectors(folder, kinds, present=6, known=4)
    found = newkinds.discover(x, folder / "run", labels=str(labels), k=6, settings={"train": {"epochs": 0}}, page=False)
    found.rename("new-1", "heron")
    found.move([found.members[0].path], "heron")
    np.save(folder / "more.npy", kinds.draw({0: 3, 7: 8}))
    return folder


def state(run: Path) -> State:
    """All that people see of a run."""
    RunDirectory(run)  # whoever opens it finishes what was begun
    found = Discovery.read(run)
    places = [(m.path, m.category_id, m.category, m.status, m.since) for m in found.members]
    updates = [update.number for update in UpdateHistory.of(RunDirectory(run)).updates if not update.undone]
    rows = len(newkinds.discovery.split.read_embedding(RunDirectory(run), len(places)))
    return places, [c[:2] for c in found.categories], [edit["says"] for edit, _ in found.log()], updates, rows


def update(begun: Path, run: Path) -> Discovery:
    return newkinds.update(run, begun / "more.npy", page=False)


@pytest.fixture(scope="module")
def states(begun: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[State, State]:
    """Before the update, and after."""
    run = shutil.copytree(begun / "run", tmp_path_factory.mktemp("whole") / "run")
    before = state(Path(run))
    update(begun, Path(run))
    return before, state(Path(run))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_killed_at_any_moment(begun: Path, states: tuple[State, State], tmp_path: Path, count_cases: Count) -> None:
    run, random, kills = tmp_path / "run", np.random.default_rng(0), 0

    def work(acknowledge: object) -> None:
        update(begun, run)

    shutil.copytree(begun / "run", run)
    whole = undisturbed(work)
    while kills < (20 if LONG else 1):
        shutil.rmtree(run)
        shutil.copytree(begun / "run", run)
        kills += killed(work, float(random.uniform(0, whole)))[1]
        assert state(run) in states
        undisturbed(work)
        assert state(run) == states[1]
    count_cases("kills of update", kills)


@contextmanager
def ending(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[Callable[[], int]]:
    """The process ends at the call number `at` that changes names on the disk; how many there were."""
    calls = 0

    def ended(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                raise Killed
            return original(*arguments, **options)

        return call

    with monkeypatch.context() as patched:
        for name in ("replace", "rename", "link", "unlink"):
            patched.setattr(os, name, ended(getattr(os, name)))
        yield lambda: calls


@pytest.mark.parametrize("undoes", [False, True])
def test_ended_between_any_two_names(
    undoes: bool, begun: Path, states: tuple[State, State], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    count_cases: Count,
) -> None:  # fmt: skip
    cases, at, step = 0, 1, 3 if LONG else 31
    while True:
        run = tmp_path / f"run-{at}"
        shutil.copytree(begun / "run", run)
        if undoes:
            update(begun, run)
        with ending(monkeypatch, at) as calls, suppress(Killed):
            newkinds.undo_update(run, page=False) if undoes else update(begun, run)
        assert state(run) in states
        if calls() < at:
            break
        cases, at = cases + 1, at + step
        shutil.rmtree(run)
    assert cases > 1
    count_cases(f"ends of {'undoing an update' if undoes else 'an update'} between two names on the disk", cases)


def test_full_disks(
    begun: Path, states: tuple[State, State], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count_cases: Count
) -> None:
    cases = 0
    for at in range(1, 400, 12 if LONG else 75):
        run = tmp_path / f"run-{at}"
        shutil.copytree(begun / "run", run)
        with failing(monkeypatch, at, errno.ENOSPC) as has_failed:
            said = refusal(lambda: update(begun, run))  # noqa: B023
        if not has_failed():
            break
        assert not said or str(run) in said
        assert state(run) in states
        update(begun, run)
        assert state(run) == states[1]
        cases += 1
    assert cases > 1
    count_cases("full disks of update", cases)
