"""Cells that go on from others: a second stage from its first, another assigner from what its host has learnt."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from conftest import TINY_TRAINING
from newkinds.errors import NewkindsError
from newkinds.evaluation.judge import evaluate
from newkinds.experiments.cells import Cell, with_what_comes_before
from newkinds.experiments.outcomes import Outcome, collect, comparable, require_run_of
from newkinds.experiments.paper import narrow_settings
from newkinds.experiments.run_grid import run_all
from newkinds.methods import METHODS
from newkinds.runs.run import Run
from newkinds.verbs.discover import discover

CREATURES = {"data": {"name": "creatures"}}
HOST, CPF = Cell("creatures", "mugcd", "none"), Cell("creatures", "mugcd", "cpf")
ROWS = [Cell("creatures", method, organizer) for method in ("gcd", "mugcd") for organizer in ("none", "cpf")]


def settings(cell: Cell) -> list[dict[str, Any]]:
    return [CREATURES, TINY_TRAINING, {"method": {"name": cell.method, **narrow_settings(cell.method)}}]


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """μGCD alone and with CPF, of which nothing else was asked for."""
    folder = tmp_path_factory.mktemp("stages") / "runs"
    assert len(run_all([HOST, CPF], folder, settings, lambda _: None).finished) == 4
    assert {run.name for run in folder.iterdir()} == {row.folder(folder).name for row in ROWS}
    return folder


def test_a_second_stage_starts_from_the_first_with_its_organizer_and_seed(stages: Path) -> None:
    for cell in (HOST, CPF):
        run, first = Run(cell.folder(stages)), Cell("creatures", "gcd", cell.organizer).folder(stages)
        assert run.config().train.start == str(first.resolve())
        assert run.read_json("protocol.json")["started_from"].startswith(first.name)
        printed = run.read_json("evaluation.json")["protocol"]
        assert first.name in printed["started from"]
        assert str(stages) not in " ".join(printed.values()), "a table does not say where the runs lie"


def test_stages_are_resumed_and_stand_in_one_table(
    stages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("what had been done was done again")

    with monkeypatch.context() as patched:
        patched.setattr("newkinds.experiments.run_grid.discover", refuse)
        assert len(run_all([HOST, CPF], stages, settings, lambda _: None).finished) == 4
    found = collect(ROWS, stages).found
    assert set(found) == set(ROWS), "a host and CPF start from different runs, which does not keep them apart"
    shutil.copytree(stages, tmp_path / "moved")
    capsys.readouterr()
    assert collect(ROWS, tmp_path / "moved").found == found
    assert capsys.readouterr().err == ""


def test_a_second_stage_from_elsewhere_is_another_run(stages: Path) -> None:
    outcome = collect([HOST], stages).found[HOST]
    require_run_of(HOST, outcome, CREATURES["data"])
    for start in ("none", None, "creatures-gcd-cpf-seed0"):
        other = Outcome(outcome.figures, outcome.protocol, {**outcome.settings, "train.start": start})
        with pytest.raises(NewkindsError, match=r"train\.start"):
            require_run_of(HOST, other, CREATURES["data"])


def test_seeds_of_a_second_stage_are_averaged(stages: Path) -> None:
    outcome = collect([HOST], stages).found[HOST]
    other = {**outcome.settings, "train.seed": 1, "train.start": "creatures-gcd-none-seed1"}
    runs = {HOST: outcome, Cell("creatures", "mugcd", "none", 1): Outcome(outcome.figures, {}, other)}
    assert comparable(runs).found == runs


def test_what_starts_from_a_failed_run_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (HOST.folder(tmp_path).parent / "creatures-gcd-none-seed0").mkdir()
    (tmp_path / "creatures-gcd-none-seed0" / "mine.txt").write_text("not a run")
    assert run_all([HOST], tmp_path, settings).finished == {}
    told = " ".join(capsys.readouterr().err.split())
    assert "GCD on creatures, seed 0 failed: the folder" in told
    assert "MuGCD on creatures, seed 0 failed: it starts from GCD on creatures, seed 0, which failed." in told
    assert not HOST.folder(tmp_path).exists()


def test_each_run_comes_once_and_after_what_it_needs() -> None:
    cells = [Cell("a", "mugcd", "pim", 1), Cell("a", "gcd", "none", 1), Cell("a", "frozen", "pim"), CPF]
    assert [cell.folder(Path()).name for cell in with_what_comes_before(cells)] == [
        "a-gcd-none-seed1", "a-mugcd-none-seed1", "a-mugcd-pim-seed1", "a-frozen-pim-seed0",
        "creatures-gcd-cpf-seed0", "creatures-mugcd-cpf-seed0",
    ]  # fmt: skip
    for method in METHODS:
        assert METHODS[method].starts_from is None or METHODS[METHODS[method].starts_from].trains


def test_another_assigner_trains_nothing_again(stages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the run that its settings describe, made from the host's."""
    pim = Cell("creatures", "mugcd", "pim")

    def with_options(cell: Cell) -> list[dict[str, Any]]:
        return [*settings(cell), {"assigner": {"pim": {"steps": 7}}}]

    with monkeypatch.context() as patched:
        patched.setattr("newkinds.verbs.train.fit", lambda *_: pytest.fail("something was trained"))
        outcomes = run_all([pim], stages, with_options, lambda _: None).finished
        assert outcomes.keys() == {*with_what_comes_before([pim])}
        assert run_all([pim], stages, with_options, lambda _: None).finished == outcomes
    run, host = Run(pim.folder(stages)), Run(HOST.folder(stages))
    assert run.config().assigner["steps"] == 7
    assert run.metrics() == host.metrics()
    trained, there = ({n: v for n, v in load_file(r.model_file).items() if "encoder." in n} for r in (run, host))
    assert all(value.equal(there[name]) for name, value in trained.items())

    alone = tmp_path / "alone"
    discover(None, alone, settings=[*with_options(pim), *pim.layers(stages)])
    assert evaluate(alone)["metrics"] == run.read_json("evaluation.json")["metrics"]
    assert Run(alone).config() == run.config()
