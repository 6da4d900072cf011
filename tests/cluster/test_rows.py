"""Points on the disk: clustered a block at a time, as if they were in memory, and without ever being there."""

import numpy as np
import pytest
import torch

from blobs import blobs
from newkinds.cluster import (
    BalancedSemiSupervisedKMeans,
    KMeans,
    SemiSupervisedKMeans,
    Shards,
    Ward,
    neighbours,
    rows,
    ward,
)
from newkinds.cluster.points import as_rows
from newkinds.errors import NewkindsError

ESTIMATORS = {
    "k-means": lambda: KMeans(7, 3, random_state=0),
    "labelled": lambda: SemiSupervisedKMeans(7, 3, random_state=0),
    "balanced": lambda: BalancedSemiSupervisedKMeans(7, 3, random_state=0),
    "as published": lambda: BalancedSemiSupervisedKMeans(7, 3, random_state=0, published_behaviour=True),
}


@pytest.fixture
def points():
    """400 points that overlap, and labels for half of three classes."""
    X, truth = blobs(n=400, clusters=7, spread=1.5)
    return X.astype(np.float32), np.where((truth < 3) & (np.arange(400) % 2 == 0), truth, -1)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 37 points, of which none are kept."""
    monkeypatch.setattr(rows, "NUMBERS_AT_ONCE", 37 * 8)
    return lambda: monkeypatch.setattr(rows, "HELD", 0)


def on_disk(X, tmp_path):
    np.save(tmp_path / "points.npy", X)
    return np.load(tmp_path / "points.npy", mmap_mode="r")


def in_shards(X, tmp_path):
    cuts = [X[:100], X[100:100], X[100:101], X[101:]]  # an empty one too
    for number, part in enumerate(cuts):
        np.save(tmp_path / f"{number}.npy", part)
    return Shards([tmp_path / "0.npy", tmp_path / "1.npy", cuts[2], tmp_path / "3.npy"])


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("kept", [on_disk, in_shards])
def test_the_same_bits_as_in_memory(name, kept, points, small_blocks, tmp_path):
    X, y = points
    expected = ESTIMATORS[name]().fit(X, y)
    small_blocks()
    stored = kept(X, tmp_path)
    got = ESTIMATORS[name]().fit(stored, y)
    np.testing.assert_array_equal(got.labels_, expected.labels_)
    np.testing.assert_array_equal(got.cluster_centers_, expected.cluster_centers_)
    assert got.inertia_ == expected.inertia_
    assert got.n_iter_ == expected.n_iter_
    np.testing.assert_array_equal(got.predict(stored), expected.predict(X))


def test_the_size_of_blocks_changes_no_more_than_the_rounding(points, small_blocks, monkeypatch):
    X, y = points
    small = SemiSupervisedKMeans(7, 3, random_state=0).fit(X, y)
    monkeypatch.undo()
    whole = SemiSupervisedKMeans(7, 3, random_state=0).fit(X, y)
    np.testing.assert_array_equal(small.labels_, whole.labels_)
    np.testing.assert_allclose(small.cluster_centers_, whole.cluster_centers_, rtol=0, atol=1e-6)


def test_a_coarse_tree_of_points_on_the_disk(points, small_blocks, tmp_path, monkeypatch):
    X, _ = points
    monkeypatch.setattr(ward, "POINTS_FOR_SCIPY", 10)
    monkeypatch.setattr(ward, "EXACT", 50)
    monkeypatch.setattr(ward, "GRAINS", 60)
    expected = Ward().fit(X).linkage_
    small_blocks()
    np.testing.assert_array_equal(Ward().fit(in_shards(X, tmp_path)).linkage_, expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_numbers_are_converted_block_by_block(dtype, points, small_blocks, tmp_path):
    X, y = points
    expected = SemiSupervisedKMeans(7, 3, random_state=0).fit(X.astype(dtype), y)
    small_blocks()
    got = SemiSupervisedKMeans(7, 3, random_state=0).fit(on_disk(X.astype(dtype), tmp_path), y)
    np.testing.assert_array_equal(got.cluster_centers_, expected.cluster_centers_)
    assert got.cluster_centers_.dtype == (np.float64 if dtype == np.float64 else np.float32)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_more_than_a_block_is_ever_read(name, points, small_blocks, tmp_path, monkeypatch):
    X, y = points
    small_blocks()
    monkeypatch.setattr(neighbours, "NUMBERS_AT_ONCE", 50 * 8)
    read, original = [], rows.Rows._read

    def noted(self, some, held):
        block = original(self, some, held)
        read.append(len(block))
        return block

    monkeypatch.setattr(rows.Rows, "_read", noted)
    ESTIMATORS[name]().fit(on_disk(X, tmp_path), y)
    assert sum(read) > 20 * len(X)  # they are read again and again,
    assert max(read) <= 50  # never many at once


def test_rows_are_chosen_and_shifted_when_they_are_read(points, tmp_path):
    X, _ = points
    some = as_rows(in_shards(X, tmp_path)).less(torch.ones(8))
    mask = torch.arange(400) % 3 == 0
    np.testing.assert_array_equal(some[mask].whole(), X[::3] - 1)
    np.testing.assert_array_equal(some[mask][torch.tensor([0, 5])].whole(), X[[0, 15]] - 1)
    np.testing.assert_allclose(some.mean(), X.mean(axis=0) - 1, atol=1e-6)


def test_blocks_share_memory_but_not_while_two_are_looked_at(points, small_blocks, tmp_path):
    X, _ = points
    some = as_rows(on_disk(X, tmp_path))
    inner = some[torch.arange(400) >= 0]
    for outer_block, start in zip(some.split(), range(0, 400, 37), strict=True):
        np.testing.assert_array_equal(torch.cat([block.clone() for block in inner.split()]), X)
        np.testing.assert_array_equal(outer_block, X[start : start + 37])  # not overwritten meanwhile
    places = {block.data_ptr() for _ in range(3) for block in some.split()}
    assert len(places) == 1


def test_what_cannot_be_clustered_is_named(points, tmp_path):
    X, _ = points
    with pytest.raises(NewkindsError, match=r"same width, not \(400, 8\), \(400, 5\)"):
        Shards([X, X[:, :5]])
    with pytest.raises(NewkindsError, match="none at all"):
        Shards([])
    (tmp_path / "bad.npy").write_bytes(b"no array")
    with pytest.raises(NewkindsError, match=r"bad\.npy is no table of numbers"):
        Shards([tmp_path / "bad.npy"])
    X[399, 2] = np.nan
    with pytest.raises(NewkindsError, match="row 399 of 400"):
        KMeans(3).fit(in_shards(X, tmp_path))
    with pytest.raises(NewkindsError, match="one row per point"):
        KMeans(3).fit(on_disk(X[0], tmp_path))
