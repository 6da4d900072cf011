"""The ablation and the sensitivity: on any data, without rows that cannot be, and drawn."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from newkinds.experiments import bench as module
from newkinds.experiments.bench import bench
from newkinds.experiments.cells import VARIANTS, Cell
from newkinds.experiments.comparison_pictures import draw_comparisons
from newkinds.experiments.outcomes import COLUMNS, Outcome
from newkinds.experiments.paper import TABLES, comparisons
from newkinds.experiments.tasks import Worked
from newkinds.runs.config import resolve

Cli = Callable[..., tuple[int, str, str]]
SMALL = [
    {"data": {"categories": 6, "per_category": 8}, "train": {"epochs": 1, "batch_size": 24}},
    {"backbone": {"image_size": 32}, "method": {"projection_hidden": 32}},
]


def outcomes_of(name: str, data: str, seeds: int = 3) -> dict[Cell, Outcome]:
    """Made-up runs of a whole table: CPF is always ahead of its host by 3 to 5 points, all else is the host."""
    table = replace(TABLES[name], data=(data,))
    figures = {}
    for cell in table.cells(range(seeds)):
        ahead = 3.0 + cell.seed if cell.organizer.startswith("cpf") else 0.0
        figures[cell] = {**dict.fromkeys(COLUMNS, 1.0), **dict.fromkeys(("all", "old", "new"), 50.0 + ahead)}
    return {cell: Outcome(values, {"seed": str(cell.seed)}) for cell, values in figures.items()}


@pytest.mark.parametrize("name", ["ablation", "sensitivity"])
def test_pictures_are_drawn_for_screens_and_for_papers(name: str, tmp_path: Path) -> None:
    table = replace(TABLES[name], data=("cub",))
    assert table.picture is not None
    shown = comparisons(table, outcomes_of(name, "cub"))
    files = draw_comparisons(shown, tmp_path, table.picture)
    assert [file.name for file in files] == [f"{name}-cub-simgcd.png", f"{name}-cub-simgcd.svg"]
    png, _ = files
    with Image.open(png) as picture:
        assert min(picture.size) > 500
    before = [file.read_bytes() for file in files]
    assert b"<svg" in before[1]
    draw_comparisons(shown, tmp_path, table.picture)
    assert [file.read_bytes() for file in files] == before, "the same runs, the same bytes"
    assert draw_comparisons(comparisons(table, {}), tmp_path / "none", table.picture) == [], "nothing has been run"


def test_a_row_may_be_compared_with_another_than_the_host() -> None:
    outcomes = outcomes_of("ablation", "cub")
    (to_host,) = comparisons(replace(TABLES["ablation"], data=("cub",)), outcomes)
    (to_cpf,) = comparisons(replace(TABLES["ablation"], data=("cub",), against="cpf"), outcomes)
    change = {
        base.base: {row.name: row.entries[0].change for row in base.rows if row.compared} for base in (to_host, to_cpf)
    }
    assert change["the host"]["SimGCD + CPF"] == "+4.0 ± 0.6"
    assert "SimGCD" not in change["the host"]
    assert change["the host with cpf"]["SimGCD"] == "\N{MINUS SIGN}4.0 ± 0.6"
    assert change["the host with cpf"]["SimGCD + CPF gated"] == "+0.0 ± 0.0"
    assert "difference from the host with cpf" in to_cpf.legend
    row = next(row for row in to_host.rows if row.name == "SimGCD + CPF")
    assert row.significant_differences().startswith(
        "SimGCD + CPF against the host: All better (+4.0 ± 0.6), Old better"
    )


def test_every_variant_is_one_that_can_be_built() -> None:
    for variant in VARIANTS.values():
        resolve({"data": {"name": "creatures"}}, variant)


def test_rows_that_cannot_be_or_are_another_row_are_left_out_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tiny` has 96 features; its default read-out is `literal`."""
    begun: list[Cell] = []
    monkeypatch.setattr(module, "run_all", lambda cells, *_: begun.extend(cells) or Worked())
    benched = bench("sensitivity", tmp_path, data=["creatures"], baselines=["none"], settings=SMALL)
    assert len(benched.failed) == len(begun) == 2 + 6 * 5
    told = capsys.readouterr().err
    assert told.count("20 heads are left out on creatures: they do not divide its 96 features.") == 1
    assert "SimGCD + CPF M12 H12" in {cell.title for cell in begun}
    begun.clear()
    bench("ablation", tmp_path, data=["creatures"], baselines=["none"], settings=SMALL)
    told = capsys.readouterr().err
    assert "SimGCD + CPF literal on creatures is left out: its settings are those of SimGCD + CPF." in told
    asked = [cell.organizer for cell in begun]
    assert "cpf-literal" not in asked
    assert {"none", "patches", "adapter", "grid", "cpf", "cpf-gated", "cpf-parts", "cpf-frozen"} <= set(asked)


def test_an_ablation_of_creatures_is_printed_and_drawn(run_cli: Cli, tmp_path: Path) -> None:
    command = ("bench", "ablation", "--out", str(tmp_path / "runs"), "--data", "creatures")
    settings = [f"{name}={value}" for name, value in (("data.categories", 6), ("data.per_category", 8))]
    options = [
        part for setting in (*settings, "train.batch_size=24", "backbone.image_size=32") for part in ("--set", setting)
    ]
    chosen = ("--organizers", "none,adapter", "--baselines", "kmeans", "--seeds", "0", "1", "--epochs", "1")
    status, text, err = run_cli(*command, *options, *chosen)
    assert status == 0
    names = [line.split("|")[1].strip(" †") for line in text.splitlines() if line.startswith("| ")]
    assert [name for name in names if name != "95 %"] == ["", "frozen + kmeans", "SimGCD", "SimGCD + adapter", "Δ"]
    assert "## cub" not in text
    assert "reported" not in text
    assert re.search(r"drawn in .*ablation-creatures-simgcd\.png", err)
    assert (tmp_path / "runs" / "ablation-creatures-simgcd.svg").is_file()
    assert run_cli(*command, "--collect")[1] == text
