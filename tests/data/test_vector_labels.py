"""Lists of labels for vectors that could be read in two ways: by name, by number, or refused; never by a guess."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from newkinds.data.vectors import read_labels, read_vectors, row_names, true_table
from newkinds.errors import NewkindsError

CLASSES = ["cat", "dog", "cat", "owl", "dog", "owl"]


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32))
    return str(tmp_path / "x.npy")


def labels_file(folder: Path, header: str, lines: list[str]) -> Path:
    file = folder / "labels.csv"
    file.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return file


@pytest.mark.parametrize("column", ["name", "path"])
def test_our_own_names_say_which_row_in_any_order(tmp_path: Path, vectors: str, column: str) -> None:
    lines = [f"{name},{label}" for name, label in zip(row_names(6), CLASSES, strict=True)]
    file = labels_file(tmp_path, f"{column},label", lines[::-1])
    table = read_vectors(vectors, str(file))
    assert table.labels == CLASSES
    assert table.paths == row_names(6)
    some = labels_file(tmp_path, f"{column},label", lines[4:1:-1])  # those that are not listed have no label
    assert read_vectors(vectors, str(some)).labels == [None, None, *CLASSES[2:5], None]


@pytest.mark.parametrize("name", ["row-6", "row-00006", "row_0", "Row 3", "cat-1"])
def test_names_that_are_nearly_ours_are_refused(tmp_path: Path, name: str) -> None:
    file = labels_file(tmp_path, "name,label", ["row-00000,cat", f"{name},dog", *["row-00001,cat"] * 4])
    with pytest.raises(NewkindsError, match=f"line 3: there is no '{name}'; rows are called row-00000 to row-00005"):
        read_labels(file, 6)


def test_a_line_without_its_name_is_refused(tmp_path: Path) -> None:
    file = labels_file(tmp_path, "name,label", ["row-00002,cat", ",dog"])
    with pytest.raises(NewkindsError, match="line 3 has no name"):
        read_labels(file, 6)


@pytest.mark.parametrize("listed", [[1, 2, 3, 4, 5], [1, 2], [5, 1, 2, 3]])
def test_rows_that_are_probably_numbered_from_one_are_refused(tmp_path: Path, listed: list[int]) -> None:
    file = labels_file(tmp_path, "row,label", [f"{row},cat" for row in listed])
    with pytest.raises(
        NewkindsError, match=r"labels.csv lists \d rows, but not row 0.*subtract 1.*add a line for row 0"
    ):
        read_labels(file, 6)
    file = labels_file(tmp_path, "row,label", ["0,", *(f"{row},cat" for row in listed)])
    assert read_labels(file, 6).labels[0] is None


def test_a_few_rows_without_the_first_are_mentioned(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert read_labels(labels_file(tmp_path, "row,label", ["4,cat", "2,dog"]), 6).labels[4] == "cat"
    assert "rows are numbered from 0, and row 0 is not listed" in capfd.readouterr().err


@pytest.mark.parametrize("column", ["id", "index", "", "number"])
def test_a_column_of_numbers_in_another_order_is_refused(tmp_path: Path, column: str) -> None:
    lines = [f"{number},{label}" for number, label in zip([3, 1, 2, 0, 5, 4], CLASSES, strict=True)]
    with pytest.raises(NewkindsError, match=f"has a column '{column}' whose numbers are in another order.*call it row"):
        read_labels(labels_file(tmp_path, f"{column},label", lines), 6)


def test_a_column_of_numbers_in_order_is_mentioned(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = labels_file(tmp_path, "id,label", [f"{number},{label}" for number, label in enumerate(CLASSES, 1)])
    assert read_labels(file, 6).labels == CLASSES
    assert "ignoring the columns 'id'" in (said := capfd.readouterr().err)
    assert "line i is taken as vector i" in said


@pytest.mark.parametrize("text", ["nan", "None", "unlabeled", "-1", "unknown"])
def test_words_that_mean_no_label_are_none(tmp_path: Path, text: str) -> None:
    assert read_labels(labels_file(tmp_path, "label", ["cat", text, "dog"]), 3).labels == ["cat", None, "dog"]


def test_two_spellings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match=r"'Cat' \(1\) and 'cat' \(1\) differ only in capitals"):
        read_labels(labels_file(tmp_path, "label", ["Cat", "cat", "dog"]), 3)
    with pytest.raises(NewkindsError, match="differ only in"):
        read_labels(labels_file(tmp_path, "label,truth", ["1,1", ",01", "2,2"]), 3)


def test_a_truth_that_contradicts_itself_is_refused(tmp_path: Path, vectors: str) -> None:
    data = {"path": vectors, "labels": None}
    file = labels_file(tmp_path, "name,label", ["row-00001,cat", "row-00002,dog", "row-00001,dog"])
    with pytest.raises(NewkindsError, match="line 4 gives 'row-00001' the class 'dog', line 2 'cat': delete one"):
        true_table(data, file)
    file = labels_file(tmp_path, "name,label", ["row-00001,cat", "row-00001,cat", "row-00000,nan"])
    table = true_table(data, file)
    assert dict(zip(table.paths, table.labels, strict=True)) == {"row-00001": "cat", "row-00000": None}


@pytest.mark.parametrize("factors", [[1, 1, 1, 1], [1, 2, 3, 0.5], [1, 0, 1, 1]])
def test_vectors_of_one_direction_are_refused(tmp_path: Path, factors: list[float]) -> None:
    vectors = np.outer(factors, np.random.default_rng(0).standard_normal(8)).astype(np.float32)
    np.save(tmp_path / "x.npy", vectors)
    with pytest.raises(NewkindsError, match=r"all \d vectors are equal, or multiples of each other"):
        read_vectors(str(tmp_path / "x.npy"))


def test_vectors_that_are_mostly_copies_are_mentioned(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    vectors = np.ones((20, 8), np.float32)
    vectors[:5] = np.random.default_rng(0).standard_normal((5, 8))
    np.save(tmp_path / "x.npy", vectors)
    assert len(read_vectors(str(tmp_path / "x.npy"))) == 20
    assert "of 20 vectors only 6 differ from all others" in capfd.readouterr().err
