"""The published data sets in their owners' layouts, whole and damaged, as miniature copies."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from layouts import (
    LAYOUTS,
    car_rows,
    lay_out_cars,
    lay_out_cifar10,
    lay_out_cub,
    lay_out_herbarium,
    lay_out_imagenet,
    lay_out_repackaged_cars,
    load,
    put,
    save_annotations,
)
from newkinds.data import load_table, source_of
from newkinds.data.published import BENCHMARKS, load_test_images
from newkinds.data.published.base import read_part, split_listing
from newkinds.data.published.classes import read_class_list
from newkinds.data.splits import split_checksum
from newkinds.data.table import Skipped, Table, leave_out
from newkinds.errors import NewkindsError


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
    table, trained = load_test_images(name, str(root)), load(name, root)
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
    monkeypatch.setattr("newkinds.data.folder.open_part", refuse)
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
    assert len(load_test_images("cars", str(folder))) == 196


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
    test = load_test_images("cub", str(root), classes=20)
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
    assert leave_out(split, {7: Skipped(split.paths[7], "gone")}).caveat == "1 of 400 images cannot be read"
