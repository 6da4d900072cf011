"""The published data sets in their owners' layouts, whole and damaged, as miniature copies."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from layouts import (
    LAYOUTS,
    car_names,
    car_rows,
    cifar_batch,
    lay_out_aircraft,
    lay_out_cars,
    lay_out_cifar10,
    lay_out_cifar100,
    lay_out_cub,
    lay_out_herbarium,
    lay_out_imagenet,
    lay_out_repackaged_cars,
    put,
    save_annotations,
)
from newkinds.data import load_table, source_of
from newkinds.data.published import BENCHMARKS, held_out
from newkinds.data.published.base import read_part, split_listing
from newkinds.data.published.cifar import unpickle_arrays
from newkinds.data.published.classes import read_class_list
from newkinds.data.splits import split_checksum
from newkinds.data.table import Skipped, Table, readable, without
from newkinds.errors import NewkindsError


def load(name: str, root: Path, **settings: object) -> Table:
    return load_table({"name": name, "root": str(root), **settings})


def truth_of(table: Table) -> list[str]:
    return [str(name) for name in table.truth or []]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All data sets under one root."""
    folder = tmp_path_factory.mktemp("datasets")
    for lay_out in LAYOUTS.values():
        lay_out(folder)
    return folder


def test_every_benchmark_has_a_miniature() -> None:
    assert set(LAYOUTS) == set(BENCHMARKS)


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_the_split_of_each(root: Path, name: str) -> None:
    table = load(name, root)
    classes = read_class_list(name)
    truth = truth_of(table)
    # the rule of the published loaders, written out
    known = set(table.known)
    candidates = [row for row, label in enumerate(truth) if label in known]
    drawn = np.random.RandomState(0).choice(len(candidates), len(candidates) // 2, replace=False)
    kept = {candidates[i] for i in drawn}
    assert [row for row, label in enumerate(table.labels) if label is not None] == sorted(kept)
    assert all(table.labels[row] == truth[row] for row in kept)
    assert len(table.known) == len(classes.known)
    assert table.categories == len(set(truth)) == len(classes.known) + len(classes.new)
    assert table.class_list == classes.label
    assert len(set(table.paths)) == len(table)
    assert table.open(0).mode == table.open(len(table) - 1).mode == "RGB"


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_held_out_images_have_truth_but_no_labels(root: Path, name: str) -> None:
    table, trained = held_out(name, str(root)), load(name, root)
    assert set(table.labels) == {None}
    assert set(truth_of(table)) == set(truth_of(trained))
    assert not set(table.paths) & set(trained.paths)
    assert table.known == trained.known
    assert table.open(0).mode == "RGB"


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_no_image_is_touched_before_it_is_opened(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:
        raise AssertionError(f"{path} was opened")

    monkeypatch.setattr("newkinds.data.published.base.open_image", refuse)
    monkeypatch.setattr("newkinds.data.folder.open_image", refuse)
    load(name, root)


# -- order: what makes the splits the published ones ----------------------------------------------------------


def test_cub_goes_by_image_number_and_class_list_order(tmp_path: Path) -> None:
    folder = lay_out_cub(tmp_path)
    before = load("cub", tmp_path)
    for name in ("images.txt", "classes.txt", "train_test_split.txt"):
        lines = (folder / name).read_text().splitlines()
        (folder / name).write_text("\n".join(reversed(lines)) + "\n")
    table = load("cub", tmp_path)
    assert table.paths == before.paths
    assert table.labels == before.labels
    assert table.paths[:2] == ["images/001.Bird_1/Bird_1_1.jpg", "images/001.Bird_1/Bird_1_2.jpg"]
    assert table.known[:3] == ["151.Bird_151", "071.Bird_71", "035.Bird_35"]  # the list begins 150, 70, 34


def test_aircraft_classes_are_sorted_variants_and_images_stay_in_file_order(root: Path) -> None:
    table = load("aircraft", root)
    assert table.paths[:2] == ["images/1000000.jpg", "images/1000001.jpg"]
    variants = sorted(set(truth_of(table)))
    assert variants[:3] == ["Plane 0-100", "Plane 1-101", "Plane 10-110"]
    assert table.known == [variants[number] for number in read_class_list("aircraft").known]


def test_class_folders_go_by_text_and_only_listed_classes_count(root: Path) -> None:
    herbarium = load("herbarium19", root)
    assert list(dict.fromkeys(truth_of(herbarium)))[:4] == ["0", "1", "10", "100"]
    imagenet = load("imagenet100", root)
    assert "n00000000" not in truth_of(imagenet)
    assert imagenet.known == sorted(imagenet.known)
    assert imagenet.paths[0] == "train/n01443537/n01443537_0.JPEG"


def test_other_files_in_class_folders_do_not_shift_the_split(tmp_path: Path) -> None:
    folder = lay_out_imagenet(tmp_path)
    before = load("imagenet100", tmp_path).fingerprint()
    put(folder / "train" / "n01443537" / "README.txt", "not an image")
    put(folder / "train" / "n01443537" / "._n01443537_0.JPEG", "left by a Mac")
    assert load("imagenet100", tmp_path).fingerprint() == before


def test_links_in_a_class_folder_bring_no_images_of_other_classes(tmp_path: Path) -> None:
    folder = lay_out_herbarium(tmp_path) / "small-train"
    before = load("herbarium19", tmp_path).fingerprint()
    (folder / "5" / "loop").symlink_to("..")
    (folder / "5" / "other").symlink_to(Path("..") / "6")
    (folder / "7").rename(tmp_path / "seven")  # a class folder, and a file, may be links
    (folder / "7").symlink_to(tmp_path / "seven")
    (folder / "8" / "0.jpg").rename(tmp_path / "eight.jpg")
    (folder / "8" / "0.jpg").symlink_to(tmp_path / "eight.jpg")
    assert load("herbarium19", tmp_path).fingerprint() == before


def test_cifar_pixels_and_batches_in_order(tmp_path: Path) -> None:
    folder = lay_out_cifar10(tmp_path)
    table = load("cifar10", tmp_path)
    second = pickle.loads((folder / "data_batch_2").read_bytes())
    assert truth_of(table)[20:40] == [f"thing {number}" for number in second["labels"]]
    pixels = np.asarray(table.open(23))
    assert (pixels == second["data"][3].reshape(3, 32, 32).transpose(1, 2, 0)).all()


# -- Stanford Cars in its two forms ---------------------------------------------------------------------------


def first_box_numbers(table: Table, rows: range) -> list[int]:
    """The layouts paint it."""
    return [round(float(np.asarray(table.open(row))[..., 0].mean())) for row in rows]


def test_repackaged_cars_with_the_devkit_are_put_into_its_order(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    devkit = load("cars", lay_out_cars(tmp_path / "a").parent)
    folder = lay_out_repackaged_cars(tmp_path / "b")
    annotations = tmp_path / "a" / "stanford_cars" / "devkit" / "cars_train_annos.mat"
    put(folder / "devkit" / annotations.name, annotations.read_bytes())
    capfd.readouterr()
    table = load("cars", folder.parent)
    assert "another order" not in capfd.readouterr().err
    assert table.paths[0].startswith("car_ims/")
    assert table.labels == devkit.labels
    assert truth_of(table) == truth_of(devkit)
    assert first_box_numbers(table, range(40)) == pytest.approx(first_box_numbers(devkit, range(40)), abs=2)


def test_repackaged_cars_alone_are_split_otherwise_and_that_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = lay_out_repackaged_cars(tmp_path)
    table = load("cars", tmp_path)
    error = capfd.readouterr().err
    assert "another order than the devkit" in error
    assert "not the published one" in error
    assert len(table) == 392
    assert len(held_out("cars", str(folder))) == 196


def test_a_devkit_of_other_images_is_noticed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = lay_out_repackaged_cars(tmp_path)
    other = [{**row, "bbox_y1": 3} for row in car_rows() if not row["test"]]
    save_annotations(folder / "devkit" / "cars_train_annos.mat", other)
    load("cars", tmp_path)
    assert "not those of the same images" in capfd.readouterr().err


# -- where a copy is ------------------------------------------------------------------------------------------


def test_found_by_the_environment_and_as_the_root_itself(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load("cub", root).fingerprint()
    assert load("cub", root / "CUB_200_2011").fingerprint() == expected
    monkeypatch.setenv("NEWKINDS_DATA", str(root))
    assert load_table({"name": "cub"}).fingerprint() == expected


def test_a_missing_set_says_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEWKINDS_DATA", raising=False)
    for name, benchmark in BENCHMARKS.items():
        with pytest.raises(NewkindsError, match="NEWKINDS_DATA") as nowhere:
            load_table({"name": name})
        with pytest.raises(NewkindsError, match=f"{benchmark.title} is not in") as elsewhere:
            load(name, tmp_path)
        for error in (nowhere, elsewhere):
            assert "https://" in str(error.value)
            assert "ROOT/" in str(error.value)
        assert benchmark.folders[0] in str(elsewhere.value)
    with pytest.raises(NewkindsError, match="there is no folder"):
        load("cub", tmp_path / "nowhere")


def test_two_copies_are_not_guessed_between(tmp_path: Path) -> None:
    lay_out_cifar10(tmp_path)
    second = lay_out_cifar10(tmp_path / "cifar10")
    with pytest.raises(NewkindsError, match="2 copies of CIFAR-10") as error:
        load("cifar10", tmp_path)
    assert str(second) in str(error.value)
    assert len(load("cifar10", second)) == 100


def test_a_link_is_not_a_second_copy(tmp_path: Path) -> None:
    folder = lay_out_cub(tmp_path)
    (tmp_path / "cub").symlink_to(folder)
    assert len(load("cub", tmp_path)) == 400


def test_a_data_sets_name_means_the_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "cub" / "a" / "a.jpg")
    monkeypatch.chdir(tmp_path)
    assert source_of("cub") == {"name": "cub"}
    assert source_of("./cub")["name"] == source_of(Path("cub"))["name"] == "folder"


# -- damaged copies -------------------------------------------------------------------------------------------


def replace_line(file: Path, line: int, text: str | None) -> None:
    lines = file.read_text().splitlines()
    lines[line - 1 : line] = [] if text is None else [text]
    file.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("file", "line", "text", "message"),
    [
        ("images.txt", 5, "broken", r"images\.txt line 5 is not a number and a text"),
        ("images.txt", 5, "² 002.Bird_2/Bird_2_1.jpg", r"images\.txt line 5 is not a number and a text"),
        ("images.txt", 5, f"{'9' * 5000} a.jpg", r"images\.txt line 5 is not a number and a text"),
        ("images.txt", 6, "5 001.Bird_1/Bird_1_0.jpg", r"images\.txt line 6 repeats the number 5 of line 5"),
        ("images.txt", 6, "6 002.Bird_2/Bird_2_1.jpg", r"images\.txt line 6 names .* as images\.txt line 5 does"),
        ("images.txt", 6, "6 003.Bird_3/Bird_3_1.jpg", r"labels\.txt line 6 gives the class 002.*images\.txt line 6"),
        ("image_class_labels.txt", 8, "8 999", r"image_class_labels\.txt line 8 gives the class '999'"),
        ("image_class_labels.txt", 8, "8 ²", r"image_class_labels\.txt line 8 gives the class '²'"),
        ("image_class_labels.txt", 8, None, r"image_class_labels\.txt says nothing of image 8 \(images\.txt line 8\)"),
        ("train_test_split.txt", 8, "8 2", r"train_test_split\.txt line 8 says '2'"),
        ("classes.txt", 200, None, "which classes.txt does not have"),
    ],
)
def test_damaged_cub(tmp_path: Path, file: str, line: int, text: str | None, message: str) -> None:
    folder = lay_out_cub(tmp_path)
    replace_line(folder / file, line, text)
    with pytest.raises(NewkindsError, match=message):
        load("cub", tmp_path)


def test_an_index_that_is_gone_or_no_text(tmp_path: Path) -> None:
    folder = lay_out_cub(tmp_path)
    (folder / "classes.txt").write_bytes(b"1 001.Bird_1\n\xff\xfe\x00")
    with pytest.raises(NewkindsError, match=r"classes\.txt line 2 is not text"):
        load("cub", tmp_path)
    (folder / "classes.txt").unlink()
    with pytest.raises(NewkindsError, match=r"cannot read .*classes\.txt: No such file"):
        load("cub", tmp_path)


def test_an_index_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    folder = lay_out_cub(tmp_path)
    before = load("cub", tmp_path).fingerprint()
    for name in ("images.txt", "classes.txt"):
        put(folder / name, b"\xef\xbb\xbf" + (folder / name).read_bytes())
    assert load("cub", tmp_path).fingerprint() == before
    put(folder / "images.txt", b"\xef\xbb\xbf1 a.jpg\n\xff")
    with pytest.raises(NewkindsError, match=r"images\.txt line 2 is not text"):
        load("cub", tmp_path)


def test_another_number_of_classes_is_another_data_set(tmp_path: Path) -> None:
    lay_out_cub(tmp_path, classes=199)
    with pytest.raises(NewkindsError, match="has 199 classes, but CUB-200-2011 has 200"):
        load("cub", tmp_path)


def test_images_the_index_names_in_vain_are_passed_over_with_the_line(tmp_path: Path) -> None:
    folder = lay_out_cub(tmp_path)
    (folder / "images/001.Bird_1/Bird_1_2.jpg").unlink()
    put(folder / "images/002.Bird_2/Bird_2_1.jpg", b"\xff\xd8 cut")
    whole = load("cub", tmp_path)
    table = readable(whole)
    reasons = {skipped.path: skipped.reason for skipped in table.skipped}
    assert reasons["images/001.Bird_1/Bird_1_2.jpg"] == "file not found (images.txt line 3)"
    assert "images.txt line 5" in reasons["images/002.Bird_2/Bird_2_1.jpg"]
    kept = dict(zip(table.paths, table.labels, strict=True))
    assert all(kept[path] == label for path, label in zip(whole.paths, whole.labels, strict=True) if path in kept)


def test_damaged_aircraft(tmp_path: Path) -> None:
    folder = lay_out_aircraft(tmp_path)
    index = folder / "images_variant_trainval.txt"
    replace_line(index, 4, "1000003 Zeppelin")
    with pytest.raises(NewkindsError, match=r"trainval\.txt line 4 gives the variant 'Zeppelin'"):
        load("aircraft", tmp_path)
    replace_line(index, 4, "1000003")
    with pytest.raises(NewkindsError, match=r"trainval\.txt line 4 gives the variant ''"):
        load("aircraft", tmp_path)
    index.write_text("".join(index.read_text().splitlines(keepends=True)[5:90]))  # cut
    with pytest.raises(NewkindsError, match=r"no training image of \d+ class"):
        load("aircraft", tmp_path)


def test_damaged_cars(tmp_path: Path) -> None:
    folder = lay_out_cars(tmp_path)
    annotations = folder / "devkit" / "cars_train_annos.mat"
    whole = annotations.read_bytes()
    annotations.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(NewkindsError, match=r"cars_train_annos\.mat is damaged"):
        load("cars", tmp_path)
    save_annotations(annotations, [{"class": 1, "bbox_x1": 0}])
    with pytest.raises(NewkindsError, match=r"cars_train_annos\.mat have no 'fname'"):
        load("cars", tmp_path)
    save_annotations(annotations, [{"fname": "a.jpg", "class": 1}, {"fname": "b.jpg", "class": 197}])
    with pytest.raises(NewkindsError, match=r"cars_train_annos\.mat entry 2 gives the class 197"):
        load("cars", tmp_path)
    rows = [{"fname": f"{i}.jpg", "class": row["class"]} for i, row in enumerate(car_rows()) if row["class"] != 7]
    save_annotations(annotations, rows)
    with pytest.raises(NewkindsError, match=r"no training image of 1 class.*'Car 7'"):
        load("cars", tmp_path)
    (folder / "devkit" / "cars_meta.mat").unlink()
    with pytest.raises(NewkindsError, match=r"no devkit/cars_meta\.mat or cars_meta\.mat in"):
        load("cars", tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("class", "7", "the class '7', which is not a whole number"),
        ("class", [1, 2], r"the class array\(\[1, 2\]\), which is not a whole number"),
        ("class", [], r"the class array\(\[\].*, which is not a whole number"),
        ("class", 2.5, "the class 2.5, which is not a whole number"),
        ("class", float("nan"), "the class nan, which is not a whole number"),
        ("class", 197.0, "the class 197, but there are 196 classes"),
        ("test", "no", "the test 'no', which is not a whole number"),
        ("bbox_x2", 1e300, r"the bbox_x2 1e\+300, which is not a whole number"),
        ("relative_im_path", 7, "the relative_im_path 7, which is not a text"),
    ],
)
def test_annotations_of_cars_that_are_of_another_kind(tmp_path: Path, field: str, value: object, said: str) -> None:
    folder = lay_out_repackaged_cars(tmp_path)
    rows = [{"relative_im_path": f"car_ims/{i:06d}.jpg", **row} for i, row in enumerate(car_rows(), start=1)]
    damaged = next(i for i, row in enumerate(rows) if i > 5 and not row["test"])
    assert any(row["test"] for row in rows[:damaged])  # entries are counted in the file, not among training images
    rows[damaged][field] = value
    save_annotations(folder / "cars_annos.mat", rows, class_names=car_names())
    with pytest.raises(NewkindsError, match=rf"cars_annos\.mat entry {damaged + 1} gives {said}"):
        load("cars", tmp_path)


def test_whole_numbers_of_cars_may_be_floating_point_ones(tmp_path: Path) -> None:
    folder = lay_out_cars(tmp_path)
    before = load("cars", tmp_path).fingerprint()
    rows = [{**row, "class": float(str(row["class"]))} for row in car_rows() if not row["test"]]
    rows = [{**row, "fname": f"{i:05d}.jpg"} for i, row in enumerate(rows, start=1)]
    save_annotations(folder / "devkit" / "cars_train_annos.mat", rows)
    assert load("cars", tmp_path).fingerprint() == before


def test_class_folders_that_do_not_match_the_list(tmp_path: Path) -> None:
    imagenet, herbarium = lay_out_imagenet(tmp_path), lay_out_herbarium(tmp_path)
    for file in (imagenet / "train" / "n01443537").iterdir():
        file.unlink()
    with pytest.raises(NewkindsError, match=r"no training image of 1 class.*n01443537"):
        load("imagenet100", tmp_path)
    (imagenet / "train" / "n01443537").rmdir()
    with pytest.raises(NewkindsError, match="lacks 1 of the 100 class folders, the first is n01443537"):
        load("imagenet100", tmp_path)
    put(herbarium / "small-train" / "plant" / "a.jpg")
    with pytest.raises(NewkindsError, match="has 684 classes, but Herbarium 19 has 683"):
        load("herbarium19", tmp_path)
    put(herbarium / "small-validation" / "moss" / "a.jpg")
    with pytest.raises(NewkindsError, match="has a class folder moss, which small-train does not have"):
        held_out("herbarium19", str(tmp_path))


# -- CIFAR batches --------------------------------------------------------------------------------------------


class Attack:
    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[object, ...]:
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path, protocol: int) -> None:
    folder = lay_out_cifar10(tmp_path)
    mark = tmp_path / "was here"
    content = {"data": Attack(os.system, f"touch '{mark}'"), "labels": [0]}
    put(folder / "data_batch_3", pickle.dumps(content, protocol=protocol))
    with pytest.raises(NewkindsError, match=r"data_batch_3 is refused: it would call \w+\.system"):
        load("cifar10", tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize("call", [eval, getattr, np.load, np.frombuffer])
def test_builtins_and_other_functions_of_numpy_are_refused(tmp_path: Path, call: Callable[..., object]) -> None:
    file = put(tmp_path / "batch", pickle.dumps(Attack(call, "1")))
    with pytest.raises(NewkindsError, match="is refused"):
        unpickle_arrays(file)


def test_a_batch_as_python_2_wrote_it(tmp_path: Path) -> None:
    pixels = bytes(range(256)) * 12
    batch = (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89T" + struct.pack("<i", len(pixels)) + pixels + b"tbU\x06labels](K\x03eu."
    )
    content = unpickle_arrays(put(tmp_path / "batch", batch))
    assert content["labels"] == [3]
    assert content["data"].shape == (1, 3072)
    assert content["data"].tobytes() == pixels


def test_damaged_cifar(tmp_path: Path) -> None:
    folder = lay_out_cifar10(tmp_path)
    batch = folder / "data_batch_4"
    whole = batch.read_bytes()
    for cut in (0, 100, len(whole) // 2, len(whole) - 1):
        batch.write_bytes(whole[:cut])
        with pytest.raises(NewkindsError, match="data_batch_4 is damaged or truncated"):
            load("cifar10", tmp_path)
    for content, message in (
        ({"labels": [1]}, "has no 'data'"),
        ([1, 2], "has no 'data'"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, "holds 2 images, but 1 labels"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": [10]}, "image 0 has the class 10"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": ["a"]}, "image 0 has the class 'a'"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": [True]}, "image 0 has the class True, not a number from 0"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": np.array([2.0])}, r"image 0 has the class 2\.0"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": np.array([[2]])}, r"image 0 has the class \[2\]"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": np.array(2)}, "has no list 'labels'"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": "2"}, "has no list 'labels'"),
        ({"data": np.zeros((1, 12), np.uint8), "labels": [1]}, "32×32 pixels"),
        ({"data": np.zeros((1, 3072)), "labels": [1]}, "32×32 pixels"),
    ):
        put(batch, pickle.dumps(content))
        with pytest.raises(NewkindsError, match=f"data_batch_4 .*{message}"):
            load("cifar10", tmp_path)
    batch.unlink()
    with pytest.raises(NewkindsError, match=r"cannot read .*data_batch_4: No such file"):
        load("cifar10", tmp_path)


def test_cifar_labels_may_be_an_array(tmp_path: Path) -> None:
    batch = lay_out_cifar10(tmp_path) / "data_batch_4"
    before = load("cifar10", tmp_path).fingerprint()
    content = pickle.loads(batch.read_bytes())
    put(batch, pickle.dumps({**content, "labels": np.array(content["labels"])}))
    assert load("cifar10", tmp_path).fingerprint() == before


def test_cifar100_without_test_images_is_used(tmp_path: Path) -> None:
    folder = lay_out_cifar100(tmp_path)
    (folder / "test").unlink()
    assert len(load("cifar100", tmp_path)) == 400
    with pytest.raises(NewkindsError, match=r"cannot read .*test"):
        held_out("cifar100", str(tmp_path))
    put(folder / "train", cifar_batch(400, 100, "coarse_labels"))
    with pytest.raises(NewkindsError, match="has no 'fine_labels'"):
        load("cifar100", tmp_path)


# -- settings -------------------------------------------------------------------------------------------------


def test_fraction_and_seed(root: Path) -> None:
    table = load("cifar10", root, fraction=0.2, split_seed=3)
    assert sum(label is not None for label in table.labels) == 10
    assert table.fingerprint() != load("cifar10", root, fraction=0.2, split_seed=4).fingerprint()
    with pytest.raises(NewkindsError, match="seed of a split"):
        load("cifar10", root, split_seed=-1)


NOT_ALL_OF_CUB = "this copy lists 400 training images instead of 5,994"


def test_some_classes(root: Path) -> None:
    whole, part = load("cub", root), load("cub", root, classes=20)
    assert len(part.known) == len(set(part.truth or []) - set(part.known)) == 10
    assert set(part.known) < set(whole.known)
    assert part.known[0] == whole.known[0]  # spread over the published list, not its beginning alone
    assert whole.known.index(part.known[-1]) == 90
    assert part.categories == 20
    assert part.caveat == f"only 20 of its 200 classes are taken, and {NOT_ALL_OF_CUB}"
    of_whole = dict(zip(whole.paths, whole.labels, strict=True))
    assert part.labels == [of_whole[path] for path in part.paths]
    assert len(part) == 40
    test = held_out("cub", str(root), classes=20)
    assert set(test.truth or []) == set(part.truth or [])
    assert test.known == part.known


def test_settings_are_chosen_on_what_is_labelled(root: Path) -> None:
    whole, part = load("cub", root), load("cub", root, tune=True)
    of_whole = dict(zip(whole.paths, whole.labels, strict=True))
    assert part.paths == [path for path, label in of_whole.items() if label is not None]
    assert part.truth == [of_whole[path] for path in part.paths]
    assert set(part.known) < set(whole.known)
    assert part.categories == len(set(part.truth))
    assert part.class_list is None


@pytest.mark.parametrize("classes", [0, -2, 7, 202])
def test_no_such_number_of_classes(root: Path, classes: int) -> None:
    with pytest.raises(NewkindsError, match=rf"data.classes={classes}: give an even number up to 200"):
        load("cub", root, classes=classes)


@pytest.mark.parametrize(
    ("name", "settings", "caveat"),
    [
        ("cub", {}, NOT_ALL_OF_CUB),
        ("herbarium19", {}, "341 labelled and 1,025 unlabelled images instead of 8.9k and 25.4k"),
        ("cub", {"split_seed": 1}, "it is drawn with fraction 0.5 and split_seed 1 instead of 0.5 and 0"),
    ],
)
def test_a_split_that_is_not_the_published_one_says_so(
    root: Path, capfd: pytest.CaptureFixture[str], name: str, settings: dict[str, int], caveat: str
) -> None:
    table = load(name, root, **settings)
    assert table.caveat == table.rows([0, 1]).caveat == caveat
    assert f"{caveat}. The split is not the published one" in capfd.readouterr().err


def test_a_split_is_held_against_what_is_known_of_the_published_one(root: Path) -> None:
    cub = replace(BENCHMARKS["cub"], images={"train": 400, "test": 200}, published=("0.1k", "0.3k"), checksum=None)
    listing, classes = read_part(cub, root / "CUB_200_2011", "train")
    split = split_listing(cub, listing, classes)
    assert split.caveat == ""
    assert split_listing(replace(cub, checksum=split_checksum(split)), listing, classes).caveat == ""
    other = split_listing(replace(cub, checksum="0123456789abcdef"), listing, classes)
    assert other.caveat == f"its images or labels have the checksum {split_checksum(split)}, not 0123456789abcdef"
    assert without(split, {7: Skipped(split.paths[7], "gone")}).caveat == "1 of 400 images cannot be read"
