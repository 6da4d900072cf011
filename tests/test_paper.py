"""The paper's tables: reported and ours side by side, cells not run left empty."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import save_image
from layouts import lay_out_cub
from newkinds.bench import COLUMNS, Cell, Outcome, read_outcome
from newkinds.errors import NewkindsError
from newkinds.paper import STYLES, TABLES, bench, collect, entries, latex, markdown, reported, tidy_csv
from newkinds.run import Run

Cli = Callable[..., tuple[int, str, str]]
SMALL = ("--backbone", "tiny", "--epochs", "1", "--set", "train.batch_size=64")


def outcomes_of(table: str, cells: dict[tuple[str, str, str, int], float]) -> dict[Cell, Outcome]:
    measures = TABLES[table].measures
    return {
        Cell(*key): Outcome({**dict.fromkeys(COLUMNS, 1.0), **dict.fromkeys(measures, value)}, {"seed": str(key[3])})
        for key, value in cells.items()
    }


def lay_out_birds(root: Path) -> None:
    """CUB's layout with images that differ."""
    lay_out_cub(root)
    for image in root.rglob("*.jpg"):
        save_image(image, size=(16, 16))


@pytest.mark.parametrize("name", list(TABLES))
def test_every_reported_figure_has_its_place_in_the_table(name: str) -> None:
    table = TABLES[name]
    count = sum(len(f) for sets in reported()[name].values() for m in sets.values() for f in m.values())
    found = entries(table, {})
    assert sum(entry.reported is not None for entry in found) == count > 0
    assert all(entry.ours is None for entry in found)


def test_gains_of_the_paper_are_those_it_states() -> None:
    """+4.0 points on new classes of fine-grained sets and +2.0 on coarse ones, on average over the four hosts."""
    for name, gain in (("fine", 4.0), ("coarse", 2.0)):
        hosts = [m for sets in reported()[name].values() for m in sets.values() if "cpf" in m]
        assert len(hosts) == 12
        mean = sum(m["cpf"]["new"] - m["none"]["new"] for m in hosts) / len(hosts)
        assert mean == pytest.approx(gain, abs=0.06)


def test_ours_stand_beside_reported_with_spread_seeds_and_gain() -> None:
    outcomes = outcomes_of(
        "fine",
        {
            ("cub", "simgcd", "none", 0): 60.0,
            ("cub", "simgcd", "none", 1): 62.0,
            ("cub", "simgcd", "cpf", 0): 64.5,
        },
    )
    text = markdown(TABLES["fine"], outcomes)
    host = re.search(r"^\| SimGCD +\|(.*)\|$", text, re.MULTILINE)
    with_cpf = re.search(r"^\| SimGCD \+ CPF +\|(.*)\|$", text, re.MULTILINE)
    assert host is not None
    assert with_cpf is not None
    assert [c.strip() for c in host[1].split("|")] == [
        "61.2", "61.0 ± 1.4", "", "65.8", "61.0 ± 1.4", "", "58.9", "61.0 ± 1.4", "", "2",
    ]  # fmt: skip
    assert [c.strip() for c in with_cpf[1].split("|")][:3] == ["63.9", "64.5", "+3.5"]
    assert "seed  0; 1" in text
    assert text.count("no run yet") == 2

    rows = list(csv.DictReader(io.StringIO(tidy_csv(TABLES["fine"], outcomes))))
    assert len(rows) == 3 * 5 * 2 * 3
    wanted = {"data": "cub", "method": "simgcd", "organizer": "cpf", "measure": "new"}
    (row,) = [row for row in rows if wanted.items() <= row.items()]
    figures = [row[name] for name in ("reported", "mean", "std", "seeds", "gain_over_host")]
    assert figures == ["63.1", "64.5", "", "1", "3.5"]
    assert sum(r["mean"] == "" for r in rows) == len(rows) - 6

    tex = latex(TABLES["fine"], outcomes)
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 3
    assert r"SimGCD + CPF & 63.9 & 64.5 & +3.5 &" in tex
    body = re.findall(r"^(?!%|\\).+$", tex, re.MULTILINE)
    assert {line.count("&") for line in body} == {10}
    assert all(line.endswith(r"\\") for line in body)
    assert "±" not in tex
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
    text = markdown(TABLES["fine"], outcomes)
    assert text.count("On the test images:") == 1
    before, on_test = text.split("## aircraft")[0].split("On the test images:")
    assert "| SimGCD + CPF  |           63.9 |       64.5 | +3.5 |" in before
    split = [[c.strip() for c in line.split("|")[1:-1]] for line in on_test.splitlines() if line.startswith("|")]
    rows = {name: figures for name, *figures in split}
    assert rows[""] == ["All % ours", "Δ", "Old % ours", "Δ", "New % ours", "Δ", "seeds"]
    assert rows["SimGCD"] == ["70.0", "", "71.0", "", "", "", "1"]
    assert rows["SimGCD + CPF"] == ["73.5", "+3.5", "74.5", "+3.5", "", "", "1"]
    assert rows["CMS"] == [""] * 7

    lines = list(csv.DictReader(io.StringIO(tidy_csv(TABLES["fine"], outcomes))))
    assert len(lines) == 2 * 3 * 5 * 2 * 3
    of_cpf = {"data": "cub", "method": "simgcd", "organizer": "cpf", "measure": "all"}
    figures = {
        line["evaluated"]: [line[name] for name in ("reported", "mean", "seeds", "gain_over_host")]
        for line in lines
        if of_cpf.items() <= line.items()
    }
    assert figures == {"unlabelled": ["63.9", "64.5", "1", "3.5"], "test": ["", "73.5", "1", "3.5"]}
    assert all(line["reported"] == "" for line in lines if line["evaluated"] == "test")

    tex = latex(TABLES["fine"], outcomes)
    assert tex.count(r"\begin{tabular}") == 4
    on_test = tex.split("% Fine-grained data sets: cub, on the test images")[1]
    assert r"SimGCD + CPF & 73.5 & +3.5 & 74.5 & +3.5 &  &  & 1 \\" in on_test

    for name in ("count", "cost"):
        assert {line["evaluated"] for line in csv.DictReader(io.StringIO(tidy_csv(TABLES[name], outcomes)))} == {""}


@pytest.mark.parametrize("style", list(STYLES))
def test_a_table_of_nothing_is_printed_empty(style: str, tmp_path: Path) -> None:
    for name in TABLES:
        assert bench(name, tmp_path, only_collect=True, style=style)  # type: ignore[arg-type]


def test_unknown_table_suggests_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match="fine"):
        bench("fin", tmp_path)


def test_cub_runs_through_the_command_line_resumes_and_is_collected(run_cli: Cli, tmp_path: Path) -> None:
    lay_out_birds(tmp_path / "data")
    out = tmp_path / "runs"
    grid = ("--data", "cub,cars", "--methods", "simgcd", "--organizers", "none")
    command = ("bench", "fine", "--out", out, *grid, "--data-root", tmp_path / "data", *SMALL)
    status, text, err = run_cli(*command)
    assert status == 0, err
    assert err.count("cars is left out") == 1
    row = re.search(r"^\| SimGCD +\| +61.2 \| +([\d.]+) \|", text, re.MULTILINE)
    assert row is not None
    folder = out / "cub-simgcd-none-seed0"
    outcome = read_outcome(folder)
    assert outcome is not None
    assert outcome.figures["all"] == pytest.approx(float(row[1]), abs=0.05)
    assert outcome.figures["inference_seconds"] > 0  # type: ignore[operator]
    assert Run(folder).config().method["memax_weight"] == 2.0, "the recipe's"
    assert "class list" in text
    assert "not on test images: this copy of CUB-200-2011 lacks 5,594 of its 5,794 test images" in text
    assert "On the test images" not in text

    status, again, err = run_cli(*command)
    assert status == 0
    assert "is finished already" in err
    assert again == text
    status, collected, err = run_cli("bench", "fine", "--out", out, "--collect")
    assert (status, collected) == (0, text)

    (folder / "evaluation.json").unlink()  # as if it had been stopped there
    assert collect(TABLES["fine"], out) == {}


def test_a_cell_that_fails_does_not_stop_the_others(run_cli: Cli, tmp_path: Path) -> None:
    lay_out_birds(tmp_path / "data")
    foreign = Cell("cub", "simgcd", "none", 0).folder(tmp_path / "runs")
    foreign.mkdir(parents=True)
    (foreign / "mine.txt").write_text("not a run")
    status, _, err = run_cli(
        "bench", "fine", "--out", tmp_path / "runs", "--data", "cub", "--methods", "simgcd", "--seeds", "0", "1",
        "--organizers", "none", "--data-root", tmp_path / "data", *SMALL,
    )  # fmt: skip
    assert status == 0
    assert "seed 0 failed" in err
    assert list(collect(TABLES["fine"], tmp_path / "runs")) == [Cell("cub", "simgcd", "none", 1)]
    assert (foreign / "mine.txt").is_file()
