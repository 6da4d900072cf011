"""Two processes, started by torchrun, do what one does: the same losses, weights and categories, to rounding."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import several
import torch
from safetensors.torch import load_file
from several import torchrun

from newkinds import process
from newkinds.cli import main
from newkinds.data.world import World, chunks
from newkinds.encoders.dropout import drawing_for, dropout
from newkinds.errors import NewkindsError
from newkinds.training import distributed

SCRIPT = Path(several.__file__)
LONG = pytest.mark.skipif(os.environ.get("NEWKINDS_FAULTS") != "long", reason="takes long: NEWKINDS_FAULTS=long")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """All cases by one process, and by two, which then meet all troubles."""
    folder = tmp_path_factory.mktemp("several")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEWKINDS_CACHE", str(folder / "one" / "cache"))
        several.train_all(folder / "one", [])
        several.predict_little(folder / "one")
        several.embed_from_cache(folder / "one" / "embedded", damage=False)
    done = torchrun(SCRIPT, folder / "two", NEWKINDS_CACHE=str(folder / "two" / "cache"))
    assert done.returncode == 0, done.stderr[-3000:]
    (folder / "two" / "said").write_text(done.stderr)
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


def assert_same_gradients(one: Path, two: Path, which: str, share: float) -> None:
    gradients, others = load_file(one / f"{which}.gradients"), load_file(two / f"{which}.gradients")
    assert gradients.keys() == others.keys()
    assert sum(bool(gradient.any()) for gradient in gradients.values()) > len(gradients) / 2
    for name, gradient in gradients.items():
        allowed = share * max(float(gradient.abs().max()), 1e-6)  # of a sum over images that may cancel
        assert torch.allclose(others[name], gradient, rtol=0, atol=allowed), name


@pytest.mark.parametrize("case", several.CASES)
def test_two_processes_have_the_gradients_of_one(case: str, runs: tuple[Path, Path]) -> None:
    one, two = runs
    assert_same_gradients(one / case, two / case, "first", share=1e-4)
    assert_same_gradients(one / case, two / case, "last", share=1e-2)  # the weights differ by rounding now


def test_troubles_are_met_together_and_all_go_on(runs: tuple[Path, Path]) -> None:
    met = json.loads((runs[1] / "troubles.json").read_text())
    assert met.pop("diverged").startswith("Diverged: training diverged in epoch 1")
    assert met.pop("little").startswith("NewkindsError: a batch of 1 image(s) cannot be shared by 2 processes")
    assert met == {
        "all": "ValueError: all of them",
        "first": "KeyError: 'only the first'",
        "second": "NewkindsError: OSError: only the second",
        "nested": "NewkindsError: OSError: only the second",
        "watched": "NewkindsError: seen enough",
    }


def test_a_damaged_row_is_mended_by_the_process_that_meets_it(runs: tuple[Path, Path]) -> None:
    one, two = runs
    assert (two / "alone").read_text() == "process 1\n"
    assert (two / "said").read_text().count("1 row(s) of the cache") == 1
    torch.testing.assert_close(load_file(two / "embedded"), load_file(one / "embedded"))


def test_fewer_images_than_processes_and_unreadable_ones_are_predicted_alike(runs: tuple[Path, Path]) -> None:
    one, two = (json.loads((run / "predicted.json").read_text()) for run in runs)
    assert one == two
    assert len(one[0]) == 2
    assert one[1] == ["torn.png"]


def test_two_processes_fill_the_cache_of_one_bit_by_bit(runs: tuple[Path, Path]) -> None:
    one, two = (sorted((run / "cache").glob("*/rows.*")) for run in runs)
    assert [file.name for file in one] == ["rows.index", "rows.tokens"] * 2
    same = [mine.read_bytes() == theirs.read_bytes() for mine, theirs in zip(one, two, strict=True)]
    assert sorted(same) == [False, False, True, True]  # one of the two was damaged after it was filled
    # 72 images are two batches, of the evaluation view alone: each process had one; and one of a damaged row
    assert (runs[1] / "batches of the second").read_text() == "1 views\n" * 3


def test_a_run_is_resumed_by_another_number_of_processes(runs: tuple[Path, Path], tmp_path: Path) -> None:
    """And what is said when one of them dies: here the second, after the first epoch."""
    done = torchrun(SCRIPT, tmp_path, "hierarchy", NEWKINDS_TEST_DIES_ONCE="1")
    assert done.returncode != 0
    assert "another process of this run has died" in done.stderr
    assert "to resume, rerun the same command" in done.stderr
    assert len(rows(tmp_path / "hierarchy")) == 1
    several.train_all(tmp_path, ["hierarchy"])
    assert_same_run(runs[0] / "hierarchy", tmp_path / "hierarchy")


@LONG
def test_if_a_process_dies_at_once_the_others_say_so_and_end(tmp_path: Path) -> None:
    done = torchrun(SCRIPT, tmp_path, "dropout", NEWKINDS_TEST_DIES="1")
    assert done.returncode != 0
    assert "another process of this run has died" in done.stderr
    assert "to resume, rerun the same command" in done.stderr


@LONG
def test_if_a_process_dies_torchrun_starts_them_again_and_they_resume(runs: tuple[Path, Path], tmp_path: Path) -> None:
    done = torchrun("--max-restarts", "1", SCRIPT, tmp_path, "teacher", NEWKINDS_TEST_DIES_ONCE="1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "another process of this run has died" in done.stderr
    assert "resuming after epoch 1" in done.stderr
    assert_same_run(runs[0] / "teacher", tmp_path / "teacher")


@LONG
def test_every_other_method_has_the_gradients_of_one_process(tmp_path: Path) -> None:
    several.train_all(tmp_path / "one", [*several.OTHERS])
    done = torchrun(SCRIPT, tmp_path / "two", *several.OTHERS)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in several.OTHERS:
        assert_same_gradients(tmp_path / "one" / name, tmp_path / "two" / name, "first", share=1e-3)


@LONG
def test_a_whole_plan_by_two_processes_is_that_of_one(tmp_path: Path) -> None:
    several.discover_by_plan(tmp_path / "one")
    done = torchrun(SCRIPT, tmp_path / "two", "planned", NEWKINDS_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr[-3000:]
    one, two = (json.loads((tmp_path / name / "planned" / "plan.json").read_text()) for name in ("one", "two"))
    assert one["chosen"] == two["chosen"]
    candidates, others = ({c["name"]: c for c in plan["candidates"]} for plan in (one, two))
    assert candidates.keys() == others.keys()
    assert sum(candidate["trains"] for candidate in candidates.values()) > 5
    for name, candidate in candidates.items():
        assert candidate["state"] == others[name]["state"]
        # trainings at this learning rate let rounding grow: one process, disturbed by 1e-7, differs from itself as much
        tolerance = 0.15 if candidate["trains"] else 1e-6
        assert np.allclose(candidate["scores"], others[name]["scores"], rtol=0, atol=tolerance)
    tables = [(tmp_path / name / "planned" / "assignments.csv").read_text() for name in ("one", "two")]
    assert tables[0] == tables[1]


@pytest.mark.parametrize(
    "words", [["--nosuch"], ["discover", "--k", "many"], ["train", "a", "--out", "b", "--set", "c"]]
)
def test_what_is_wrong_for_all_is_said_by_the_first(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def status() -> int | str | None:
        try:
            return main(words)
        except SystemExit as exit:
            return exit.code

    slept: list[float] = []
    monkeypatch.setattr(process.time, "sleep", slept.append)  # until torchrun ends it
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert status() in (1, 2)
    assert not slept
    assert "error: " in capsys.readouterr().err
    monkeypatch.setenv("RANK", "1")
    expected = "" if words[0] != "train" else "error: "  # nobody has ended it: it has met something of its own
    assert status() in (1, 2)
    assert slept
    assert capsys.readouterr().err[:7] == expected


def test_the_command_line_speaks_once(tmp_path: Path) -> None:
    words = ["discover", "creatures", "--out", tmp_path / "run", "--method", "gcd", "--epochs", "0"]
    few = ["--set", "data.categories=6", "--set", "data.per_category=6", "--set", "method.output_dim=64"]
    done = torchrun("-m", "newkinds", *words, *few)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("images assigned") == 1
    assert done.stderr.count("nothing is trained") == 1


def test_no_more_processes_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    distributed._take_gpu()
    assert taken == [1]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(NewkindsError, match=r"3 processes cannot share 2 GPU\(s\): start 2"):
        distributed._take_gpu()


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
