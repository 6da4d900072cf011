"""Baselines of frozen features: rows that need no training, at the top of every table of runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from newkinds.evaluation.judge import evaluate
from newkinds.experiments.bench import bench
from newkinds.experiments.cells import Cell
from newkinds.experiments.paper import TABLES
from newkinds.experiments.tasks import Worked
from newkinds.runs.run import Run
from newkinds.verbs.discover import discover

SMALL = [
    {"data": {"categories": 8, "per_category": 8}, "train": {"epochs": 1, "batch_size": 32}},
    {"backbone": {"image_size": 32}},
]
NAMES = ["kmeans", "sskmeans-whitened"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One host and some baselines of creatures, with two seeds."""
    folder = tmp_path_factory.mktemp("baselines") / "runs"
    benched = bench(
        "plugin", folder, data=["creatures"], methods=["simgcd"], organizers=["none"], baselines=NAMES, seeds=[0, 1],
        settings=[*SMALL, {"method": {"memax_weight": 1.0, "projection_hidden": 32}, "backbone": {"train_blocks": 1}}],
    )  # fmt: skip
    assert benched.failed == []
    (folder / "printed.txt").write_text(benched.text)
    return folder


def test_baselines_stand_above_the_hosts_and_are_compared_with_nothing(runs: Path) -> None:
    printed = (runs / "printed.txt").read_text()
    names = [line.split("|")[1].strip(" †") for line in printed.splitlines() if line.startswith("| ")]
    assert names[1:] == ["frozen + kmeans", "frozen + sskmeans whitened", "SimGCD"]
    assert len(re.findall(r"^\| frozen .* 2 \|$", printed, re.MULTILINE)) == 2, "two seeds each"
    assert "Δ" not in printed.split("Figures:")[0]
    collected = bench("plugin", runs, data=["creatures"], only_collect=True)
    assert collected.text == printed, "what is there is collected"
    csv = bench("plugin", runs, data=["creatures"], only_collect=True, style="csv").text.splitlines()
    of_row = [line for line in csv if line.startswith("plugin,creatures,unlabelled,frozen,none,sskmeans-whitened,")]
    assert len(of_row) == 9 * (1 + 2), "each measure, and each seed"


def test_images_are_embedded_once_for_all_baselines(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("images were embedded again")

    for module in ("discovery.finished", "evaluation.judge", "training.loop", "verbs.stages"):
        monkeypatch.setattr(f"newkinds.{module}.embed", refuse)
    one_more = [*NAMES, "ward-whitened"]
    options = {"methods": ["simgcd"], "organizers": ["none"], "seeds": [0, 1]}
    settings = [*SMALL, {"method": {"memax_weight": 1.0, "projection_hidden": 32}, "backbone": {"train_blocks": 1}}]
    again = bench("plugin", runs, data=["creatures"], baselines=one_more, settings=settings, **options)  # type: ignore[arg-type]
    assert again.failed == []
    assert "frozen + ward whitened" in again.text


def test_a_baseline_is_the_run_that_its_settings_describe(runs: Path, tmp_path: Path) -> None:
    """The same figures come from a run of its own; another seed is another start."""
    cell = Cell("creatures", "frozen", "sskmeans-whitened", 1)
    there = Run(cell.folder(runs))
    assert there.config().train.seed == 1
    assert there.config().train.epochs == 0
    assert there.config().backbone["train_blocks"] == 0
    discover("creatures", tmp_path / "alone", settings=[*SMALL, *cell.layers()])
    assert evaluate(tmp_path / "alone")["metrics"] == there.read_json("evaluation.json")["metrics"]
    seeds = [Run(Cell("creatures", "frozen", "kmeans", seed).folder(runs)).model_file for seed in (0, 1)]
    assert seeds[0].read_bytes() != seeds[1].read_bytes()


def test_every_table_but_the_costs_has_baselines() -> None:
    of_table = {name: table.baselines for name, table in TABLES.items()}
    assert of_table.pop("cost") == ()
    assert of_table.pop("count") == ("kmeans", "kmeans-whitened"), "what else finds the categories does not matter"
    assert {len(names) for names in of_table.values()} == {11}
    first = TABLES["fine"].cells()[:11]
    assert [row.title for row in first[:3]] == ["frozen + kmeans", "frozen + kmeans whitened", "frozen + sskmeans"]
    assert all(row.is_baseline and row.host == row for row in first)


def test_hosts_may_have_other_assigners_too(tmp_path: Path) -> None:
    benched = bench(
        "plugin", tmp_path, data=["creatures"], methods=["frozen", "gcd"], organizers=["none", "kmeans-whitened"],
        baselines=["none"], settings=SMALL,
    )  # fmt: skip
    assert not benched.failed
    names = [line.split("|")[1].strip(" †") for line in benched.text.splitlines() if line.startswith("| ")]
    assert names[1:] == ["frozen + kmeans whitened", "frozen", "GCD", "GCD + kmeans whitened", "Δ"]


def test_no_baselines_leaves_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    run_nothing = lambda cells, *_: begun.extend(map(str, cells)) or Worked()  # noqa: E731
    monkeypatch.setattr("newkinds.experiments.bench.run_all", run_nothing)
    for baselines, count in ((["none"], 1), (None, 12), (["all"], 12), (["pim"], 2)):
        begun.clear()
        bench("plugin", tmp_path, data=["creatures"], methods=["cms"], organizers=["none"], baselines=baselines)
        assert len(begun) == count
