"""The model of a run, exported and used without newkinds: the same answers as `newkinds predict`, corrections included;
written whole or not at all, and only where it was asked for."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save

import newkinds
from covering import some_of
from newkinds import Discovery
from newkinds.data.creatures import drawing
from newkinds.data.images import open_image
from newkinds.discovery.export import EXPORTS, model_folder
from newkinds.discovery.export import onnx as as_onnx
from newkinds.discovery.export import torch as as_torch
from newkinds.discovery.export.graph import Answer
from newkinds.errors import NewkindsError

Cli = Callable[..., tuple[int, str, str]]
Exported = Callable[[str, Path], tuple[Path, str]]  # format, run → its folder, what was said
KINDS, EACH = 8, 14
FORMATS = ("onnx", "torch")
SCRIPT = {"onnx": "run_onnx.py", "torch": "predict.py"}
# what the scripts must do without; None makes an import fail
WITHOUT = {
    "onnx": ("newkinds", "torch", "torchvision", "timm", "sklearn", "onnx"),
    "torch": ("newkinds", "onnxruntime"),
}
ODD_NAME = 'a "kind" <script>\x1b[31m\u202e'


def require(format: str) -> None:
    if format == "onnx":
        for package in ("onnx", "onnxruntime", "onnxscript"):
            pytest.importorskip(package, reason="needs the extra onnx")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """112 creatures as files of many shapes; half of the kinds are known, under names that nobody should have."""
    root = tmp_path_factory.mktemp("photos")
    for category, kind in enumerate(drawing.kinds(KINDS, 0, "evaluated")):
        name = ODD_NAME if category == 0 else kind.name
        for index in range(EACH):
            folder = root / (name if category < KINDS // 2 and index % 2 == 0 else "unlabeled")
            folder.mkdir(exist_ok=True)
            image = Image.fromarray(drawing.draw_creature(kind, np.random.default_rng([category, index]), 96)[0])
            shape = [(96, 96), (120, 75), (64, 91), (97, 113)][index % 4]
            ending = "jpg" if index % 3 else "png"
            image.resize(shape).save(folder / f"{category}-{index}.{ending}")
    return root


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "creatures"
    settings = {"train": {"epochs": 1, "batch_size": 32}, "method": {"projection_hidden": 32, "output_dim": 64}}
    newkinds.discover(photos, out, method="gcd", organizer="cpf", k=KINDS, backbone="tiny", settings=settings)
    return out


@pytest.fixture(scope="module")
def edited(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, corrected: a new category renamed, two merged, one split, a part of it junk."""
    copy = tmp_path_factory.mktemp("runs") / "edited"
    shutil.copytree(run, copy)
    found = Discovery.read(copy)
    largest, second, third, *_ = found.new
    found.rename(largest.id, "zebra \u2028"[:-2])
    found.merge([second.id, found.known[1].id])
    parts = found.parts(third.id, 2)
    found.split(third.id, parts=parts)
    found.move([parts[0][0]], "made by hand", new=True)
    found.junk(category=third.id)
    return copy


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Each run in each format once."""
    root = tmp_path_factory.mktemp("exported")

    @cache
    def export(format: str, run: Path) -> tuple[Path, str]:
        require(format)
        out = root / f"{run.name}-{format}"
        return out, newkinds.export(run, format, out)

    return export


def printed(format: str, folder: Path, files: list[Path]) -> tuple[list[list[str]], str]:
    """What the exported script says, in a process where newkinds cannot be imported."""
    blocked = "; ".join(f"sys.modules[{name!r}] = None" for name in WITHOUT[format])
    script = str(folder / SCRIPT[format])
    start = f"sys.path.insert(0, {str(folder)!r}); runpy.run_path({script!r}, run_name='__main__')"
    command = [sys.executable, "-c", f"import sys, runpy; {blocked}; {start}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()], done.stderr


@pytest.mark.parametrize(
    ("format", "corrected"), some_of(product(FORMATS, [False, True]), [("onnx", True), ("torch", False)])
)
def test_the_script_says_what_predict_says(
    format: str, corrected: bool, run: Path, edited: Path, photos: Path, exported: Exported, tmp_path: Path
) -> None:
    source = edited if corrected else run
    folder, said = exported(format, source)
    assert "compared on 100 images of the run: same categories" in said
    # one pixel is another: what a person said about single images is not part of the model
    files = []
    for number, file in enumerate(sorted(photos.rglob("*.*g"))[:104]):
        files.append(tmp_path / f"image {number}.png")
        with Image.open(file) as opened:
            image = opened.convert("RGB")
        image.putpixel((0, 0), (1, 2, 3))
        image.save(files[-1])
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no image")
    lines, errors = printed(format, folder, [*files, broken])
    wanted = newkinds.predict(source, files)
    assert [line[0] for line in lines] == [prediction.path for prediction in wanted] == [str(file) for file in files]
    assert [int(line[2]) for line in lines] == [prediction.category_id for prediction in wanted]
    assert len({line[2] for line in lines}) > 3
    assert np.allclose([float(line[3]) for line in lines], [p.confidence for p in wanted], atol=2e-4)
    assert np.allclose([float(line[4]) for line in lines], [p.unlike for p in wanted], atol=2e-3)
    assert f"{broken} skipped: not an image" in errors
    names = {int(line[2]): line[1] for line in lines}
    assert all(name.isprintable() for name in names.values())
    if corrected:
        assert "zebra" in names.values()
        assert names[-1] == "(junk)"


def test_the_script_sees_the_same_pixels(
    run: Path, photos: Path, exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = exported("torch", run)
    monkeypatch.syspath_prepend(str(folder))
    for name in ("prepare", "images"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    prepare = importlib.import_module("prepare")
    preprocessing = newkinds.load(run).model.encoder.backbone.preprocessing
    shapes = [(73, 64), (64, 73), (65, 64), (300, 101), (101, 302), (73, 73), (40, 500)]
    for number, shape in enumerate(shapes):
        noise = np.random.default_rng(number).integers(0, 256, (shape[1], shape[0], 4 if number % 2 else 3))
        file = tmp_path / f"{number}.png"
        Image.fromarray(noise.astype(np.uint8)).save(file)
        seen = preprocessing.centre_view(preprocessing.resize(open_image(file)))
        assert np.array_equal(prepare.view(str(file))[0], (seen.float() / 255).numpy()), shape
    for name in ("prepare", "images"):
        del sys.modules[name]


@pytest.mark.parametrize("format", FORMATS)
def test_probabilities_of_what_was_corrected(format: str, run: Path, edited: Path, exported: Exported) -> None:
    """Merged categories are added up, a split one goes whole to its nearest part, and what is nearer to the one that
    was made by hand than to its own has its share there: by loops over what was found."""
    folder, _ = exported(format, edited)
    labels = json.loads((folder / "labels.json").read_text(encoding="utf-8"))
    before, after = (
        model_folder.prepare_export(Discovery.read(run)),
        model_folder.prepare_export(Discovery.read(edited)),
    )
    if format == "onnx":
        outputs = as_onnx.session(folder / "model.onnx")(after.images)
        category, *_, shares, embedding = map(torch.as_tensor, outputs)
    else:
        weights = load_file(folder / "model.safetensors")
        category, *_, shares, embedding = as_torch.import_classify(folder / "model.py")(weights, after.images)
    corrections = Discovery.read(edited).corrections()
    split = next(edit for edit in corrections.in_force if edit["edit"] == "split")
    merged = next(edit for edit in corrections.in_force if edit["edit"] == "merge")
    own = after.loaded.embedding(model_folder.read_features(after.loaded.run))
    place = {member.path: row for row, member in enumerate(Discovery.read(edited).members)}
    centres = [own[[place[path] for path in part["images"]]].mean(axis=0) for part in split["parts"]]
    moved = next(edit for edit in corrections.in_force if edit["edit"] == "move")
    by_hand, of_model = own[place[moved["images"][0]]], after.loaded.model.calibration.centres.numpy()
    columns = {label["id"]: column for column, label in enumerate(labels)}
    assert labels[-1] == {"id": -1, "name": "(junk)", "is_new": False}
    assert {"made by hand", "zebra"} <= {label["name"] for label in labels}
    for row in range(len(shares)):
        naive = dict.fromkeys(columns, 0.0)
        model_says = before.expected.probabilities[row].tolist()
        first = int(np.argmax(model_says))
        near, far = (embedding[row].numpy() @ centre / np.linalg.norm(centre) for centre in (by_hand, of_model[first]))
        for number, share in enumerate(model_says):
            if number == first and near > far:
                number = moved["to"]
            if number in merged["categories"]:
                number = merged["into"]
            if number == split["category"]:
                cosines = [embedding[row].numpy() @ centre / np.linalg.norm(centre) for centre in centres]
                number = split["parts"][int(np.argmax(cosines))]["id"]
                number = -1 if number == split["category"] else number  # which became junk later
            naive[number] += share
        found = {number: float(shares[row, column]) for number, column in columns.items()}
        assert found == pytest.approx(naive, abs=1e-4)
        assert 0 <= int(category[row]) < len(labels)


def test_the_onnx_graph_takes_any_number_of_images_and_tells_nothing_of_this_machine(
    run: Path, exported: Exported
) -> None:
    folder, _ = exported("onnx", run)
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    assert [one.shape for one in session.get_inputs()] == [["batch", 3, 64, 64]]
    assert [one.name for one in session.get_outputs()] == list(Answer._fields)
    for count in (1, 9):
        outputs = session.run(None, {"images": np.random.rand(count, 3, 64, 64).astype(np.float32)})
        assert [len(output) for output in outputs] == [count] * 5
        assert np.allclose(outputs[3].sum(axis=1), 1, atol=1e-5)
    inside = (folder / "model.onnx").read_bytes()
    for path in (torch.__file__, newkinds.__file__, run):
        assert str(Path(path).parent).encode() not in inside
    labels = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    assert labels == json.loads((folder / "labels.json").read_text(encoding="utf-8"))
    assert [label["name"] for label in labels][:1] == [ODD_NAME]


def test_weights_that_do_not_fit_into_one_file_lie_beside_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("onnx")
    monkeypatch.setattr(as_onnx, "LARGEST", 1_000_000)
    newkinds.export(run, "onnx", tmp_path / "out")
    assert (tmp_path / "out/model.onnx").stat().st_size < 1_000_000 < (tmp_path / "out/model.onnx.data").stat().st_size
    image = tmp_path / "image.png"
    Image.new("RGB", (80, 70), "red").save(image)
    [line], _ = printed("onnx", tmp_path / "out", [image])  # the folder was renamed since it was written
    assert int(line[2]) == newkinds.predict(run, image)[0].category_id


def test_the_card_says_what_the_model_cannot_do(edited: Path, photos: Path, exported: Exported) -> None:
    card = (exported("torch", edited)[0] / "README.md").read_text(encoding="utf-8")
    assert "python predict.py" in card
    assert re.search(r"\| images \| 112, of which 28 labelled \|", card)
    assert "Corrected by hand 5 times (1 × rename, 1 × merge, 1 × split, 1 × move, 1 × junk)" in card
    assert "`unlike` above 1: it is farther from its category" in card
    assert "split again 4 times" in card  # what confidence was calibrated on
    assert str(photos.parent) not in card  # it is going elsewhere
    assert "<script>" not in card.replace("\\<script\\>", "")
    assert (edited / "README.md").read_text(encoding="utf-8").count("## Limits") == 1


def test_only_the_target_is_written_and_only_whole(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*")}
    (tmp_path / "empty").mkdir()
    newkinds.export(run, "torch", tmp_path / "empty")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["empty"]
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*")} == before

    def stopped(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(model_folder.ModelExport, "compare", stopped)  # after code and weights were written
    with pytest.raises(KeyboardInterrupt):
        newkinds.export(run, "torch", tmp_path / "half")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["empty"]


@pytest.mark.parametrize("there", ["file", "folder", "link"])
def test_what_is_there_already_is_left_alone(there: str, run: Path, tmp_path: Path, run_cli: Cli) -> None:
    target = tmp_path / "target"
    if there == "folder":
        target.mkdir()
        (target / "mine.txt").write_text("mine")
    elif there == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    status, out, errors = run_cli("export", run, "--to", "torch", "--out", target)
    assert (status, out) == (1, "")
    assert ("is not empty: choose another --out" if there == "folder" else "is there already") in errors
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == sorted(
        ["target", "mine.txt"] if there == "folder" else ["target"]
    )


def test_a_model_that_says_something_else_is_not_exported(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nudged(tensors: dict[str, torch.Tensor]) -> bytes:
        return save(
            {name: tensor * (1.01 if name.endswith("classifier.centres") else 1) for name, tensor in tensors.items()}
        )

    monkeypatch.setattr(as_torch, "save", nudged)
    with pytest.raises(NewkindsError, match=r"not say the same as the run: on 100 images .* probabilities by up to"):
        newkinds.export(run, "torch", tmp_path / "out")
    assert not any(tmp_path.iterdir())


def test_images_that_are_gone_and_options_that_do_not_fit(
    run: Path, photos: Path, tmp_path: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = photos.with_name("moved")
    photos.rename(moved)
    try:
        status, _, errors = run_cli("export", run, "--to", "torch", "--out", tmp_path / "out")
        assert status == 1
        assert "name some others by --compare-on" in errors
        image = next(moved.rglob("*.png"))
        status, out, _ = run_cli("export", run, "--to", "torch", "--out", tmp_path / "out", "--compare-on", image)
        assert (status, "compared on one image" in out) == (0, True)
    finally:
        moved.rename(photos)
    status, _, errors = run_cli("export", run, "--to", "onyx", "--out", tmp_path / "other")
    assert (status, "Did you mean 'onnx'?" in errors) == (1, True)
    with pytest.raises(NewkindsError, match="--link does not apply to the export 'torch'; it has --compare-on"):
        newkinds.export(run, "torch", tmp_path / "other", link="hard")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    status, _, errors = run_cli("export", run, "--to", "onnx", "--out", tmp_path / "other")
    assert (status, "pip install 'newkinds[onnx]'" in errors) == (1, True)
    assert not (tmp_path / "other").exists()


def test_exports_are_listed(run_cli: Cli) -> None:
    _, out, _ = run_cli("list", "exports")
    assert all(re.search(rf"^  {name} ", out, re.MULTILINE) for name in EXPORTS)
    assert set(FORMATS) <= set(EXPORTS)
