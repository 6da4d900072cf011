"""Figures on the official test images of a benchmark: only where all are there, and computed once for a model."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.optimize import linear_sum_assignment

import newkinds
from layouts import LAYOUTS, lay_out_cars, lay_out_cifar10, lay_out_cub, lay_out_imagenet
from newkinds import metrics
from newkinds.data.images import BadImage
from newkinds.data.published import BENCHMARKS, base, load_test_images
from newkinds.data.table import Table
from newkinds.errors import NewkindsError
from newkinds.evaluation import judge as evaluation
from newkinds.experiments.outcomes import read_outcome
from newkinds.runs.run import Run
from newkinds.training.embedding import embed

Cli = Callable[..., tuple[int, str, str]]
TEST_IMAGES = {"cub": 200, "cars": 196, "aircraft": 100, "cifar10": 10, "cifar100": 100, "imagenet100": 100}


@pytest.fixture
def miniatures_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in TEST_IMAGES.items():
        monkeypatch.setitem(BENCHMARKS, name, replace(BENCHMARKS[name], images={"train": None, "test": count}))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a miniature of CIFAR-10, with the data beside it."""
    folder = tmp_path_factory.mktemp("cifar10")
    lay_out_cifar10(folder / "data")
    settings = {"train": {"epochs": 1, "batch_size": 16}}
    newkinds.discover("cifar10", folder / "run", data_root=folder / "data", settings=settings)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of that run, for tests that change it."""
    return Path(shutil.copytree(trained / "run", tmp_path / "run"))


def no_embedding(*arguments: object, **options: object) -> None:
    raise AssertionError("images were embedded")


@pytest.mark.usefixtures("miniatures_are_complete")
def test_test_images_are_scored_like_the_others(run: Path, trained: Path, run_cli: Cli) -> None:
    status, out, err = run_cli("eval", run, "--json")
    assert status == 0, err
    result = json.loads(out)
    assert result["protocol"]["evaluated"] == "75 unlabelled training images; 10 test images"
    assert result["test"]["evaluated"] == 10
    assert json.loads((run / "evaluation.json").read_text()) == result

    table, model = load_test_images("cifar10", str(trained / "data")), newkinds.load(run).model
    predicted = model.assign(embed(model.encoder, table, model.device).features).category.tolist()
    truth = [str(label) for label in table.truth or []]
    pairs = list(zip(predicted, truth, strict=True))
    counts = [[pairs.count((category, label)) for label in sorted(set(truth))] for category in range(model.categories)]
    matched = linear_sum_assignment(counts, maximize=True)
    figures = [result["test"]["metrics"][f"acc_{part}"] for part in ("all", "old", "new")]
    assert figures[0] == pytest.approx(sum(counts[row][column] for row, column in zip(*matched, strict=True)) / 10)
    # which of several equally good matches is taken decides about Old and New
    assert figures == pytest.approx(metrics.clustering_accuracy(truth, predicted, table.known))

    outcome = read_outcome(run)
    assert outcome is not None
    assert outcome.test is not None
    assert [outcome.test[part] for part in ("all", "old", "new")] == [100 * figure for figure in figures]
    assert outcome.figures["all"] == 100 * result["metrics"]["acc_all"]

    status, out, _ = run_cli("eval", run)
    assert status == 0
    title, all_ = r"^\| {} images, % +\| +All \| +Old \| +New \|", r"^\| ACC \(v2, one match\) +\| +([\d.]+) "
    assert re.search(title.format("unlabelled training"), out, re.MULTILINE)
    assert re.search(title.format("test"), out, re.MULTILINE)
    shown = [float(figure) for figure in re.findall(all_, out, re.MULTILINE)]
    expected = [100 * part["metrics"]["acc_all"] for part in (result, result["test"])]
    assert shown == pytest.approx(expected, abs=0.051)


@pytest.mark.usefixtures("miniatures_are_complete")
def test_test_images_are_embedded_once_for_a_model(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = newkinds.evaluate(run)
    with monkeypatch.context() as patched:
        patched.setattr(evaluation, "embed", no_embedding)
        assert newkinds.evaluate(run) == first
    model = newkinds.load(run).model
    for parameter in model.method.parameters():
        parameter.data.mul_(-1)
    Run(run).write("model.safetensors", model.as_safetensors())
    monkeypatch.setattr(evaluation, "embed", no_embedding)
    with pytest.raises(AssertionError, match="embedded"):
        newkinds.evaluate(run)


@pytest.mark.usefixtures("miniatures_are_complete")
def test_test_images_are_embedded_once_for_all_that_trains_nothing(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, data_root = tmp_path / "frozen", trained / "data"
    newkinds.discover("cifar10", frozen, method="frozen", data_root=data_root)
    newkinds.evaluate(frozen)
    for out, assigner in (("ward", "ward"), ("kmeans", "kmeans")):
        newkinds.assign(frozen, assigner, out=tmp_path / out)
    alone = newkinds.evaluate(tmp_path / "ward")["test"]
    evaluation._FROZEN.clear()
    assert newkinds.evaluate(tmp_path / "kmeans")["test"]["evaluated"] == 10
    (tmp_path / "ward" / "evaluation.json").unlink()
    monkeypatch.setattr(evaluation, "embed", no_embedding)
    assert newkinds.evaluate(tmp_path / "ward")["test"] == alone


@pytest.mark.usefixtures("miniatures_are_complete")
def test_a_truth_from_elsewhere_is_of_the_training_images_only(run: Path, trained: Path, tmp_path: Path) -> None:
    table = newkinds.data.load_table({"name": "cifar10", "root": str(trained / "data")})
    lines = [f"{path},{label}\n" for path, label in zip(table.paths, table.truth or [], strict=True)]
    (tmp_path / "truth.csv").write_text("path,label\n" + "".join(lines))
    result = newkinds.evaluate(run, truth=tmp_path / "truth.csv")
    assert result["test"] is None
    said = result["protocol"]["evaluated"]
    assert said.startswith("75 unlabelled training images, judged by truth.csv (split ")


@pytest.mark.usefixtures("miniatures_are_complete")
def test_unreadable_test_images_are_passed_over_and_counted(
    run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def with_broken(broken: set[int]) -> Callable[..., Table]:
        def read(*arguments: str, **options: bool) -> Table:
            table = load_test_images(*arguments, **options)

            def opener(row: int) -> object:
                if row in broken:
                    raise BadImage("the file is empty (0 bytes)")
                return table.open(row)

            return replace(table, open=opener)  # type: ignore[arg-type]

        return read

    monkeypatch.setattr(base, "load_test_images", with_broken({3}))
    monkeypatch.setattr("newkinds.training.embedding.choose_workers", lambda workers, device: 0)  # closures stay here
    result = newkinds.evaluate(run)
    assert result["test"]["evaluated"] == 9
    assert result["protocol"]["evaluated"].endswith("; 9 test images of 10, the others cannot be read")
    assert "1 test image skipped; the first is cifar10-test-00003.png" in capfd.readouterr().err
    monkeypatch.setattr(base, "load_test_images", with_broken(set(range(10))))
    result = newkinds.evaluate(run)
    assert result["test"] is None
    assert result["protocol"]["evaluated"].endswith("; not on test images: none of 10 can be read")
    monkeypatch.setattr(base, "load_test_images", load_test_images)
    assert newkinds.evaluate(run)["test"]["evaluated"] == 10, "what was repaired is looked at again"


def test_a_copy_with_few_of_the_test_images_gives_no_figure(run: Path) -> None:
    result = newkinds.evaluate(run)
    assert result["test"] is None
    outcome = read_outcome(run)
    assert outcome is not None
    assert outcome.test is None
    assert result["protocol"]["evaluated"] == (
        "75 unlabelled training images; not on test images: this copy of CIFAR-10 lacks 9,990 of its 10,000 test images"
    )


# -- which copies have them ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("miniatures_are_complete")
@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_complete_copies_are_complete(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LAYOUTS[name](tmp_path)
    for opens in ("newkinds.data.published.base.open_image", "newkinds.data.folder.open_part"):
        monkeypatch.setattr(opens, no_embedding)  # files are looked for, not opened
    assert len(load_test_images(name, str(tmp_path), complete=True)) == TEST_IMAGES.get(name, 683)


@pytest.mark.usefixtures("miniatures_are_complete")
def test_files_count_not_what_the_index_names(tmp_path: Path) -> None:
    folder = lay_out_cub(tmp_path)
    files = [folder / path for path in load_test_images("cub", str(tmp_path)).paths]
    for file in files[:12]:
        file.unlink()
    with pytest.raises(NewkindsError, match="this copy of CUB-200-2011 lacks 12 of its 200 test images"):
        load_test_images("cub", str(tmp_path), complete=True)
    for file in files[12:]:
        file.unlink()
    with pytest.raises(NewkindsError, match="this copy of CUB-200-2011 has none of its 200 test images"):
        load_test_images("cub", str(tmp_path), complete=True)
    assert len(load_test_images("cub", str(tmp_path))) == 200, "the list alone needs no files"


@pytest.mark.usefixtures("miniatures_are_complete")
def test_what_is_not_listed_is_missing_too(tmp_path: Path) -> None:
    folder = lay_out_imagenet(tmp_path)
    next((folder / "val" / "n01443537").iterdir()).unlink()
    with pytest.raises(NewkindsError, match="lacks 1 of its 100 test images"):
        load_test_images("imagenet100", str(tmp_path), complete=True)


def test_cars_without_test_labels_have_no_test_images(tmp_path: Path) -> None:
    (lay_out_cars(tmp_path) / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(NewkindsError, match=r"there is no cars_test_annos_withlabels\.mat"):
        load_test_images("cars", str(tmp_path), complete=True)
