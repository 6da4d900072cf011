"""`newkinds count` and `--k auto`: what is counted, what is kept, what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import newkinds
from conftest import SMALL_HEAD, TINY_TRAINING
from newkinds.cluster.count import COUNTERS, Count, count_text
from newkinds.errors import NewkindsError
from newkinds.runs.records import read_count
from newkinds.runs.run import Run

Cli = Callable[..., tuple[int, str, str]]
FEW = ("--set", "data.categories=4", "--set", "data.per_category=8")
SHORT = (*FEW, "--set", "train.batch_size=16", "--set", "method.projection_hidden=32", "--epochs", "1")


@pytest.mark.parametrize("by", list(COUNTERS))
def test_images_are_counted_by_every_way(by: str, run_cli: Cli, tmp_path: Path) -> None:
    status, out, _ = run_cli("count", "creatures", *FEW, "--by", by, "--plot", tmp_path / "new" / "curve.png", "--json")
    counted = json.loads(out)
    assert status == 0
    assert counted["answer"] in [k for k, _ in counted["curve"]]
    assert (counted["method"], counted["known"]) == (by, 2)
    assert (tmp_path / "new" / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_summary_marks_the_answer(run_cli: Cli) -> None:
    status, out, _ = run_cli("count", "creatures", *FEW)
    answer = newkinds.count_categories("creatures", settings=TINY_TRAINING).answer
    assert status == 0
    assert out.startswith(f"{answer} categories: 2 known and {answer - 2} new")
    assert f"| {answer} *" in out


@pytest.mark.parametrize("method", ["simgcd", "cms"])
def test_a_run_is_counted_where_its_method_compares(method: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    loaded = newkinds.train("creatures", run, method=method, settings=[TINY_TRAINING, SMALL_HEAD])
    counted = newkinds.count_categories(run)  # makes the assignments first
    features = load_file(run / "features.safetensors")["features"]
    with torch.inference_mode():
        embedding = loaded.model.method.embedding(features)
    rows = [line.split(",") for line in (run / "assignments.csv").read_text().splitlines()[1:]]
    y = np.array([loaded.model.known.index(row[1]) if row[1] else -1 for row in rows])
    assert (y >= 0).sum() == 8
    assert counted == COUNTERS["combined"](embedding, y, learnt=True)
    assert json.loads((run / "count.json").read_text())["answer"] == counted.answer
    assert (run / "count.png").is_file()


def test_features_that_nothing_was_trained_on_keep_their_neighbours(tmp_path: Path) -> None:
    newkinds.train("creatures", tmp_path / "run", method="frozen", settings=TINY_TRAINING)
    assert "labelled neighbours" in newkinds.count_categories(tmp_path / "run").votes


def test_a_count_is_read_as_it_was_written_and_so_are_older_files(tmp_path: Path) -> None:
    newkinds.train("creatures", tmp_path / "run", method="frozen", settings=TINY_TRAINING)
    counted, run = newkinds.count_categories(tmp_path / "run"), Run(tmp_path / "run")
    assert read_count(run) == counted
    record = json.loads(run.path("count.json").read_text())
    for key in ("low", "high", "level", "sure", "votes", "caution"):
        del record[key]
    run.write_json("count.json", record)
    older = read_count(run)
    assert (older.answer, older.curve, older.low, older.votes) == (counted.answer, counted.curve, None, {})
    run.write_json("count.json", {**record, "votes": ["gap"]})
    with pytest.raises(NewkindsError, match="damaged"):
        read_count(run)


def test_k_auto_is_counted_once_and_kept(run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    command = ("discover", "creatures", "--out", run, "--k", "auto", *SHORT)
    status, _out, err = run_cli(*command)
    assert status == 0, err
    answer = json.loads((run / "k_auto.json").read_text())["answer"]
    assert answer == newkinds.count_categories("creatures", settings=TINY_TRAINING).answer
    assert Run(run).config().k == answer
    assert newkinds.load(run).model.k == answer
    assert "estimated" in (run / "README.md").read_text()
    monkeypatch.setattr("newkinds.verbs.count.estimate_number", lambda *_: pytest.fail("it was counted before"))
    assert run_cli(*command)[0] == 0


def test_k_auto_can_stand_in_a_recipe(run_cli: Cli, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    data = "data: {name: creatures, categories: 4, per_category: 8}"
    recipe.write_text(f"k: auto\n{data}\ntrain: {{epochs: 1, batch_size: 16}}\n")
    status, _, err = run_cli("train", "--recipe", recipe, "--out", tmp_path / "run")
    assert status == 0, err
    assert isinstance(Run(tmp_path / "run").config().k, int)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("count", "creatures", "--by", "wart"), "ward"),
        (("count", "creatures", "--by", "brent", "--published"), "has no option published"),
        (("count", "creatures", "--largest", "9"), "has no option largest"),
        (("count", "creatures", *FEW, "--by", "brent", "--largest", "2"), "known already"),
        (("count", "nowhere"), "no folder, CSV file or data set"),
        (("train", "creatures", "--out", "RUN", "--k", "many"), "--k many is not a whole number"),
    ],
)
def test_what_cannot_be_counted_is_said(
    arguments: tuple[str, ...], message: str, run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, err = run_cli(*arguments)
    assert status in (1, 2)
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("verb", ["discover", "tune"])
def test_too_small_a_number_is_refused_before_anything_is_embedded(verb: str, run_cli: Cli, tmp_path: Path) -> None:
    status, _, err = run_cli(verb, "creatures", "--out", tmp_path / "run", "--k", 1, *FEW)
    assert status == 1
    assert "--k 1 is too small" in err
    assert "plan for" not in err


def test_photos_without_truth_cannot_be_counted_as_published(photos: Path, run_cli: Cli) -> None:
    status, _, err = run_cli("count", photos, "--published")
    assert status == 1
    assert "--truth" in err


def test_with_one_known_class_the_shape_of_the_features_says_how_many(
    photos: Path, run_cli: Cli, tmp_path: Path
) -> None:
    for image in (photos / "green").iterdir():
        image.unlink()
    status, _, err = run_cli("discover", photos, "--out", tmp_path / "run", "--k", "auto")
    assert status == 0, err
    assert "few classes: 1 class has two labelled images or more" in err
    assert (tmp_path / "run/k_auto.json").is_file()


def test_a_damaged_estimate_is_named(run_cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ("train", "creatures", "--out", run, "--k", "auto", *SHORT)
    assert run_cli(*command)[0] == 0
    (run / "k_auto.json").write_text('{"answer": 5}')
    status, _, err = run_cli(*command)
    assert status == 1
    assert "k_auto.json is damaged" in err


def test_features_of_another_run_are_refused(trained_run: Path, run_cli: Cli, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained_run, copy)
    (copy / "features.safetensors").write_bytes(b"not features")
    status, _, err = run_cli("count", copy)
    assert status == 1
    assert "features.safetensors is damaged" in err


def test_a_foreign_folder_is_refused_before_anything_is_counted(run_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    status, _, err = run_cli("train", "creatures", "--out", tmp_path, "--k", "auto", *SHORT)
    assert status == 1
    assert "choose another --out" in err
    assert "counting" not in err


def test_a_published_count_says_so_and_leaves_the_honest_one(trained_run: Path, run_cli: Cli, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained_run, copy)
    run_cli("count", copy)
    honest = (copy / "count.json").read_bytes()
    status, out, _ = run_cli("count", copy, "--published")
    assert status == 0
    assert "true class of every image" in out
    assert "true class of every image" in (copy / "count_published.json").read_text()
    assert (copy / "count.json").read_bytes() == honest


def test_the_truth_of_unlabelled_images_may_be_a_sorted_folder(photos: Path, run_cli: Cli, tmp_path: Path) -> None:
    truth = tmp_path / "sorted"
    for image in [*(photos / "unlabeled").iterdir(), photos / "loose.png"]:
        kind = "blue" if image.name == "loose.png" else image.stem.rstrip("0123456789")
        (truth / kind).mkdir(parents=True, exist_ok=True)
        shutil.copy(image, truth / kind / image.name)
    status, out, err = run_cli("count", photos, "--published", "--truth", truth)
    assert status == 0, err
    assert "true class of every image" in out


def test_the_answer_is_always_shown_with_those_as_good() -> None:
    count = Count(17, [(k, 1.0) for k in range(3, 20)], "ward", 2)
    text = count_text(count)
    assert "| 17 *" in text
    assert "17 numbers from 3 to 19 are equally good" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--backbone", "tiny"), "leave out backbone"),
        (("--set", "train.epochs=3"), "leave out train.epochs"),
        (("--truth", "creatures"), "--published"),
    ],
)
def test_a_run_is_counted_as_it_was_trained(
    options: tuple[str, ...], message: str, trained_run: Path, run_cli: Cli
) -> None:
    status, _, err = run_cli("count", trained_run, *options)
    assert status == 1
    assert message in err


def test_misspelt_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match="method"):
        newkinds.discover("creatures", tmp_path / "run", methd="gcd")  # type: ignore[call-arg]
    with pytest.raises(NewkindsError, match="no argument 'lagest'"):
        newkinds.count_categories("creatures", lagest=3)  # type: ignore[call-arg]
    with pytest.raises(NewkindsError, match="COUNTERS"):
        newkinds.count_categories(np.zeros((3, 2)))  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", ["method.sup_weight=7", "method.memax_weight=nan", "organizer.heads=7"])
def test_what_cannot_be_built_leaves_no_run_behind(setting: str, run_cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ("train", "creatures", "--out", run, "--organizer", "cpf", *SHORT)
    status, _, err = run_cli(*command, "--set", setting)
    assert status == 1
    assert setting.partition("=")[0].partition(".")[2] in err
    assert not run.exists()
    assert run_cli(*command)[0] == 0
