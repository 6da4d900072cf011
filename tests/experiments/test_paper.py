"""The paper's tables: reported and ours side by side, cells not run left empty; in every style."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest

from newkinds.comparison import Comparison, OverSeeds
from newkinds.experiments.cells import Cell
from newkinds.experiments.outcomes import COLUMNS, Outcome
from newkinds.experiments.paper import CONTROLS, NARROW, REPORTED, TABLES, comparisons, narrow_settings
from newkinds.experiments.styles import latex, markdown, text, tidy_csv
from newkinds.methods import METHODS
from newkinds.runs.config import resolve


def outcomes_of(table: str, cells: dict[tuple[str, str, str, int], float]) -> dict[Cell, Outcome]:
    measures = TABLES[table].measures
    return {
        Cell(*key): Outcome({**dict.fromkeys(COLUMNS, 1.0), **dict.fromkeys(measures, value)}, {"seed": str(key[3])})
        for key, value in cells.items()
    }


def tables_of(name: str, cells: dict[tuple[str, str, str, int], float]) -> list[Comparison]:
    return comparisons(TABLES[name], outcomes_of(name, cells))


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.reported])
def test_every_reported_figure_has_its_place_in_the_table(name: str) -> None:
    count = sum(len(f) for sets in TABLES[name].reported.values() for m in sets.values() for f in m.values())
    found = [entry for table in tables_of(name, {}) for row in table.rows for entry in row.entries]
    assert sum(entry.reported is not None for entry in found) == count > 0
    assert all(entry.ours is None for entry in found)


def test_hosts_stand_above_what_is_compared_with_them() -> None:
    table = replace(
        TABLES["plugin"], data=("birds",), methods=("gcd", "cms"), organizers=("none", "patches", "cpf"), baselines=()
    )
    value = {cell: 50.0 + 4 * (cell.organizer == "cpf") + 2 * cell.seed for cell in table.cells([0, 1])}
    value |= {cell: 50.0 + 3 * cell.seed for cell in value if cell.organizer == "patches"}
    del value[Cell("birds", "cms", "cpf", 1)]
    outcomes = {
        cell: Outcome({**dict.fromkeys(COLUMNS, 1.0), "all": all_}, {"split": "ab", "seed": str(cell.seed)})
        for cell, all_ in value.items()
    }
    (comparison,) = comparisons(table, outcomes)
    names = ["GCD", "GCD + patches", "GCD + CPF", "CMS", "CMS + patches", "CMS + CPF"]
    assert [row.name for row in comparison.rows] == names
    assert [row.compared for row in comparison.rows] == [False, True, True] * 2
    firsts = [row.entries[0] for row in comparison.rows]
    assert firsts[2].ours == OverSeeds({0: 54.0, 1: 56.0})
    assert firsts[2].base == firsts[0].ours
    assert firsts[5].base == firsts[3].ours
    assert firsts[5].ours == OverSeeds({0: 54.0}), "the run that is there is shown, as one run"
    complete = ", ".join(names[:-1])
    assert comparison.protocol == [("split", "ab"), ("seed", f"{complete}: 0; 1 · CMS + CPF: 0")]
    printed = text(comparison)
    assert lines_of(printed)["GCD + CPF"][0] == "55.0 ± 1.4"
    assert printed.count("| Δ ") == 4
    assert printed.count("| 95 % ") == 3, "of patches and of its average; where all seeds differ alike there is none"
    assert lines_of(printed)["Avg. Δ patches"][0] == "+0.5 ± 0.5"
    assert lines_of(printed)["Avg. Δ CPF"][0] == "+4.0", "the seed that all have"


def test_gains_of_the_paper_are_those_it_states() -> None:
    """+4.0 points on new classes of fine-grained sets and +2.0 on coarse ones, on average over the four hosts."""
    for name, gain in (("fine", 4.0), ("coarse", 2.0)):
        hosts = [m for sets in TABLES[name].reported.values() for m in sets.values() if "cpf" in m]
        assert len(hosts) == 12
        mean = sum(m["cpf"]["new"] - m["none"]["new"] for m in hosts) / len(hosts)
        assert mean == pytest.approx(gain, abs=0.06)


@pytest.mark.parametrize(("name", "first"), [("fine", ["GCD", "PromptCAL"]), ("coarse", ["GCD", "GCD + pim"])])
def test_the_papers_rows_stand_in_its_order_also_those_that_are_only_quoted(name: str, first: list[str]) -> None:
    table = TABLES[name]
    for comparison in tables_of(name, {}):
        shown = [row for row in comparison.rows if any(entry.reported is not None for entry in row.entries)]
        of_paper = table.reported[comparison.parts["data"]]
        keys = [(method, organizer) for method in of_paper for organizer in of_paper[method]]
        assert [(row.parts["method"], row.name.endswith(" + CPF")) for row in shown] == [
            (method, organizer == "cpf") for method, organizer in keys
        ]
        names = [row.name for row in shown]
        assert names[:2] == first
        assert len(names) == 16
        assert names[-10:-8] == ["APL", "ConGCD"]
        hosts = ("SimGCD", "LegoGCD", "CMS", "SelEx")
        assert names[-8:] == [f"{host}{plugged}" for host in hosts for plugged in ("", " + CPF")]
    assert not [cell.title for cell in table.cells() if cell.is_quoted and cell.organizer != "none"]
    printed = markdown(tables_of(name, {}))
    assert "APL and ConGCD are only quoted" in printed
    assert "% APL and ConGCD are only quoted" in latex(tables_of("fine", {}))
    assert lines_of(printed)["APL"][1::2] == [""] * 3, "nothing of ours"


def test_a_method_that_is_missing_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(METHODS._entries, "mugcd")
    rows = lines_of(markdown(tables_of("fine", {})))
    assert rows["mugcd"][:2] == ["56.5", ""]
    assert "mugcd + CPF" not in rows


def test_every_system_is_in_one_table_in_a_size_for_a_small_machine() -> None:
    table = replace(TABLES["all"], data=("creatures",))
    trained = {name for name in METHODS if METHODS[name].trains}
    assert set(table.systems) == trained >= set(REPORTED["fine"]["cub"]) - {"APL", "ConGCD"}
    rows = [(cell.method, cell.organizer) for cell in table.cells() if cell.method != "frozen"]
    assert set(rows) == {(m, o) for m in trained for o in ("none", *CONTROLS, "cpf")} | {("gcd", "pim")}
    for cell in table.cells():
        config = resolve({"data": {"name": "creatures"}}, *table.settings(cell), *cell.layers())
        assert config.train.epochs == (20 if METHODS[cell.method].trains else 0)
        for name, most in NARROW.items():
            assert config.method.get(name, 0) <= most
    assert narrow_settings("cms") == {"projection_hidden": 256}, "its output is narrow already"
    assert TABLES["plugin"].settings(cell) == []
    of_birds = resolve(*table.settings(replace(cell, data="birds")), {"data": {"name": "creatures"}})
    assert (config.train.backbone_lr_ratio, of_birds.train.backbone_lr_ratio) == (0.1, 1.0), "a family has its own"


def lines_of(markdown: str) -> dict[str, list[str]]:
    """The cells of a table by the name of their line; Δ and 95 % are those of the row above them."""
    found, row = {}, ""
    for line in markdown.splitlines():
        if line.startswith("| "):
            name, *cells = [cell.strip() for cell in line.split("|")[1:-1]]
            row = row if name in ("Δ", "95 %") else name
            found[f"{name} {row}" if name in ("Δ", "95 %") else name] = cells
    return found


def test_ours_stand_beside_reported_with_spread_seeds_and_gain() -> None:
    tables = tables_of(
        "fine",
        {
            ("cub", "simgcd", "none", 0): 60.0,
            ("cub", "simgcd", "none", 1): 62.0,
            ("cub", "simgcd", "none", 2): 64.0,
            ("cub", "simgcd", "cpf", 0): 64.5,
            ("cub", "simgcd", "cpf", 1): 65.5,
            ("cub", "selex", "none", 0): 70.0,
            ("cub", "selex", "cpf", 0): 69.0,
        },
    )
    printed = markdown(tables)
    of_cub = lines_of(printed.split("## aircraft")[0])
    assert of_cub[""] == ["All % reported", "ours", "Old % reported", "ours", "New % reported", "ours", "seeds"]
    assert of_cub["SimGCD"] == ["61.2", "62.0 ± 2.0", "65.8", "62.0 ± 2.0", "58.9", "62.0 ± 2.0", "3"]
    assert of_cub["SimGCD + CPF"] == ["63.9", "65.0 ± 0.7", "65.5", "65.0 ± 0.7", "63.1", "65.0 ± 0.7", "2"]
    assert of_cub["Δ SimGCD + CPF"] == ["", "+4.0 ± 0.5", "", "+4.0 ± 0.5", "", "+4.0 ± 0.5", "2"], "seeds 0 and 1"
    assert of_cub["95 % SimGCD + CPF"][:2] == ["", "[\N{MINUS SIGN}2.4, +10.4]"]
    assert of_cub["Δ SelEx + CPF"][:2] == ["", "\N{MINUS SIGN}1.0"]
    assert "95 % SelEx + CPF" not in of_cub, "one seed"
    assert of_cub["CMS"] == ["65.7", "", "75.8", "", "60.7", "", ""]
    assert "seed  SimGCD: 0; 1; 2 · SimGCD + CPF: 0; 1 · SelEx, SelEx + CPF: 0" in printed
    assert printed.count("no run yet") == 2
    assert printed.count("standard error") == 1, "explained where there are several seeds"

    lines = list(csv.DictReader(io.StringIO(tidy_csv(tables))))
    singles = [line for line in lines if line["seed"]]
    assert len(singles) == 7 * 3, "a line for each run and measure"
    of_cpf = [line for line in singles if (line["row"], line["measure"]) == ("SimGCD + CPF", "new")]
    of_seeds = [(line["seed"], line["value"], line["difference"]) for line in of_cpf]
    assert of_seeds == [("0", "64.5", "4.5"), ("1", "65.5", "3.5")]
    averages = [line for line in lines if line["method"] == "average"]
    assert [(line["row"], line["measure"], line["gain"]) for line in averages][:1] == [("Avg. Δ CPF", "all", "1.75")]
    rows = [line for line in lines if not line["seed"] and line["method"] != "average"]
    assert len(rows) == 3 * (11 + 10 * 5 + 2) * 3, "baselines, hosts, and what is only quoted"
    wanted = {"table": "fine", "data": "cub", "method": "simgcd", "organizer": "cpf", "measure": "new"}
    (row,) = [row for row in rows if wanted.items() <= row.items()]
    names = ("reported", "mean", "seeds", "gain", "gain_se", "gain_seeds")
    assert [row[name] for name in names] == ["63.1", "65.0", "2", "4.0", "0.5", "2"]
    assert [float(row[name]) for name in ("gain_low", "gain_high")] == pytest.approx([4 - 6.3531, 4 + 6.3531], abs=1e-3)
    assert sum(r["mean"] == "" for r in rows) == len(rows) - 4 * 3
    (single,) = [row for row in rows if {**wanted, "method": "selex"}.items() <= row.items()]
    gain = [single[name] for name in ("gain", "gain_se", "gain_low", "gain_high", "gain_seeds")]
    assert gain == ["-1.0", "", "", "", "1"]

    tex = latex(tables)
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 3
    assert r"SimGCD + CPF & 63.9 & 65.0 $\pm$ 0.7 &" in tex
    assert r"$\Delta$ &  & +4.0 $\pm$ 0.5 &" in tex
    body = re.findall(r"^(?!%|\\).+$", tex, re.MULTILINE)
    assert {line.count("&") for line in body} == {7}
    assert all(line.endswith(r"\\") for line in body)
    assert "±" not in "".join(body)
    assert "%" not in re.sub(r"\\%|^%.*$", "", tex, flags=re.MULTILINE)


def test_figures_on_test_images_stand_apart_and_beside_nothing_reported() -> None:
    """Only runs that have them count: of SimGCD one of two seeds."""
    outcomes = outcomes_of(
        "fine",
        {
            ("cub", "simgcd", "none", 0): 60.0,
            ("cub", "simgcd", "none", 1): 62.0,
            ("cub", "simgcd", "cpf", 0): 64.5,
            ("cars", "simgcd", "none", 0): 50.0,
        },
    )
    for organizer, value in (("none", 70.0), ("cpf", 73.5)):
        cell = Cell("cub", "simgcd", organizer, 0)
        outcomes[cell] = replace(outcomes[cell], test={"all": value, "old": value + 1, "new": None})
    tables = comparisons(TABLES["fine"], outcomes)
    printed = markdown(tables)
    assert printed.count("On the test images:") == 1
    before, on_test = printed.split("## aircraft")[0].split("On the test images:")
    assert lines_of(before)["Δ SimGCD + CPF"][:2] == ["", "+4.5"], "against the host's seed 0"
    rows = lines_of(on_test)
    assert rows[""] == ["All %", "Old %", "New %", "seeds"]
    assert rows["SimGCD"] == ["70.0", "71.0", "–", "1"]
    assert rows["SimGCD + CPF"] == ["73.5", "74.5", "–", "1"]
    assert rows["Δ SimGCD + CPF"] == ["+3.5", "+3.5", "–", "1"]
    assert rows["CMS"] == [""] * 4

    lines = list(csv.DictReader(io.StringIO(tidy_csv(tables))))
    lines = [line for line in lines if not line["seed"] and line["data"] != "average"]
    assert len(lines) == ((3 + 1) * (11 + 10 * 5) + 3 * 2) * 3, "what is only quoted has no figures on test images"
    of_cpf = {"data": "cub", "method": "simgcd", "organizer": "cpf", "measure": "all"}
    figures = {
        line["evaluated"]: [line[name] for name in ("reported", "mean", "seeds", "gain")]
        for line in lines
        if of_cpf.items() <= line.items()
    }
    assert figures == {"unlabelled": ["63.9", "64.5", "1", "4.5"], "test": ["", "73.5", "1", "3.5"]}
    assert all(line["reported"] == "" for line in lines if line["evaluated"] == "test")

    tex = latex(tables)
    assert tex.count(r"\begin{tabular}") == 5, "the last has both data sets of which there are runs, and their average"
    on_test = tex.split("% Fine-grained data sets: cub, on the test images")[1]
    assert r"SimGCD + CPF & \textbf{73.5} & \textbf{74.5} & -- & 1 \\" in on_test

    for name in ("count", "cost"):
        lines = list(csv.DictReader(io.StringIO(tidy_csv(comparisons(TABLES[name], outcomes)))))
        assert {line["evaluated"] for line in lines} == {""}


def test_counts_say_how_they_were_made_and_nothing_of_accuracy() -> None:
    outcomes = outcomes_of("count", {("cub", "gcd", "none", 0): 231.0})
    (cell,) = outcomes
    outcomes[cell] = replace(outcomes[cell], protocol={"metric": "accuracy", "counting": "brent on the features"})
    printed = markdown(comparisons(TABLES["count"], outcomes))
    assert "brent on the features" in printed
    assert "accuracy" not in printed
    assert re.search(r"^\| GCD +\| +231 \| +231 \|", printed, re.MULTILINE)
