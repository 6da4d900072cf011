"""k-means that steers towards equal sizes, against plain loops."""

import numpy as np
import pytest
import torch

from blobs import blobs
from newkinds.cluster import BalancedSemiSupervisedKMeans, SemiSupervisedKMeans
from newkinds.cluster.lloyd import Members
from newkinds.cluster.neighbours import nearest_centre
from newkinds.cluster.rows import Rows
from newkinds.errors import NewkindsError


def spread_by_loops(points, labels, centres, room, rounds):
    """Points beyond a cluster's room, the farthest, move to the nearest cluster with room; all at once."""
    distance = np.square(points[:, None] - centres).sum(axis=2)
    for _ in range(rounds):
        open_, moving = [], []
        for c in range(len(centres)):
            mine = np.flatnonzero(labels == c)
            if len(mine) < room[c]:
                open_.append(c)
            else:
                moving += mine[distance[mine, c].argsort()][room[c] :].tolist()
        for i in moving if open_ else []:
            labels[i] = min(open_, key=lambda c: distance[i, c])
    return labels


@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_spreading_equals_plain_loops(rounds):
    X, truth = blobs(n=120, clusters=6, spread=1.0)
    y = np.where((truth == 0) | ((truth == 1) & (np.arange(120) < 60)), truth, -1)  # class 0 is full at once
    members = Members.of(Rows(torch.from_numpy(X)), torch.from_numpy(y))
    centres = torch.cat([members.class_means(), members.free.whole()[:4]])
    model = BalancedSemiSupervisedKMeans(6, cluster_size=20)
    room = model._room(members)
    assert room.tolist() == [0, 10, 20, 20, 20, 20]
    labels, squared = nearest_centre(members.free, centres)
    got = model._spread(members, room, rounds, labels, squared, centres)
    free = members.free.whole().numpy()
    expected = spread_by_loops(free, labels.numpy().copy(), centres.numpy(), room.tolist(), rounds)
    assert got.tolist() == expected.tolist()
    assert (rounds > 0) == (got.tolist() != labels.tolist())


def test_balance_evens_out_the_new_clusters():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2))
    X[:160] *= 0.3  # most points are in the middle
    sizes = {}
    for cluster_size in (None, "even"):
        model = BalancedSemiSupervisedKMeans(8, n_init=5, random_state=0, cluster_size=cluster_size).fit(X)
        sizes[cluster_size] = np.bincount(model.labels_, minlength=8).std()
    assert sizes["even"] < sizes[None]


def published_by_loops(X, y, clusters, size, seed, max_iter=10):
    """Labels and centres (K, D), as the published code computes them: distances are sums of squared differences."""
    free, fixed, y = X[y < 0], X[y >= 0], y[y >= 0]
    known = int(y.max()) + 1
    rng = np.random.RandomState(seed)
    centres = [fixed[y == k].mean(dim=0) for k in range(known)]
    while len(centres) < clusters:
        squared = (free[:, None] - torch.stack(centres)).square().sum(dim=2).amin(dim=1)
        shares = (squared / squared.sum()).cumsum(dim=0)
        centres.append(free[int((shares >= rng.rand()).nonzero()[0, 0])])
    centres, best = torch.stack(centres), (torch.inf, None, None)
    room = [size - int((y == k).sum()) for k in range(clusters)]
    for spreading in (True, False):
        for iteration in range(max_iter):
            squared = (free[:, None] - centres).square().sum(dim=2)
            labels = squared.argmin(dim=1)
            inertia = squared.amin(dim=1).sum() + sum((fixed[y == k] - centres[k]).square().sum() for k in range(known))
            for _ in range(iteration if spreading else 0):
                sparse, released = [], []
                for k in range(clusters):
                    mine = (labels == k).nonzero()[:, 0]
                    if len(mine) < room[k] or len(mine) == 1:
                        sparse.append(k)
                    elif len(mine) > room[k]:
                        released += mine[squared[mine, k].argsort(stable=True)][room[k] :].tolist()
                for i in released if sparse else []:
                    labels[i] = min(sparse, key=squared[i].__getitem__)
            means = torch.stack([torch.cat([fixed[y == k], free[labels == k]]).mean(dim=0) for k in range(clusters)])
            if spreading:
                means[:known] = centres[:known]
            moved, centres = (means - centres).norm(dim=1).sum() ** 2, means
            if inertia < best[0]:
                best = inertia, labels, centres
            if moved < 1e-4:
                break
    return best[1:]


def infosieve_starts_by_loops(free, centres, clusters, size, seed):
    """Centres (K, D) drawn as InfoSieve's code does: numbers of centres are taken for those of rows, which leave."""
    rng, candidates = np.random.RandomState(seed), list(range(len(free)))
    centres = list(centres)
    while len(centres) < clusters:
        squared = [min(float((free[i] - c).square().sum()) for c in centres) for i in candidates]
        total, r, reached = sum(squared), rng.rand(), 0.0
        for i, value in zip(candidates, squared, strict=True):
            drawn, reached = i, reached + value / total
            if reached >= r:
                break
        order = sorted(range(len(centres)), key=lambda c: float((free[drawn] - centres[c]).square().sum()))
        candidates = [i for i in candidates if i not in order[:size]]
        centres.append(free[drawn])
    return torch.stack(centres)


@pytest.mark.parametrize(("size", "differing"), [(1, 1), (3, 5), (40, 5), (None, 0)])
def test_starts_of_infosieve_equal_plain_loops(size, differing):
    others = 0
    for seed in range(10):
        X = torch.from_numpy(np.random.default_rng(seed).normal(size=(30, 3)))
        X[8:14] *= 4  # the first rows without a label would be drawn often
        y = torch.from_numpy(np.where(np.arange(30) < 8, np.arange(30) % 2, -1))
        means = [X[:8][y[:8] == k].mean(dim=0) for k in range(2)]
        expected = infosieve_starts_by_loops(X[8:], means, 9, size or 0, seed)
        members = Members.of(Rows(X), y)
        how = {"cluster_size": size, "published_behaviour": True}
        starts = {}
        for init in ("infosieve", "k-means++"):
            model = BalancedSemiSupervisedKMeans(9, 1, seed, init=init, **how)
            starts[init] = model._start(members, torch.zeros(3), np.random.RandomState(seed))
        torch.testing.assert_close(starts["infosieve"], expected, rtol=0, atol=1e-12)
        others += not torch.equal(starts["infosieve"], starts["k-means++"])
    assert others >= differing if differing else others == 0


def test_only_balanced_k_means_can_start_as_infosieve_does():
    X = np.random.default_rng(0).normal(size=(12, 2))
    with pytest.raises(NewkindsError, match="init is 'k-means"):
        SemiSupervisedKMeans(3, init="infosieve").fit(X)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_published_balancing_equals_plain_loops_in_clusters_of_two_points_too(size):
    """With a size of 1, one of two points must leave their mean, from which both are equally far."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = torch.from_numpy(rng.normal(size=(25, 3)))
        y = torch.from_numpy(np.where(np.arange(25) < 8, np.arange(25) % 3, -1))
        model = BalancedSemiSupervisedKMeans(9, 1, seed, cluster_size=size, published_behaviour=True).fit(X, y)
        labels, centres = published_by_loops(X, y, 9, size, seed)
        assert model.labels_[8:].tolist() == labels.tolist()
        np.testing.assert_allclose(model.cluster_centers_, centres, rtol=0, atol=1e-12)
