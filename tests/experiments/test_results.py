"""Tables that can be published: what rows are compared with, averages, order, names, flags; and their numbers."""

from __future__ import annotations

import re
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest

from newkinds.comparison import Comparison, OverSeeds, Row
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.encoders.organizers.adapter import Adapter
from newkinds.errors import NewkindsError
from newkinds.experiments import bench as module
from newkinds.experiments.averages import mean_over
from newkinds.experiments.bench import bench
from newkinds.experiments.cells import Cell
from newkinds.experiments.outcomes import COLUMNS, Outcome, comparable
from newkinds.experiments.paper import TABLES, comparisons
from newkinds.experiments.results import Benched
from newkinds.experiments.styles import latex, markdown
from newkinds.methods import METHODS
from newkinds.methods.simgcd import SimGCD

HOSTS = {"simgcd": 60.0, "cms": 50.0}
GAINS = {"none": 0.0, "adapter": 1.0, "cpf": 4.0}


def outcome(value: float, **more: object) -> Outcome:
    return replace(Outcome({**dict.fromkeys(COLUMNS, 1.0), "all": value, "new": value - 5}, {"seed": "0"}), **more)


def grid(against: str = "none", data: tuple[str, ...] = ("birds",), **changes: object) -> list[Comparison]:
    """Two hosts alone, with an adapter and with CPF, and k-means; with seed 1 a figure is 2 higher, CPF's 3."""
    table = replace(
        TABLES["plugin"], data=data, methods=tuple(HOSTS), organizers=tuple(GAINS), baselines=("kmeans",),
        measures=("all", "new"), against=against, **changes,
    )  # fmt: skip
    found = {}
    for cell in table.cells([0, 1]):
        shift = cell.seed * (3 if cell.organizer == "cpf" else 2) + 10 * data.index(cell.data)
        host = HOSTS.get(cell.method, 40.0)
        found[cell] = outcome(host + GAINS.get(cell.organizer, 0.0) + shift)
    return comparisons(table, found)


def rows_of(table: Comparison) -> dict[str, Row]:
    return {row.name: row for row in (*table.rows, *table.averages)}


def gains(table: Comparison) -> dict[str, float]:
    return {name: row["all"].gain.mean for name, row in rows_of(table).items() if row["all"].gain}


def test_methods_are_compared_with_a_method_that_has_the_same_organizer() -> None:
    (table,) = grid(against="simgcd")
    assert gains(table) == {"CMS": -10.0, "CMS + adapter": -10.0, "CMS + CPF": -10.0, "Avg. Δ CMS": -10.0}
    assert "difference from SimGCD with the same organizer" in markdown([table])
    assert table.parts["against"] == "simgcd"


def test_all_rows_are_compared_with_one() -> None:
    (table,) = grid(against="cms+cpf")
    assert gains(table)["SimGCD"] == 60.0 + 1 - (54.0 + 1.5)
    assert gains(table)["frozen + kmeans"] == 40.0 + 1 - (54.0 + 1.5)
    assert "CMS + CPF" not in gains(table)
    assert not table.averages, "of what?"
    assert "difference from CMS + CPF," in markdown([table])
    (baseline,) = grid(against="frozen+kmeans")
    assert gains(baseline)["SimGCD"] == 20.0


@pytest.mark.parametrize("against", ["simgdc", "simgcd+cfp", "cpf+none", ""])
def test_a_wrong_name_to_compare_with_is_said_before_anything_is_run(against: str, tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match=r"there is no|no organizer or method is named"):
        bench("plugin", tmp_path / "runs", data=["creatures"], against=against)
    assert not (tmp_path / "runs").exists()


def test_averages_of_gains_are_over_hosts_seed_by_seed() -> None:
    (table,) = grid()
    cpf = rows_of(table)["Avg. Δ CPF"]["all"].gain
    assert cpf == OverSeeds({0: 4.0, 1: 5.0}), "of both hosts"
    assert gains(table)["Avg. Δ adapter"] == 1.0


def test_data_sets_are_averaged_seed_by_seed_for_rows_that_all_have() -> None:
    birds, cars, average = grid(data=("birds", "cars"))
    assert average.parts["data"] == "average"
    assert rows_of(average)["SimGCD"]["all"].ours == OverSeeds({0: 65.0, 1: 67.0})
    assert rows_of(average)["SimGCD + CPF"]["all"].gain == OverSeeds({0: 4.0, 1: 5.0})
    assert rows_of(average)["Avg. Δ CPF"]["all"].gain == OverSeeds({0: 4.0, 1: 5.0})
    assert "## Average" in markdown([birds, cars, average])
    assert len(grid()) == 1, "one data set has no average"
    assert mean_over([OverSeeds({0: 1.0}), None]) is None


def test_latex_has_rules_the_best_in_bold_and_data_sets_side_by_side() -> None:
    tex = latex(grid(data=("birds", "cars")))
    assert tex.count(r"\toprule") == tex.count(r"\bottomrule") == 3
    wide = tex.split(r"\begin{tabular}")[-1]
    assert r" & \multicolumn{2}{c}{birds} & \multicolumn{2}{c}{cars} & \multicolumn{2}{c}{Average} &  \\" in wide
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}\cmidrule(lr){6-7}" in wide
    (best,) = [line for line in wide.splitlines() if line.startswith("SimGCD + CPF")]
    assert best.count(r"\textbf{") == 6
    assert wide.count(r"\textbf{") == 6, "no other"
    body = [line for line in wide.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") for line in body[1:]} == {7}
    assert body[-2].startswith(r"Avg. $\Delta$ CPF & +4.5 $\pm$ 0.5")


def test_a_collapsed_run_is_marked_wherever_it_stands() -> None:
    table = replace(TABLES["plugin"], data=("birds",), methods=("simgcd",), organizers=("none",), baselines=())
    cells = table.cells([0, 1])
    found = {cells[0]: outcome(20.0, largest_share=0.97), cells[1]: outcome(60.0, largest_share=0.2)}
    shown = comparisons(table, found)
    printed = markdown(shown)
    assert "| SimGCD † " in printed
    assert "† Collapsed, with nearly all images in one category: SimGCD: seed 0 (97 %)." in printed
    assert r"SimGCD $^\dagger$ &" in latex(shown)
    lines = [line for line in latex(shown).splitlines() if not line.startswith("%")]
    note = r"\footnotesize $^\dagger$ Collapsed, with nearly all images in one category."
    assert lines[-2] == rf"\multicolumn{{11}}{{l}}{{{note}}} \\", "beneath the table, not in a comment alone"
    assert "dagger" not in latex(grid()), "if nothing collapsed"
    benched = Benched(printed, [], [], tables=shown)
    assert benched.row("simgcd").collapsed == {0: 0.97}


def test_a_collapsed_row_is_never_the_best() -> None:
    (shown,) = grid()
    shown.rows[0] = replace(shown.rows[0], collapsed={0: 0.97})
    assert not [line for line in latex([shown]).splitlines() if "dagger" in line and "textbf" in line]
    (best,) = [row for row in shown.rows if row.name == "SimGCD + CPF"]
    shown.rows[shown.rows.index(best)] = replace(best, collapsed={1: 0.99})
    lines = latex([shown]).splitlines()
    assert not [line for line in lines if "dagger" in line and "textbf" in line]
    (second,) = [line for line in lines if line.startswith("SimGCD + adapter")]
    assert second.count("textbf") == 2


def test_figures_of_other_classes_do_not_stand_beside_reported_ones() -> None:
    cell = Cell("cub", "simgcd", "none")
    for classes, beside in (("100 known of 200", True), ("25 known of 50", False)):
        found = {cell: outcome(60.0, settings={"classes": classes})}
        (of_cub, *_) = comparisons(replace(TABLES["fine"], data=("cub",)), found)
        rows = rows_of(of_cub)
        assert (rows["SimGCD"]["all"].ours is not None) == beside
        assert rows["SimGCD"]["all"].reported == 61.2
        if not beside:
            assert rows["SimGCD, 25 known of 50"]["all"].reported is None
            assert rows["SimGCD, 25 known of 50"]["all"].ours == OverSeeds({0: 60.0})


def test_runs_with_other_categories_do_not_stand_in_one_table() -> None:
    tasks = {"simgcd": "3 known of 6", "gcd": "3 known of 6", "cms": "5 known of 10"}
    runs = {
        Cell("birds", method, "none"): outcome(50.0, settings={"classes": classes, "split": classes})
        for method, classes in tasks.items()
    }
    found, left_out = comparable(runs)
    assert [cell.method for cell in found] == ["simgcd", "gcd"]
    (reason,) = [refused.reason for refused in left_out.values()]
    assert reason == "it has other categories (5 known of 10, not 3 known of 6) than SimGCD on birds, seed 0"
    asked = comparable(runs, preferred=[Cell("birds", "cms", "none")])
    assert [cell.method for cell in asked.found] == ["cms"], "what was asked for now"


def test_a_part_may_say_what_tables_call_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (METHODS, ORGANIZERS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    mine = type("Mine", (SimGCD,), {"title": "My  Method", "__module__": __name__})
    METHODS.register("mine")(mine)
    METHODS.register("mine-too")(type("MineToo", (mine,), {"__module__": __name__}))
    ORGANIZERS.register("looks-new")(type("Looks", (Adapter,), {"title": "Looks", "__module__": __name__}))
    assert Cell("birds", "mine", "none").title == "My Method"
    assert Cell("birds", "mine", "looks-new").title == "My Method + Looks"
    assert Cell("birds", "mine-too", "cpf").title == "MineToo + CPF", "a title is not handed down"


@pytest.fixture
def collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Finished runs of two hosts, which are not there."""
    table = replace(TABLES["plugin"], data=("creatures",), methods=tuple(HOSTS), organizers=tuple(GAINS), baselines=())
    found = {cell: outcome(HOSTS[cell.method] + GAINS[cell.organizer] + cell.seed) for cell in table.cells([0, 1])}
    monkeypatch.setattr(module, "collect", lambda *_, **__: comparable(found))
    return tmp_path


def names_of(found: Benched) -> list[str]:
    return [name for line in found.text.splitlines() if (name := line[2:].split(" |")[0].strip()) and line[:2] == "| "]


def test_rows_stand_in_the_order_in_which_they_are_asked_for(collected: Path) -> None:
    usual = bench("plugin", collected, data=["creatures"], only_collect=True)
    hosts = [name for name in names_of(usual) if "+" not in name and "Δ" not in name]
    assert hosts == ["SimGCD", "CMS"]
    order = {"methods": ["cms", "simgcd"], "organizers": ["cpf", "none"]}
    asked = bench("plugin", collected, data=["creatures"], only_collect=True, **order)  # type: ignore[arg-type]
    shown = [name for name in names_of(asked) if "Δ" not in name]
    assert shown == ["CMS + CPF", "CMS", "SimGCD + CPF", "SimGCD"]
    alone = bench("plugin", collected, data=["creatures"], methods=["cms"], organizers=["cpf"], only_collect=True)
    assert [row.name for row in alone.rows] == ["CMS + CPF"]
    assert alone.row("cms", "cpf")["new"].gain is not None, "its host is not shown, and still what it is compared with"


def test_numbers_can_be_had_in_python(collected: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = bench("plugin", collected, data=["creatures"], only_collect=True)
    assert len(found.rows) == 6
    new = found.row("cms", "cpf")["new"]
    assert new.ours is not None
    assert new.ours.of_seed == {0: 49.0, 1: 50.0}
    assert new.ours.interval == pytest.approx((49.5 - 6.353, 49.5 + 6.353), abs=1e-3)
    assert new.gain is not None
    assert new.gain.of_seed == {0: 4.0, 1: 4.0}
    with pytest.raises(NewkindsError, match=r"has no measure 'nwe'. There are: all, old, new"):
        found.row("cms")["nwe"]
    with pytest.raises(NewkindsError, match="no run of gcd with none"):
        found.row("gcd")
    with pytest.raises(NewkindsError, match="on cub"):
        found.row("cms", data="cub")

    made = []
    pandas = types.SimpleNamespace(DataFrame=made.append)
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    found.to_frame()
    found.to_frame(per_seed=True)
    figures, seeds = made
    measures = len(TABLES["plugin"].measures)
    assert (len(figures), len(seeds)) == ((6 + 2) * measures, 6 * 2 * measures)
    wanted = {"method": "cms", "organizer": "cpf", "measure": "new", "seed": 1, "value": 50.0, "difference": 4.0}
    assert [line for line in seeds if wanted.items() <= line.items()]
    assert not {"mean", "left_out", "reported"} & seeds[0].keys(), "columns that nothing is in"
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(NewkindsError, match="pip install pandas"):
        found.to_frame()


def test_nothing_to_compare_with_is_said(collected: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench("plugin", collected, data=["creatures"], against="gcd", only_collect=True)
    assert re.search(r"nothing is compared with gcd: no run of it is in \S+,", capsys.readouterr().err)
