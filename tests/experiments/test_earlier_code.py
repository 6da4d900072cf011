"""A plugin is edited between two calls of `newkinds bench`: what the old code found is never mixed with the new."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import made_once
from newkinds import plugins
from newkinds.experiments.cells import Cell
from newkinds.experiments.outcomes import collect
from newkinds.methods import METHODS
from newkinds.runs.protocol import describe_protocol
from newkinds.runs.run import Run

Cli = Callable[..., tuple[int, str, str]]
PLUGIN = """
from newkinds.methods import METHODS
from newkinds.methods.simgcd import SimGCD

@METHODS.register("weighted")
class Weighted(SimGCD):
    def loss(self, step):
        return {name: 1.0 * term for name, term in super().loss(step).items()}
"""
OURS, HOST = Cell("creatures", "weighted", "none"), Cell("creatures", "simgcd", "none")
GRID = (
    "bench", "plugin", "--data", "creatures", "--methods", "simgcd,weighted", "--organizers", "none", "--baselines",
    "none", "--epochs", "1", "--set", "data.categories=4", "--set", "data.per_category=6",
    "--set", "method.projection_hidden=32", "--set", "train.batch_size=32",
)  # fmt: skip


def forget() -> None:
    """As in a new process."""
    METHODS._entries.pop("weighted", None)
    sys.modules.pop("my_weights", None)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(plugins, "_loaded", {})
    file = tmp_path / "my_weights.py"
    file.write_text(PLUGIN)
    yield file
    forget()


def edit(file: Path) -> None:
    file.write_text(PLUGIN.replace("1.0", "30.0"))
    forget()


def seeds_of(row: Cell, runs: Path) -> list[int]:
    return sorted(cell.seed for cell in collect([row], runs).found)


def test_old_and_new_code_are_not_averaged(plugin: Path, tmp_path: Path, run_cli: Cli) -> None:
    command = (*GRID, "--out", tmp_path / "runs", "--plugin", plugin)
    assert run_cli(*command, "--seeds", "0")[0] == 0
    plugin.write_text(PLUGIN + "# a comment\n")
    forget()
    assert "weighted-none-seed0 is finished already" in run_cli(*command, "--seeds", "0")[2]

    edit(plugin)
    first = Run(OURS.folder(tmp_path / "runs"))
    old = first.model_file.read_bytes()
    alone = run_cli(*command, "--seeds", "0")[1]
    (ours,) = [line for line in alone.splitlines() if line.startswith("| Weighted")]
    assert set(ours) <= set("| Weighted"), "a row of old runs alone has no figures"
    said = "Weighted on creatures, seed 0: it has other code (of the method) than there is now."
    assert f"Left out of the table: {said}" in alone
    _, shown, err = run_cli("bench", "plugin", "--data", "creatures", "--out", tmp_path / "runs", "--collect")
    assert "| Weighted" not in shown
    assert "| SimGCD" in shown, "nothing has changed for the host"
    assert said in shown
    assert said.replace(": it has", " is left out of the table: it has") in " ".join(err.split())

    status, text, err = run_cli(*command, "--seeds", "0", "1")
    assert status == 0, "nothing went wrong"
    assert "could not be finished" not in err
    assert "1 requested run(s) of other code are kept apart: --again runs them again" in err
    assert f"made by other code (the code of the method 'weighted' ({plugin}) has changed)" in err
    assert "Weighted on creatures, seed 0 is kept apart" in err
    assert "is left out" not in err, "it is said once"
    assert "--again" in err
    assert "creatures-simgcd-none-seed0 is finished already" in err, "nothing has changed for the host"
    (ours,) = [line for line in text.splitlines() if line.startswith("| Weighted")]
    assert ours.split("|")[-2].strip() == "1", "the new one alone"
    assert "Left out of the table: Weighted on creatures, seed 0: it has other code (of the method)" in text
    assert first.model_file.read_bytes() == old
    assert "method weighted from my_weights.py, sha256 " in text
    assert str(tmp_path) not in text, "tables are published"

    collected = run_cli("bench", "plugin", "--data", "creatures", "--out", tmp_path / "runs", "--collect")
    assert collected[1] == text
    assert (seeds_of(OURS, tmp_path / "runs"), seeds_of(HOST, tmp_path / "runs")) == ([1], [0, 1])

    status, text, _ = run_cli(*command, "--seeds", "0", "1", "--again")
    assert status == 0
    assert "Left out" not in text
    assert seeds_of(OURS, tmp_path / "runs") == [0, 1]
    kept = tmp_path / "runs" / "earlier-code" / "creatures-weighted-none-seed0-1" / "model.safetensors"
    assert kept.read_bytes() == old != first.model_file.read_bytes()


def test_a_run_that_was_interrupted_does_not_go_on_with_other_code(
    plugin: Path, tmp_path: Path, run_cli: Cli, killed_after_an_epoch: Callable[..., object]
) -> None:
    command = (*GRID, "--out", tmp_path / "runs", "--plugin", plugin, "--methods", "weighted", "--epochs", "2")
    with killed_after_an_epoch():  # type: ignore[attr-defined]
        run_cli(*command)
    edit(plugin)
    status, _, err = run_cli(*command)
    assert status == 0
    assert "was made by other code" in err
    assert "epoch 2/2" not in err
    assert run_cli(*command, "--again")[0] == 0
    assert seeds_of(OURS, tmp_path / "runs") == [0]


def test_a_training_that_goes_on_with_other_code_says_so_for_good(
    plugin: Path, tmp_path: Path, run_cli: Cli, killed_after_an_epoch: Callable[..., object]
) -> None:
    small = ("--set", "data.categories=4", "--set", "data.per_category=6", "--set", "method.projection_hidden=32")
    command = ("train", "creatures", "--method", "weighted", "--out", tmp_path / "run", "--plugin", plugin, *small)
    with killed_after_an_epoch():  # type: ignore[attr-defined]
        run_cli(*command, "--epochs", "2")
    edit(plugin)
    status, _, err = run_cli(*command, "--epochs", "2")
    assert status == 0
    assert "was started with other code (the code of the method 'weighted'" in err
    run = Run(tmp_path / "run")
    code = run.protocol().code
    assert code is not None
    assert code.changed
    described = dict(describe_protocol(run))["code"]
    assert described.endswith("training went on with other code than it began with")


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SimGCD on creatures, seeds 0 and 1."""
    from newkinds.experiments.bench import bench

    def make(root: Path) -> None:
        small = {"data": {"categories": 4, "per_category": 6}, "method": {"projection_hidden": 32}}
        benched = bench(
            "plugin", root / "runs", data=["creatures"], methods=["simgcd"], organizers=["none"], baselines=["none"],
            seeds=[0, 1], epochs=1, settings=small,
        )  # fmt: skip
        assert benched.failed == []

    return made_once(tmp_path_factory, "two-seeds", make) / "runs"


@pytest.mark.parametrize("change", ["older", "other newkinds"])
def test_runs_of_another_newkinds_are_kept_apart(
    change: str, two_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = shutil.copytree(two_runs, tmp_path / "runs")
    first = Run(HOST.folder(runs))
    record = json.loads(first.path("protocol.json").read_text())
    code = None if change == "older" else {**record["code"], "shared": "another"}
    first.write_json("protocol.json", {**record, "code": code})
    assert seeds_of(HOST, runs) == [1], "that of the present code stays"
    said = "made before the code of runs was recorded" if change == "older" else "another"
    assert f"SimGCD on creatures, seed 0 is left out of the table: it has other code (newkinds {said}" in (
        " ".join(capsys.readouterr().err.replace("0.2.0 another", "another").split())
    )
