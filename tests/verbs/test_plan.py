"""The plan of discover: what is tried, by which evidence it is chosen, and what an interruption leaves behind."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import newkinds
from conftest import Killed
from newkinds.assigners.nearest_images import NearestImage
from newkinds.cluster.metrics import Accuracy
from newkinds.data.table import Table
from newkinds.encoders.organizers.cpf_parts import CPFParts
from newkinds.errors import NewkindsError
from newkinds.runs.run import Run
from newkinds.verbs import candidates, plan
from newkinds.verbs.candidates import ADAPTER, JUDGED, RECIPES, Candidate, Way, choose, table_of
from newkinds.verbs.discover import default_out, names_training, seconds_of

DATA = {"data": {"categories": 10, "per_category": 12}}
OTHER = {**ADAPTER, "method": {"name": "simgcd", "memax_weight": 1.0}}
QUICK = (replace(RECIPES[0], steps=25), replace(RECIPES[0], steps=25, name="another", settings=OTHER))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "RECIPES", QUICK)
    monkeypatch.setattr(candidates, "SPLITS", 2)
    monkeypatch.setattr(plan, "TRIALS", 2)
    monkeypatch.setattr(plan, "LOOKS", 8)  # after so few steps every head looks collapsed


def planned(out: Path, **choices: Any) -> dict[str, Any]:
    newkinds.discover("creatures", out, settings=choices.pop("settings", DATA), **choices)
    return Run(out).read_json("plan.json")


def test_a_plan_ends_with_a_complete_run_and_says_what_was_compared(tmp_path: Path) -> None:
    record = planned(tmp_path / "run")
    names = [entry["name"] for entry in record["candidates"]]
    assert "frozen features, balanced" in names
    assert "adapter on class tokens, own prototypes" in names
    assert {entry["state"] for entry in record["candidates"]} == {JUDGED}
    assert record["chosen"] in names
    assert record["why"]
    run = Run(tmp_path / "run")
    for file in ("config.yaml", "model.safetensors", "assignments.csv", "report.html", "check.csv"):
        assert run.path(file).is_file()
    assert not run.path("plan").exists(), "what was only tried is not kept"
    assert len(run.read_table("assignments.csv")) == 120
    assert newkinds.load(tmp_path / "run").model.k == 10


def test_primitives_are_a_candidate_that_can_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = next(recipe for recipe in RECIPES if recipe.settings.get("organizer", {}).get("name") == "cpf-parts")
    monkeypatch.setattr(plan, "RECIPES", (replace(recipe, steps=25),))

    def the_trained_one(tried: Sequence[Candidate]) -> tuple[Candidate, str]:
        return next((c for c in tried if c.trains and c.state == JUDGED), tried[0]), "for this test"

    monkeypatch.setattr(plan, "choose", the_trained_one)
    record = planned(tmp_path / "run")
    assert record["chosen"] == "adapter and primitives (CPF), own prototypes"
    organizer = newkinds.load(tmp_path / "run").model.encoder.organizer
    assert isinstance(organizer, CPFParts)
    assert organizer.maps.up.any()  # it was trained


def with_noisy_truth(table: Table) -> Table:
    random = np.random.RandomState(1)
    truth = [f"noise {random.randint(7)}" if label is None else label for label in table.labels]
    return replace(table, truth=truth)


def test_the_hidden_truth_has_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = planned(tmp_path / "honest")
    from newkinds.verbs import train

    real = train.load_table
    monkeypatch.setattr(train, "load_table", lambda settings: with_noisy_truth(real(settings)))
    noisy = planned(tmp_path / "noisy")
    for record in (honest, noisy):
        for entry in record["candidates"]:
            del entry["seconds"]
    assert noisy["chosen"] == honest["chosen"]
    assert noisy["candidates"] == honest["candidates"]
    assert (tmp_path / "noisy/model.safetensors").read_bytes() == (tmp_path / "honest/model.safetensors").read_bytes()


def test_an_interruption_leaves_the_first_answer_and_the_same_command_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = planned(tmp_path / "at once")
    tried = plan.Plan._trial

    def killed(self: plan.Plan, recipe: Any, names: Any) -> Any:
        if recipe is QUICK[1]:
            raise Killed
        return tried(self, recipe, names)

    with monkeypatch.context() as patch:
        patch.setattr(plan.Plan, "_trial", killed)
        with pytest.raises(Killed):
            planned(tmp_path / "run")
    assert len(newkinds.predict(tmp_path / "run", "docs/fields.png")) == 1
    assert Run(tmp_path / "run").config().method["name"] == "frozen"
    again: list[str] = []
    monkeypatch.setattr(plan, "judge_frozen", lambda *_: again.append("frozen"))
    continued = planned(tmp_path / "run")
    assert again == [], "what was judged is not judged again"
    for ours, theirs in zip(continued["candidates"], at_once["candidates"], strict=True):
        assert (ours["name"], ours["scores"]) == (theirs["name"], theirs["scores"])
    assert continued["chosen"] == at_once["chosen"]


def test_killed_while_the_result_is_put_in_its_place_the_same_command_repairs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def any_trained(found: Any) -> Any:
        return next((c for c in found if c.trains), found[0]), "a test"

    monkeypatch.setattr(plan, "choose", any_trained)
    whole = planned(tmp_path / "whole")
    write = Run.write

    def killed(self: Run, name: str, content: Any) -> None:
        if name == "config.yaml" and self.folder.name == "run" and "simgcd" in str(content):
            raise Killed
        write(self, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "write", killed)
        with pytest.raises(Killed):
            planned(tmp_path / "run")
    assert planned(tmp_path / "run")["chosen"] == whole["chosen"] == "adapter on class tokens, own prototypes"
    same = [(tmp_path / name / "assignments.csv").read_text() for name in ("whole", "run")]
    assert same[0] == same[1]
    assert Run(tmp_path / "run").config().organizer["name"] == "adapter"


def test_with_few_labelled_classes_the_default_is_taken_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = planned(tmp_path / "run", settings={"data": {"categories": 6, "per_category": 8}})
    assert record["chosen"] == "frozen features, balanced"
    assert "nothing can be judged" in capsys.readouterr().err
    assert all(entry["score"] is None for entry in record["candidates"])


def test_what_the_user_names_is_not_chosen(tmp_path: Path) -> None:
    record = planned(tmp_path / "run", assigner="ward")
    assert {entry["settings"]["assigner"]["name"] for entry in record["candidates"]} == {"ward"}
    with pytest.raises(NewkindsError, match=r"other settings \(assigner.name\)"):
        planned(tmp_path / "run", assigner="balanced")


def test_whitening_is_chosen_or_named(tmp_path: Path) -> None:
    chosen = planned(tmp_path / "chosen", whiten=True)
    assert {entry["settings"]["embedding"]["whiten"] for entry in chosen["candidates"]} == {"none", 0.5}
    named = planned(tmp_path / "named", settings={**DATA, "embedding": {"whiten": 0.2}})
    assert {entry["settings"]["embedding"]["whiten"] for entry in named["candidates"]} == {0.2}


def test_tune_writes_a_recipe_that_discover_takes(tmp_path: Path) -> None:
    tuned = newkinds.tune("creatures", tmp_path / "tuned", settings=DATA)
    found = newkinds.discover("creatures", tmp_path / "run", recipe=tmp_path / "tuned/recipe.yaml", settings=DATA)
    assert not Run(tmp_path / "run").path("plan.json").exists()
    chosen = next(entry for entry in tuned["candidates"] if entry["name"] == tuned["chosen"])
    config = Run(tmp_path / "run").config()
    assert config.method["name"] == chosen["settings"]["method"]["name"]
    assert config.assigner["name"] == chosen["settings"]["assigner"]["name"]
    assert len(found.categories) == 10


def test_tune_goes_on_from_what_it_has_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(plan.Plan, "_trial", killed)
        with pytest.raises(Killed):
            newkinds.tune("creatures", tmp_path / "tuned", settings=DATA)
    kept = Run(tmp_path / "tuned").read_json("plan.json")["candidates"]
    assert {entry["state"] for entry in kept} == {JUDGED}
    monkeypatch.setattr(plan, "judge_frozen", killed)  # would it be judged again?
    monkeypatch.setattr(plan, "RECIPES", ())
    assert newkinds.tune("creatures", tmp_path / "tuned", settings=DATA)["candidates"] == kept


def test_a_collapsed_training_is_ended_and_cannot_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def assign_all_to_one(self: Any, features: Any) -> Any:
        found = real(self, features)
        return replace(found, category=found.category * 0) if not self.frozen else found

    from newkinds.training.model import Model

    monkeypatch.setattr(plan, "LOOKS", 0)
    real = Model.assign
    monkeypatch.setattr(Model, "assign", assign_all_to_one)
    record = planned(tmp_path / "run")
    trained = [entry for entry in record["candidates"] if entry["trains"]]
    assert trained
    assert all("% of the categories are empty" in entry["state"] for entry in trained)
    assert record["chosen"].startswith("frozen")


def test_a_time_too_short_for_one_pass_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caches: Path
) -> None:
    monkeypatch.setattr(plan, "TINY", "another name")  # so that its size is chosen, as of a large backbone
    monkeypatch.setattr(plan, "_seconds_per_image", lambda *_: 100.0)
    with pytest.raises(NewkindsError, match=r"one pass over 120 images takes about .* give at least --time"):
        planned(tmp_path / "run", time="10s")
    assert not (tmp_path / "run").exists()
    assert not caches.exists(), "had its images been cached, the time would do"


def candidate(name: str, scores: list[float], trains: bool) -> Candidate:
    return Candidate(name, {}, trains).judged([Accuracy(score, score, score) for score in scores], 1.0)


def test_training_must_win_by_more_than_its_standard_error() -> None:
    frozen = [candidate("a", [0.7, 0.8, 0.9], False), candidate("b", [0.6, 0.7, 0.8], False)]
    assert choose(frozen)[0].name == "a"
    assert choose([*frozen, candidate("c", [0.75, 0.86, 0.94], True)])[0].name == "c"
    assert choose([*frozen, candidate("c", [0.90, 0.78, 0.75], True)])[0].name == "a", "+0.01 ± 0.09"
    stopped = replace(candidate("c", [1.0, 1.0, 1.0], True), state="stopped: it collapsed")
    assert choose([*frozen, stopped])[0].name == "a"


def test_a_split_as_a_table_hides_what_the_split_hides() -> None:
    from newkinds.assigners.resplit import resplits
    from newkinds.data import load_table

    table = load_table({"name": "creatures", "categories": 10, "per_category": 8, "seed": 0})
    [split] = resplits(table.targets, 1, np.random.RandomState(0))
    small = table_of(table, split)
    assert small.truth is None
    assert small.targets.tolist() == split.labels.tolist()
    assert all(table.labels[row] is not None for row in split.rows)
    assert small.categories == 5


def test_steps_count_and_not_epochs() -> None:
    recipe = replace(RECIPES[0], steps=1000)
    assert recipe.epochs(12800) == 10
    assert recipe.epochs(1280) == 40, "of 25 steps at least"
    assert recipe.layer(1280)["train"]["epoch_size"] == 3200


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1.5h", 5400), ("10", 600), (None, 3600), (5.0, 5)]
)
def test_times(text: Any, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["soon", "10 days", "-5m", "0", ""])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(NewkindsError, match="is not a time"):
        seconds_of(text)


def test_of_very_many_labels_some_are_judged_by(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = np.arange(3000) % 10 - 2  # 300 of each of 8 classes
    targets[targets < 0] = -1
    every = candidates.splits_of(targets, seed=0)
    assert {len(split.rows) for split in every} == {2400}
    monkeypatch.setattr(candidates, "MOST_LABELS", 500)
    some = candidates.splits_of(targets, seed=0)
    assert {len(split.rows) for split in some} == {500}
    for split in some:
        assert (targets[split.rows] >= 0).all()
        assert len(np.unique(targets[split.rows])) == 8
    monkeypatch.setattr(candidates, "LABELS_PER_CLASS", 100)
    assert len(candidates.splits_of(targets, seed=0)[0].rows) == 800


def test_assigners_that_compare_all_pairs_are_not_tried_on_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = np.repeat(np.arange(5), 12)
    rows = torch.nn.functional.normalize(torch.eye(5)[targets] + 0.1 * torch.rand(60, 5), dim=1)
    splits = candidates.splits_of(targets, seed=0)
    monkeypatch.setattr(NearestImage, "most_images", 59)
    states = {
        Way.of(candidate.settings).assigner: candidates.judge_frozen(candidate, rows, splits).state
        for candidate in candidates.frozen_candidates(whitened=("none",))
    }
    assert states["balanced"] == states["sskmeans"] == JUDGED
    assert states["ward"] == states["meanshift"]
    assert states["ward"] == "not tried: it compares all pairs, too many of more than 59 images"


def test_naming_how_to_train_switches_the_choosing_off() -> None:
    assert names_training([{"method": {"name": "cms"}}])
    assert names_training([{"organizer": {"name": "cpf"}}])
    assert names_training([{"train": {"epochs": 3}}])
    assert not names_training([{"train": {"seed": 3, "device": "cpu"}}, {"k": 5}, {"backbone": {"name": "tiny"}}])


def test_where_a_run_goes_if_nobody_says(tmp_path: Path) -> None:
    assert default_out("creatures") == Path("newkinds-creatures")
    (tmp_path / "my photos").mkdir()
    assert default_out(tmp_path / "my photos") == Path("newkinds-my-photos")
    assert candidates.frozen_candidates()[0].name == "frozen features, balanced"
