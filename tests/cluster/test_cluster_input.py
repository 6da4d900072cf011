"""Points, labels and settings that cannot be clustered, or only just."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from blobs import blobs, same_partition
from newkinds.cluster import (
    BalancedSemiSupervisedKMeans,
    KMeans,
    SemiSupervisedKMeans,
    Ward,
    mean_shift_step,
)
from newkinds.errors import NewkindsError

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
        ([[0], [0, 1]], "one number per point"),
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
