"""Settings that are chosen for each row on labelled images alone (`bench --tune`)."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import pytest

from conftest import save_image
from newkinds.errors import NewkindsError
from newkinds.experiments.bench import bench
from newkinds.experiments.cells import Cell
from newkinds.experiments.outcomes import Outcome, comparable, read_outcome
from newkinds.experiments.tuning import RowTuning, run_trial
from newkinds.runs.records import Tried, Tuned
from newkinds.runs.run import Run
from newkinds.settings import tuned_settings
from newkinds.training.loop import Diverged

SMALL: dict[str, Any] = {
    "data": ["creatures"], "baselines": ["none"],
    "settings": {
        "data": {"categories": 8, "per_category": 8},
        "train": {"epochs": 1, "batch_size": 16},
        "method": {"projection_hidden": 32},
    },
}  # fmt: skip
RATES = {"train.lr": [0.001, 0.5]}


def test_each_row_has_the_best_of_its_own_trials_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid: dict[str, Any] = {"methods": ["simgcd"], "organizers": ["none", "adapter", "kmeans"], **SMALL}
    benched = bench("ablation", tmp_path, **grid, tune=RATES, seeds=[1])
    assert benched.failed == []
    trials = sorted(folder.name for folder in (tmp_path / "tuning").iterdir())
    rows = ("creatures-simgcd-adapter", "creatures-simgcd-none")  # kmeans has what its host has learnt
    assert trials == [f"{row}-train.lr={rate}" for row in rows for rate in (0.001, 0.5)]
    for organizer in ("none", "adapter", "kmeans"):
        row = "none" if organizer == "kmeans" else organizer
        scores = {}
        for rate in (0.001, 0.5):
            trial = tmp_path / "tuning" / f"creatures-simgcd-{row}-train.lr={rate}"
            config = Run(trial).config()
            assert config.data["tune"] is True
            assert config.k == 4, "the labelled classes alone"
            assert config.train.epoch_size == 64, "as many steps as on all images"
            outcome = read_outcome(trial)
            assert outcome is not None
            scores[rate] = outcome.figures["all"]
        best = max(scores, key=lambda rate: scores[rate] or 0)
        run = Run(Cell("creatures", "simgcd", organizer, 1).folder(tmp_path))
        assert run.config().train.lr == best
        tuned = Tuned.read(run)
        assert tuned.chosen == Tried({"train.lr": best}, scores[best])
        assert [one.score for one in tuned.tried] == list(scores.values())
        assert run.read_json("evaluation.json")["protocol"]["tuned"] == tuned.sentence()
    assert "by All on the labelled images alone, split again (train.lr=0.001: " in benched.text

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("what had been done was done again")

    for name in ("tuning.discover", "run_grid.discover", "run_grid.assign", "run_grid.evaluate", "tuning.evaluate"):
        monkeypatch.setattr(f"newkinds.experiments.{name}", refuse)
    again = bench("ablation", tmp_path, **grid, tune=RATES, seeds=[1])
    assert (again.failed, again.text) == ([], benched.text)
    assert bench("ablation", tmp_path, data=["creatures"], only_collect=True).text == benched.text


def test_the_truth_of_unlabelled_images_chooses_nothing(tmp_path: Path) -> None:
    """The same trials, to the last digit, if all labels that the table judges by are noise."""
    photos = tmp_path / "photos"
    rows = []
    for kind in range(6):
        for number in range(8):
            name = f"kind{kind}-{number}.png"
            save_image(photos / name, (40 * kind, 250 - 40 * kind, 20 * number))
            rows.append([name, f"kind{kind}" if kind < 4 and number < 5 else "", f"kind{kind}"])
    noise = [row[2] for row in rows if not row[1]]
    random.Random(0).shuffle(noise)
    tried = []
    for name in ("true", "noise"):
        with open(photos / f"{name}.csv", "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["path", "label", "truth"])
            for path, label, truth in rows:
                table.writerow([path, label, truth if label or name == "true" else noise.pop()])
        grid: dict[str, Any] = {**SMALL, "data": [str(photos / f"{name}.csv")], "methods": ["simgcd"]}
        small = {"train": SMALL["settings"]["train"], "method": {"projection_hidden": 32}}
        bench("plugin", tmp_path / name, **{**grid, "settings": small}, organizers=["none"], tune=RATES)
        tried.append(Tuned.read(Run(Cell(name, "simgcd", "none").folder(tmp_path / name))))
    assert tried[0] == tried[1]
    assert all(one.score is not None for one in tried[0].tried)


def test_a_second_stage_is_tried_from_the_best_trial_of_its_first(tmp_path: Path) -> None:
    def settings(cell: Cell) -> list[dict[str, Any]]:
        return [{"data": {"name": "creatures"}, "train": {"epochs": 3}}]

    mugcd, gcd = Cell("creatures", "mugcd", "none", 1), Cell("creatures", "gcd", "none")
    tuning = RowTuning(RATES, tmp_path, settings)
    tasks = tuning.tasks(mugcd)
    assert [(task.name.row.method, len(task.needs)) for task in tasks] == [  # type: ignore[attr-defined]
        ("gcd", 0), ("gcd", 0), ("mugcd", 2), ("mugcd", 2),
    ]  # fmt: skip
    for trial, score in zip(tuning.trials(gcd), (40.0, 60.0), strict=True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("newkinds.experiments.tuning.discover", _diverge)
            patch.setattr("newkinds.experiments.tuning.require_same_settings", lambda *_, **__: None)
            assert score == 60.0 or run_trial(trial.folder(tmp_path), []) is None, "it diverged"
    with pytest.raises(NewkindsError, match="is not finished"):
        tuning.chosen(gcd)
    (best,) = [trial for trial in tuning.trials(gcd) if dict(trial.values) == {"train.lr": 0.5}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "newkinds.experiments.tuning.read_outcome",
            lambda folder: Outcome({"all": 60.0}, {}) if folder == best.folder(tmp_path) else None,
        )
        chosen = tuning.chosen(gcd)
        layers = tuning.layers(tuning.trials(mugcd)[0])
    assert chosen is not None
    assert chosen.chosen == Tried({"train.lr": 0.5}, 60.0)
    assert [one.score for one in chosen.tried] == [None, 60.0]
    starts = [layer["train"]["start"] for layer in layers if "start" in layer.get("train", {})]
    assert starts == [str(best.folder(tmp_path))]
    untuned = RowTuning({"method.mugcd.memax_weight": [1, 2]}, tmp_path, settings)
    assert next(task.log for task in untuned.tasks(mugcd)) == "creatures-gcd-none-untuned"
    assert untuned.tasks(gcd) == []


def test_equal_scores_choose_nothing_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tuning = RowTuning(RATES, tmp_path, lambda _: [{"data": {"name": "creatures"}, "train": {"epochs": 3}}])
    monkeypatch.setattr("newkinds.experiments.tuning.read_outcome", lambda _: Outcome({"all": 60.0}, {}))
    for seed in (0, 1):
        chosen = tuning.chosen(Cell("creatures", "simgcd", "none", seed))
        assert chosen is not None
        assert chosen.chosen == Tried({"train.lr": 0.001}, 60.0)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("--tune says nothing about SimGCD on creatures: all that was tried has All 60.0 %") == 1, said
    assert "The first is taken, train.lr=0.001." in said


def _diverge(_: None, folder: Path, **__: object) -> None:
    raise Diverged("the loss is no longer finite.")


def test_rows_with_the_same_rule_may_be_compared() -> None:
    host, other = Cell("a", "simgcd", "none"), Cell("a", "simgcd", "cpf")
    rule = {"train.lr": "one of 0.1, 0.3, chosen on labelled images"}
    outcomes = {
        host: Outcome({}, {}, {**rule, "tuned.train.lr": 0.1}), other: Outcome({}, {}, {**rule, "tuned.train.lr": 0.3}),
    }  # fmt: skip
    assert comparable(outcomes).found == outcomes
    outcomes[Cell("a", "simgcd", "none", 1)] = Outcome({}, {}, {**rule, "tuned.train.lr": 0.3})
    assert len(comparable(outcomes, preferred=[host, other]).found) == 2, "the seeds of a row have one rate"
    outcomes[other] = Outcome({}, {}, {"train.lr": 0.3})
    assert list(comparable(outcomes, preferred=[host]).found) == [host]


@pytest.mark.parametrize(("tune", "said"), [
    ({"train.lrs": [0.1, 0.3]}, "there is no setting 'train.lrs'. Did you mean 'lr'"),
    ({"lr": [0.1, 0.3]}, "there is no such setting"),
    ({"train.lr": [0.1]}, "give two values or more"),
    ({"train.lr": 0.1}, "give several values"),
    ({"data.seed": [0, 1]}, "not chosen by trying"),
    ({"train.lr": [0.1, -3]}, "must be a number of at least 0"),
    ({"organizer.cpf.primitives": [4, 8]}, "no row has such a setting"),
])  # fmt: skip
def test_what_cannot_be_tuned_is_refused_before_anything_is_run(tune: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(NewkindsError) as error:
        bench("plugin", tmp_path, methods=["simgcd"], organizers=["none"], **SMALL, tune=tune)
    assert said in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("data", "said"), [
    ({"tune": True}, "the table judges by the same"),
    ({"categories": 2}, "cannot split the labelled images of creatures again: data.tune splits the labelled classes"),
])  # fmt: skip
def test_labels_that_cannot_choose_are_refused_before_anything_is_run(
    data: dict[str, Any], said: str, tmp_path: Path
) -> None:
    grid: dict[str, Any] = {"methods": ["simgcd"], "organizers": ["none"], "baselines": ["none"]}
    with pytest.raises(NewkindsError) as error:
        bench("plugin", tmp_path / "runs", data=["creatures"], **grid, tune=RATES, settings={"data": data})
    assert said in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_values_on_the_command_line() -> None:
    wanted = {"train.lr": [0.1, "1e-3", 1], "method.simgcd.memax_weight": [1, 2]}
    assert tuned_settings(["train.lr=0.1,1e-3, 1", "method.simgcd.memax_weight=1,2"]) == wanted
    with pytest.raises(NewkindsError, match="say which values to try"):
        tuned_settings(["train.lr"])
