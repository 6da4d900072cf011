"""Grids of runs, and the table they become."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from conftest import TINY_TRAINING
from newkinds.comparison import Column, Comparison, OverSeeds, Row, difference, number, verdict
from newkinds.evaluation.judge import evaluate
from newkinds.experiments.grid import COLUMNS, Cell, Outcome, compare, grid, merged, run_all
from newkinds.runs.run import Run

CREATURES = {"data": {"name": "creatures"}}


def outcome(all_: float | None, seed: int) -> Outcome:
    return Outcome({name: all_ if name == "all" else 1.0 for name in COLUMNS}, {"split": "ab", "seed": str(seed)})


def one(value: float) -> OverSeeds:
    return OverSeeds({0: value})


def test_a_figure_is_the_mean_and_the_deviation_of_the_sample() -> None:
    values = [61.2, 58.3, 63.9]
    mean = sum(values) / 3
    figure = OverSeeds.of(dict(enumerate(values)))
    assert figure is not None
    assert figure.mean == pytest.approx(mean)
    assert figure.std == pytest.approx(math.sqrt(sum((v - mean) ** 2 for v in values) / 2))
    assert number(figure, Column("All")) == "61.1 ± 2.8"
    assert number(OverSeeds.of({4: 61.25}), Column("All", decimals=2)) == "61.25"
    assert OverSeeds.of({}) is None
    assert OverSeeds.of({0: 61.2, 1: None}) is None, "a mean over fewer runs than the others' would be another figure"


def test_differences_are_signed_and_judged() -> None:
    column, lower = Column("All", better="higher"), Column("error", better="lower")
    assert difference(one(61.0), one(63.5), column) == "\N{MINUS SIGN}2.5"
    assert difference(one(61.02), one(61.04), column) == "+0.0"
    assert difference(None, one(1.0), column) == "–"
    assert verdict(one(2.0), one(1.0), column) == "better"
    assert verdict(one(2.0), one(1.0), lower) == "worse"
    assert verdict(one(1.02), one(1.0), column) == ""
    assert verdict(one(2.0), one(1.0), Column("params")) == ""


def test_a_difference_is_taken_seed_by_seed() -> None:
    """Seed 2 is harder for both: a row without it is compared with the host's other seeds, not with their mean."""
    column = Column("All", better="higher")
    host = OverSeeds({0: 60.0, 1: 62.0, 2: 40.0})
    assert difference(OverSeeds({0: 61.0, 1: 62.5}), host, column) == "+0.8 ± 0.4"
    assert difference(OverSeeds({2: 40.5}), host, column) == "+0.5"
    assert difference(OverSeeds({3: 70.0}), host, column) == "–", "no seed in common"
    assert verdict(OverSeeds({0: 61.0, 1: 62.5}), host, column) == "", "seeds differ by more"
    assert verdict(OverSeeds({0: 63.0, 1: 65.0}), OverSeeds({0: 60.0, 1: 62.0}), column) == "better"
    assert verdict(OverSeeds({0: 63.0, 1: 65.0}), OverSeeds({0: 62.9, 1: 60.0}), column) == "", "it differs by seed"


def test_hosts_stand_above_what_is_compared_with_them() -> None:
    cells = grid("creatures", ["gcd", "cms"], ["none", "patches", "cpf"], [0, 1])
    assert len(cells) == 12
    outcomes = {cell: outcome(50.0 + 4 * (cell.organizer == "cpf") + 2 * cell.seed, cell.seed) for cell in cells}
    del outcomes[Cell("creatures", "cms", "cpf", 1)]
    comparison = compare(cells, outcomes)
    names = ["GCD", "GCD + PATCHES", "GCD + CPF", "CMS", "CMS + PATCHES", "CMS + CPF"]
    assert [row.name for row in comparison.rows] == names
    assert [row.base for row in comparison.rows] == [None, 0, 0, None, 3, 3]
    assert comparison.rows[2].figures[0] == OverSeeds({0: 54.0, 1: 56.0})
    assert comparison.rows[5].figures[0] == OverSeeds({0: 54.0}), "the run that is there is shown, as one run"
    complete = ", ".join(names[:-1])
    assert comparison.protocol == [("split", "ab"), ("seed", f"{complete}: 0; 1 · CMS + CPF: 0")]
    text = comparison.text()
    assert "| GCD + CPF     | 55.0 ± 1.4 |" in text
    assert text.count("| Δ ") == 4


def test_a_table_without_figures_is_empty_not_broken() -> None:
    cells = grid("creatures", ["gcd"], ["none", "cpf"], [0])
    comparison = compare(cells, {cells[0]: outcome(None, 0)})
    assert "–" in comparison.text()
    assert Comparison([Column("All")], [Row("host", [None])], [("seed", "0")]).text().count("–") == 1
    assert merged([]) == {}


def test_a_grid_runs_goes_on_and_tells_of_what_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = grid("creatures", ["simgcd"], ["none", "cpf"], [0])

    def settings(cell: Cell) -> list[dict[str, dict[str, object]]]:
        broken = {"organizer": {"heads": 7}} if cell.organizer == "cpf" else {}
        return [CREATURES, TINY_TRAINING, broken]

    outcomes = run_all(cells, tmp_path, settings)
    err = capfd.readouterr().err
    assert list(outcomes) == [cells[0]]
    assert "SimGCD + CPF on creatures, seed 0 failed" in err
    folder = cells[0].folder(tmp_path)
    figures = outcomes[cells[0]].figures
    assert figures["all"] == pytest.approx(100 * evaluate(folder)["metrics"]["acc_all"])
    assert figures["count_error"] == pytest.approx(100 * abs(Run(folder).read_json("count.json")["answer"] - 4) / 4)


def test_a_finished_cell_is_read_not_made_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [Cell("creatures", "simgcd", "none", 0)]
    outcomes = run_all(cells, tmp_path, lambda _: [CREATURES, TINY_TRAINING])
    folder = cells[0].folder(tmp_path)
    written = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("what had been done was done again")

    with monkeypatch.context() as patched:
        readers = ("verbs.train.load_table", "evaluation.judge.load_table", "verbs.count._run_features")
        for name in (*readers, "training.model.embed"):
            patched.setattr(f"newkinds.{name}", refuse)
        capfd.readouterr()
        assert run_all(cells, tmp_path, lambda _: [CREATURES, TINY_TRAINING]) == outcomes
        assert f"{folder} is finished already" in capfd.readouterr().err
        as_the_data_set_says = [CREATURES, TINY_TRAINING, {"k": 4}]
        assert run_all(cells, tmp_path, lambda _: as_the_data_set_says) == outcomes
        for other in ({"train": {"lr": 0.5}}, {"k": 5}, {"k": "auto"}):
            assert run_all(cells, tmp_path, lambda _, other=other: [CREATURES, TINY_TRAINING, other]) == {}  # type: ignore[misc]
            assert "other settings" in capfd.readouterr().err
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == written

    (folder / "count.json").unlink()  # as if it had been stopped there
    with monkeypatch.context() as patched:
        patched.setattr("newkinds.training.model.embed", refuse)
        assert run_all(cells, tmp_path, lambda _: [CREATURES, TINY_TRAINING]) == outcomes
    assert (folder / "count.json").is_file()


def test_a_finished_cell_whose_categories_were_estimated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cells = [Cell("creatures", "simgcd", "none", 0)]
    estimated = [CREATURES, TINY_TRAINING, {"train": {"epochs": 1}, "k": "auto"}]
    outcomes = run_all(cells, tmp_path, lambda _: estimated)
    capfd.readouterr()
    assert run_all(cells, tmp_path, lambda _: estimated) == outcomes != {}
    assert "is finished already" in capfd.readouterr().err
