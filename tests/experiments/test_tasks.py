"""A queue of tasks that several commands share: order, failures, and what others are at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from conftest import SMALL_HEAD, TINY_TRAINING
from newkinds.errors import Busy, NewkindsError
from newkinds.experiments import tasks as module
from newkinds.experiments.bench import bench
from newkinds.experiments.cells import Cell
from newkinds.experiments.run_grid import run_all
from newkinds.experiments.tasks import InTurn, Task, TaskQueue
from newkinds.ownership import CELL_LOCK
from newkinds.runs.run import Run

CREATURES = {"data": {"name": "creatures"}}


def task(name: str, order: list[str], needs: tuple[str, ...] = (), fails: Callable[[], None] = lambda: None) -> Task:
    def do() -> str:
        order.append(name)
        fails()
        return name.upper()

    return Task(name, lambda: do, needs)


def test_each_task_comes_after_what_it_needs_and_a_failure_stops_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise NewkindsError("no.")

    order: list[str] = []
    queue = [task("b", order, ("a",)), task("a", order), task("d", order, ("c",)), task("c", order, (), fail)]
    worked = TaskQueue(queue, InTurn()).work_off()
    assert order == ["a", "b", "c"]
    assert worked.finished == {"a": "A", "b": "B"}
    assert worked.failed == ["c", "d"]
    assert worked.busy == []
    assert "d failed: it starts from c, which failed." in capsys.readouterr().err


def test_what_another_process_is_at_comes_last_and_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = {"tries": 3}

    def busy() -> None:
        left["tries"] -= 1
        if left["tries"]:
            raise Busy("another process is at it.")

    slept: list[float] = []
    clock = [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(module.time, "sleep", sleep)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    order: list[str] = []
    queue = [task("a", order, (), busy), task("after a", order, ("a",)), task("b", order), task("c", order)]
    worked = TaskQueue(queue, InTurn()).work_off()
    assert order == ["a", "b", "c", "a", "a", "after a"]
    assert list(worked.finished) == ["b", "c", "a", "after a"]
    assert worked.failed == []
    assert slept == [2.0, 3.0], "the second time it is left alone for longer"
    said = capsys.readouterr().err
    assert said.count("a is passed over: another process is working on it") == 1
    assert said.count("waiting for 1 that other processes are at: a") == 1

    left["tries"] = 30
    assert list(TaskQueue(queue, InTurn()).work_off().finished) == ["b", "c", "a", "after a"]
    assert max(slept) == 60.0
    told = capsys.readouterr().err.count("waiting for 1 that other processes are at: a")
    assert told == 1 + int(sum(slept[2:]) // 300), "every five minutes"

    left["tries"] = 3
    order.clear()
    worked = TaskQueue(queue, InTurn(), wait=False).work_off()
    assert order == ["a", "b", "c"]
    assert (list(worked.finished), worked.failed, worked.busy) == (["b", "c"], [], ["after a", "a"])


def test_a_cell_that_another_process_is_at_is_busy_not_failed(tmp_path: Path, run_cli: Any) -> None:
    """Whether it is seen by its own lock or by that of its training; the others are run."""
    cells = [Cell("creatures", "simgcd", "none", seed) for seed in range(3)]
    small = {**TINY_TRAINING, "train": {"epochs": 0}}
    lock = FileLock(Run(cells[0].folder(tmp_path)).folder / CELL_LOCK)
    cells[0].folder(tmp_path).mkdir()
    with lock, Run(cells[1].folder(tmp_path)).claimed():
        worked = run_all(cells, tmp_path, lambda _: [CREATURES, small, SMALL_HEAD], lambda _: None, wait=False)
    assert (list(worked.finished), worked.failed, worked.busy) == ([cells[2]], [], cells[:2])

    asked: dict[str, Any] = {"methods": ["simgcd"], "organizers": ["none"], "data": ["creatures"], "seeds": [0, 2]}
    with lock:
        benched = bench("plugin", tmp_path, **asked, baselines=["none"], wait=False, settings=[small, SMALL_HEAD])
        assert (benched.failed, benched.busy) == ([], [str(cells[0])])
        words = ("--methods", "simgcd", "--organizers", "none", "--baselines", "none", "--set", "data.categories=4")
        shrunk = ("--set", "data.per_category=8", "--epochs", "0", "--set", "method.projection_hidden=32", "--no-wait")
        status, _, said = run_cli("bench", "plugin", "--data", "creatures", "--out", tmp_path, *words, *shrunk)
    assert status == 0, "nothing failed"
    assert f"newkinds bench plugin --out {tmp_path} --collect" in said


def test_a_lock_is_made_in_no_folder_of_others(tmp_path: Path) -> None:
    cell = Cell("creatures", "simgcd", "none")
    cell.folder(tmp_path).mkdir()
    (cell.folder(tmp_path) / "mine.txt").write_text("not a run")
    assert run_all([cell], tmp_path, lambda _: [CREATURES, TINY_TRAINING]).failed == [cell]
    assert [file.name for file in cell.folder(tmp_path).iterdir()] == ["mine.txt"]
