"""Data sets that a program has loaded."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import FakeData

import newkinds
from newkinds.data import load_table, source_of
from newkinds.data.loaded import named_data, write_files
from newkinds.data.table import Table
from newkinds.errors import NewkindsError


def table_of(dataset: Any, folder: Path) -> Table:
    return load_table(source_of(write_files(dataset, folder)))


class SomeUnlabelled(FakeData):
    """Of three classes, of which the last has no label."""

    classes = ("ant", "bee", "-")

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        image, target = super().__getitem__(row)
        number = int(target)
        return image, number if number < 2 else -1


def test_a_data_set_of_torchvision_becomes_files_with_its_labels(tmp_path: Path) -> None:
    dataset = SomeUnlabelled(12, (3, 32, 32), 3)
    table = table_of(dataset, tmp_path / "images")
    for row in range(12):
        image, target = dataset[row]
        assert np.array_equal(np.asarray(table.open(row)), np.asarray(image))
        assert table.labels[row] == (None if target == -1 else dataset.classes[target])
    assert table.known == ["ant", "bee"]
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "images").glob("*.png")}
    write_files(dataset, tmp_path / "images")
    assert before == {file: file.stat().st_mtime_ns for file in (tmp_path / "images").glob("*.png")}


class ClassLabel:
    names = ("oak", "elm")


Image_ = type("Image", (), {})  # the name that the hub's own type has


class OfTheHub:
    """A stand-in for `datasets.Dataset`."""

    def __init__(self, **more: Any) -> None:
        self.features = {"picture": Image_(), "kind": ClassLabel(), "note": object(), **more}
        self.column_names = list(self.features)
        self.kinds = [0, 1, None, -1]

    def __len__(self) -> int:
        return len(self.kinds)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"picture": Image.new("L", (20, 20), 10 * row), "kind": self.kinds[row], "note": "n"}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[row] for row in range(len(self)))


def test_a_data_set_of_the_hub_becomes_files_with_its_labels(tmp_path: Path) -> None:
    table = table_of(OfTheHub(), tmp_path / "images")
    assert table.labels == ["oak", "elm", None, None]
    assert np.asarray(table.open(2)).max() == 20
    with pytest.raises(NewkindsError, match="2 and 1"):
        write_files(OfTheHub(thumbnail=Image_()), tmp_path / "more")


class NotDecoded(OfTheHub):
    """Rows have the files' bytes, as with `datasets.Image(decode=False)`; the last is no image."""

    def __getitem__(self, row: int) -> dict[str, Any]:
        content = io.BytesIO()
        super().__getitem__(row)["picture"].save(content, "PNG")
        return {"picture": {"bytes": content.getvalue() if row < 3 else b"no image"}, "kind": self.kinds[row]}


def test_bytes_of_the_hub_are_opened_as_files_are(tmp_path: Path) -> None:
    good = NotDecoded()
    good.kinds = good.kinds[:3]
    table = table_of(good, tmp_path / "images")
    assert np.asarray(table.open(2)).max() == 20
    with pytest.raises(NewkindsError, match=r"cannot be used: .*leave its row out"):
        write_files(NotDecoded(), tmp_path / "bad")


def test_the_real_data_set_of_the_hub_is_read_too(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=["oak", "elm"]))
    images = [Image.new("RGB", (20, 20), (10 * row, 0, 0)) for row in range(3)]
    dataset = datasets.Dataset.from_dict({"image": images, "label": [1, 0, -1]}, features)
    table = table_of(dataset, tmp_path / "images")
    assert table.labels == ["elm", "oak", None]
    assert np.asarray(table.open(1)).max() == 10


def test_what_is_no_data_set_of_pictures_is_refused_with_a_reason(tmp_path: Path) -> None:
    tensors = FakeData(2, (3, 32, 32), 2, transform=lambda image: torch.zeros(3, 32, 32))
    with pytest.raises(NewkindsError, match="leave out its transform"):
        write_files(tensors, tmp_path / "a")
    with pytest.raises(NewkindsError, match="row 0 of list is not"):
        write_files([3, 4], tmp_path / "b")
    with pytest.raises(NewkindsError, match="say where to write"):
        named_data(FakeData(2), None)
    assert named_data("creatures", None) == "creatures"


def test_a_run_is_trained_on_it_and_resumed(tmp_path: Path) -> None:
    dataset = SomeUnlabelled(24, (3, 32, 32), 3)
    small = {"backbone": {"name": "tiny"}, "method": {"projection_hidden": 16}, "train": {"epochs": 1, "batch_size": 8}}
    for _ in range(2):
        found = newkinds.discover(dataset, tmp_path / "run", k=3, settings=small)
        assert len(found.members) == 24
    assert (tmp_path / "run-images" / "list.csv").is_file()
