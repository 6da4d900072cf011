"""The demonstration, in small."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from newkinds.data.creatures.dataset import creatures_table
from newkinds.data.table import DATASETS
from newkinds.errors import NewkindsError
from newkinds.experiments import demo as module
from newkinds.experiments.cells import Cell
from newkinds.experiments.outcomes import Outcome
from newkinds.experiments.run_grid import run_all
from newkinds.experiments.tasks import Worked
from newkinds.runs.config import resolve


@pytest.fixture
def small_creatures(monkeypatch: pytest.MonkeyPatch) -> None:
    def few(categories: int = 4, per_category: int = 8, seed: int = 0) -> object:
        return creatures_table(categories, per_category, seed)

    monkeypatch.setitem(DATASETS._entries, "creatures", few)


@pytest.mark.usefixtures("small_creatures")
def test_demo_compares_the_host_with_and_without_cpf(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = module.demo(tmp_path / "demo", seeds=[0], epochs=1)
    names = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert names == ["", "frozen + kmeans", "SimGCD", "SimGCD + ADAPTER", "Δ", "SimGCD + CPF parts", "Δ"]
    assert re.search(r"^\| Δ +\| +[+−]", text, re.MULTILINE)
    assert "One seed: no difference is significant." in text
    assert "last epoch" in text
    page = (tmp_path / "demo" / "index.html").read_text(encoding="utf-8")
    assert "SimGCD + CPF" in page
    assert page.count('role="img"') > 10
    assert "://" not in page
    assert (tmp_path / "demo" / "fields.png").is_file()
    capfd.readouterr()
    assert module.demo(tmp_path / "demo", seeds=[0], epochs=1).splitlines()[2:4] == text.splitlines()[2:4]
    assert capfd.readouterr().err.count("is finished already") == 4


@pytest.mark.usefixtures("small_creatures")
def test_demo_of_several_hosts_is_the_plug_in_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real runs, but their figures are fixed: so small ones have the same accuracy for both seeds, and then all that
    would differ is how long they took."""
    gains = {"none": (0.0, 0.0), "adapter": (1.0, 3.0), module.CPF: (2.0, 2.0), "kmeans": (0.0, 0.0)}

    def with_these_gains(*grid: Any) -> Worked:
        found: dict[Cell, Outcome] = run_all(*grid).finished
        fixed = dict.fromkeys(next(iter(found.values())).figures, 1.0)
        return Worked({
            cell: replace(outcome, figures={**fixed, "all": 50 + gains[cell.organizer][cell.seed]})
            for cell, outcome in found.items()
        })  # fmt: skip

    monkeypatch.setattr(module, "SEEDS_OF_SEVERAL", (0, 1))
    monkeypatch.setattr(module, "run_all", with_these_gains)
    text = module.demo(tmp_path / "demo", hosts=["simgcd", "cms"], epochs=1)
    for name in ("SimGCD", "SimGCD + ADAPTER", "SimGCD + CPF parts", "CMS", "CMS + CPF parts"):
        assert re.search(rf"^\| {re.escape(name)} +\| +[\d.]+ ± [\d.]+ \|", text, re.MULTILINE), name
    assert len(re.findall(r"^\| Δ", text, re.MULTILINE)) == 4
    assert re.search(r"^seed +0; 1$", text, re.MULTILINE)
    page = (tmp_path / "demo" / "index.html").read_text(encoding="utf-8")
    assert "CMS + CPF" in page
    assert page.count(">Difference<") == 4
    assert page.count('class="interval"') == 2, "of the adapter, of both hosts: CPF's gain is the same for all seeds"
    assert len(re.findall(r"^\| 95 % +\| \[−10.7, \+14.7\]", text, re.MULTILINE)) == 2
    for host in ("SimGCD", "CMS"):
        assert f"{host} + ADAPTER against the host: no difference is significant." in text
        assert f"{host} + CPF parts against the host:" not in text
        assert f"{host} + CPF parts against the host with adapter: no difference is significant." in text

    gains["adapter"] = (2.0, 2.0)  # as if no seed mattered
    text = module.demo(tmp_path / "demo", hosts=["simgcd", "cms"], epochs=1)
    assert module.NO_SPREAD in text
    assert module.ONE_SEED not in text


def test_a_misspelt_host_is_found_at_once(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match="selex"):
        module.demo(tmp_path / "demo", hosts=["selexx"])
    assert not (tmp_path / "demo").exists()


def test_all_hosts_are_those_of_the_paper_and_heads_are_as_wide_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, dict[str, object]] = {}

    def look(cells: list[Cell], folder: Path, settings: Callable[[Cell], list[dict[str, Any]]]) -> Worked:
        found.update({cell.method: resolve(*settings(cell), *cell.layers()).method for cell in cells})
        return Worked()

    monkeypatch.setattr(module, "run_all", look)
    with pytest.raises(NewkindsError, match="could be finished"):
        module.demo(tmp_path, hosts="all")
    assert list(found) == ["frozen", "gcd", "simgcd", "legogcd", "cms", "selex"]
    assert {method["projection_hidden"] for name, method in found.items() if name != "frozen"} == {256}
    assert {name: method["output_dim"] for name, method in found.items() if "output_dim" in method} == {
        "gcd": 1024, "cms": 768, "selex": 1024,
    }  # fmt: skip
    assert found["simgcd"]["memax_weight"] == found["legogcd"]["memax_weight"] == 2.0
