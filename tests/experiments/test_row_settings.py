"""Which settings the rows of a table have: the published ones, those of a backbone's family, those of one method."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layouts import lay_out_birds
from newkinds.errors import NewkindsError
from newkinds.experiments.bench import bench
from newkinds.experiments.cells import Cell
from newkinds.experiments.outcomes import Outcome
from newkinds.experiments.paper import TABLES, comparisons
from newkinds.experiments.row_settings import RowSettings
from newkinds.runs.config import Config, resolve
from newkinds.runs.run import Run
from newkinds.settings import parse_assignment

DINOV2 = {"backbone": "vit_small_patch14_dinov2"}


def config_of(table: str, cell: Cell, **choices: Any) -> Config:
    sources = {cell.data: {"name": cell.data}}
    settings = RowSettings(TABLES[table], sources, choices)  # type: ignore[arg-type]
    return resolve(*settings(cell), *cell.layers())


@pytest.mark.parametrize("table", [name for name in TABLES if TABLES[name].data])
def test_cpf_in_a_table_of_the_paper_is_the_papers_whatever_the_backbone(table: str) -> None:
    data = TABLES[table].data[0]
    for cell in (cell for cell in TABLES[table].cells() if cell.data == data and not cell.is_quoted):
        published, other = config_of(table, cell), config_of(table, cell, **DINOV2)
        assert other.organizer == published.organizer, cell
        assert other.train == published.train, cell
    assert config_of(table, Cell(data, "simgcd", "cpf"), **DINOV2).organizer["readout"] == "literal"
    chosen = config_of(table, Cell(data, "simgcd", "cpf"), **DINOV2, settings={"backbone": {"family": "auto"}})
    assert (chosen.organizer["readout"], chosen.train.backbone_lr_ratio) == ("gated", 0.01)


@pytest.mark.parametrize(
    ("table", "method", "as_published"), [("coarse", "gcd", True), ("coarse", "frozen", False), ("all", "gcd", False)]
)
def test_pim_is_as_published_where_it_is_a_row_of_the_paper(table: str, method: str, as_published: bool) -> None:
    cell = Cell("cifar10", method, "pim")
    assert config_of(table, cell).assigner["as_published"] is as_published
    assert not config_of(table, cell, settings={"assigner": {"pim": {"as_published": False}}}).assigner["as_published"]


def test_what_a_recipe_wants_of_a_gpu_the_quick_table_does_without() -> None:
    sptnet = Cell("cub", "sptnet", "none")
    assert [config_of(table, sptnet).train.precision for table in ("fine", "all")] == ["float16", "auto"]


@pytest.mark.parametrize("name", ["plugin", "all"])
def test_elsewhere_a_family_chooses_the_form_and_the_row_says_which(name: str) -> None:
    rows = [Cell("creatures", "simgcd", organizer) for organizer in ("none", "cpf", "cpf-frozen", "cpf-delta")]
    assert config_of(name, rows[1], **DINOV2).organizer["readout"] == "gated"
    table = replace(TABLES[name], data=("creatures",), measures=("all",))
    titles = []
    for choices in ({}, DINOV2):
        outcomes = {}
        for row in rows:
            readout = config_of(name, row, **choices).organizer.get("readout")
            settings = {} if readout is None else {"organizer.readout": readout}
            outcomes[row] = Outcome({"all": 50.0}, {"data": "creatures"}, settings)
        (shown,) = comparisons(table, outcomes, rows)
        titles.append([row.name.removeprefix("SimGCD").removeprefix(" + ") for row in shown.rows])
    assert titles[0] == ["", "CPF", "CPF frozen", "CPF delta"]
    assert titles[1] == ["", "CPF gated", "CPF frozen gated", "CPF delta"]


def test_settings_of_one_method_reach_its_rows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over those of its recipe; a wrong method is an error, one that is not in the table is mentioned."""
    begun: dict[str, Config] = {}

    def remember(_: None, folder: Path, settings: list[dict[str, Any]], **__: object) -> None:
        begun[folder.name] = resolve(*settings)
        raise NewkindsError("enough")

    monkeypatch.setattr("newkinds.experiments.run_grid.discover", remember)
    asked: dict[str, Any] = {"data": ["creatures"], "organizers": ["none"], "baselines": ["none"]}
    named = [parse_assignment("method.simgcd.memax_weight=3")]
    per_method = {"gcd": {"train": {"lr": 0.5}}}
    bench("plugin", tmp_path, methods=["simgcd", "gcd"], **asked, settings=named, per_method=per_method)
    simgcd, gcd = (begun[f"creatures-{name}-none-seed0"] for name in ("simgcd", "gcd"))
    assert (simgcd.method["memax_weight"], simgcd.train.lr) == (3, 0.1)
    assert ("memax_weight" in gcd.method, gcd.train.lr) == (False, 0.5)
    fine = RowSettings(TABLES["fine"], {"cub": {"name": "cub"}}, {"settings": named})
    assert resolve(*fine(Cell("cub", "simgcd", "none"))).method["memax_weight"] == 3, "its recipe says 2"
    with pytest.raises(NewkindsError, match=r"no method 'simgdc'\. Did you mean 'simgcd'"):
        bench("plugin", tmp_path, methods=["gcd"], **asked, per_method={"simgdc": {}})
    misspelt = {"simgcd": {"method": {"memax_wieght": 3}}}
    with pytest.raises(NewkindsError, match=r"per_method, simgcd: .*'method\.memax_wieght'.*'memax_weight'"):
        bench("plugin", tmp_path, methods=["simgcd", "gcd"], **asked, per_method=misspelt)
    with pytest.raises(NewkindsError, match=r"each cell has its own train\.seed"):
        bench("plugin", tmp_path, methods=["gcd"], **asked, per_method={"gcd": {"train": {"seed": 3}}})


def test_settings_for_no_row_are_mentioned(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lay_out_birds(tmp_path / "data")
    named = [parse_assignment("method.simgcd.memax_weight=3")]
    asked: dict[str, Any] = {"methods": ["cms"], "data": ["cars"], "baselines": ["none"]}
    bench("fine", tmp_path / "runs", **asked, settings=named, data_root=tmp_path / "data", per_method={"gcd": {}})
    said = capfd.readouterr().err
    assert said.count("alone are of no use") == 2
    assert all(f"the settings for {name} alone are of no use" in said for name in ("simgcd", "gcd"))


def test_the_table_of_counts_is_whole_without_the_gpl_extra(
    run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "infomap", None)  # as if it were not installed
    lay_out_birds(tmp_path / "data")
    command = ("bench", "count", "--out", tmp_path / "runs", "--data", "cub", "--data-root", tmp_path / "data")
    small = ("--backbone", "tiny", "--epochs", "1", "--set", "train.batch_size=64", "--set", "backbone.image_size=32")
    grid = ("--methods", "dccl", "--organizers", "none", "--baselines", "none")
    narrow = ("--set", "method.dccl.projection_hidden=32", "--set", "method.dccl.output_dim=64")
    status, text, err = run_cli(*command, *small, *grid, *narrow)
    assert status == 0
    assert "infomap is not installed" in err
    assert "DCCL has method.partition=map_equation instead of the published infomap" in err
    assert Run(tmp_path / "runs" / "cub-dccl-none-seed0").config().method["partition"] == "map_equation"
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| DCCL ")]
    (ours,) = [row[3].strip() for row in rows if row[2].strip() == "172"]  # what the paper reports for these birds
    assert ours.isdecimal()
    said = run_cli(*command, *small, *grid, *narrow, "--set", "method.dccl.partition=infomap")
    assert said[0] == 1, "what the user asks for by name is not replaced"
