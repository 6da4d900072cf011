"""Grids of runs: run, resumed, read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import SMALL_HEAD, TINY_TRAINING
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.evaluation.judge import evaluate
from newkinds.experiments.cells import VARIANTS, Cell
from newkinds.experiments.run_grid import run_all
from newkinds.runs.run import Run

CREATURES = {"data": {"name": "creatures"}}
EMBEDDERS = ("discovery.finished.embed", "evaluation.judge.embed", "verbs.stages.embed", "training.loop.embed")


def test_a_grid_runs_goes_on_and_tells_of_what_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [Cell("creatures", "simgcd", organizer) for organizer in ("none", "cpf")]

    def settings(cell: Cell) -> list[dict[str, dict[str, object]]]:
        broken = {"organizer": {"heads": 7}} if cell.organizer == "cpf" else {}
        return [CREATURES, TINY_TRAINING, SMALL_HEAD, broken]

    outcomes = run_all(cells, tmp_path, settings).finished
    err = capfd.readouterr().err
    assert list(outcomes) == [cells[0]]
    assert "SimGCD + CPF on creatures, seed 0 failed" in err
    folder = cells[0].folder(tmp_path)
    figures = outcomes[cells[0]].figures
    assert figures["all"] == pytest.approx(100 * evaluate(folder)["metrics"]["acc_all"])
    assert figures["count_error"] == pytest.approx(100 * abs(Run(folder).read_json("count.json")["answer"] - 4) / 4)


def test_every_organizer_with_parameters_has_a_row_that_is_never_trained(tmp_path: Path) -> None:
    named = {name for name in ORGANIZERS if f"{name}-frozen" in VARIANTS}
    assert named == {name for name in ORGANIZERS if list(ORGANIZERS[name](48).parameters())} >= {"cpf", "coge", "slots"}
    assert Cell("creatures", "simgcd", "coge-release-frozen").title == "SimGCD + coge release frozen"

    cell = Cell("creatures", "simgcd", "slots-frozen")
    worked = run_all([cell], tmp_path, lambda _: [CREATURES, TINY_TRAINING, SMALL_HEAD], lambda _: None)
    (outcome,) = worked.finished.values()
    assert outcome.settings["train.freeze_organizer"] is True
    trained = Run(cell.folder(tmp_path)).read_json("protocol.json")["trains"]
    assert trained
    assert not any(line.startswith("organizer") for line in trained)


def test_a_finished_cell_is_read_not_made_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [Cell("creatures", "simgcd", "none", 0)]
    outcomes = run_all(cells, tmp_path, lambda _: [CREATURES, TINY_TRAINING, SMALL_HEAD]).finished
    folder = cells[0].folder(tmp_path)
    written = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("what had been done was done again")

    with monkeypatch.context() as patched:
        for name in ("verbs.train.load_table", "evaluation.judge.load_table", "verbs.count._run_features", *EMBEDDERS):
            patched.setattr(f"newkinds.{name}", refuse)
        capfd.readouterr()
        assert run_all(cells, tmp_path, lambda _: [CREATURES, TINY_TRAINING, SMALL_HEAD]).finished == outcomes
        assert f"{folder} is finished already" in capfd.readouterr().err
        as_the_data_set_says = [CREATURES, TINY_TRAINING, SMALL_HEAD, {"k": 4}]
        assert run_all(cells, tmp_path, lambda _: as_the_data_set_says).finished == outcomes
        for other in ({"train": {"lr": 0.5}}, {"k": 5}, {"k": "auto"}):
            with_other = [CREATURES, TINY_TRAINING, SMALL_HEAD, other]
            assert run_all(cells, tmp_path, lambda _, layers=with_other: layers).finished == {}  # type: ignore[misc]
            assert "other settings" in capfd.readouterr().err
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == written

    (folder / "count.json").unlink()  # as if it had been stopped there
    with monkeypatch.context() as patched:
        for name in EMBEDDERS:
            patched.setattr(f"newkinds.{name}", refuse)
        assert run_all(cells, tmp_path, lambda _: [CREATURES, TINY_TRAINING, SMALL_HEAD]).finished == outcomes
    assert (folder / "count.json").is_file()


def test_a_finished_cell_whose_categories_were_estimated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cells = [Cell("creatures", "simgcd", "none", 0)]
    estimated = [CREATURES, TINY_TRAINING, SMALL_HEAD, {"train": {"epochs": 1}, "k": "auto"}]
    outcomes = run_all(cells, tmp_path, lambda _: estimated).finished
    capfd.readouterr()
    assert run_all(cells, tmp_path, lambda _: estimated).finished == outcomes != {}
    assert "is finished already" in capfd.readouterr().err
