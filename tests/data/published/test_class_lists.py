"""Known and new classes against the published lists."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import timm.data

from newkinds.data.published import BENCHMARKS, classes
from newkinds.data.published.classes import read_class_list
from newkinds.errors import NewkindsError

PUBLISHED = json.loads((Path(__file__).parents[2] / "numbers" / "class_lists.json").read_text())


def described(numbers: list[int]) -> list[object]:
    return [len(numbers), hashlib.sha256(np.array(numbers, dtype="<i8").tobytes()).hexdigest()]


@pytest.mark.parametrize("name", ["cub", "cars", "aircraft", "herbarium19"])
def test_lists_are_the_published_ones_in_the_published_order(name: str) -> None:
    found = read_class_list(name)
    assert described(found.known) == PUBLISHED[name]["known"]
    assert described(found.new) == PUBLISHED[name]["new"]


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_every_class_is_known_or_new(name: str) -> None:
    found = read_class_list(name)
    assert sorted(found.known + found.new) == list(range(len(found.known) + len(found.new)))


def test_ranges_and_draws_derived_again() -> None:
    assert read_class_list("cifar10").known == list(range(5))
    assert read_class_list("cifar100").known == list(range(80))
    drawn = np.random.RandomState(0).choice(683, 341, replace=False).tolist()
    assert read_class_list("herbarium19").known == drawn
    assert read_class_list("herbarium19").new == sorted(set(range(683)) - set(drawn))


def test_imagenet100_by_the_sorted_names_of_imagenet() -> None:
    chosen = np.sort(np.random.RandomState(0).choice(1000, 100, replace=False))
    assert described(chosen.tolist()) == PUBLISHED["imagenet100_indices"]
    names = sorted(timm.data.ImageNetInfo("imagenet-1k").label_names())
    assert read_class_list("imagenet100").class_names == [names[i] for i in chosen]
    assert read_class_list("imagenet100").known == list(range(50))


def test_the_documentation_names_every_data_set_with_its_checksums() -> None:
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")
    for name, benchmark in BENCHMARKS.items():
        files, split = [line for line in page.splitlines() if line.startswith(f"| `{name}`")]
        assert f"ROOT/{benchmark.folders[0]}/" in files
        assert f"`{read_class_list(name).label.split()[1]}`" in split
        assert benchmark.checksum is None or f"`{benchmark.checksum}`" in split


def test_a_changed_list_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (classes.FOLDER / "cub.json").read_text()
    (tmp_path / "cub.json").write_text(text.replace("150, 70", "70, 150", 1))
    monkeypatch.setattr(classes, "FOLDER", tmp_path)
    with pytest.raises(NewkindsError, match=r"cub\.json was changed"):
        read_class_list("cub")
