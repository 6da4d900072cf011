"""A run of ready-made vectors: every verb works on it as on images, or says in a sentence why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

import newkinds
from blobs import blobs
from conftest import Killed
from newkinds.discovery.categories import Discovery
from newkinds.runs.run import Run
from newkinds.search import ways
from newkinds.search.search import JUDGED
from planning import ADAPTER, PRIMITIVES, shorten

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vectors.npy, labels.csv, truth.csv and others.npy: texts of six kinds, four of them known."""
    folder = tmp_path_factory.mktemp("vectors")
    X, truth = blobs(n=180, clusters=6, dim=10, spread=0.3, seed=1)
    np.save(folder / "vectors.npy", X[:150].astype(np.float32))
    np.save(folder / "others.npy", X[150:])
    known = [(i, t) for i, t in enumerate(truth[:150]) if t < 4 and i // 6 % 2]
    (folder / "labels.csv").write_text("row,label\n" + "".join(f"{i},kind {t}\n" for i, t in known))
    (folder / "truth.csv").write_text("label\n" + "".join(f"kind {t}\n" for t in truth[:150]))
    np.save(folder / "truth.npy", truth)
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch, ADAPTER, PRIMITIVES)


@pytest.fixture(scope="module")
def run(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "texts"
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch, ADAPTER, PRIMITIVES)
        newkinds.discover(vectors / "vectors.npy", out, labels=vectors / "labels.csv")
    return out


def test_a_plan_compares_frozen_vectors_and_an_adapter_and_leaves_a_complete_run(run: Path, vectors: Path) -> None:
    record = Run(run).read_json("plan.json")
    states = {entry["name"]: entry["state"] for entry in record["candidates"]}
    assert states["frozen features, em"] == JUDGED
    assert states["adapter on class tokens"] == "not tried: frozen features are right on every split already"
    assert "adapter and primitives (CPF)" in states
    found = Discovery.read(run)
    assert [member.path for member in found.members[:2]] == ["row-00000", "row-00001"]
    assert len(found.members) == 150
    assert len(found.new) == 2
    config = Run(run).config()
    assert config.backbone["name"] == "vectors"
    assert config.backbone["width"] == 10
    assert config.data["labels"] == str(vectors / "labels.csv")
    page = (run / "report.html").read_text()
    assert 'title="row-00000"' in page
    assert "could not be read" not in page
    assert 'class="glance"' not in page  # squares without pictures
    assert "ready-made vectors of 10 numbers" in page


def test_the_same_command_resumes_and_changed_vectors_begin_again(
    vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("vectors.npy", "labels.csv"):
        (tmp_path / name).write_bytes((vectors / name).read_bytes())

    def discovered(out: str) -> list[str]:
        found = newkinds.discover(tmp_path / "vectors.npy", tmp_path / out, labels=tmp_path / "labels.csv")
        return [member.category for member in found.members]

    whole = discovered("whole")
    written, judge = 0, ways.score_split

    def killed(*arguments: object) -> object:
        nonlocal written
        written += 1
        if written == 4:
            raise Killed
        return judge(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(ways, "score_split", killed)
        with pytest.raises(Killed):
            discovered("run")
    assert discovered("run") == whole
    assert discovered("run") == whole
    changed = np.load(tmp_path / "vectors.npy")
    changed[3] += 1
    np.save(tmp_path / "vectors.npy", changed)
    capfd.readouterr()
    assert len(discovered("run")) == len(whole)
    assert "1 image was replaced by others (row-00003)" in capfd.readouterr().err
    assert (tmp_path / "run/earlier/1/assignments.csv").is_file()


def test_other_vectors_are_predicted(run: Path, vectors: Path, run_cli: Cli, tmp_path: Path) -> None:
    own = {p.path: p.category for p in newkinds.predict(run, vectors / "vectors.npy")}
    assert own == {member.path: member.category for member in Discovery.read(run).members}
    status, out, _ = run_cli("predict", run, vectors / "others.npy")
    truth = np.load(vectors / "truth.npy")[150:]
    found = [line.split(",")[:2] for line in out.splitlines()[1:]]
    assert status == 0
    assert [name for name, _ in found] == [f"row-{i:05d}" for i in range(30)]
    assert [category for _, category in found if category.startswith("kind")] == [f"kind {t}" for t in truth if t < 4]
    np.save(tmp_path / "wide.npy", np.ones((3, 11)))
    status, _, err = run_cli("predict", run, tmp_path / "wide.npy")
    assert status == 1
    assert "vectors of 11 numbers, those of the run have 10" in err
    status, _, err = run_cli("predict", run, vectors / "labels.csv")
    assert "no table of vectors" in err


def test_it_can_be_counted_judged_and_assigned_again(run: Path, vectors: Path, run_cli: Cli, tmp_path: Path) -> None:
    status, out, _ = run_cli("count", vectors / "vectors.npy", "--labels", vectors / "labels.csv")
    assert status == 0
    assert out.startswith("6 categories: 4 known and 2 new")
    assert run_cli("count", run)[1].startswith("6 categories")
    assert newkinds.evaluate(run, vectors / "truth.csv")["metrics"]["acc_all"] > 0.95
    again = newkinds.assign(run, "sskmeans", out=tmp_path / "again")
    assert len(again.members) == 150
    assert newkinds.evaluate(tmp_path / "again", vectors / "truth.csv")["metrics"]["acc_all"] > 0.9


def test_a_method_may_be_trained_on_them(vectors: Path, tmp_path: Path) -> None:
    settings = {
        "train": {"epochs": 2, "batch_size": 32}, "method": {"projection_hidden": 32}, "organizer": {"dropout": 0.1},
    }  # fmt: skip
    found = newkinds.discover(
        vectors / "vectors.npy", tmp_path / "run", labels=vectors / "labels.csv", k=6, method="simgcd",
        organizer="adapter", settings=settings,
    )  # fmt: skip
    assert len(found.members) == 150
    assert Run(tmp_path / "run").config().train.cache_views == 1
    assert len(newkinds.load(tmp_path / "run").predict(vectors / "others.npy")) == 30


def test_checks_that_need_no_pixels_are_made(vectors: Path, run_cli: Cli, tmp_path: Path) -> None:
    X = np.load(vectors / "vectors.npy")
    X[7] = X[1]
    np.save(tmp_path / "copies.npy", X)
    status, out, _ = run_cli("check", tmp_path / "copies.npy", "--labels", vectors / "labels.csv")
    assert status == 1
    assert "row-00001: the same numbers as row-00007" in out or "row-00007: the same numbers as row-00001" in out
    assert "blank" not in out
    assert "not checked" not in out
    status, _, err = run_cli("check", vectors / "vectors.npy", "--pixels-only")
    assert err == "error: ready-made vectors have no pixels: leave out --pixels-only.\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--organizer", "cpf"], "ready-made vectors have no patches, which the organizer 'cpf' reads"),
        (["--method", "sptnet"], "ready-made vectors have no backbone in which the tuning"),
        (["--backbone", "tiny"], "ready-made vectors need no backbone: leave out --backbone"),
        (["--weights", "x.pth"], "ready-made vectors need no backbone"),
    ],
)
def test_what_works_on_images_alone_is_refused(
    vectors: Path, run_cli: Cli, tmp_path: Path, options: list[str], said: str
) -> None:
    labels = ("--labels", vectors / "labels.csv")
    status, _, err = run_cli("discover", vectors / "vectors.npy", *labels, "--out", tmp_path / "run", *options)
    assert status == 1
    assert said in err
    assert not (tmp_path / "run").exists()


def test_with_a_folder_the_message_says_what_to_do(vectors: Path, photos: Path, run_cli: Cli, tmp_path: Path) -> None:
    status, _, err = run_cli("discover", photos, "--labels", vectors / "labels.csv", "--out", tmp_path / "run")
    assert status == 1
    assert "data.labels" in err


def test_pictures_and_tokens_are_said_to_be_missing(run: Path, run_cli: Cli, tmp_path: Path) -> None:
    status, _, err = run_cli("figures", run, "--out", tmp_path / "figures")
    assert status == 0
    assert "primitives skipped: the images are needed: ready-made vectors have no pictures" in err
    assert (tmp_path / "figures" / "map.png").is_file()
    status, _, err = run_cli("diagnose", run)
    assert status == 1
    assert "have no tokens and fields: --features-only" in err
    assert run_cli("diagnose", run, "--features-only")[0] == 0


def test_the_page_is_rendered_without_the_vectors(run: Path, run_cli: Cli, tmp_path: Path) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["data"]["path"].endswith("vectors.npy")
    status, _, _ = run_cli("report", run, "--out", tmp_path / "page.html")
    assert status == 0
    assert 'title="row-00149"' in (tmp_path / "page.html").read_text()


def test_the_estimator_finds_the_same(vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    found = newkinds.discover(vectors / "vectors.npy", tmp_path / "run", labels=vectors / "labels.csv", seed=4)
    X = np.load(vectors / "vectors.npy")
    y = [member.given_label or "" for member in found.members]
    estimator = newkinds.CategoryDiscovery(random_state=4).fit(X, y)
    record = Run(tmp_path / "run").read_json("plan.json")
    assert [entry["scores"] for entry in record["candidates"]] == [c["scores"] for c in estimator.candidates_]
    assert record["chosen"] == f"frozen features, {estimator.way_}"
    names = [member.category for member in found.members]
    pairs = set(zip(names, estimator.labels_.tolist(), strict=True))
    assert len(pairs) == len(set(names)) == len(set(estimator.labels_.tolist()))  # the same groups
    known = [name.startswith("kind") for name in names]
    assert estimator.categories_[estimator.labels_][known].tolist() == np.array(names)[known].tolist()
    assert np.allclose(estimator.confidence_, [member.confidence for member in found.members], atol=1e-3)
