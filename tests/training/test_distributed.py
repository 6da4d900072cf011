"""Two processes, started by torchrun, do what one does: the same losses, weights and categories, to rounding."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import several
import torch
from safetensors.torch import load_file

from newkinds.data.world import World, chunks
from newkinds.encoders.dropout import drawing_for, dropout

SCRIPT = Path(several.__file__)


def torchrun(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """All cases by one process, and by two."""
    folder = tmp_path_factory.mktemp("several")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEWKINDS_CACHE", str(folder / "one" / "cache"))
        several.train_all(folder / "one", [])
    done = torchrun(SCRIPT, folder / "two", NEWKINDS_CACHE=str(folder / "two" / "cache"))
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "one", folder / "two"


def rows(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def assert_same_run(one: Path, two: Path) -> None:
    assert len(rows(one)) == len(rows(two)) == 2
    for mine, theirs in zip(rows(one), rows(two), strict=True):
        for values in (mine, theirs):
            values.pop("seconds")
        assert mine == pytest.approx(theirs, rel=2e-5, abs=2e-6)
    weights, others = load_file(one / "model.safetensors"), load_file(two / "model.safetensors")
    assert weights.keys() == others.keys()
    for name, value in weights.items():
        if not name.startswith("calibration."):  # which splits of the labelled images again, at the mercy of rounding
            close = torch.isclose(value, others[name], rtol=1e-3, atol=1e-4, equal_nan=True)
            assert close.all(), name
    categories = [
        [line.split(",")[:4] for line in (run / "assignments.csv").read_text().splitlines()] for run in (one, two)
    ]
    assert categories[0] == categories[1]


@pytest.mark.parametrize("case", several.CASES)
def test_two_processes_give_the_run_of_one(case: str, runs: tuple[Path, Path]) -> None:
    one, two = runs
    assert_same_run(one / case, two / case)


def test_two_processes_fill_the_cache_of_one_bit_by_bit(runs: tuple[Path, Path]) -> None:
    one, two = (sorted((run / "cache").glob("*/rows.*")) for run in runs)
    assert [file.name for file in one] == ["rows.index", "rows.tokens"]
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]
    # 72 images are two batches, of the evaluation view alone: each process had one
    assert (runs[1] / "batches of the second").read_text() == "1 views\n"


def test_a_run_is_resumed_by_another_number_of_processes(runs: tuple[Path, Path], tmp_path: Path) -> None:
    done = torchrun(SCRIPT, tmp_path, "hierarchy", NEWKINDS_TEST_STOPS="1")
    assert done.returncode != 0
    assert len(rows(tmp_path / "hierarchy")) == 1
    several.train_all(tmp_path, ["hierarchy"])
    assert_same_run(runs[0] / "hierarchy", tmp_path / "hierarchy")


def test_if_a_process_dies_the_others_say_so_and_end(tmp_path: Path) -> None:
    done = torchrun(SCRIPT, tmp_path, "dropout", NEWKINDS_TEST_DIES="1")
    assert done.returncode != 0
    assert "another process of this run has died" in done.stderr
    assert "to resume, rerun the same command" in done.stderr


@pytest.mark.skipif(os.environ.get("NEWKINDS_FAULTS") != "long", reason="takes long: NEWKINDS_FAULTS=long")
def test_if_a_process_dies_torchrun_starts_them_again_and_they_resume(runs: tuple[Path, Path], tmp_path: Path) -> None:
    done = torchrun("--max-restarts", "1", SCRIPT, tmp_path, "teacher", NEWKINDS_TEST_DIES_ONCE="1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "another process of this run has died" in done.stderr
    assert "resuming after epoch 1" in done.stderr
    assert_same_run(runs[0] / "teacher", tmp_path / "teacher")


def test_the_command_line_speaks_once(tmp_path: Path) -> None:
    words = ["discover", "creatures", "--out", tmp_path / "run", "--method", "gcd", "--epochs", "0", "--set"]
    done = torchrun("-m", "newkinds", *words, "data.per_category=6")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("images assigned") == 1
    assert done.stderr.count("nothing is trained") == 1


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [5, 6, 17])
def test_every_item_is_of_one_process(count: int, size: int) -> None:
    worlds = [World(rank, size) for rank in range(size)]
    assert [i for world in worlds for i in range(count)[world.share(count)]] == list(range(count))
    assert worlds[0].shares(count) == [len(range(count)[world.share(count)]) for world in worlds]
    some = chunks(count, 2)
    assert [row for chunk in some for row in chunk] == list(range(count))
    assert World(0, size).in_turn([world.turns(some) for world in worlds]) == some


def test_dropout_of_a_share_is_a_share_of_the_dropout() -> None:
    rows_of_all = torch.randn(2 * 7, 3, 5)  # two views of seven images
    torch.manual_seed(3)
    whole = dropout(rows_of_all, 0.4, training=True).unflatten(0, (2, 7))
    for here in (slice(0, 3), slice(3, 7)):
        torch.manual_seed(3)
        with drawing_for(7, here):
            part = dropout(rows_of_all.unflatten(0, (2, 7))[:, here].flatten(0, 1), 0.4, training=True)
        torch.testing.assert_close(part.unflatten(0, (2, -1)), whole[:, here])
    assert (whole == 0).float().mean() > 0.2
