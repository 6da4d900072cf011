"""What looks on while a model trains."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import newkinds
from conftest import SMALL_HEAD, TINY_TRAINING
from newkinds.errors import NewkindsError
from newkinds.methods import Progress
from newkinds.training.watching import WATCHERS, Watcher


class Notes(Watcher):
    def __init__(self, break_in: int | None = None) -> None:
        self.said: list[Any] = []
        self.break_in = break_in

    def on_start(self, folder: Path | None, settings: Mapping[str, Any], first_step: int) -> None:
        self.said.append(("start", folder, settings["batch_size"], first_step))

    def on_step(self, progress: Progress, losses: Mapping[str, Tensor]) -> None:
        self.said.append((progress.taken, float(losses["loss"])))

    def on_epoch(self, epoch: int, row: Mapping[str, Any]) -> None:
        self.said.append((f"epoch {epoch}", dict(row)))
        if epoch == self.break_in:
            raise KeyboardInterrupt

    def on_end(self) -> None:
        self.said.append("end")


def test_watchers_are_told_of_every_step_and_epoch_also_of_a_resumed_run(tmp_path: Path) -> None:
    settings = [TINY_TRAINING, SMALL_HEAD]
    run, first, second = tmp_path / "run", Notes(break_in=0), Notes()
    with pytest.raises(KeyboardInterrupt):
        newkinds.train("creatures", run, watchers=[first], settings=settings)
    newkinds.train("creatures", run, watchers=[second], settings=settings)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [name for name, *_ in first.said[:-1]] == ["start", 0, 1, "epoch 0"]
    assert second.said[0] == ("start", run, 16, 2)
    assert [name for name, *_ in second.said[1:-1]] == [2, 3, "epoch 1"]
    assert first.said[-1] == second.said[-1] == "end"
    for notes, row in ((first, rows[0]), (second, rows[1])):
        assert notes.said[-2][1] == row
        assert row["loss"] == pytest.approx(sum(loss for _, loss in notes.said[1:-2]) / 2)


def test_discover_and_bench_pass_watchers_on_and_runs_beside_others_are_told_by_their_place(tmp_path: Path) -> None:
    from newkinds.experiments.bench import bench

    notes = Notes()
    newkinds.discover(
        "creatures", tmp_path / "found", watchers=[notes], method="simgcd", settings=[TINY_TRAINING, SMALL_HEAD]
    )
    bench(
        "plugin", tmp_path / "table", methods=["simgcd"], organizers=["none"], data=["creatures"], baselines=["none"],
        watchers=[notes], settings=[TINY_TRAINING, SMALL_HEAD],
    )  # fmt: skip
    starts = [folder for name, folder, *_ in (note for note in notes.said if note[0] == "start")]
    assert starts == [tmp_path / "found", tmp_path / "table" / "creatures-simgcd-none-seed0"]
    assert newkinds.runs.run.Run(tmp_path / "found" / ".next").home == tmp_path / "found"


def test_tensorboard_gets_curves_of_steps_and_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in for its writer, which takes the calls that the real one does."""
    written: list[tuple[str, float, int]] = []

    class SummaryWriter:
        def __init__(self, log_dir: str, purge_step: int) -> None:
            assert log_dir == str(tmp_path / "run" / "tensorboard")

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            written.append((tag, value, step))

        def add_text(self, tag: str, text: str, step: int) -> None:
            assert "batch_size: 16" in text

        def close(self) -> None:
            written.append(("closed", 0.0, 0))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", type("stub", (), {"SummaryWriter": SummaryWriter}))
    newkinds.train(
        "creatures", tmp_path / "run", watchers=[WATCHERS["tensorboard"]()], settings=[TINY_TRAINING, SMALL_HEAD]
    )
    assert [step for tag, _, step in written if tag == "step/loss"] == [0]  # of four steps every tenth
    assert [step for tag, _, step in written if tag == "epoch/loss"] == [0, 1]
    assert written[-1][0] == "closed"


def test_without_tensorboard_the_extra_is_named_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    status, _, said = run_cli("train", "creatures", "--out", str(tmp_path / "run"), "--log", "tensorboard")
    assert status
    assert "newkinds[tensorboard]" in said
    assert not (tmp_path / "run").exists()
    with pytest.raises(NewkindsError, match="no watcher called 'tensorbord'"):
        WATCHERS["tensorbord"]


def test_missing_weights_are_missed_before_images_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object, **__: object) -> None:
        raise AssertionError("images were opened")

    monkeypatch.setattr("newkinds.verbs.train.readable", opened)
    for verb in (newkinds.train, newkinds.discover):
        with pytest.raises(NewkindsError, match=r"no weight file .*gone"):
            verb("creatures", tmp_path / "run", backbone="tiny", weights=tmp_path / "gone.pth", method="simgcd")


def test_the_watchers_of_the_docs_log_every_epoch_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With stand-ins for the packages, which note what they are called with."""
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for package, logs, ends in (("wandb", "log", "finish"), ("mlflow", "log_metrics", "end_run")):
        calls: list[tuple[str, Any]] = []
        stand_in = NotesCalls(calls)
        monkeypatch.setitem(sys.modules, package, stand_in)
        (block,) = [block for block in blocks if block.startswith(f"import {package}")]
        exec(block, {"__name__": "of_the_docs"})
        watcher = WATCHERS._entries.pop(package)()
        watcher.on_start(tmp_path, {"lr": 0.1}, 0)
        watcher.on_epoch(0, {"epoch": 0, "loss": 2.5, "note": None})
        watcher.on_end()
        logged = dict(calls)
        assert logged[logs][0][0]["loss"] == 2.5
        assert calls[-1][0] == ends


class NotesCalls:
    """A module, or an object of it, all of whose functions only note their arguments."""

    def __init__(self, calls: list[tuple[str, Any]]) -> None:
        self.calls = calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def note(*arguments: Any, **options: Any) -> NotesCalls:
            self.calls.append((name, (arguments, options)))
            return self

        return note
