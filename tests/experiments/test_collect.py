"""Collecting finished runs: what may stand in one table, and what is named and left out."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import made_once
from layouts import lay_out_birds
from newkinds.evaluation.judge import evaluate
from newkinds.experiments.bench import bench
from newkinds.experiments.cells import Cell
from newkinds.experiments.outcomes import collect
from newkinds.experiments.paper import TABLES
from newkinds.runs.run import Run

Cli = Callable[..., tuple[int, str, str]]
FAST = {"backbone": {"image_size": 32}, "method": {"projection_hidden": 32}}


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished cell: SimGCD on a small copy of CUB, seed 0."""

    def make(root: Path) -> None:
        lay_out_birds(root / "data")
        settings = [FAST, {"train": {"epochs": 1, "batch_size": 64}}]
        benched = bench(
            "fine", root / "runs", data=["cub"], methods=["simgcd"], organizers=["none"], baselines=["none"],
            backbone="tiny", data_root=root / "data", settings=settings,
        )  # fmt: skip
        assert benched.failed == []

    return made_once(tmp_path_factory, "grid", make)


def test_a_run_with_other_settings_is_not_the_one_that_was_asked_for(one_run: Path, tmp_path: Path) -> None:
    """Its figures stand in nobody's way: a cell that was run just now stays in the table, and the other is named."""
    shutil.copytree(one_run / "runs", tmp_path / "runs")
    options = {"data": ["cub"], "methods": ["simgcd"], "baselines": ["none"], "backbone": "tiny"}
    options["data_root"] = one_run / "data"
    two_epochs = [FAST, {"train": {"epochs": 2, "batch_size": 64}}]
    benched = bench("fine", tmp_path / "runs", organizers=["none", "patches"], settings=two_epochs, **options)
    assert benched.failed == ["SimGCD on cub, seed 0"]
    of_cub = benched.text.split("## aircraft")[0].splitlines()
    (host,) = [line for line in of_cub if line.startswith("| SimGCD  ")]
    (patches,) = [line for line in of_cub if line.startswith("| SimGCD + patches ")]
    assert host.split("|")[3].strip() == "", "one epoch is not two"
    alone = bench("fine", tmp_path / "runs", organizers=["none"], settings=[FAST, {"train": {"epochs": 3}}], **options)
    assert "SimGCD" not in [row.name for row in alone.rows], "also if nothing was run just now"
    assert "SimGCD on cub, seed 0: it has other settings than asked for (train.epochs is 1, not 3" in alone.text
    assert re.fullmatch(r"[\d.]+", patches.split("|")[3].strip())


def copied(one_run: Path, tmp_path: Path, **names: str) -> Path:
    """The same run several times, under these names, with its settings changed to fit: {"none-seed1": "old=new"}."""
    there = Cell("cub", "simgcd", "none", 0).folder(one_run / "runs")
    for name, changes in names.items():
        folder = tmp_path / f"cub-simgcd-{name.replace('_', '-')}"
        shutil.copytree(there, folder)
        text = (folder / "config.yaml").read_text()
        for change in filter(None, changes.split(";")):
            before, after = change.split(">")
            assert before in text
            text = text.replace(before, after)
        Run(folder).write("config.yaml", text)
    return tmp_path


def test_runs_with_other_settings_are_not_averaged(
    one_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = copied(
        one_run, tmp_path,
        none_seed0="",
        none_seed1="\n  seed: 0>\n  seed: 1",
        none_seed2="\n  seed: 0>\n  seed: 2;memax_weight: 2.0>memax_weight: 9.0",
        patches_seed0="name: none>name: patches;momentum: 0.9>momentum: 0.8",
    )  # fmt: skip
    found = collect(TABLES["ablation"].cells(), runs).found
    assert sorted((cell.organizer, cell.seed) for cell in found) == [("none", 0), ("none", 1)]
    told = capsys.readouterr().err
    said = "is left out of the table: it has other settings"
    assert f"SimGCD on cub, seed 2 {said} (method.memax_weight is 9.0, not 2.0) than SimGCD on cub, seed 0" in told
    assert f"SimGCD + patches on cub, seed 0 {said} (train.momentum is 0.8, not 0.9) than SimGCD on cub, seed 0" in told
    asked_now = [Cell("cub", "simgcd", "none", 2)]
    assert list(collect(TABLES["ablation"].cells(), runs, preferred=asked_now).found) == asked_now


def test_of_rows_that_are_named_no_others_are_shown(one_run: Path, tmp_path: Path) -> None:
    runs = copied(one_run, tmp_path, none_seed0="", patches_seed0="name: none>name: patches")

    def shown(**names: list[str]) -> list[str]:
        found = bench("fine", runs, only_collect=True, **names)  # type: ignore[arg-type]
        return [f"{row.name} {row['all'].change}" for row in found.rows]

    everything = ["SimGCD –", "SimGCD + patches +0.0"]
    assert shown() == shown(baselines=["none"]) == shown(methods=["simgcd"]) == everything
    assert shown(organizers=["none"]) == ["SimGCD –"]
    assert shown(organizers=["none", "cpf"], baselines=["kmeans"]) == ["SimGCD –"]
    assert shown(methods=["cms"]) == []


def test_only_the_seeds_that_are_named_are_shown(one_run: Path, tmp_path: Path, run_cli: Cli) -> None:
    """All by default, also if a file says which are run."""
    runs = copied(one_run, tmp_path, none_seed0="", none_seed1="seed: 0>seed: 1")
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(f"{{table: fine, out: '{runs}', seeds: [1], settings: {{train: {{epochs: 7}}}}}}")

    def seeds_shown(*arguments: object) -> tuple[set[str], str]:
        _, text, said = run_cli("bench", *arguments, "--collect", "--style", "csv")
        return {line["seed"] for line in csv.DictReader(io.StringIO(text)) if line["seed"]}, " ".join(said.split())

    for asked in (("fine", "--out", runs), ("--config", sweep)):
        shown, said = seeds_shown(*asked)
        assert shown == {"0", "1"}
        assert "ignores" not in said, "what a file says is not ignored by those who collect its runs"
        assert seeds_shown(*asked, "--seeds", "0")[0] == {"0"}
        _, said = seeds_shown(*asked, "--epochs", "3", "--set", "train.lr=0.3", "--tune", "train.lr=0.1,1")
        assert "it ignores --epochs, --set, --tune." in said


def test_runs_on_other_images_or_weights_are_not_averaged(one_run: Path, tmp_path: Path) -> None:
    seeds = {f"none_seed{seed}": f"\n  seed: 0>\n  seed: {seed}" for seed in (1, 2, 3)}
    runs = copied(one_run, tmp_path, none_seed0="", **seeds)
    for seed, name in ((2, "split"), (3, "weights")):
        run = Run(runs / f"cub-simgcd-none-seed{seed}")
        run.write_json("protocol.json", {**run.read_json("protocol.json"), name: "another"})
    assert sorted(cell.seed for cell in collect(TABLES["fine"].cells(), runs).found) == [0, 1]


def test_an_evaluation_by_another_truth_does_not_enter_the_table(one_run: Path, tmp_path: Path) -> None:
    runs = copied(one_run, tmp_path, none_seed0="")
    folder = runs / "cub-simgcd-none-seed0"
    before = collect(TABLES["fine"].cells(), runs).found
    with open(folder / "assignments.csv", newline="") as file:
        lines = [f"{row['path']},{row['category']}\n" for row in csv.DictReader(file) if not row["given_label"]]
    (tmp_path / "flattering.csv").write_text("path,label\n" + "".join(lines))
    assert evaluate(folder, tmp_path / "flattering.csv")["metrics"]["acc_all"] == 1.0
    assert collect(TABLES["fine"].cells(), runs).found == {}
    evaluate(folder)
    assert collect(TABLES["fine"].cells(), runs).found == before


def test_a_folder_is_not_believed_by_its_name(
    one_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = copied(one_run, tmp_path, none_seed0="", none_seed7="", cpf_seed0="")
    assert list(collect(TABLES["fine"].cells(), runs).found) == [Cell("cub", "simgcd", "none", 0)]
    told = capsys.readouterr().err
    assert "train.seed is 0 there, not 7" in told
    assert "organizer.name is 'none' there, not 'cpf'" in told


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("evaluation.json", "{"),
        ("evaluation.json", "{}"),
        ("evaluation.json", "[" * 100_000),
        ("evaluation.json", '{"metrics": {"acc_all": "x", "acc_old": 1, "acc_new": 1}, "protocol": {"a": "b"}}'),
        ("evaluation.json", '{"metrics": {"acc_all": true, "acc_old": 1, "acc_new": 1}, "protocol": {"a": "b"}}'),
        ("evaluation.json", '{"metrics": {"acc_all": NaN, "acc_old": 1, "acc_new": 1}, "protocol": {"a": "b"}}'),
        ("evaluation.json", '{"metrics": {"acc_all": 1, "acc_old": 1, "acc_new": 1}, "protocol": []}'),
        ("timing.json", "[]"),
        ("metrics.jsonl", ""),
        ("metrics.jsonl", "junk\n"),
        ("protocol.json", None),
        ("model.safetensors", ""),
        ("config.yaml", "train: 3"),
    ],
)
def test_a_damaged_run_is_named_and_costs_no_other(
    file: str, content: str | None, one_run: Path, tmp_path: Path, run_cli: Cli
) -> None:
    runs = copied(one_run, tmp_path, none_seed0="", none_seed1="\n  seed: 0>\n  seed: 1")
    damaged = runs / "cub-simgcd-none-seed1" / file
    damaged.unlink()
    if content is not None:
        damaged.write_text(content)
    status, text, err = run_cli("bench", "fine", "--out", runs, "--collect")
    assert status == 0
    assert "cub-simgcd-none-seed1" in err
    assert re.search(r"^\| SimGCD[ †]+\| +61.2 \| +[\d.]+ \|.* 1 \|$", text, re.MULTILINE)


@pytest.mark.parametrize("damage", ["{}", '{"answer": 1e999, "curve": [], "method": "w", "known": 1, "score_is": "x"}'])
def test_a_damaged_count_costs_no_accuracy(
    one_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    runs = copied(one_run, tmp_path, none_seed0="")
    Run(runs / "cub-simgcd-none-seed0").write("count.json", damage)
    assert len(collect(TABLES["fine"].cells(), runs).found) == 1
    assert "count.json is damaged" in capsys.readouterr().err


def test_csv_carries_the_protocol(one_run: Path) -> None:
    printed = bench("fine", one_run / "runs", only_collect=True, style="csv").text
    (line, *_) = [line for line in csv.DictReader(io.StringIO(printed)) if line["mean"]]
    assert line["protocol: split"]
    assert "sha256" in line["protocol: weights"]
    assert "memax_weight 2.0" in line["protocol: method"]
    assert "newkinds" in line["protocol: versions"]
