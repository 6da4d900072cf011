"""Exported data sets as the programs that they are for read them or, where there are none, as their manuals say.

What a program should find is derived here from the names of files and the edits, not from what was exported."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save

import newkinds
from exporting import NAMES, PATHS, photos_run
from newkinds import Discovery
from newkinds.runs.directory import RunDirectory

JUNK, MOVED, ACCEPTED = "loose.png", "unlabeled/y.png", "unlabeled/x.jpg"
# image → id and name after the corrections below
EXPECTED = {
    "cat/1.png": (0, "test"), "dog/1.jpg": (1, "dog"), "unlabeled/1.png": (0, "test"), "unlabeled/b/1.PNG": (0, "test"),
    ACCEPTED: (2, '<corgi> & "co"'), MOVED: (4, "shiba inu"), "unlabeled/z.png": (3, "new-2"),
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Photos, of which one is turned by a tag, and corrections; a category is called as splits of data often are."""
    made = photos_run(tmp_path)
    turned = Image.Exif()
    turned[0x0112] = 6
    with Image.open(tmp_path / "photos" / ACCEPTED) as image:
        image.copy().save(tmp_path / "photos" / ACCEPTED, exif=turned)
    found = Discovery.read(made)
    found.rename("cat", "test")
    found.rename("new-1", '<corgi> & "co"')
    found.move([MOVED], "shiba inu", new=True)
    found.accept([ACCEPTED])
    found.junk([JUNK])
    return made


@pytest.fixture
def photos(run: Path) -> dict[str, Image.Image]:
    """The pixels of each image, as its file has them."""
    return {path: Image.open(run.parent / "photos" / path) for path in PATHS}


def confidence(path: str) -> float:
    return round(0.5 + 0.01 * PATHS.index(path), 4)


def exported(run: Path, to: str, **options: Any) -> Path:
    newkinds.export(run, to, run.parent / to, **options)
    return run.parent / to


def test_pycocotools_reads_coco(run: Path, photos: dict[str, Image.Image]):
    coco = pytest.importorskip("pycocotools.coco", reason="pycocotools is not installed (the extra dev has it)")
    out = exported(run, "coco", junk=True)

    with contextlib.redirect_stdout(io.StringIO()):
        data = coco.COCO(out / "annotations.json")
        results = data.loadRes([{**ann, "score": ann["score"]} for ann in data.loadAnns(data.getAnnIds())])

    images = {image["path"]: image for image in data.loadImgs(data.getImgIds())}
    assert set(images) == set(PATHS)
    assert min(data.getImgIds() + data.getAnnIds() + data.getCatIds()) == 1
    for path, (number, name) in EXPECTED.items():
        image = images[path]
        [annotation] = data.loadAnns(data.getAnnIds(imgIds=image["id"]))
        [category] = data.loadCats(annotation["category_id"])
        width, height = photos[path].size
        assert (category["name"], category["newkinds_id"], category["id"]) == (name, number, number + 1)
        assert category["supercategory"] == ("new" if number > 1 else "known")
        assert annotation["bbox"] == [0, 0, width, height]
        assert (annotation["area"], annotation["iscrowd"]) == (width * height, 0)
        assert (annotation["score"], annotation["unlike"]) == (confidence(path), 0.25 * PATHS.index(path))
        assert (image["width"], image["height"]) == (width, height)
        with Image.open(out / "images" / image["file_name"]) as written:
            np.testing.assert_array_equal(np.asarray(written), np.asarray(photos[path]))
    assert data.getAnnIds(imgIds=images[JUNK]["id"]) == []
    assert [images[path]["status"] for path in (JUNK, MOVED, ACCEPTED)] == ["junk", "moved", "accepted"]
    assert (images["dog/1.jpg"]["given_label"], images[MOVED]["given_label"]) == ("dog", None)
    assert len(results.getAnnIds()) == len(EXPECTED)


@pytest.mark.parametrize("files", ["copy", "symlink"])
def test_datasets_reads_the_image_folder(
    files: str, run: Path, photos: dict[str, Image.Image], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    monkeypatch.setattr("datasets.config.HF_DATASETS_OFFLINE", True)
    datasets.disable_progress_bars()
    out = exported(run, "imagefolder", files=files)

    loaded = datasets.load_dataset("imagefolder", data_dir=str(out), cache_dir=str(tmp_path / "cache"))

    assert list(loaded) == ["train"]
    rows = {row["path"]: row for row in loaded["train"]}
    assert set(rows) == set(EXPECTED)
    for path, (number, name) in EXPECTED.items():
        row = rows[path]
        assert (row["label"], row["category_id"], row["is_new"]) == (name, number, number > 1)
        assert (row["confidence"], row["unlike"]) == (confidence(path), 0.25 * PATHS.index(path))
        if path != ACCEPTED:  # that one is turned by datasets, as its tag says
            np.testing.assert_array_equal(np.asarray(row["image"]), np.asarray(photos[path]))
    assert (rows[MOVED]["status"], rows[ACCEPTED]["status"], rows["dog/1.jpg"]["status"]) == ("moved", "accepted", "")
    assert (rows["dog/1.jpg"]["given_label"], rows[MOVED]["given_label"]) == ("dog", None)
    assert set(datasets.load_dataset(str(out), cache_dir=str(tmp_path / "again"))["train"]["label"]) == {
        name for _, name in EXPECTED.values()
    }


def test_fiftyone_reads_its_data_set(run: Path):
    """By its importer alone: a data set in FiftyOne needs a MongoDB server."""
    importers = pytest.importorskip("fiftyone.utils.data.importers", reason="fiftyone is not installed")
    out = exported(run, "fiftyone", junk=True)

    with importers.FiftyOneImageClassificationDatasetImporter(dataset_dir=str(out)) as importer:
        samples = {Path(file).name: label for file, _, label in importer}

    assert len(samples) == len(PATHS)
    assert samples.pop("loose.png") is None
    found = {label.path: label for label in samples.values()}
    for path, (number, name) in EXPECTED.items():
        assert (found[path].label, found[path].category_id, found[path].confidence) == (name, number, confidence(path))
        assert (found[path].is_new, found[path].unlike) == (number > 1, 0.25 * PATHS.index(path))
    assert (found[MOVED].status, found[ACCEPTED].status, found["dog/1.jpg"].given_label) == ("moved", "accepted", "dog")


def test_the_fiftyone_data_set_is_as_documented(run: Path, photos: dict[str, Image.Image]):
    """data/<uuid>.<ext>, and labels.json: {"classes": […], "labels": {uuid: {"label", "confidence", "attributes"}}}.

    1.png, 1.jpg and 1.PNG must be told apart without their endings.
    """
    out = exported(run, "fiftyone")

    content = json.loads((out / "labels.json").read_text(encoding="utf-8"))

    assert set(content) == {"classes", "labels"}
    files = {file.stem: file for file in (out / "data").iterdir()}
    assert set(files) == set(content["labels"])
    assert len(files) == len(list((out / "data").iterdir())) == len(EXPECTED)
    found = {entry["attributes"]["path"]: (uuid, entry) for uuid, entry in content["labels"].items()}
    for path, (number, name) in EXPECTED.items():
        uuid, entry = found[path]
        assert set(entry) == {"label", "confidence", "attributes"}
        assert (content["classes"][entry["label"]], entry["attributes"]["category_id"]) == (name, number)
        assert entry["confidence"] == confidence(path)
        assert files[uuid].read_bytes() == (run.parent / "photos" / path).read_bytes()


def answers(task: dict[str, Any], kind: str) -> list[str]:
    """The choices of a task's annotations or predictions, each as documented."""
    found = []
    for answer in task[kind]:
        [result] = answer["result"]
        assert (result["from_name"], result["to_name"], result["type"]) == ("category", "image", "choices")
        found += result["value"]["choices"]
    return found


def test_label_studio_gets_predictions_and_what_people_decided(run: Path, photos: dict[str, Image.Image]):
    out = exported(run, "label-studio", junk=True)

    tasks = {task["data"]["path"]: task for task in json.loads((out / "tasks.json").read_text(encoding="utf-8"))}
    interface = ElementTree.fromstring((out / "config.xml").read_text(encoding="utf-8"))

    [image], [choices] = interface.findall("Image"), interface.findall("Choices")
    assert (image.attrib, choices.attrib) == (
        {"name": "image", "value": "$image"}, {"name": "category", "toName": "image", "choice": "single"},
    )  # fmt: skip
    names = [choice.attrib["value"] for choice in choices]
    assert names == ["test", "dog", '<corgi> & "co"', "new-2", "shiba inu"]
    assert set(tasks) == set(PATHS)
    decided = {"cat/1.png": "test", "dog/1.jpg": "dog", ACCEPTED: '<corgi> & "co"', MOVED: "shiba inu"}
    for path, task in tasks.items():
        url = urlsplit(task["data"]["image"])
        assert url.path == "/data/local-files/"
        assert (out / parse_qs(url.query)["d"][0]).read_bytes() == (run.parent / "photos" / path).read_bytes()
        by_model = '<corgi> & "co"' if path == MOVED else "new-2" if path == JUNK else EXPECTED[path][1]
        assert answers(task, "predictions") == [by_model]
        assert answers(task, "annotations") == ([decided[path]] if path in decided else [])
        [prediction] = task["predictions"]
        assert prediction["score"] == confidence(path)
        assert prediction["model_version"] == f"newkinds {newkinds.__version__}"
        assert task["data"]["category_id"] == EXPECTED.get(path, (-1, ""))[0]


def test_the_tools_of_label_studio_find_nothing_wrong(tmp_path: Path):
    interface = pytest.importorskip("label_studio_sdk.label_interface", reason="label-studio-sdk is not installed")
    run = photos_run(tmp_path, names=['"/><script>', "a & b", "two\nlines", "\x07\ufffe $image"])
    Discovery.read(run).accept([MOVED, JUNK])
    out = exported(run, "label-studio")

    checked = interface.LabelInterface((out / "config.xml").read_text(encoding="utf-8"))
    checked.validate()
    for task in json.loads((out / "tasks.json").read_text(encoding="utf-8")):
        assert checked.validate_task({"data": task["data"]})
        assert all(checked.validate_prediction(prediction) for prediction in task["predictions"])
        assert all(checked.validate_annotation(annotation) for annotation in task["annotations"])


def test_names_that_xml_has_no_place_for(tmp_path: Path):
    hostile = ['"/><script>alert(1)</script>', "a & b", "not utf-8 \udcff", "\x00\x07\ufffe\uffff \u202e"]
    run = photos_run(tmp_path, names=hostile)
    out = exported(run, "label-studio")

    interface = ElementTree.fromstring((out / "config.xml").read_text(encoding="utf-8"))

    names = [choice.attrib["value"] for choice in interface.iter("Choice")]
    assert names == ['"/><script>alert(1)</script>', "a & b", r"not utf-8 \xff", r"\x00\x07\ufffe\uffff \u202e"]
    tasks = json.loads((out / "tasks.json").read_text(encoding="utf-8"))
    assert {choice for task in tasks for choice in answers(task, "predictions")} == set(names)
    assert {element.tag for element in interface.iter()} == {"View", "Image", "Choices", "Choice"}


def test_labels_stand_for_their_categories_whatever_these_became(tmp_path: Path):
    """One known class was split, another merged into a new category."""
    paths = ["cat/1.png", "cat/2.png", "cat/3.png", "dog/1.png", "unlabeled/1.png"]
    run = photos_run(tmp_path, paths, [0, 0, 2, 1, 3])  # the model takes cat/3.png for new-1
    found = Discovery.read(run)
    found.split("cat", parts=[["cat/1.png"], ["cat/2.png"]])
    found.merge(["dog", "new-2"], into="new-2")

    tasks = json.loads((exported(run, "label-studio") / "tasks.json").read_text(encoding="utf-8"))

    assert {task["data"]["path"]: answers(task, "annotations") for task in tasks} == {
        "cat/1.png": ["cat"], "cat/2.png": ["cat-2"], "cat/3.png": ["cat"], "dog/1.png": ["new-2"],
        "unlabeled/1.png": [],
    }  # fmt: skip


def test_the_model_knows_its_labels_after_names_were_edited_by_hand(tmp_path: Path):
    run = RunDirectory(photos_run(tmp_path))
    edited = [{**category, "name": f"my {category['name']}"} for category in run.read_json("categories.json")]
    run.write_json("categories.json", edited)
    about = {"known": NAMES[:2], "k": 4}
    run.write("model.safetensors", save({"weights": np.zeros(1)}, metadata={"newkinds": json.dumps(about)}))

    tasks = json.loads((exported(run.folder, "label-studio") / "tasks.json").read_text(encoding="utf-8"))

    labelled = {task["data"]["given_label"]: answers(task, "annotations") for task in tasks if task["annotations"]}
    assert labelled == {"cat": ["my cat"], "dog": ["my dog"]}
