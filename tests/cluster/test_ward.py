"""Ward's tree against SciPy's, where distances are close, equal or growing."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, is_valid_linkage, linkage

from blobs import blobs, same_partition
from newkinds.cluster import (
    Ward,
    ward,
)
from newkinds.errors import NewkindsError


@pytest.fixture
def without_scipy(monkeypatch):
    """Few points as many are treated."""
    monkeypatch.setattr(ward, "POINTS_FOR_SCIPY", 1)


@pytest.mark.parametrize("kind", ["grid", "whole numbers", "duplicates"])
def test_merges_of_the_same_height_come_in_scipys_order(kind):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = {
            "grid": rng.permutation(np.stack(np.meshgrid(range(7), range(6)), axis=-1).reshape(-1, 2)),
            "whole numbers": rng.integers(0, 4, size=(60, 3)),
            "duplicates": rng.normal(size=(15, 3))[rng.integers(0, 15, 60)],
        }[kind].astype(np.float64)
        np.testing.assert_array_equal(Ward().fit(X).linkage_, linkage(X, "ward"))


@pytest.mark.usefixtures("without_scipy")
@pytest.mark.parametrize(("n", "dim"), [(2, 1), (3, 2), (60, 3), (500, 2), (700, 40)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ward_equals_scipy(n, dim, dtype):
    X = np.random.default_rng(n).normal(size=(n, dim)).astype(dtype)
    got, expected = Ward().fit(X).linkage_, linkage(X.astype(np.float64), "ward")
    np.testing.assert_array_equal(got[:, [0, 1, 3]], expected[:, [0, 1, 3]])
    np.testing.assert_allclose(got[:, 2], expected[:, 2], rtol=1e-5 if dtype == np.float32 else 1e-12)


def ward_distances(X, groups):
    centres = np.array([X[g].mean(axis=0) for g in groups])
    sizes = np.array([len(g) for g in groups])
    factor = 2 * sizes[:, None] * sizes / (sizes[:, None] + sizes)
    distances = np.sqrt(factor * np.square(centres[:, None] - centres).sum(axis=2))
    np.fill_diagonal(distances, np.inf)
    return distances


@pytest.mark.usefixtures("without_scipy")
@pytest.mark.parametrize("kind", ["tight groups", "line", "outlier"])
def test_ward_tells_close_points_apart_in_float32(kind):
    """Products of float32 round to about 1e-7 ‖x‖², which is more than these squared distances."""
    rng = np.random.default_rng(0)
    group = np.arange(180)
    X = {
        "tight groups": 1e-3 * rng.normal(size=(9, 16))[group % 9] + rng.normal(size=(3, 16))[group % 3],
        "line": np.linspace(1, 2, 1500).cumsum()[:, None],
        "outlier": np.concatenate([rng.normal(size=(180, 8)), [[1e6] * 8]]),
    }[kind]
    if kind == "tight groups":
        X += 1e-5 * rng.normal(size=(180, 16))
    X = X.astype(np.float32)
    tree, expected = Ward().fit(X), linkage(X.astype(np.float64), "ward")
    np.testing.assert_allclose(tree.linkage_[:, 2], expected[:, 2], rtol=0.01)
    for k in (3, 9):
        assert same_partition(tree.labels_at(k), fcluster(expected, k, "maxclust"))


@pytest.mark.usefixtures("without_scipy")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ward_of_points_at_equal_or_growing_distances_has_scipys_heights(dtype):
    for X in (np.eye(100), np.concatenate([np.zeros((1, 60)), np.eye(60)]), 1.5 ** np.arange(25)[:, None]):
        heights = Ward().fit(X.astype(dtype)).linkage_[:, 2]
        np.testing.assert_allclose(heights, linkage(X.astype(dtype), "ward")[:, 2], rtol=1e-5)


@pytest.mark.usefixtures("without_scipy")
@pytest.mark.parametrize("kind", ["grid", "duplicates", "star", "constant"])
def test_ward_with_ties_always_joins_a_nearest_pair(kind):
    rng = np.random.default_rng(0)
    X = {
        "grid": np.stack(np.meshgrid(range(7), range(6)), axis=-1).reshape(-1, 2).astype(float),
        "duplicates": rng.normal(size=(15, 3))[rng.integers(0, 15, 60)],
        "star": np.concatenate([np.zeros((1, 40)), np.eye(40)]),  # everyone's nearest is the middle
        "constant": np.ones((20, 3)),
    }[kind]
    Z = Ward().fit(X).linkage_
    assert is_valid_linkage(Z)
    groups = {i: [i] for i in range(len(X))}
    for i, (a, b, height, size) in enumerate(Z):
        nodes = list(groups)
        assert height == pytest.approx(ward_distances(X, [groups[node] for node in nodes]).min(), abs=1e-7)
        assert height == pytest.approx(ward_distances(X, [groups[a], groups[b]])[0, 1], abs=1e-7)
        groups[len(X) + i] = groups.pop(int(a)) + groups.pop(int(b))
        assert len(groups[len(X) + i]) == size


@pytest.mark.usefixtures("without_scipy")
def test_ward_searches_stay_few_when_all_have_the_same_nearest(monkeypatch):
    searched = []
    search = ward._Clusters.search

    def counted(clusters):
        before = (clusters.nearest == ward.UNKNOWN).sum()
        search(clusters)
        searched.append(int(before - (clusters.nearest == ward.UNKNOWN).sum()))

    monkeypatch.setattr(ward._Clusters, "search", counted)
    monkeypatch.setattr(ward, "FEWEST_SEARCHES", 4)
    n = 120
    Ward().fit(np.concatenate([np.zeros((1, n)), np.eye(n)]))
    assert sum(searched) < 15 * n  # to search for all who lost their nearest would take n² / 2 = 60 n


def test_ward_cuts_into_exactly_so_many_clusters():
    X, truth = blobs(n=100, clusters=4, spread=0.05)
    tree = Ward().fit(X)
    assert same_partition(tree.labels_at(4), truth)
    for k in (1, 2, 7, 99, 100):
        labels = tree.labels_at(k)
        assert len(np.unique(labels)) == k
        first = [labels.tolist().index(c) for c in range(k)]
        assert first == sorted(first)
    assert Ward(n_clusters=1).fit_predict(X[:1]).tolist() == [0]  # a single point is a tree without merges
    with pytest.raises(NewkindsError, match="100 points cannot make 101 clusters"):
        tree.labels_at(101)
