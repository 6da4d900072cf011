"""Ready-made vectors in a NumPy file: what is read, what their labels may look like, and what is refused in words."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from newkinds.data import load_table, source_of
from newkinds.data.images import BadImage
from newkinds.data.table import Table, readable
from newkinds.data.vectors import open_vectors, read_labels, table_of_vectors, true_table
from newkinds.errors import NewkindsError

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "vectors.npy", X)
    return tmp_path


def labelled(folder: Path, text: str, **options: Any) -> Table:
    (folder / "labels.csv").write_text(text, encoding="utf-8")
    section = source_of(folder / "vectors.npy")
    return load_table({**section, "labels": str(folder / "labels.csv"), **options})


# -- vectors ---------------------------------------------------------------------------------------------------------


def test_a_file_of_vectors_is_a_table_of_rows_without_pictures(folder: Path) -> None:
    table = load_table(source_of(str(folder / "vectors.npy")))
    assert table.paths == [f"row-0000{i}" for i in range(6)]
    assert table.labels == [None] * 6
    assert table.vectors is not None
    assert np.array_equal(table.vectors, X)
    some = table.rows([4, 1])
    assert np.array_equal(some.vectors, X[[4, 1]])
    with pytest.raises(BadImage, match="no picture"):
        some.open(0)


def test_what_a_row_holds_is_remembered(folder: Path) -> None:
    before = readable(load_table(source_of(folder / "vectors.npy")), contents=True).contents
    changed = X.copy()
    changed[2, 3] += 1e-6
    np.save(folder / "vectors.npy", changed)
    after = readable(load_table(source_of(folder / "vectors.npy")), contents=True).contents
    assert before is not None
    assert after is not None
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, True, False, True, True, True]


@pytest.mark.parametrize("kind", ["<f2", ">f4", "<f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_any_floating_type_and_order_can_be_read(tmp_path: Path, kind: str, order: Any) -> None:
    from newkinds.data.loader import ReadyVectors

    np.save(tmp_path / "v.npy", np.asarray(X.astype(kind), order=order))
    store = ReadyVectors.of(load_table(source_of(tmp_path / "v.npy")))
    assert store is not None
    values = store.inputs(np.array([5, 0]), np.zeros(2, np.int64)).values
    unit = X[[5, 0]] / np.linalg.norm(X[[5, 0]], axis=1, keepdims=True)
    assert values.shape == (2, 1, 4)
    assert np.allclose(values[:, 0].numpy(), 2 * unit, atol=2e-3)  # as long as a norm of 4 numbers makes tokens: √4


def test_a_vector_of_zeros_is_skipped(tmp_path: Path) -> None:
    vectors = X.copy()
    vectors[3] = 0
    np.save(tmp_path / "v.npy", vectors)
    table = load_table(source_of(tmp_path / "v.npy"))
    assert len(table) == 5
    assert [skipped.path for skipped in table.skipped] == ["row-00003"]


def pickled() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def saved(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


with_nan = np.where(np.arange(24).reshape(6, 4) == 13, np.nan, X)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pickled(), "Python objects, which are never loaded"),
        (saved(np.zeros((2, 3, 4))), r"shape \(2, 3, 4\)"),
        (saved(np.zeros(5)), r"shape \(5,\)"),
        (saved(np.zeros((5, 0))), "vectors"),
        (saved(np.zeros((0, 5))), "vectors"),
        (saved(np.zeros((5, 3), int)), r"int64, not floating numbers: save it by np\.save"),
        (saved(np.zeros((5, 3), complex)), "complex128, not floating"),
        (saved(np.array([["a", "b"]])), "not floating numbers"),
        (saved(np.zeros(3, [("x", "f4"), ("y", "f4")])), "shape"),
        (saved(with_nan), r"in 1 of 6 rows \(3\)"),
        (saved(np.full((8, 2), np.inf)), r"in 8 of 8 rows \(0, 1, 2, 3, 4, …\)"),
        (saved(X * np.float64(1e120)), "too large"),
        (saved(X)[:-5], "no table of vectors"),
        (b"", "no table of vectors"),
        (b"PK\x03\x04 an npz file", "no table of vectors"),
        (b"row,label\n0,cat\n", "no table of vectors"),
    ],
)
def test_what_is_no_table_of_vectors_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "bad.npy"
    file.write_bytes(content)
    with pytest.raises(NewkindsError, match=said):
        open_vectors(file)


def test_a_pickle_is_never_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "exploded",))

    array = np.empty(1, dtype=object)
    array[0] = Bomb()
    np.save(tmp_path / "bomb.npy", array, allow_pickle=True)
    with pytest.raises(NewkindsError, match="never loaded"):
        open_vectors(tmp_path / "bomb.npy")
    assert not (tmp_path / "exploded").exists()


def test_other_files_and_missing_ones(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"")
    with pytest.raises(NewkindsError, match=r"nor are these vectors in an \.npy file"):
        source_of(tmp_path / "x.npz")
    with pytest.raises(NewkindsError, match="No such file"):
        open_vectors(tmp_path / "none.npy")


def test_rows_of_several_files_are_told_apart(folder: Path) -> None:
    np.save(folder / "more.npy", X[:2].astype(np.float64))
    names = [str(folder / "vectors.npy"), str(folder / "more.npy"), str(folder / "more.npy")]
    table = table_of_vectors(names, 4)
    assert len(table) == 8
    assert table.paths[6] == f"{names[1]} row-00000"
    with pytest.raises(NewkindsError, match="vectors of 4 numbers, those of the run have 5"):
        table_of_vectors(names, 5)


# -- labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "row,label\n4,dog\n0,cat\n",
        "label\ncat\n\n\n\ndog\n\n",
        'label\ncat\n""\n""\n""\ndog\n""\n',
        "label\ncat\n-1\n-1\n-1\ndog\n-1\n\n\n",
        "\ufeffLabel;Row\ncat;0\ndog;4\n;5\n",
    ],
)
def test_labels_by_row_or_one_for_each(folder: Path, text: str) -> None:
    table = labelled(folder, text)
    assert table.labels == ["cat", None, None, None, "dog", None]
    assert table.paths[4] == "row-00004"
    assert table.truth is None


def test_names_and_truth(folder: Path) -> None:
    names = ["a", "b b", "<script>", "d", "../e", "f"]
    rows = "".join(f"{name},{'cat' if i == 2 else ''},{'cat' if i < 3 else 'dog'}\n" for i, name in enumerate(names))
    table = labelled(folder, "name,label,truth\n" + rows)
    assert table.paths == names
    assert table.labels == [None, None, "cat", None, None, None]
    assert table.truth == ["cat"] * 3 + ["dog"] * 3
    some = labelled(folder, "row,path,label\n3,the third,dog\n")
    assert some.paths[2:4] == ["row-00002", "the third"]
    half = labelled(folder, "label\n" + "cat\ncow\ndog\n" * 2, known=0.5, split_seed=1)
    assert half.known == ["cat"]
    assert half.truth == ["cat", "cow", "dog"] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("row,label\n6,cat\n", "line 2: there is no row '6', the 6 vectors are numbered from 0 to 5"),
        ("row,label\n-1,cat\n", "there is no row '-1'"),
        ("row,label\n1.0,cat\n", r"there is no row '1\.0'"),
        ("row,label\n²,cat\n", "there is no row '²'"),
        ("row,label\n1,cat\n2,dog\n1,dog\n", "line 4 is about row 1, as line 2 is"),
        ("label\ncat\ndog\n", "2 lines after the first, but there are 6 vectors"),
        ("label\n" + "cat\n" * 7, "7 lines after the first"),
        ("name,label\n" + "x,cat\n" * 6, "two rows are called 'x'"),
        ("row,name,label\n1,row-00000,cat\n", "line 2 is about row 1, but is called row-00000"),
        ("row,class\n1,cat\n", r"no column 'label' \(it has: row, class\)"),
        ("cat\ndog\n", "no column 'label'"),
        ("row,label\n1,cat,dog\n", "line 2 has more fields than columns"),
        ("", "is empty"),
    ],
)
def test_labels_that_do_not_fit(folder: Path, text: str, said: str) -> None:
    with pytest.raises(NewkindsError, match=said):
        labelled(folder, text)


def test_a_truth_by_row_gets_the_names_of_the_run_and_one_by_name_may_be_in_any_order(folder: Path) -> None:
    vectors = X.copy()
    vectors[1] = 0  # is skipped, in both
    np.save(folder / "vectors.npy", vectors)
    (folder / "labels.csv").write_text("name,label\n" + "".join(f"n{i},{'k' if i == 0 else ''}\n" for i in range(6)))
    data = {"path": str(folder / "vectors.npy"), "labels": str(folder / "labels.csv")}
    (folder / "truth.csv").write_text("label\n" + "".join(f"t{i}\n" for i in range(6)))
    by_row = true_table(data, folder / "truth.csv")
    assert dict(zip(by_row.paths, by_row.labels, strict=True)) == {f"n{i}": f"t{i}" for i in (0, 2, 3, 4, 5)}
    (folder / "truth.csv").write_text("name,label\nn5,t5\nn2,t2\n")
    by_name = true_table(data, folder / "truth.csv")
    assert dict(zip(by_name.paths, by_name.labels, strict=True)) == {"n5": "t5", "n2": "t2"}


def test_unknown_columns_are_mentioned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "labels.csv").write_text("row,label,colour\n1,cat,red\n")
    assert read_labels(folder / "labels.csv", 6).labels[1] == "cat"
    assert "ignoring the columns 'colour'" in capsys.readouterr().err
