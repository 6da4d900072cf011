"""Clustering against the numbers of published implementations, against SciPy, and against plain loops."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import fcluster, is_valid_linkage, linkage
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from torch.utils._python_dispatch import TorchDispatchMode

from newkinds.cluster import (
    BalancedSemiSupervisedKMeans,
    KMeans,
    SemiSupervisedKMeans,
    Ward,
    mean_shift_step,
    neighbours,
    ward,
)
from newkinds.cluster.lloyd import Members, k_means_plus_plus, lloyd
from newkinds.cluster.neighbours import most_similar, nearest_centre
from newkinds.errors import NewkindsError
from newkinds.metrics import clustering_accuracy
from plain_kmeans import plain_kmeans

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "cluster.json").read_text())
TIGHT = {"rtol": 0, "atol": 1e-9}


@pytest.fixture(scope="module")
def arrays():
    with np.load(DATA / "cluster.npz") as stored:
        return {name: stored[name] for name in stored.files}


@pytest.fixture(scope="module")
def partly_labelled(arrays):
    """90 points of which 22 are labelled with classes 1, 3 and 5."""
    X = np.concatenate([arrays["labelled"], arrays["unlabelled"]])
    return X, np.concatenate([arrays["targets"], np.full(len(arrays["unlabelled"]), -1)])


def blobs(n=300, clusters=5, dim=8, spread=0.3, seed=0):
    """Points around random centres, and the centre of each."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % clusters
    return rng.normal(size=(clusters, dim))[truth] + spread * rng.normal(size=(n, dim)), truth


def same_partition(a, b):
    pairs = len(set(zip(a.tolist(), b.tolist(), strict=True)))
    return pairs == len(set(a.tolist())) == len(set(b.tolist()))


# --- published numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize(
    ("case", "settings"),
    [
        ("k6_ninit1_seed0", {"n_clusters": 6, "n_init": 1, "random_state": 0}),
        ("k6_ninit5_seed1", {"n_clusters": 6, "n_init": 5, "random_state": 1}),
        ("k9_ninit3_seed2", {"n_clusters": 9, "n_init": 3, "random_state": 2}),
        ("k6_ninit5_seed1_iter3", {"n_clusters": 6, "n_init": 5, "random_state": 1, "max_iter": 3}),
    ],
)
def test_semi_supervised_kmeans_published(arrays, partly_labelled, case, settings, published):
    X, y = partly_labelled
    model = SemiSupervisedKMeans(**settings, published_behaviour=published).fit(X, y)
    assert model.labels_.tolist() == EXPECTED["gcd"][case]["labels"]
    assert model.inertia_ == pytest.approx(EXPECTED["gcd"][case]["inertia"], abs=1e-9)
    np.testing.assert_allclose(model.cluster_centers_, arrays[f"gcd/{case}/centres"], **TIGHT)
    assert model.classes_.tolist() == [1, 3, 5]


@pytest.mark.parametrize(
    ("case", "settings"),
    [
        ("k6_nosize_seed0", {"n_clusters": 6, "cluster_size": None, "random_state": 0}),
        ("k6_size15_seed0", {"n_clusters": 6, "cluster_size": 15, "random_state": 0}),
        ("k9_size10_seed2", {"n_clusters": 9, "cluster_size": 10, "random_state": 2}),
        ("k6_size8_seed1_negcap", {"n_clusters": 6, "cluster_size": 8, "random_state": 1}),
    ],
)
def test_balanced_kmeans_published(arrays, partly_labelled, case, settings):
    X, y = partly_labelled
    model = BalancedSemiSupervisedKMeans(**settings, n_init=1, published_behaviour=True).fit(X, y)
    assert model.labels_.tolist() == EXPECTED["selex"][case]["labels"]
    assert model.inertia_ == pytest.approx(EXPECTED["selex"][case]["inertia"], abs=1e-9)
    np.testing.assert_allclose(model.cluster_centers_, arrays[f"selex/{case}/centres"], **TIGHT)


def test_kmeans_published(arrays):
    model = KMeans(5, n_init=2, random_state=3).fit(arrays["plain/X"])
    assert model.labels_.tolist() == EXPECTED["plain"]["labels"]
    assert model.inertia_ == pytest.approx(EXPECTED["plain"]["inertia"], abs=1e-9)
    np.testing.assert_allclose(model.cluster_centers_, arrays["plain/centres"], **TIGHT)


def test_k_means_plus_plus_published(arrays):
    free = torch.from_numpy(arrays["unlabelled"])
    rng = np.random.RandomState(EXPECTED["plus_plus"]["seed"])
    centres = k_means_plus_plus(free, torch.from_numpy(arrays["plus_plus/known"]), 6, rng)
    torch.testing.assert_close(centres[3:], free[EXPECTED["plus_plus"]["picked_rows"]], rtol=0, atol=0)


def test_empty_cluster_published():
    case = EXPECTED["empty"]
    X = np.array(case["l"] + case["u"])
    y = np.array(case["l_targets"] + [-1] * len(case["u"]))
    members = Members.of(torch.from_numpy(X), torch.from_numpy(y))
    centres = torch.cat([members.class_means(), torch.tensor([case["init_extra_centre"]])])
    for step in case["trace"]:
        assert bool(centres.isnan().any()) == step["nan"]
        assert nearest_centre(members.free, centres)[0].tolist() == step["assign"]
        centres = lloyd(members, centres, max_iter=1, tol=0, reseed=False).last_centres

    start = {"n_clusters": 3, "init": [case["init_extra_centre"]]}
    published = SemiSupervisedKMeans(**start, published_behaviour=True).fit(X, y)
    assert published.labels_.tolist() == case["labels"]
    assert published.inertia_ == pytest.approx(case["inertia"], abs=1e-9)
    ours = SemiSupervisedKMeans(**start).fit(X, y)
    assert ours.inertia_ <= case["inertia"]
    assert np.bincount(ours.labels_, minlength=3).min() > 0

    with pytest.warns(ConvergenceWarning, match="only 2 of 3 clusters"):
        stopped = SemiSupervisedKMeans(**start, published_behaviour=True, max_iter=1).fit(X, y)
    assert np.isnan(stopped.cluster_centers_[2]).all()
    assert set(stopped.predict(X)) == {2}  # as in the trace


def test_mean_shift_published(arrays):
    order = arrays["mean_shift/order"]  # the batches of the published code: labelled images first

    def shift(name, **settings):
        moved = np.empty_like(arrays[name])
        moved[order] = mean_shift_step(arrays[name][order], k=8, alpha=0.5, **settings)
        return moved

    close = {"rtol": 0, "atol": 1e-6}  # theirs are float32
    np.testing.assert_allclose(shift("mean_shift/round0"), arrays["mean_shift/round1"], **close)
    np.testing.assert_allclose(shift("mean_shift/round1"), arrays["mean_shift/round2"], **close)
    np.testing.assert_allclose(
        shift("mean_shift/round1", overwrite_every=32), arrays["mean_shift/round2_batches_of_32"], **close
    )


def test_ward_published(arrays):
    tree = Ward(n_clusters=8).fit(arrays["ward/X"])
    theirs = arrays["ward/linkage"]
    np.testing.assert_array_equal(tree.linkage_[:, [0, 1, 3]], theirs[:, [0, 1, 3]])
    np.testing.assert_allclose(tree.linkage_[:, 2], theirs[:, 2], rtol=0, atol=1e-6)  # of float32 features
    accuracy = clustering_accuracy(arrays["ward/Y"], tree.labels_, known=range(4))
    assert accuracy == pytest.approx([EXPECTED["ward"][f"{split}_gtK"] for split in ("all", "old", "new")])


# --- against plain loops -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_semi_supervised_kmeans_equals_plain_loops(dtype):
    X, truth = blobs(n=400, clusters=6, spread=1.0)
    X = torch.from_numpy(X).to(dtype)
    y = np.where((truth < 3) & (np.arange(400) < 150), truth, -1)
    start = X[torch.tensor([3, 4, 5])]
    expected = plain_kmeans(X[y < 0], X[y >= 0], torch.from_numpy(y[y >= 0]), start, max_iter=50)
    model = SemiSupervisedKMeans(6, init=start, max_iter=50).fit(X, y)
    assert expected.iterations > 3
    assert model.n_iter_ == expected.iterations
    assert model.labels_[y < 0].tolist() == expected.labels.tolist()
    assert (model.labels_[y >= 0] == y[y >= 0]).all()
    assert model.inertia_ == pytest.approx(expected.inertia, rel=1e-5 if dtype == torch.float32 else 1e-12)
    np.testing.assert_allclose(model.cluster_centers_, expected.centres, atol=1e-5)


def test_k_means_plus_plus_equals_plain_loops():
    free = blobs(n=50)[0]
    got = k_means_plus_plus(torch.from_numpy(free), torch.empty(0, 8), 6, np.random.RandomState(1))
    rng = np.random.RandomState(1)
    chosen = [free[rng.randint(0, 50)]]
    while len(chosen) < 6:
        squared = [min(np.square(x - c).sum() for c in chosen) for x in free]
        drawn, passed = rng.rand(), 0.0
        for x, share in zip(free, np.array(squared) / sum(squared), strict=True):
            passed += share
            if passed >= drawn:
                chosen.append(x)
                break
    np.testing.assert_array_equal(got, chosen)


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
    members = Members.of(torch.from_numpy(X), torch.from_numpy(y))
    centres = torch.cat([members.class_means(), members.free[:4]])
    model = BalancedSemiSupervisedKMeans(6, cluster_size=20)
    room = model._room(members)
    assert room.tolist() == [0, 10, 20, 20, 20, 20]
    labels, squared = nearest_centre(members.free, centres)
    got = model._spread(members, room, rounds, labels, squared, centres)
    expected = spread_by_loops(members.free.numpy(), labels.numpy().copy(), centres.numpy(), room.tolist(), rounds)
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


def test_mean_shift_equals_plain_loops():
    X, _ = blobs(n=40)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    got = mean_shift_step(X, k=3, alpha=0.2)
    for i, x in enumerate(X):
        others = sorted((j for j in range(len(X)) if j != i), key=lambda j: -(X[j] @ x))[:3]
        moved = 0.8 * x + 0.2 * X[others].mean(axis=0)
        np.testing.assert_allclose(got[i], moved / np.linalg.norm(moved), atol=1e-12)


def test_most_similar_finds_the_best_first():
    bank = torch.eye(4)
    assert most_similar(torch.tensor([[0.1, 0.9, 0.5, 0.0]]), bank, 3).tolist() == [[1, 2, 0]]
    assert most_similar(bank[:2] + 0.1 * bank[2], bank, 1, itself=torch.tensor([0, 1])).tolist() == [[2], [2]]


# --- Ward ----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ward_of_points_at_equal_or_growing_distances_has_scipys_heights(dtype):
    for X in (np.eye(100), np.concatenate([np.zeros((1, 60)), np.eye(60)]), 1.5 ** np.arange(25)[:, None]):
        heights = Ward().fit(X.astype(dtype)).linkage_[:, 2]
        np.testing.assert_allclose(heights, linkage(X.astype(dtype), "ward")[:, 2], rtol=1e-5)


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


class LargestTensor(TorchDispatchMode):
    """Remembers the size of the largest result of any operation."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return result


@pytest.mark.parametrize("what", ["ward", "mean_shift", "kmeans"])
def test_no_matrix_of_all_pairs(monkeypatch, what):
    block, n, dim = 2**14, 2000, 4
    monkeypatch.setattr(ward, "DISTANCES_AT_ONCE", block)
    monkeypatch.setattr(neighbours, "ENTRIES_AT_ONCE", block)
    monkeypatch.setattr(neighbours, "GATHERED_AT_ONCE", 64)
    X = torch.randn(n, dim, generator=torch.Generator().manual_seed(0))
    with LargestTensor() as largest:
        if what == "ward":
            Ward().fit(X)
        elif what == "mean_shift":
            mean_shift_step(X, k=8)
        else:
            KMeans(100, n_init=1, max_iter=3, random_state=0).fit(X)
    assert largest.numel <= max(block, ward.FEWEST_SEARCHES * n, n * dim)
    assert largest.numel * 20 < n * n


# --- scikit-learn's manners ----------------------------------------------------------------------------


def test_kmeans_finds_blobs_and_predicts_unseen_points():
    X, truth = blobs(spread=0.1)
    model = KMeans(5, random_state=0)
    assert model.fit(X) is model
    assert same_partition(model.labels_, truth)
    unseen, truth_of_unseen = blobs(n=50, spread=0.1)  # same centres
    assert same_partition(np.concatenate([model.labels_, model.predict(unseen)]), np.append(truth, truth_of_unseen))
    assert (model.fit_predict(X) == model.labels_).all()


def test_labels_survive_in_every_entrance():
    X, truth = blobs()
    y = np.where(np.arange(300) % 3 == 0, truth, -1)
    model = SemiSupervisedKMeans(5, n_init=1, random_state=0)
    from_arrays = model.fit_predict(X, y)
    assert (from_arrays[y >= 0] == y[y >= 0]).all()
    assert (model.fit_predict(torch.from_numpy(X).requires_grad_(), torch.from_numpy(y)) == from_arrays).all()
    assert (model.fit_predict(X.tolist(), y.tolist()) == from_arrays).all()


@pytest.mark.parametrize(
    "convert",
    [
        lambda X: torch.from_numpy(X).half(),
        lambda X: torch.from_numpy(X).bfloat16(),
        lambda X: X.astype(np.int64),
        lambda X: X.astype(np.float64),
        lambda X: np.asfortranarray(X)[::-1][::-1],
        lambda X: np.repeat(X, 2, axis=1)[:, ::2],
        lambda X: torch.from_numpy(np.ascontiguousarray(X.T)).T,
        lambda X: np.frombuffer(X.tobytes(), dtype=X.dtype).reshape(X.shape),  # read-only
    ],
    ids=["float16", "bfloat16", "int", "float64", "fortran", "strided", "transposed", "read-only"],
)
def test_every_kind_of_array_gives_the_same_and_is_left_alone(convert):
    X = (8 * blobs(n=60)[0]).round().astype(np.float32)  # whole numbers: every type can hold them
    y = np.where(np.arange(60) < 9, np.arange(60) % 3, -1)
    given = convert(X)
    before = np.array(given.tolist())
    for model in (KMeans(5, random_state=0), SemiSupervisedKMeans(5, random_state=0), Ward(5)):
        assert same_partition(clone(model).fit(given, y).labels_, clone(model).fit(X, y).labels_)
    assert (np.array(given.tolist()) == before).all()
    assert y.tolist() == [0, 1, 2] * 3 + [-1] * 51


def test_random_state_may_be_a_number_a_stream_or_nothing():
    X, _ = blobs(spread=1.5)

    def fit(random_state):
        return KMeans(7, n_init=1, random_state=random_state).fit(X).labels_.tolist()

    stream = np.random.RandomState(5)
    assert fit(5) == fit(5) == fit(stream)
    assert fit(5) != fit(stream)  # it has moved on
    assert len(set(fit(None))) == 7


def test_same_seed_same_clusters_and_settings_stay_untouched():
    X, _ = blobs(spread=1.5)
    model = BalancedSemiSupervisedKMeans(7, n_init=2, random_state=4, cluster_size=50)
    settings = dict(model.get_params())
    first = model.fit(X).labels_.copy()
    assert model.get_params() == settings
    assert (clone(model).fit(X).labels_ == first).all()
    with pytest.raises(NotFittedError):
        clone(model).predict(X)


def test_float32_far_from_the_origin():
    X, truth = blobs(spread=0.02)
    far = (X + 1000).astype(np.float32)
    y = np.where((truth < 2) & (np.arange(300) < 100), truth, -1)
    model = SemiSupervisedKMeans(5, random_state=0).fit(far, y)
    assert model.cluster_centers_.dtype == np.float32
    assert same_partition(model.labels_, truth)
    assert (model.predict(far) == model.labels_).all()
    assert model.inertia_ == pytest.approx(SemiSupervisedKMeans(5, random_state=0).fit(X, y).inertia_, rel=0.02)
    assert same_partition(Ward(5).fit(far).labels_, truth)


# --- bad input -----------------------------------------------------------------------------------------


ESTIMATORS = [KMeans(3), SemiSupervisedKMeans(3), BalancedSemiSupervisedKMeans(3), Ward(3)]


@pytest.mark.parametrize("model", ESTIMATORS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_bad_features_are_named(model, value):
    X = blobs(n=40)[0].astype(np.float32)
    X[[4, 17], [0, 3]] = value
    with pytest.raises(NewkindsError, match=r"rows 4, 17 of 40"):
        model.fit(X)
    X[::2] = np.nan
    with pytest.raises(NewkindsError, match=r"rows 0, 2, 4, 6, 8 and 16 more of 40"):
        model.fit(X)


@pytest.mark.parametrize("model", ESTIMATORS, ids=lambda model: type(model).__name__)
def test_fewer_points_than_clusters(model):
    with pytest.raises(NewkindsError, match="2 points cannot make 3 clusters"):
        model.fit(np.eye(2))
    assert sorted(model.fit(np.eye(3)).labels_) == [0, 1, 2]


@pytest.mark.parametrize("X", [np.ones(3), np.ones((0, 3)), np.ones((3, 0)), [["a", "b"]], [[1.0], [1.0, 2.0]]])
def test_features_of_the_wrong_shape(X):
    with pytest.raises(NewkindsError, match="features are"):
        KMeans(1).fit(X)


@pytest.mark.parametrize(
    "model",
    [SemiSupervisedKMeans(5, random_state=0), BalancedSemiSupervisedKMeans(5, random_state=0)],
    ids=["plain", "balanced"],
)
def test_duplicates_and_constant_features(model):
    X = np.repeat(np.eye(3, 8), 10, axis=0)  # 3 distinct points, 5 features are constant
    y = np.where(np.arange(30) == 0, 4, -1)
    with pytest.warns(ConvergenceWarning, match="only 3 of 5 clusters"):
        model.fit(X, y)
    assert model.inertia_ == pytest.approx(0, abs=1e-12)
    assert np.isfinite(model.cluster_centers_).all()
    assert same_partition(model.labels_, np.arange(30) // 10)


@pytest.mark.parametrize("estimator", [KMeans, SemiSupervisedKMeans, BalancedSemiSupervisedKMeans])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0, 1000])
def test_copies_stay_together_whatever_rounding_does(estimator, dtype, offset):
    group = np.arange(60) % 4
    X = (np.random.default_rng(0).normal(size=(4, 16))[group] + offset).astype(dtype)
    for seed in range(5):
        with pytest.warns(ConvergenceWarning, match="only 4 of 7 clusters"):
            model = estimator(7, 2, seed).fit(X)
        assert same_partition(model.labels_, group)


def test_all_but_one_point_the_same():
    X = np.concatenate([np.full((20, 3), 0.1), np.zeros((1, 3))])
    for model in (KMeans(2, random_state=0), Ward(2)):
        assert same_partition(model.fit(X).labels_, np.arange(21) // 20)


def test_as_many_clusters_as_points():
    for seed in range(10):
        X = np.random.default_rng(seed).normal(size=(20, 1)).astype(np.float32)
        assert sorted(KMeans(20, n_init=1, random_state=seed).fit(X).labels_) == list(range(20))


def test_points_that_are_all_the_same():
    with pytest.warns(ConvergenceWarning, match="only 1 of 2"):
        model = KMeans(2, random_state=0).fit(np.ones((6, 3), dtype=np.float32))
    assert set(model.labels_) == {0}
    np.testing.assert_array_equal(model.cluster_centers_, np.ones((2, 3)))


def test_class_with_one_image_and_labels_with_gaps():
    X, truth = blobs(spread=0.1)
    y = np.full(300, -1)
    y[truth == 2] = 900
    y[3] = 40  # the only one of its class
    model = SemiSupervisedKMeans(5, random_state=0).fit(X, y)
    assert model.classes_.tolist() == [40, 900]
    assert same_partition(model.labels_, truth)
    assert (model.labels_[truth == 3] == 0).all()
    assert (model.labels_[truth == 2] == 1).all()


def test_everything_labelled():
    X, truth = blobs()
    model = SemiSupervisedKMeans(5).fit(X, truth)
    assert (model.labels_ == truth).all()
    np.testing.assert_allclose(model.cluster_centers_[2], X[truth == 2].mean(axis=0))
    with pytest.raises(NewkindsError, match="0 unlabelled points cannot make 1 new clusters: set n_clusters to 5"):
        SemiSupervisedKMeans(6).fit(X, truth)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.arange(30) % 4, "n_clusters is 3, but the labels name 4 classes"),
        (np.zeros(29, dtype=int), r"shape \(30,\), not \(29,\)"),
        (np.zeros(30), "whole numbers"),
        (torch.zeros(30, dtype=torch.bfloat16), "whole numbers"),
        (["cat"] * 30, "whole numbers"),
        ([[0], [0, 1]], "one number a point"),
        (np.where(np.arange(30) == 7, -2, 0), "row 7"),
    ],
)
def test_bad_labels(y, message):
    with pytest.raises(NewkindsError, match=message):
        SemiSupervisedKMeans(3).fit(blobs(n=30)[0], y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_clusters": 0}, "n_clusters is a whole number of at least 1, not 0"),
        ({"n_clusters": 2.0}, "n_clusters"),
        ({"n_clusters": 3, "n_init": 0}, "n_init"),
        ({"n_clusters": 3, "max_iter": -1}, "max_iter"),
        ({"n_clusters": 3, "init": "random"}, "'k-means\\+\\+' or an array"),
        ({"n_clusters": 3, "init": np.zeros((3, 2))}, r"shape \(3, 2\), but 3 centres of 8 features"),
        ({"n_clusters": 3, "cluster_size": 9}, "room for 27 of the 30"),
        ({"n_clusters": 3, "cluster_size": "equal"}, "cluster_size"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(NewkindsError, match=message):
        BalancedSemiSupervisedKMeans(**settings).fit(blobs(n=30)[0])


def test_points_of_another_width_are_refused():
    with pytest.raises(NewkindsError, match="5 features, but the centres have 8"):
        KMeans(2, random_state=0).fit(blobs()[0]).predict(np.zeros((1, 5)))


def test_mean_shift_needs_more_points_than_neighbours():
    with pytest.raises(NewkindsError, match="needs more than 8 points, not 8"):
        mean_shift_step(np.eye(8), k=8)
