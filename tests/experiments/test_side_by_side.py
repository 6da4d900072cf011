"""`bench --jobs N`: cells side by side, in processes of one command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from side_by_side_tasks import fail, tell

from newkinds import plugins
from newkinds.errors import NewkindsError
from newkinds.experiments.bench import bench
from newkinds.experiments.cells import Cell
from newkinds.experiments.outcomes import read_outcome
from newkinds.experiments.side_by_side import SideBySide, share_of_machine
from newkinds.experiments.tasks import Task, TaskQueue
from newkinds.methods import METHODS

SMALL = {
    "data": {"categories": 4, "per_category": 8},
    "train": {"epochs": 1, "batch_size": 16},
    "method": {"projection_hidden": 32},
}
PLUGIN = """
from newkinds.methods import METHODS
from newkinds.methods.simgcd import SimGCD

@METHODS.register("mine")
class Mine(SimGCD):
    pass
"""
FOR_EVER = """
import sys
from functools import partial
from pathlib import Path
from side_by_side_tasks import work_for_ever
from newkinds.experiments.side_by_side import SideBySide
from newkinds.experiments.tasks import TaskQueue, Task

if __name__ == "__main__":
    out = Path(sys.argv[1])
    with SideBySide(2, out) as pool:
        TaskQueue([Task(name, lambda: partial(work_for_ever, out), log=name) for name in "ab"], pool).work_off()
"""


@pytest.mark.parametrize("cards", [0, 2])
def test_each_process_has_its_share_of_the_machine(cards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    shares = [share_of_machine(number, 3, spread=True) for number in range(3)]
    assert [share["OMP_NUM_THREADS"] for share in shares] == ["2", "2", "2"]
    assert [share.get("CUDA_VISIBLE_DEVICES") for share in shares] == (["4", "7", "4"] if cards else [None] * 3)
    assert "CUDA_VISIBLE_DEVICES" not in share_of_machine(0, 3, spread=False), "the user names the device"


def test_tasks_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they say is in their logs; one that fails, and a process that dies, stop no other."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(plugins, "_loaded", {})  # of other tests, whose files are gone
    calls: dict[str, Any] = {kind: partial(fail, kind) for kind in ("error", "die", "busy", "apart")}
    calls |= {f"tell {number}": partial(tell, f"word {number}") for number in range(3)}
    tasks = [Task(name, partial(lambda call: call, call), log=name.replace(" ", "-")) for name, call in calls.items()]
    with SideBySide(2, tmp_path) as pool:
        worked = TaskQueue(tasks, pool, wait=False).work_off()
        with pytest.raises(NewkindsError, match="cannot be sent to another process"):
            pool.begin(Task("unsent", lambda: bool), lambda: None)
    assert worked.finished == {
        f"tell {number}": {"OMP_NUM_THREADS": "2", "NEWKINDS_SIDE_BY_SIDE": "2"} for number in range(3)
    }
    assert sorted(worked.failed) == ["apart", "die", "error"]
    assert (worked.busy, worked.kept_apart) == (["busy"], ["apart"])
    said = " ".join(capsys.readouterr().err.split())
    assert "die failed: its process died (exit status 9)" in said
    assert f"error failed: it cannot be done (all it said is in {tmp_path / 'logs' / 'error.log'})" in said
    assert "apart is kept apart: other code made it." in said, "as it is said of one that this process did"
    assert "word" not in said
    log = (tmp_path / "logs" / "tell-1.log").read_text()
    assert "word 1" in log
    assert "WORD 1" in log
    assert "word 2" not in log


def test_a_plugin_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_loaded", {str(tmp_path / "gone.py"): "its checksum"})
    with SideBySide(1, tmp_path) as pool:
        pool.begin(Task("a", lambda: bool, log="a"), bool)
        assert "gone.py does not exist" in str(pool.take().error)


def test_a_grid_side_by_side_is_that_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a method that a plugin brings, which every process loads."""
    (tmp_path / "mine_beside.py").write_text(PLUGIN)
    monkeypatch.setattr(METHODS, "_entries", dict(METHODS._entries))
    monkeypatch.setattr(plugins, "_loaded", {})
    plugins.load_plugin(tmp_path / "mine_beside.py")
    asked: dict[str, Any] = {"methods": ["mine"], "organizers": ["none"], "baselines": ["none"], "settings": SMALL}
    beside = bench("ablation", tmp_path / "two", data=["creatures"], **asked, seeds=[1], jobs=2)
    assert (beside.failed, beside.busy) == ([], [])
    assert [log.name for log in (tmp_path / "two" / "logs").iterdir()] == ["creatures-mine-none-seed1.log"]
    bench("ablation", tmp_path / "one", data=["creatures"], **asked, seeds=[1])
    there, alone = (read_outcome(Cell("creatures", "mine", "none", 1).folder(tmp_path / out)) for out in ("two", "one"))
    assert there is not None
    assert alone is not None
    clocks = ("seconds", "epoch_seconds", "inference_seconds")
    for name in there.figures.keys() - clocks:
        assert there.figures[name] == alone.figures[name], name


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("how", ["interrupt", "kill"])
def test_all_processes_end_with_the_command(how: str, tmp_path: Path) -> None:
    """By Ctrl-C in good order; and if the command is killed, by themselves."""
    script = tmp_path / "for_ever.py"
    script.write_text(FOR_EVER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    started = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], env=environment, stderr=subprocess.PIPE, text=True
    )
    _until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
    started.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGKILL)
    said = started.communicate(timeout=30)[1]
    _until(lambda: len(list(tmp_path.glob("ended-*"))) == 2)
    if how == "interrupt":
        assert said.count("KeyboardInterrupt") == 1, "that of the script"


def _until(is_so: Any) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)
