"""From images to discovered categories and back again: train, discover, evaluate, predict, load."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import newkinds
from conftest import SMALL_HEAD, TINY_TRAINING, save_image
from newkinds.cluster.metrics import clustering_accuracy
from newkinds.data import load_table
from newkinds.discovery.finished import read_features
from newkinds.discovery.kinds import category_names
from newkinds.errors import NewkindsError
from newkinds.runs.run import Run

ONE_EPOCH = {"train": {"epochs": 1}, **SMALL_HEAD}


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_run_directory_holds_what_it_promises(trained_run: Path) -> None:
    assert {p.name for p in trained_run.iterdir()} >= {
        "config.yaml", "model.safetensors", "train_state.pt", "metrics.jsonl", "features.safetensors",
        "assignments.csv", "categories.json", "skipped.csv", "report.html", "README.md",
        "calibration.json", "embedding.safetensors", "described.json", "fields.safetensors",
    }  # fmt: skip
    assignments = rows_of(trained_run / "assignments.csv")
    assert list(assignments[0]) == [
        "path", "given_label", "category", "category_id", "is_new", "confidence", "unlike",
        "model_category_id", "model_confidence", "since",
    ]  # fmt: skip
    assert len(assignments) == 32
    assert load_file(trained_run / "features.safetensors")["features"].shape == (32, 96)
    categories = json.loads((trained_run / "categories.json").read_text())
    assert [c["is_new"] for c in categories[:2]] == [False, False]
    assert {c["is_new"] for c in categories[2:]} == {True}
    assert sum(c["size"] for c in categories) == 32
    for category in categories:
        members = [row for row in assignments if row["category"] == category["name"]]
        assert category["size"] == len(members)
        assert {row["is_new"] for row in members} <= {str(category["is_new"]).lower()}
        assert set(category["exemplars"]) <= {row["path"] for row in members}
    assert rows_of(trained_run / "skipped.csv") == []
    assert "newkinds predict" in (trained_run / "README.md").read_text()


def test_saved_model_gives_the_same_assignments(trained_run: Path, tmp_path: Path) -> None:
    table = load_table({"name": "creatures", "categories": 4, "per_category": 8, "seed": 0})
    files = []
    for row in range(len(table)):
        table.open(row).save(tmp_path / table.paths[row])
        files.append(tmp_path / table.paths[row])
    predictions = newkinds.load(trained_run).predict(files)
    assignments = rows_of(trained_run / "assignments.csv")
    # a copy of a labelled image is known by what it shows, and is in its class
    assert [f"{p.category_id}" for p in predictions] == [row["category_id"] for row in assignments]
    sure = [float(row["model_confidence"] or row["confidence"]) for row in assignments]
    # predicted as images that were never seen: the run has left each out of the centre that it is compared with
    assert all(p.confidence >= before - 2e-4 for p, before in zip(predictions, sure, strict=True))
    found = newkinds.load(trained_run).model.assign(read_features(Run(trained_run)))
    assert found.unlike is not None
    np.testing.assert_allclose([p.confidence for p in predictions], found.confidence, atol=2e-4)
    np.testing.assert_allclose([p.unlike for p in predictions], found.unlike, atol=2e-3)


def test_evaluation_is_clustering_accuracy_of_the_unlabelled_images(trained_run: Path) -> None:
    table = load_table({"name": "creatures", "categories": 4, "per_category": 8, "seed": 0})
    assert table.truth is not None
    truth = dict(zip(table.paths, table.truth, strict=True))
    unlabelled = [row for row in rows_of(trained_run / "assignments.csv") if not row["given_label"]]
    true = [truth[row["path"]] for row in unlabelled]
    predicted = [row["category"] for row in unlabelled]
    expected = clustering_accuracy(true, predicted, table.known)
    evaluation = newkinds.evaluate(trained_run)
    got = [evaluation["metrics"][f"acc_{part}"] for part in ("all", "old", "new")]
    assert got == pytest.approx(list(expected))
    assert evaluation["evaluated"] == len(unlabelled) == 24
    assert {"data", "split", "metric", "selection", "weights", "training", "versions"} <= set(evaluation["protocol"])
    assert json.loads((trained_run / "evaluation.json").read_text())["evaluated"] == 24


def test_folder_end_to_end(photos: Path, tmp_path: Path) -> None:
    (photos / "red" / "broken.jpg").write_bytes(b"\xff\xd8\xff not really")
    out = tmp_path / "run"
    found = newkinds.discover(photos, out, k=3, settings=ONE_EPOCH)
    assert len(found.members) == 21
    assert [s.path for s in found.skipped] == [str(Path("red") / "broken.jpg")]
    assert len(rows_of(out / "assignments.csv")) + len(rows_of(out / "skipped.csv")) == 22
    assert [c.name for c in found.categories][:3] == ["green", "red", "new-1"]
    assert str(Path("red") / "broken.jpg") in (out / "report.html").read_text()


def test_truth_given_afterwards(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    newkinds.discover(photos, out, k=3, settings=ONE_EPOCH)
    with pytest.raises(NewkindsError, match="--truth"):
        newkinds.evaluate(out)
    sorted_photos = tmp_path / "sorted"
    for file in (photos / "unlabeled").iterdir():
        target = sorted_photos / file.name.rstrip("0123456789.jpg") / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    by_folder = newkinds.evaluate(out, truth=sorted_photos)
    assert by_folder["evaluated"] == 12  # loose.png has no truth and is left out
    lines = ["path,label"] + [f"unlabeled/{f.name},{f.name[:-5]}" for f in (photos / "unlabeled").iterdir()]
    (tmp_path / "truth.csv").write_text("\n".join(lines))
    assert newkinds.evaluate(out, truth=tmp_path / "truth.csv")["metrics"] == by_folder["metrics"]


def test_truth_folder_that_also_holds_the_known_classes(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    newkinds.discover(photos, out, k=3, settings=ONE_EPOCH)
    for file in sorted((photos / "unlabeled").iterdir()):  # the user sorts everything, in place
        target = photos / file.name[:-5] / file.name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(file.read_bytes())
    assert newkinds.evaluate(out, truth=photos)["evaluated"] == 12


def test_truth_column_may_be_incomplete_and_does_not_decide_k(photos: Path, tmp_path: Path) -> None:
    lines = ["path,label,truth", "red/0.png,red,red", "green/0.png,green,", "unlabeled/blue0.jpg,,blue"]
    lines += ["unlabeled/red0.jpg,,red", "loose.png,,"]
    (photos / "list.csv").write_text("\n".join(lines))
    out = tmp_path / "run"
    with pytest.raises(NewkindsError, match="say how many categories"):
        newkinds.train(photos / "list.csv", out, settings=ONE_EPOCH)
    newkinds.discover(photos / "list.csv", out, k=3, settings=[ONE_EPOCH, {"train": {"eval_every": 1}}])
    assert newkinds.evaluate(out)["evaluated"] == 2


def test_a_split_without_images_is_none(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    newkinds.discover(photos, out, k=3, settings=ONE_EPOCH)
    (tmp_path / "truth.csv").write_text("path,label\nunlabeled/blue0.jpg,blue\nunlabeled/blue1.jpg,blue\n")
    evaluation = newkinds.evaluate(out, truth=tmp_path / "truth.csv")
    assert evaluation["metrics"]["acc_old"] is None
    assert evaluation["metrics"]["acc_new"] is not None
    assert "Old accuracy is NaN" in capfd.readouterr().err
    json.loads((out / "evaluation.json").read_text(), parse_constant=pytest.fail)  # NaN is not JSON


def test_predict_images_never_seen(trained_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save_image(tmp_path / "more" / "a.png")
    save_image(tmp_path / "b.jpg", size=(300, 200))
    (tmp_path / "more" / "broken.png").write_bytes(b"")
    (tmp_path / "more" / "notes.txt").write_text("no image")
    predictions = newkinds.predict(trained_run, [tmp_path / "more", tmp_path / "b.jpg"])
    assert [Path(p.path).name for p in predictions] == ["a.png", "b.jpg"]
    names = {c["name"] for c in json.loads((trained_run / "categories.json").read_text())}
    assert {p.category for p in predictions} <= names
    assert all(0 <= p.confidence <= 1 for p in predictions)
    err = capfd.readouterr().err
    assert "broken.png skipped" in err
    assert "1 file that is no image is ignored (.txt)" in err
    assert "notes.txt" not in err
    with pytest.raises(NewkindsError, match="there is no file or folder"):
        newkinds.predict(trained_run, tmp_path / "nothing.png")


def test_renamed_categories_are_used_by_predict(trained_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("config.yaml", "model.safetensors", "categories.json"):
        (copy / name).write_bytes((trained_run / name).read_bytes())
    categories = json.loads((copy / "categories.json").read_text())
    for category in categories:
        category["name"] = f"my {category['id']}"
    (copy / "categories.json").write_text(json.dumps(categories))
    save_image(tmp_path / "a.png")
    assert newkinds.predict(copy, tmp_path / "a.png")[0].category.startswith("my ")
    (copy / "categories.json").write_text(json.dumps(categories[:-1]))
    with pytest.raises(NewkindsError, match=f"has {len(categories) - 1} categories, the model has {len(categories)}"):
        newkinds.load(copy)


def test_renamed_categories_survive_another_discover_and_eval(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    newkinds.discover(photos, out, k=3, settings=ONE_EPOCH)
    text = (out / "categories.json").read_text()
    (out / "categories.json").write_text(text.replace('"new-1"', '"bluebird"').replace('"red"', '"robin"'))
    (tmp_path / "truth.csv").write_text("path,label\nunlabeled/blue0.jpg,blue\nunlabeled/red0.jpg,red\n")
    assert newkinds.evaluate(out, truth=tmp_path / "truth.csv")["evaluated"] == 2
    found = newkinds.discover(photos, out, k=3, settings=ONE_EPOCH)
    assert [c.name for c in found.categories][:3] == ["green", "robin", "bluebird"]
    assert [c.is_new for c in found.categories][:3] == [False, False, True]
    (out / "categories.json").write_text((out / "categories.json").read_text().replace("bluebird", "robin"))
    with pytest.raises(NewkindsError, match="same name"):
        newkinds.load(out)


def test_an_image_that_vanishes_after_training_keeps_its_category(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from newkinds.verbs import discover as pipeline

    def train_then_lose(*arguments: Any, **named: Any) -> Any:
        trained = original(*arguments, **named)
        (photos / "loose.png").unlink()
        return trained

    original = pipeline.train_on
    monkeypatch.setattr(pipeline, "train_on", train_then_lose)
    found = newkinds.discover(photos, tmp_path / "run", k=3, organizer="cpf", settings=ONE_EPOCH)
    assert len(found.members) == 21, "its features were computed in training, and are not computed again"
    assert not found.skipped
    assert (tmp_path / "run/report.html").is_file()


def test_a_model_needs_no_file_but_its_own(trained_run: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    state = newkinds.load(trained_run).model.encoder.backbone.network.state_dict()
    save_file({k: v.contiguous() for k, v in state.items()}, weights)
    out = tmp_path / "run"
    newkinds.train("creatures", out, weights=weights, settings=[TINY_TRAINING, ONE_EPOCH])
    weights.unlink()
    save_image(tmp_path / "a.png")
    assert newkinds.predict(out, tmp_path / "a.png")


def test_category_count(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    with pytest.raises(NewkindsError, match="say how many categories"):
        newkinds.train(photos, out, settings=ONE_EPOCH)
    with pytest.raises(NewkindsError, match="2 classes are known already"):
        newkinds.train(photos, out, k=1, settings=ONE_EPOCH)
    with pytest.raises(NewkindsError, match="at most 15"):
        newkinds.train(photos, out, k=16, settings=ONE_EPOCH)
    assert not out.exists()
    found = newkinds.discover(photos, out, k=2, settings=ONE_EPOCH)
    assert "leave no room for a new one" in capfd.readouterr().err
    assert found.new == []


def test_names_of_new_categories_do_not_clash() -> None:
    assert category_names(["a"], 3) == ["a", "new-1", "new-2"]
    assert category_names(["new-1", "b"], 3)[2] == "discovered-new-1"
    assert category_names(["a"], 12)[1] == "new-01"


def test_model_of_another_architecture(trained_run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    newkinds.train("creatures", other, settings=[TINY_TRAINING, ONE_EPOCH])
    Run(other).write("model.safetensors", (trained_run / "model.safetensors").read_bytes())
    with pytest.raises(NewkindsError, match="does not fit"):
        newkinds.load(other)
    Run(other).write("model.safetensors", b"no")
    with pytest.raises(NewkindsError, match="damaged or not a newkinds model"):
        newkinds.load(other)


def test_run_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match="not a run directory"):
        newkinds.load(tmp_path)


def test_a_full_disk_keeps_what_was_there(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from newkinds import files

    out = tmp_path / "run"
    settings = {"train": {"epochs": 3}}
    real_fsync, written = files.os.fsync, []

    def fills_up(handle: int) -> None:
        written.append(handle)
        if len(written) > 20:
            raise OSError(28, "No space left on device")
        real_fsync(handle)

    monkeypatch.setattr(files.os, "fsync", fills_up)
    with pytest.raises(NewkindsError, match="No space left on device"):
        newkinds.discover(photos, out, k=3, settings=settings)
    left = sorted(p.name for p in out.iterdir())
    assert not any(name.endswith(".tmp") for name in left)
    assert torch.load(out / "train_state.pt", weights_only=True)["epochs_done"] >= 1
    monkeypatch.setattr(files.os, "fsync", real_fsync)
    newkinds.discover(photos, out, k=3, settings=settings)  # there is room again: it goes on
    assert (out / "report.html").is_file()


def test_file_names_are_text_and_nothing_else(photos: Path, tmp_path: Path) -> None:
    for evil in ("<img src=x onerror=alert(1)>", "![x](javascript:1)", r"a\|b", "{{ 7*7 }}"):
        save_image(photos / evil / f"{evil[:8]}.png")
    os.rename(photos / "loose.png", os.fsencode(photos) + b"/\xff\xfe.png")  # not UTF-8
    newkinds.discover(photos, tmp_path / "run", k=7, settings=ONE_EPOCH)
    page, card = ((tmp_path / "run" / name).read_text() for name in ("report.html", "README.md"))
    assert "<img src=x" not in page
    assert r"\<img src=x onerror=alert\(1\)\>" in card
    assert r"\!\[x\]\(javascript\:1\)" in card
    assert r"a\\\|b" in card
    assert r"\xff\xfe.png" in (tmp_path / "run" / "assignments.csv").read_text()


def test_odd_images_are_assigned(photos: Path, tmp_path: Path) -> None:
    Image.new("CMYK", (30, 30), (0, 200, 0, 0)).save(photos / "cmyk.jpg")
    Image.fromarray(np.full((30, 30), 40000, np.uint16)).save(photos / "sixteen.png")
    frames = [Image.new("P", (30, 30), i) for i in range(3)]
    frames[0].save(photos / "moving.gif", save_all=True, append_images=frames[1:])
    found = newkinds.discover(photos, tmp_path / "run", k=3, settings=ONE_EPOCH)
    assert {"cmyk.jpg", "sixteen.png", "moving.gif"} <= {m.path for m in found.members}


def test_a_finished_run_that_was_killed_before_its_page_gets_it(photos: Path, tmp_path: Path) -> None:
    def discover() -> None:
        newkinds.discover(photos, tmp_path / "out", k=3, settings=ONE_EPOCH)

    discover()
    shown = [tmp_path / "out" / name for name in ("report.html", "README.md")]
    before = [file.read_bytes() for file in shown]
    for file in shown:
        file.unlink()
    discover()
    assert [file.read_bytes() for file in shown] == before
