"""What a mixture of known and new clusters adds to counting: directions in which classes differ, where most do not."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from newkinds.cluster.count import combined
from newkinds.cluster.count.mixture import MOST_ROWS, Mixture
from newkinds.verbs.count import estimate_number


def elongated(seed: int, classes: int = 20, known: int = 10, images: int = 24) -> tuple[NDArray[np.float32], NDArray]:
    """Unit rows that differ between classes in 8 directions, and much more within all of them in 3 others."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(classes), images)
    between = rng.normal(size=(classes, 8))[truth] + 0.2 * rng.normal(size=(len(truth), 8))
    points = np.concatenate([between, 3.0 * rng.normal(size=(len(truth), 3))], axis=1)
    y = np.where((truth < known) & (np.arange(len(truth)) % 2 == 0), truth, -1)
    order = rng.permutation(len(truth))
    return (points / np.linalg.norm(points, axis=1, keepdims=True))[order].astype(np.float32), y[order]


def test_classes_that_differ_in_few_directions_are_counted_where_trees_cannot() -> None:
    with_em, without = [], []
    for seed in range(3):
        features, y = elongated(seed)
        trees = combined(features, y, em=False)
        count = estimate_number(torch.from_numpy(features), y, 10)
        assert count.low is not None and count.high is not None  # noqa: PT018
        assert trees.low is not None and trees.high is not None  # noqa: PT018
        assert count.low <= 20 <= count.high
        assert count.high / count.low < trees.high / trees.low
        assert "mixture" in count.votes and "mixture" not in trees.votes  # noqa: PT018
        with_em.append(abs(count.answer / 20 - 1))
        without.append(abs(trees.answer / 20 - 1))
    assert np.mean(with_em) < 0.2
    assert np.mean(with_em) < np.mean(without) / 2


def test_the_ratio_is_one_at_the_right_number_if_nothing_is_confused() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(12), 20)
    points = F.normalize(torch.from_numpy(rng.normal(size=(12, 16))[truth] + 0.05 * rng.normal(size=(240, 16))).float())
    y = np.where((truth < 6) & (np.arange(240) % 2 == 0), truth, -1)
    mixture = Mixture.of(points - points.mean(dim=0), y, 100)
    assert mixture is not None
    assert mixture.log_ratio(12) == pytest.approx(0, abs=0.02)
    assert mixture.log_ratio(18) < -0.2
    vote, error = mixture.answer(math.log(16))
    assert math.exp(vote) == pytest.approx(12, rel=0.1)
    assert error < 0.15


def test_too_few_labels_are_not_asked() -> None:
    features, y = elongated(0)
    points = torch.from_numpy(features)
    three_classes = np.where(y < 3, y, -1)
    one_each = np.full(len(y), -1)
    for c in range(10):
        one_each[np.flatnonzero(y == c)[0]] = c
    for labels in (three_classes, one_each):
        assert Mixture.of(points, labels, 100) is None
        assert "mixture" not in combined(features, labels).votes
    assert "mixture" not in combined(features, y, learnt=True).votes


def test_of_very_many_images_some_are_looked_at() -> None:
    rng = np.random.default_rng(0)
    many = MOST_ROWS + 500
    y = np.where(np.arange(many) % 4 == 0, rng.integers(0, 5, many), -1)
    mixture = Mixture.of(torch.from_numpy(rng.normal(size=(many, 3))).float(), y, many)
    assert mixture is not None
    assert len(mixture.points) == len(mixture.labels) == MOST_ROWS
    assert mixture.largest == MOST_ROWS // 2
    assert set(mixture.labels.tolist()) == {-1, 0, 1, 2, 3, 4}
