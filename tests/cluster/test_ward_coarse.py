"""Ward's tree of more points than are compared with each other, against the exact one."""

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import fcluster, is_valid_linkage, linkage
from sklearn.metrics import adjusted_rand_score

from blobs import same_partition
from newkinds.cluster import Ward, ward
from newkinds.cluster.count import share
from newkinds.cluster.count.combination import by_shape, combined
from newkinds.cluster.count.cuts import Cuts, Leaves
from newkinds.cluster.count.share import LabelledNeighbours

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


def test_a_row_with_a_weight_stands_for_so_many_points():
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(40, 5)), rng.integers(1, 6, size=40)
    tree = Ward.of_groups(torch.from_numpy(rows), torch.from_numpy(weight))
    repeated = np.repeat(rows, weight, axis=0)
    expected = linkage(repeated, "ward")
    assert is_valid_linkage(tree.linkage_)
    np.testing.assert_allclose(tree.linkage_[:, 2], expected[-39:, 2])
    for clusters in (2, 7, 25, 40):
        assert same_partition(np.repeat(tree.labels_at(clusters), weight), fcluster(expected, clusters, "maxclust"))


@pytest.mark.usefixtures("coarse")
def test_counting_goes_by_grains_and_finds_what_the_exact_trees_find():
    X, truth = unit_points(0.5, np.full(CLASSES, 133))
    y = np.where((truth < 10) & (np.arange(len(X)) % 3 == 0), truth, -1)
    found = combined(X, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ward, "EXACT", len(X))
        expected = combined(X, y)
    assert found.answer == expected.answer == CLASSES
    assert (found.low, found.high) == (expected.low, expected.high)
    assert by_shape(X).answer == CLASSES


@pytest.mark.usefixtures("coarse")
def test_what_cuts_say_is_said_of_all_points_not_of_grains():
    X, truth = unit_points(0.9, np.full(CLASSES, 133))
    points, y = torch.from_numpy(X), np.where(truth < 10, truth, -1)
    leaves = Leaves.made_of(points)
    assert len(leaves.sums) <= 400
    assert leaves.sizes.sum() == len(X)
    rows = np.arange(0, len(X), 2)
    for some, own, of in ((points, y, leaves), (points[rows], y[rows], leaves.part(points[rows], rows))):
        cuts = Cuts(some, own, 10, 60, of)
        for place in (0, 5, len(cuts.ks) - 1):
            cluster = cuts.at(int(cuts.ks[place]))
            sizes = np.bincount(cluster)
            room = [np.sum(1 / sizes[cluster[own == c]]) for c in range(10)]
            np.testing.assert_allclose(cuts.room[place], room)
            centres = np.stack([some[cluster == k].double().mean(dim=0).numpy() for k in range(len(sizes))])
            scores = []
            for i in np.linspace(0, len(some) - 1, 1000).round().astype(int):
                away = np.linalg.norm(some[i].double().numpy() - centres, axis=1)
                a, b = away[cluster[i]], np.delete(away, cluster[i]).min()
                a *= sizes[cluster[i]] / max(sizes[cluster[i]] - 1, 1)
                scores.append((b - a) / max(a, b) if sizes[cluster[i]] > 1 else 0)
            assert cuts.silhouette[place] == pytest.approx(np.mean(scores), abs=1e-5)


def test_of_very_many_pairs_an_even_share_of_the_images_is_compared(monkeypatch):
    X, truth = unit_points(0.9, np.array([3, 2, 1, *[147] * (CLASSES - 3)]))
    y = np.where((truth < 12) & (np.arange(len(X)) % 3 < 2), truth, -1)
    y[np.flatnonzero(truth < 3)] = truth[truth < 3]  # small classes are labelled whole
    shares = np.linspace(0.3, 0.95, 100)
    every = LabelledNeighbours.of(torch.from_numpy(X), y)
    labelled = (y >= 0).sum()
    monkeypatch.setattr(share, "MOST_PAIRS", labelled * len(X) / 4)
    some = LabelledNeighbours.of(torch.from_numpy(X), y)
    assert some.images == pytest.approx(len(X) / 2, abs=CLASSES)
    assert some.sizes[:3].tolist() == [2, 2, 1]  # never fewer than two, if there are two
    np.testing.assert_allclose(some.sizes[3:], every.sizes[3:] / 2, atol=0.5)
    found, expected = (shares[np.abs(n.deviation(shares)).argmin()] for n in (some, every))
    assert found == pytest.approx(expected, abs=0.05)
    assert expected == pytest.approx(2 / 3, abs=0.1)
