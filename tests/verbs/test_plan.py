"""The plan of discover and tune: what is tried, what is kept, and what an interruption leaves behind."""

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import newkinds
from conftest import Killed, save_image
from newkinds.data.table import Table
from newkinds.errors import NewkindsError
from newkinds.runs.records import CandidateScore, PlanRecord
from newkinds.runs.run import Run
from newkinds.search import search, trainings
from newkinds.search.frozen_features import frozen_ways
from newkinds.search.search import JUDGED, Choice
from newkinds.search.trainings import FEWEST_STEPS, TRAININGS, TrainedFeatures
from newkinds.search.ways import Way
from newkinds.training import embedding
from newkinds.training.model import Model
from newkinds.verbs import stages, train
from newkinds.verbs.discover import default_out, names_training
from planning import ADAPTER, ANOTHER, shorten

DATA = {"data": {"categories": 10, "per_category": 12}}
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch, ADAPTER, ANOTHER)


def planned(out: Path, **choices: Any) -> PlanRecord:
    newkinds.discover("creatures", out, settings=choices.pop("settings", DATA), **choices)
    return PlanRecord.read(Run(out))


def any_trained(scores: Sequence[CandidateScore], favours_first: bool = True) -> Choice:
    return Choice(next((s for s in scores if s.trains and s.state == JUDGED), scores[0]), "for this test")


# -- the shipped candidates, unpatched -------------------------------------------------------------------------------

SMALL = {"data": {"categories": 8, "per_category": 8}}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan that had no time for trainings."""
    out = tmp_path_factory.mktemp("plans") / "run"
    with pytest.MonkeyPatch.context() as patch:  # not by the clock: a busy machine may have no time for anything
        patch.setattr(TrainedFeatures, "needs", lambda self: 1e6)
        newkinds.discover("creatures", out, settings=SMALL, time="1h")
    return out


def test_every_shipped_training_is_in_the_plan(begun: Path) -> None:
    record = PlanRecord.read(Run(begun))
    assert [score.name for score in record.candidates if score.trains] == [training.name for training in TRAININGS]
    assert record.finished


@pytest.mark.parametrize("winner", [training.name for training in TRAININGS])
def test_what_wins_is_what_the_plan_the_settings_the_model_and_the_page_say(
    winner: str, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shipped plan continues from figures by which each training in turn is the best: of the shipped ones, only the
    number of steps is changed."""
    fewer = tuple(replace(training, steps=FEWEST_STEPS) for training in TRAININGS)
    monkeypatch.setattr(trainings, "TRAININGS", fewer)
    monkeypatch.setattr(trainings, "FEWEST_FILLED", 0.0)  # on 64 images any of them may collapse, which is no matter
    monkeypatch.setattr(trainings, "MARGIN", 1.0)
    run = Run(shutil.copytree(begun, tmp_path / "run"))
    record = PlanRecord.read(run)
    frozen = [score for score in record.candidates if not score.trains]
    best = search.choose(frozen).candidate
    way = Way.of(best.settings)
    tried = [
        CandidateScore(f"{training.name}, {other}", training.name, {**training.settings, **other.settings}, True,
                       [1.0] * 3 if (training.name, other) == (winner, way) else [0.0] * 3, state=JUDGED)
        for training in TRAININGS for other in (Way("own"), *frozen_ways())
    ]  # fmt: skip
    lower = [replace(score, scores=[0.5 if score is best else 0.4] * len(score.scores)) for score in frozen]
    replace(record, finished=False, candidates=[*lower, *tried]).write(run)
    newkinds.discover("creatures", run.folder, settings=SMALL, time="1h")
    after = PlanRecord.read(run)
    [training] = [training for training in TRAININGS if training.name == winner]
    assert after.chosen == f"{winner}, {way}", after.why
    config = run.config()
    organizer = training.settings.get("organizer", {"name": "none"})["name"]
    assert config.organizer["name"] == organizer
    assert config.assigner["name"] == way.assigner
    assert config.method == {**config.method, **training.settings["method"]}
    assert config.train.lr == training.settings["train"]["lr"]
    model = newkinds.load(run.folder).model
    assert type(model.encoder.organizer) is newkinds.organizers.ORGANIZERS[organizer]
    assert winner in run.path("report.html").read_text()


# -- one plan --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_a_plan_ends_with_a_complete_run_and_says_what_was_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = planned(tmp_path / "run")
    trials = capsys.readouterr().err.partition("compare trainings\n")[2].splitlines()
    of_adapter = r"trying: adapter on class tokens \(about \d+ s, \d+ (s|min|h) are left\)"
    assert re.fullmatch(of_adapter, trials[0])
    assert re.match(r"trying: |\|", trials[1]), "a trial has one line, and then comes the next, or the table"
    names = [score.name for score in record.candidates]
    assert "frozen features, em" in names
    assert "adapter on class tokens, own assigner" in names
    assert {score.state for score in record.candidates} == {JUDGED}
    assert record.chosen in names
    assert record.why
    assert record.finished
    run = Run(tmp_path / "run")
    for file in ("config.yaml", "model.safetensors", "assignments.csv", "report.html", "check.csv"):
        assert run.path(file).is_file()
    left = {path.name for path in run.folder.iterdir() if path.is_dir()}
    assert left <= {"earlier"}, "what was only tried is not kept"
    assert len(run.read_table("assignments.csv")) == 120
    assert newkinds.load(tmp_path / "run").model.k == 10


@pytest.mark.usefixtures("quick")
def test_nothing_is_embedded_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All images once for the frozen answer; each trial is looked at once, late, and its end is used."""
    sizes: list[int] = []
    real = embedding.embed

    def counting(encoder: Any, table: Table, *others: Any, **named: Any) -> Any:
        sizes.append(len(table))
        return real(encoder, table, *others, **named)

    for module in (stages, embedding, "newkinds.training.loop", "newkinds.discovery.finished"):
        monkeypatch.setattr(module if not isinstance(module, str) else f"{module}.embed", *(
            ("embed", counting) if not isinstance(module, str) else (counting,)
        ))  # fmt: skip
    record = planned(tmp_path / "run")
    trials = 2 * len({score.training for score in record.candidates if score.training})
    assert len(sizes) <= 1 + 2 * trials


def with_noisy_truth(table: Table) -> Table:
    random = np.random.RandomState(1)
    truth = [f"noise {random.randint(7)}" if label is None else label for label in table.labels]
    return replace(table, truth=truth)


@pytest.mark.usefixtures("quick")
def test_the_hidden_truth_has_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = planned(tmp_path / "honest")
    real = train.load_table
    monkeypatch.setattr(train, "load_table", lambda settings: with_noisy_truth(real(settings)))
    noisy = planned(tmp_path / "noisy")
    assert noisy.chosen == honest.chosen
    assert [s.scores for s in noisy.candidates] == [s.scores for s in honest.candidates]
    assert (tmp_path / "noisy/model.safetensors").read_bytes() == (tmp_path / "honest/model.safetensors").read_bytes()


# -- interruptions, and doing it again -------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_an_interruption_leaves_the_first_answer_and_the_same_command_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = planned(tmp_path / "at once")
    tried = TrainedFeatures.features

    def killed(self: TrainedFeatures, *arguments: Any) -> Any:
        if self.name == ANOTHER.name:
            raise Killed
        return tried(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TrainedFeatures, "features", killed)
        with pytest.raises(Killed):
            planned(tmp_path / "run")
    assert len(newkinds.predict(tmp_path / "run", "docs/fields.png")) == 1
    assert Run(tmp_path / "run").config().method["name"] == "frozen"
    assert not PlanRecord.read(Run(tmp_path / "run")).finished
    again: list[str] = []
    monkeypatch.setattr(trainings, "TRAININGS", trainings.TRAININGS[1:])
    monkeypatch.setattr("newkinds.search.frozen_features.FrozenFeatures.features", lambda *_: again.append("frozen"))
    continued = planned(tmp_path / "run")
    assert again == [], "what was judged is not judged again"
    assert [(s.name, s.scores) for s in continued.candidates] == [(s.name, s.scores) for s in at_once.candidates]
    assert continued.chosen == at_once.chosen


@pytest.mark.usefixtures("quick")
def test_killed_while_the_result_is_put_in_its_place_it_is_whole_for_whoever_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "choose", any_trained)
    planned(tmp_path / "whole")
    real, moved = os.replace, 0

    def killed(source: Any, target: Any) -> None:
        nonlocal moved
        if ".next" in str(source) and ".next" not in str(target):
            moved += 1
            if moved == 3:
                raise Killed
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", killed)
        with pytest.raises(Killed):
            planned(tmp_path / "run")
    found = newkinds.Discovery.read(tmp_path / "run")
    assert [m.category for m in found.members] == [
        m.category for m in newkinds.Discovery.read(tmp_path / "whole").members
    ]
    assert Run(tmp_path / "run").config().organizer["name"] == "adapter"
    assert not (tmp_path / "run/.next").exists()
    assert newkinds.load(tmp_path / "run").model.encoder.organizer is not None


@pytest.mark.usefixtures("quick")
def test_a_finished_plan_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "choose", any_trained)
    planned(tmp_path / "run")
    found = newkinds.Discovery.read(tmp_path / "run")
    known, other = (category.name for category in found.known[:2])
    found.rename(other, "wingless")
    categories = (tmp_path / "run/categories.json").read_text()
    (tmp_path / "run/categories.json").write_text(categories.replace(f'"{known}"', '"by hand"'))
    model = (tmp_path / "run/model.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(stages, "embed", None)
    again = newkinds.discover("creatures", tmp_path / "run", settings=DATA)
    assert {"wingless", "by hand"} <= {category.name for category in again.categories}
    assert (tmp_path / "run/model.safetensors").stat().st_mtime_ns == model


@pytest.mark.usefixtures("quick")
def test_photos_that_were_added_are_looked_at_too_and_nothing_a_person_did_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainings, "TRAININGS", ())
    photos = tmp_path / "photos"
    for kind in range(6):
        for number in range(6):
            place = photos / (f"kind{kind}" if kind < 4 and number < 4 else "unlabeled")
            save_image(place / f"{kind}-{number}.png", colour=kind * 40 + number)
    newkinds.discover(photos, tmp_path / "run", k=6, backbone="tiny")
    found = newkinds.Discovery.read(tmp_path / "run")
    image = next(m.path for m in found.members if m.is_new)
    found.rename(found.new[0].name, "by hand")
    found.move([image], "kind0")
    junk = next(m.path for m in found.members if m.given_label is None and m.path != image)
    found.junk([junk])
    save_image(photos / "unlabeled/late.png", colour=163)
    newkinds.discover(photos, tmp_path / "run", k=6, backbone="tiny")
    after = newkinds.Discovery.read(tmp_path / "run")
    where = {member.path: member for member in after.members}
    assert "unlabeled/late.png" in where
    assert where[image].category == "kind0"
    assert where[junk].status == "junk"
    assert "by hand" in {category.name for category in after.categories}
    before = newkinds.Discovery.read(tmp_path / "run/earlier/1")
    assert len(before.members) == len(after.members) - 1
    assert before.revision == 3
    newkinds.assign(tmp_path / "run", "sskmeans")
    again = {member.path: member for member in newkinds.Discovery.read(tmp_path / "run").members}
    assert (again[image].category, again[junk].status) == ("kind0", "junk")


@pytest.mark.usefixtures("quick")
def test_more_time_goes_on_with_what_there_was_no_time_for(tmp_path: Path) -> None:
    short = planned(tmp_path / "run", time=3.0)
    assert any("needs about" in score.state for score in short.candidates)
    longer = planned(tmp_path / "run", time="1h")
    assert {score.state for score in longer.candidates} == {JUDGED}


# -- what is chosen, and what is named -------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_with_few_labelled_classes_the_default_is_taken_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = planned(tmp_path / "run", settings={"data": {"categories": 6, "per_category": 8}})
    assert record.chosen == "frozen features, em"
    assert "leave nothing to judge by" in capsys.readouterr().err
    assert all(score.score is None for score in record.candidates)


@pytest.mark.usefixtures("quick")
def test_what_the_user_names_is_not_chosen(tmp_path: Path) -> None:
    record = planned(tmp_path / "run", assigner="ward")
    assert {score.settings["assigner"]["name"] for score in record.candidates} == {"ward"}
    with pytest.raises(NewkindsError, match=r"other settings \(assigner.name\): to continue it, it was ward there"):
        planned(tmp_path / "run", assigner="balanced")
    with pytest.raises(NewkindsError, match=r"to continue it, add --set assigner.name=ward; to begin another, choose"):
        planned(tmp_path / "run")


@pytest.mark.usefixtures("quick")
def test_whitening_is_chosen_or_named(tmp_path: Path) -> None:
    chosen = planned(tmp_path / "chosen", assigner="balanced", whiten=True)
    assert {score.settings["embedding"]["whiten"] for score in chosen.candidates} == {"none", 0.5}
    named = planned(tmp_path / "named", settings={**DATA, "embedding": {"whiten": 0.2}})
    assert {score.settings["embedding"]["whiten"] for score in named.candidates} == {0.2}


@pytest.mark.usefixtures("quick")
def test_tune_writes_a_recipe_that_discover_takes(tmp_path: Path, run_cli: Cli) -> None:
    tuned = newkinds.tune("creatures", tmp_path / "tuned", settings=DATA)
    newkinds.discover("creatures", tmp_path / "run", recipe=tmp_path / "tuned/recipe.yaml", settings=DATA)
    assert not Run(tmp_path / "run").path("plan.json").exists()
    chosen = next(score for score in tuned.candidates if score.name == tuned.chosen)
    config = Run(tmp_path / "run").config()
    assert config.method["name"] == chosen.settings["method"]["name"]
    assert config.assigner["name"] == chosen.settings["assigner"]["name"]
    assert config.k == 10
    words = ["--set", "data.categories=10", "--set", "data.per_category=12"]
    status, out, err = run_cli("tune", "creatures", "--out", tmp_path / "tuned", *words)
    assert status == 0, err
    assert out.count("candidate |") == 1
    assert "candidate |" not in err, "the table is printed once"
    assert str(tmp_path / "tuned/recipe.yaml") in out


@pytest.mark.usefixtures("quick")
def test_tune_goes_on_from_what_it_has_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(TrainedFeatures, "features", killed)
        with pytest.raises(Killed):
            newkinds.tune("creatures", tmp_path / "tuned", settings=DATA)
    kept = PlanRecord.read(Run(tmp_path / "tuned")).candidates
    assert {score.state for score in kept} == {JUDGED}
    monkeypatch.setattr("newkinds.search.frozen_features.FrozenFeatures.features", killed)  # would it be judged again?
    monkeypatch.setattr(trainings, "TRAININGS", ())
    assert newkinds.tune("creatures", tmp_path / "tuned", settings=DATA).candidates == kept


def collapse(self: Model, features: Any, **how: Any) -> Any:
    found = ASSIGN(self, features, **how)
    return found if self.frozen else replace(found, category=found.category * 0)


ASSIGN = Model.assign


@pytest.mark.usefixtures("quick")
def test_a_collapsed_training_is_ended_and_cannot_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainings, "FEWEST_FILLED", 0.5)
    monkeypatch.setattr(Model, "assign", collapse)
    record = planned(tmp_path / "run")
    trained = [score for score in record.candidates if score.trains]
    assert trained
    assert all("% of the categories are empty" in score.state for score in trained)
    assert record.chosen.startswith("frozen")


@pytest.mark.usefixtures("quick")
def test_what_collapses_on_all_images_is_not_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def only_there(self: Model, features: Any, **how: Any) -> Any:
        if len(self.known) == 5:
            return collapse(self, features, **how)
        found = ASSIGN(self, features, **how)  # of a trial, in which some of the classes act as new
        return found if self.frozen else replace(found, category=torch.arange(len(features)) % self.k)

    monkeypatch.setattr(search, "choose", any_trained)
    monkeypatch.setattr(trainings, "FEWEST_FILLED", 0.15)  # one of ten categories is too few
    monkeypatch.setattr(Model, "assign", only_there)
    record = planned(tmp_path / "run")
    assert record.chosen.startswith("frozen")
    assert "failed on all images" in record.why
    assert Run(tmp_path / "run").config().method["name"] == "frozen"
    assert not (tmp_path / "run/.next").exists()


# -- time and place --------------------------------------------------------------------------------------------------


def test_a_time_too_short_for_one_pass_says_what_is_needed_unless_it_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caches: Path
) -> None:
    shorten(monkeypatch)
    monkeypatch.setattr(stages, "TINY", "another name")  # so that its size is chosen, as of a large backbone
    with monkeypatch.context() as patch:
        patch.setattr(stages, "seconds_per_image", lambda *_: 100.0)
        with pytest.raises(NewkindsError, match=r"one pass over 120 images takes about .* give at least --time"):
            planned(tmp_path / "run", time="10s")
        assert not (tmp_path / "run").exists()
        assert not caches.exists()
    newkinds.check("creatures", settings=DATA)  # which keeps what it embeds
    monkeypatch.setattr(stages, "seconds_per_image", lambda *_: 100.0)
    assert planned(tmp_path / "run", time="20s").finished
    more = {"data": {"categories": 10, "per_category": 13}}
    with pytest.raises(NewkindsError, match=r"one pass over 1?\d images"):
        planned(tmp_path / "more", time="20s", settings=more)


def test_naming_how_to_train_switches_the_choosing_off() -> None:
    assert names_training([{"method": {"name": "cms"}}])
    assert names_training([{"organizer": {"name": "cpf"}}])
    assert names_training([{"train": {"epochs": 3}}])
    assert not names_training([{"train": {"seed": 3, "device": "cpu"}}, {"k": 5}, {"backbone": {"name": "tiny"}}])


def test_where_a_run_goes_if_nobody_says(tmp_path: Path) -> None:
    assert default_out("creatures") == Path("newkinds-creatures")
    for name, out in (("my photos", "my-photos"), ("my photos!", "my-photos"), ("(birds)", "birds")):
        (tmp_path / name).mkdir()
        assert default_out(tmp_path / name) == Path(f"newkinds-{out}")


def test_a_recipe_is_plain_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    newkinds.tune("creatures", tmp_path / "tuned", settings=DATA)
    recipe = yaml.safe_load((tmp_path / "tuned/recipe.yaml").read_text())
    assert recipe["method"] == {"name": "frozen"}
    assert recipe["k"] == 10
