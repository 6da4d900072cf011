"""CIFAR's batches are pickles: read as they were written, refused where they would run code, whole or not at all."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from layouts import cifar_batch, lay_out_cifar10, lay_out_cifar100, load, put
from newkinds.data.published import load_test_images
from newkinds.data.published.cifar import unpickle_arrays
from newkinds.errors import NewkindsError


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
        load_test_images("cifar100", str(tmp_path))
    put(folder / "train", cifar_batch(400, 100, "coarse_labels"))
    with pytest.raises(NewkindsError, match="has no 'fine_labels'"):
        load("cifar100", tmp_path)
