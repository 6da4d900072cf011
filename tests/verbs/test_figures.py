"""`newkinds figures`: all figures of a run, and one sentence for each that cannot be drawn."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image

import newkinds
from conftest import SMALL_HEAD, TINY_TRAINING, save_image
from newkinds.errors import NewkindsError

Cli = Callable[..., tuple[int, str, str]]
ALL = {"attention", "primitives", "alphabet", "map", "confusion", "parts"}


def pictures(folder: Path) -> set[str]:
    """The figures that are there in both formats, and open."""
    for file in folder.glob("*.png"):
        assert np.asarray(Image.open(file)).std() > 0
        assert file.with_suffix(".svg").read_bytes().startswith(b"<?xml")
    return {file.stem for file in folder.glob("*.png")}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "host"
    newkinds.discover("creatures", out, method="simgcd", organizer="none", settings=[TINY_TRAINING, SMALL_HEAD])
    return out


@pytest.fixture
def photo_run(photos: Path, tmp_path: Path) -> Path:
    settings = {"train": {"epochs": 1, "batch_size": 8}, "backbone": {"name": "tiny"}, **SMALL_HEAD}
    newkinds.discover(photos, tmp_path / "run", k=3, method="simgcd", organizer="cpf", settings=settings)
    return tmp_path / "run"


def test_all_figures_of_a_run_with_cpf(run_cli: Cli, trained_run: Path, host: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained_run, tmp_path / "run")
    status, out, err = run_cli("figures", run, "--against", host, "--examples", 3)
    assert status == 0, err
    assert pictures(run / "figures") == ALL
    assert "k-means on tokens" in out
    parts = json.loads((run / "figures" / "parts.json").read_text())
    assert 0 <= parts["scores"]["primitives"]["information"] <= 1
    assert set(parts["attention"]) == {"simgcd", "simgcd + cpf"}
    rows = (run / "figures" / "alphabet.csv").read_text().splitlines()
    assert rows[0] == "primitive,share,row,column,category,path"


def test_a_run_without_primitives_says_which_figures_it_cannot_have(host: Path, tmp_path: Path) -> None:
    drawn = newkinds.figures(host, out=tmp_path / "out")
    assert pictures(tmp_path / "out") == {"attention", "map", "confusion"}
    assert set(drawn.skipped) == ALL - {"attention", "map", "confusion"}
    assert all("organizer 'none' has no primitives" in reason for reason in drawn.skipped.values())


def test_truth_may_be_given_and_images_may_be_gone(photo_run: Path, photos: Path, tmp_path: Path) -> None:
    truth = tmp_path / "truth.csv"
    rows = [f"unlabeled/{name}{i}.jpg,{name}" for name in ("red", "green", "blue") for i in range(4)]
    truth.write_text("\n".join(["path,label", *rows, "loose.png,blue"]))
    (photos / "unlabeled" / "red0.jpg").unlink()
    (photos / "unlabeled" / "blue0.jpg").write_bytes(b"no image any more")
    assert not newkinds.figures(photo_run, truth=truth, examples=2).skipped
    assert pictures(photo_run / "figures") == ALL - {"parts"}
    listed = (photo_run / "figures" / "alphabet.csv").read_text()
    assert "unlabeled/red" in listed
    assert "red0.jpg" not in listed
    shutil.rmtree(photos)
    drawn = newkinds.figures(photo_run, out=tmp_path / "later")
    assert pictures(tmp_path / "later") == {"map"}  # needs no images
    assert "the images are needed" in drawn.skipped["attention"]
    assert (photo_run / "figures" / "alphabet.png").is_file()


def test_a_network_without_a_class_token_has_no_attention(photos: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights.pth"
    torch.save(timm.create_model("resnet10t").state_dict(), weights)
    settings = {"backbone": {"name": "resnet10t", "image_size": 64, "weights": str(weights)}}
    newkinds.discover(photos, tmp_path / "run", k=3, method="frozen", settings=settings)
    drawn = newkinds.figures(tmp_path / "run")
    assert "resnet10t has no class token" in drawn.skipped["attention"]
    assert "--truth" in drawn.skipped["confusion"]
    assert pictures(tmp_path / "run" / "figures") == {"map"}


def test_bad_input_is_one_sentence(run_cli: Cli, trained_run: Path, tmp_path: Path) -> None:
    status, _, err = run_cli("figures", tmp_path / "nothing")
    assert (status, err.count("\n")) == (1, 1)
    assert "not a run directory" in err
    run = shutil.copytree(trained_run, tmp_path / "run")
    with pytest.raises(NewkindsError, match="1 to"):
        newkinds.figures(run, examples=0)
    (run / "model.safetensors").rename(tmp_path / "model")
    with pytest.raises(NewkindsError, match="finish the training first"):
        newkinds.figures(run)
    (run / "model.safetensors").write_bytes((tmp_path / "model").read_bytes()[:-100])
    with pytest.raises(NewkindsError, match="damaged"):
        newkinds.figures(run)
    shutil.copy(tmp_path / "model", run / "model.safetensors")
    (run / "assignments.csv").write_text("path,category\n")
    with pytest.raises(NewkindsError, match=r"assignments.csv is damaged"):
        newkinds.figures(run)
    assert not (run / "figures").exists()


def test_runs_on_other_images_are_not_compared(photo_run: Path, host: Path) -> None:
    with pytest.raises(NewkindsError, match="on other images"):
        newkinds.figures(photo_run, against=host)


def test_no_image_is_replaced_by_a_figure(photo_run: Path, photos: Path) -> None:
    save_image(photos / "unlabeled" / "map.png")
    before = (photos / "unlabeled" / "map.png").read_bytes()
    with pytest.raises(NewkindsError, match="choose another name"):
        newkinds.figures(photo_run, out=photos / "unlabeled")
    assert (photos / "unlabeled" / "map.png").read_bytes() == before
    assert not (photos / "unlabeled" / "attention.png").exists()
