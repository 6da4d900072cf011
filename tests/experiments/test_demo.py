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
from newkinds.experiments import demo_controls as module
from newkinds.experiments import demo_folder
from newkinds.experiments.cells import Cell
from newkinds.experiments.demo import demo
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
def test_demo_shows_the_main_job_first_and_then_cpf_beside_its_controls(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    job, research = demo(out, seeds=[0], epochs=1)
    assert {file.parent.name for file in (out / "photos").rglob("*.png")} > {"unlabeled"}
    assert f"A folder of 32 drawn pictures, {out / 'photos'}: 2 kinds are labelled, 2 are not." in job
    assert "the truth is 4:" in job
    assert re.search(r"^  known  \w+ \d+, \w+ \d+$", job, re.MULTILINE)
    rows = [line.split("|")[1].strip() for line in job.splitlines() if line.startswith("| ")]
    assert rows == ["unlabelled pictures in the right category", "k-means, told that there are 4", "newkinds discover"]
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "newkinds discover" in page
    assert "k-means, told that there are 4" in page
    assert "://" not in page
    *compared, empty, look = research.splitlines()
    assert len(compared) <= 3, "who only wants to see it work need not read more"
    names = ("frozen + kmeans", "SimGCD", "SimGCD + adapter", "SimGCD + attention-pooling", "SimGCD + CPF parts")
    assert re.search(", ".join(rf"{re.escape(name)} [\d.]+" for name in names), compared[0])
    assert compared[1] == "One seed: no difference is significant."
    assert (empty, look) == ("", f"look at {out / 'index.html'}; correct it: newkinds studio {out / 'found'}")
    page = (out / "research.html").read_text(encoding="utf-8")
    assert all(name in page for name in names), "the table is on the page"
    assert len(f"{job}{research}".splitlines()) < 24, "one screen"
    said = capfd.readouterr().err
    assert "Ctrl-C ends it, and the answer stays" in said
    assert len(said.splitlines()) < 10
    assert "epoch" not in said


@pytest.mark.usefixtures("small_creatures")
def test_what_is_drawn_and_found_already_stays(tmp_path: Path) -> None:
    job = demo_folder.find_kinds(tmp_path)
    drawn = next((tmp_path / "photos" / "unlabeled").iterdir())
    stamp = drawn.stat().st_mtime_ns
    assert demo_folder.find_kinds(tmp_path) == job
    assert drawn.stat().st_mtime_ns == stamp


@pytest.mark.usefixtures("small_creatures")
def test_the_research_part_alone_has_all_figures(tmp_path: Path) -> None:
    (text,) = demo(tmp_path / "demo", research=True, seeds=[0], epochs=1)
    names = [line.split("|")[1].strip(" †") for line in text.splitlines() if line.startswith("| ")]
    plugged = ["SimGCD + adapter", "SimGCD + attention-pooling", "SimGCD + CPF parts"]
    assert names == ["", "frozen + kmeans", "SimGCD", *(name for row in plugged for name in (row, "Δ"))]
    assert re.search(r"^\| Δ +\| +[+−]", text, re.MULTILINE)
    assert "last epoch" in text
    page = (tmp_path / "demo" / "research.html").read_text(encoding="utf-8")
    assert "SimGCD + CPF" in page
    assert page.count('role="img"') > 10
    assert (tmp_path / "demo" / "fields.png").is_file()
    assert not (tmp_path / "demo" / "photos").exists()
    (again,) = demo(tmp_path / "demo", research=True, seeds=[0], epochs=1)
    assert again.splitlines()[2:4] == text.splitlines()[2:4]


@pytest.mark.usefixtures("small_creatures")
def test_demo_of_several_hosts_is_the_plug_in_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real runs, but their figures are fixed: so small ones have the same accuracy for both seeds, and then all that
    would differ is how long they took."""
    gains = {"none": (0.0, 0.0), "adapter": (1.0, 3.0), module.CPF: (2.0, 2.0), "kmeans": (0.0, 0.0)}
    monkeypatch.setattr(module, "CONTROLS", ("adapter",))

    def with_these_gains(*grid: Any) -> Worked:
        found: dict[Cell, Outcome] = run_all(*grid).finished
        fixed = dict.fromkeys(next(iter(found.values())).figures, 1.0)
        return Worked({
            cell: replace(outcome, figures={**fixed, "all": 50 + gains[cell.organizer][cell.seed]})
            for cell, outcome in found.items()
        })  # fmt: skip

    monkeypatch.setattr(module, "SEEDS_OF_SEVERAL", (0, 1))
    monkeypatch.setattr(module, "run_all", with_these_gains)
    (text,) = demo(tmp_path / "demo", research=True, hosts=["simgcd", "cms"], epochs=1)
    for name in ("SimGCD", "SimGCD + adapter", "SimGCD + CPF parts", "CMS", "CMS + CPF parts"):
        assert re.search(rf"^\| {re.escape(name)}[ †]+\| +[\d.]+ ± [\d.]+ \|", text, re.MULTILINE), name
    assert len(re.findall(r"^\| Δ", text, re.MULTILINE)) == 4
    assert re.search(r"^seed +0; 1$", text, re.MULTILINE)
    page = (tmp_path / "demo" / "research.html").read_text(encoding="utf-8")
    assert "CMS + CPF" in page
    assert page.count(">Δ (difference)<") == 4
    assert page.count('class="interval"') == 2, "of the adapter, of both hosts: CPF's gain is the same for all seeds"
    assert len(re.findall(r"^\| 95 % +\| \[−10.7, \+14.7\]", text, re.MULTILINE)) == 3, "of two hosts, and their mean"
    for host in ("SimGCD", "CMS"):
        assert f"{host} + adapter against the host: no difference is significant." in text
        assert f"{host} + CPF parts against the host:" not in text
        assert f"{host} + CPF parts against the host with adapter: no difference is significant." in text

    gains["adapter"] = (2.0, 2.0)  # as if no seed mattered
    (text,) = demo(tmp_path / "demo", research=True, hosts=["simgcd", "cms"], epochs=1)
    assert module.NO_SPREAD in text
    assert module.ONE_SEED not in text


def test_a_misspelt_host_is_found_at_once(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match="selex"):
        [*demo(tmp_path / "demo", hosts=["selexx"])]
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
        [*demo(tmp_path, research=True, hosts="all")]
    assert list(found) == ["frozen", "gcd", "simgcd", "legogcd", "cms", "selex"]
    assert {method["projection_hidden"] for name, method in found.items() if name != "frozen"} == {256}
    assert {name: method["output_dim"] for name, method in found.items() if "output_dim" in method} == {
        "gcd": 1024, "cms": 768, "selex": 1024,
    }  # fmt: skip
    assert found["simgcd"]["memax_weight"] == found["legogcd"]["memax_weight"] == 2.0
