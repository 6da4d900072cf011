"""Ward's tree of more points than are compared with each other, against the exact one."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import is_valid_linkage
from sklearn.metrics import adjusted_rand_score

from blobs import same_partition
from newkinds.cluster import Ward, ward

CLASSES, DIM = 30, 24


def unit_points(noise: float, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows around random directions, and the class of each; shuffled."""
    rng = np.random.default_rng(0)
    truth = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = rng.normal(size=(len(sizes), DIM))[truth] + noise * rng.normal(size=(len(truth), DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), truth


@pytest.fixture
def coarse(monkeypatch):
    """4,000 points as more than 50,000 are treated, with as many for a grain."""
    monkeypatch.setattr(ward, "EXACT", 2000)
    monkeypatch.setattr(ward, "GRAINS", 400)


def exact(X: np.ndarray) -> Ward:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ward, "EXACT", len(X))
        return Ward().fit(X)


@pytest.mark.usefixtures("coarse")
def test_planted_clusters_are_cut_as_by_the_exact_tree_the_smallest_too():
    sizes = np.array([6, 12, 25, *[147] * (CLASSES - 3)])
    X, truth = unit_points(0.25, sizes)
    tree = Ward().fit(X)
    assert same_partition(tree.labels_at(CLASSES), truth)
    for clusters in (2, 5, 12, CLASSES):  # above the planted ones too
        assert adjusted_rand_score(tree.labels_at(clusters), exact(X).labels_at(clusters)) > 0.99
    np.testing.assert_allclose(tree.linkage_[-CLASSES + 1 :, 2], exact(X).linkage_[-CLASSES + 1 :, 2], rtol=0.02)


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("noise", [0.8, 1.1])
def test_overlapping_clusters_are_found_no_worse(noise):
    X, truth = unit_points(noise, np.full(CLASSES, 133))
    found, expected = Ward().fit(X).labels_at(CLASSES), exact(X).labels_at(CLASSES)
    assert adjusted_rand_score(truth, found) > adjusted_rand_score(truth, expected) - 0.03
    assert adjusted_rand_score(found, expected) > 0.6


@pytest.mark.usefixtures("coarse")
def test_it_is_a_tree_of_all_points_and_the_same_again():
    X, _ = unit_points(1.0, np.full(CLASSES, 133))
    tree = Ward().fit(X).linkage_
    assert len(tree) == len(X) - 1
    assert is_valid_linkage(tree)
    assert (np.diff(tree[:, 2]) >= 0).all()
    assert tree[-1, 3] == len(X)
    grains = 1 + (tree[:, 2] > 0).sum()
    assert 300 < grains <= 400
    np.testing.assert_array_equal(tree, Ward().fit(X).linkage_)


@pytest.mark.usefixtures("coarse")
def test_fewer_points_that_differ_than_grains():
    X = np.repeat(np.random.default_rng(0).normal(size=(7, 3)), 500, axis=0)
    assert same_partition(Ward().fit(X).labels_at(7), np.repeat(np.arange(7), 500))
    assert len(np.unique(Ward().fit(np.ones((3000, 2))).labels_at(3))) == 3  # none differ
