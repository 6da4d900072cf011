"""Finding the categories of a finished run anew."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import newkinds
from conftest import Killed, save_image
from newkinds.assigners import ASSIGNERS
from newkinds.errors import NewkindsError
from newkinds.files import write_whole
from newkinds.runs.run import Run

QUICK = {"assigner": {"restarts": 2}}


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained_run, tmp_path / "run"))


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file() and file.name != ".lock"}


def refuse(*_: Any, **__: Any) -> Any:
    pytest.fail("no image is to be embedded")


def test_a_run_is_assigned_anew_in_place_and_back(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(run)
    newkinds.evaluate(run)
    newkinds.count_categories(run)
    monkeypatch.setattr("newkinds.discovery.finished.embed", refuse)
    found = newkinds.assign(run, "sskmeans", whiten=True, settings=QUICK)
    after = contents(run)
    assert after["features.safetensors"] == before["features.safetensors"]
    assert after["assignments.csv"] != before["assignments.csv"]
    assert not {"evaluation.json", "count.json", "count.png"} & set(after), "figures of the assignment before"
    config = Run(run).config()
    assert config.assigner == {"name": "sskmeans", "restarts": 2, "iterations": 200, "as_published": False}
    assert config.embedding == {"whiten": "auto"}
    for page in ("README.md", "report.html"):
        assert b"sskmeans, restarts 2" in after[page]
        assert b"whitening auto" in after[page]
    monkeypatch.undo()

    loaded = newkinds.load(run)
    again = loaded.discover(newkinds.data.load_table(config.data))
    assert again.members == found.members
    assert newkinds.evaluate(run)["protocol"]["assigner"] == "sskmeans, restarts 2"

    newkinds.assign(run, "own")
    back = contents(run)
    for name in ("model.safetensors", "config.yaml", "assignments.csv", "categories.json"):
        assert back[name] == before[name], name


def test_a_copy_leaves_the_run_as_it_is(run: Path, tmp_path: Path) -> None:
    newkinds.evaluate(run)
    before = contents(run)
    copy = tmp_path / "copy"
    newkinds.assign(run, "ward", out=copy)
    assert contents(run) == before
    assert "evaluation.json" not in contents(copy)
    loaded = newkinds.load(copy)
    assert len(loaded.predict(save_image(tmp_path / "never-seen.png"))) == 1
    assert loaded.model.calibration.fitted
    assert not torch.equal(loaded.model.calibration.centres, newkinds.load(run).model.calibration.centres)
    assert newkinds.evaluate(copy)["evaluated"] == json.loads(before["evaluation.json"])["evaluated"]
    newkinds.assign(run, "ward", out=copy)  # the same command once more
    with pytest.raises(NewkindsError, match=r"assigner\.name is 'ward' there and 'kmeans' here"):
        newkinds.assign(run, "kmeans", out=copy)


@pytest.mark.parametrize("killed_at", ["config.yaml", "model.safetensors"])
@pytest.mark.parametrize("copied", [True, False])
def test_killed_in_the_middle_the_same_command_repairs(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str, copied: bool
) -> None:
    expected = tmp_path / "expected"
    newkinds.assign(run, "kmeans", out=expected, settings=QUICK)
    out = tmp_path / "copy" if copied else None
    with monkeypatch.context() as patched:

        def write_or_die(path: Path, content: bytes) -> None:
            if path.name == killed_at:
                raise Killed
            write_whole(path, content)

        patched.setattr("newkinds.ownership.write_whole", write_or_die)
        with pytest.raises(Killed):
            newkinds.assign(run, "kmeans", out=out, settings=QUICK)
    newkinds.assign(run, "kmeans", out=out, settings=QUICK)
    repaired, whole = contents(out or run), contents(expected)
    for name in ("model.safetensors", "config.yaml", "assignments.csv", "categories.json"):
        assert repaired[name] == whole[name], name


def test_missing_features_are_made_again(run: Path) -> None:
    features = (run / "features.safetensors").read_bytes()
    (run / "features.safetensors").unlink()
    newkinds.assign(run, "kmeans", settings=QUICK)
    assert (run / "features.safetensors").read_bytes() == features


def test_names_stay_with_their_images(run: Path) -> None:
    categories = json.loads((run / "categories.json").read_text())
    categories[0]["name"], categories[-1]["name"] = "my own name", "puffin"
    (run / "categories.json").write_text(json.dumps(categories))
    found = newkinds.assign(run, "kmeans", settings=QUICK)
    names = [category.name for category in found.categories]
    assert names[0] == "my own name"
    before = newkinds.Discovery.read(run / "earlier/1")
    assert {"my own name", "puffin"} <= {category.name for category in before.categories}
    puffins = {member.path for member in before.members if member.category == "puffin"}
    now = [member.category for member in found.members if member.path in puffins]
    if max(map(now.count, now), default=0) * 2 > len(puffins):
        assert "puffin" in names


def test_what_a_person_decided_survives_another_assigner(run: Path) -> None:
    found = newkinds.Discovery.read(run)
    unlabelled = [member for member in found.members if member.given_label is None]
    moved, junk, accepted = (member.path for member in unlabelled[:3])
    other = next(category.name for category in found.known if category.name != unlabelled[0].category)
    found.move([moved], other)
    found.junk([junk])
    found.accept([accepted])
    newkinds.assign(run, "kmeans", settings=QUICK)
    status = {member.path: (member.status, member.category) for member in newkinds.Discovery.read(run).members}
    assert status[moved][1] == other
    assert status[junk][0] == "junk"
    assert status[accepted][0] in ("accepted", "moved")
    newkinds.assign(run, "ward", out=run.with_name("copy"))
    copied = {m.path: (m.status, m.category) for m in newkinds.Discovery.read(run.with_name("copy")).members}
    assert (copied[moved][1], copied[junk][0]) == (other, "junk")


def test_what_cannot_be_changed_is_refused(run: Path) -> None:
    before = contents(run)
    with pytest.raises(NewkindsError, match="the train of a finished run is fixed"):
        newkinds.assign(run, "kmeans", settings={"train": {"epochs": 3}})
    with pytest.raises(NewkindsError, match="cannot be whitened"):
        newkinds.assign(run, "own", whiten=True)
    with pytest.raises(NewkindsError, match="learnt by a method"):
        newkinds.assign(run, "prototypes")
    with pytest.raises(NewkindsError, match="kmeans"):
        newkinds.assign(run, "kmean")
    assert contents(run) == before


def test_the_command_line(run: Path, run_cli: Callable[..., tuple[int, str, str]]) -> None:
    status, out, err = run_cli("assign", run, "--assigner", "pim", "--seed", 3, "--set", "assigner.steps=5",
                               "--set", "assigner.entropy_weight=auto", "--set", "assigner.search_steps=2")  # fmt: skip
    assert status == 0, err
    assert "images assigned" in out
    assert "chosen on labelled images, seed 3" in err
    assert Run(run).config().assigner["steps"] == 5


def test_an_assigner_that_fails_changes_nothing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()}
    monkeypatch.setattr(ASSIGNERS["kmeans"], "forward", lambda self, rows: rows[:, :2] * float("nan"))
    with pytest.raises(NewkindsError, match="no finite score"):
        newkinds.assign(run, "kmeans")
    assert {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()} == before


@pytest.mark.parametrize("name", [None, -1, ["a"], {}, ""])
def test_names_of_categories_are_text(run: Path, name: object, tmp_path: Path) -> None:
    categories = json.loads((run / "categories.json").read_text())
    categories[-1]["name"] = name
    (run / "categories.json").write_text(json.dumps(categories))
    with pytest.raises(NewkindsError, match="not a list of categories with names"):
        newkinds.load(run)


def test_predicting_leaves_the_callers_random_numbers_alone(run: Path, tmp_path: Path) -> None:
    model = newkinds.load(run)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model.predict(save_image(tmp_path / "one.png"))
    assert torch.equal(torch.rand(3), expected)
