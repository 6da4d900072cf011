"""Clustering against the numbers of published implementations, against SciPy, and against plain loops."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from torch.utils._python_dispatch import TorchDispatchMode

from blobs import blobs, same_partition
from newkinds.cluster import (
    BalancedSemiSupervisedKMeans,
    KMeans,
    SemiSupervisedKMeans,
    Ward,
    mean_shift_step,
    neighbours,
    ward,
)
from newkinds.cluster.lloyd import Members, _search_again, k_means_plus_plus, lloyd
from newkinds.cluster.metrics import clustering_accuracy
from newkinds.cluster.neighbours import most_similar, nearest_centre
from newkinds.cluster.rows import Rows
from plain_kmeans import plain_kmeans

DATA = Path(__file__).parents[1] / "numbers"
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
    centres = k_means_plus_plus(Rows(free), torch.from_numpy(arrays["plus_plus/known"]), 6, rng)
    torch.testing.assert_close(centres[3:], free[EXPECTED["plus_plus"]["picked_rows"]], rtol=0, atol=0)


def test_empty_cluster_published():
    case = EXPECTED["empty"]
    X = np.array(case["l"] + case["u"])
    y = np.array(case["l_targets"] + [-1] * len(case["u"]))
    members = Members.of(Rows(torch.from_numpy(X)), torch.from_numpy(y))
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


@pytest.mark.parametrize("points_for_scipy", [1, 96])
def test_ward_published(arrays, monkeypatch, points_for_scipy):
    monkeypatch.setattr(ward, "POINTS_FOR_SCIPY", points_for_scipy)
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
    got = k_means_plus_plus(Rows(torch.from_numpy(free)), torch.empty(0, 8), 6, np.random.RandomState(1))
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


@pytest.mark.parametrize("lost", [False, True])
def test_a_later_search_equals_a_whole_one(lost):
    points = torch.from_numpy(blobs(n=200, spread=1.0)[0])
    members = Members.of(Rows(points), torch.full((200,), -1))
    before = points[:20]
    has_moved = torch.arange(20) % 4 == 0
    after = torch.where(has_moved[:, None], points[20:40], before)
    if lost:
        after[8] = torch.nan  # the mean of no points
    labels, squared = nearest_centre(members.free, before)
    kept = labels.clone()
    got = _search_again(members, labels, squared, after, has_moved)
    expected = nearest_centre(members.free, after)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12, equal_nan=True)
    assert set(labels[labels != got[0]].tolist()) - set(range(0, 20, 4))  # some left centres that had stayed
    assert labels.equal(kept)  # which may be the best so far


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
