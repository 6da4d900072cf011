"""The combined count: every statistic by hand, blobs whose number is known, and what it says when it cannot know."""

from itertools import permutations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from newkinds.cluster.count import combined, count_text, how_sure, plot
from newkinds.cluster.count.cuts import STEP, Cuts, Leaves
from newkinds.cluster.count.share import LabelledNeighbours


def blobs(
    sizes: list[int], known: int, noise: float = 0.1, labelled: float = 0.5, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray, NDArray]:
    """Unit rows around a direction for each class of `sizes` images, labels of a share of the first `known`, truth."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    points = rng.normal(size=(len(sizes), 16))[truth] + noise * rng.normal(size=(len(truth), 16))
    y = np.full(len(truth), -1)
    for c in range(known):
        rows = np.flatnonzero(truth == c)
        y[rows[: max(1, round(labelled * len(rows)))]] = c
    order = rng.permutation(len(truth))
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    return unit[order].astype(np.float32), y[order], truth[order]


@pytest.fixture(scope="module")
def overlapping() -> tuple[NDArray[np.float32], NDArray, NDArray]:
    return blobs([8] * 7, known=3, noise=0.9)


@pytest.fixture(scope="module")
def cuts(overlapping: tuple[NDArray[np.float32], NDArray, NDArray]) -> Cuts:
    points, y, _ = overlapping
    rows = torch.from_numpy(points)
    return Cuts(rows, y, 3, 28, Leaves.made_of(rows))


def clusters_at(points: NDArray, k: int) -> NDArray:
    return fcluster(linkage(points.astype(np.float64), "ward"), k, "maxclust")


def test_one_cut_in_each_step_is_looked_at_that_of_the_widest_gap(cuts: Cuts) -> None:
    heights = linkage(cuts.points.double().numpy(), "ward")[:, 2]
    gap = {k: heights[-k + 1] / heights[-k] for k in range(3, 29)}
    steps: dict[int, list[int]] = {}
    for k in gap:
        steps.setdefault(int(np.log(k / 3) / np.log(STEP) + 1e-9), []).append(k)
    assert cuts.ks.tolist() == [max(some, key=gap.__getitem__) for some in steps.values()]
    assert any(len(some) > 1 for some in steps.values())
    assert cuts.gap == pytest.approx(list(gap.values()))


def test_agreement_is_the_best_match_with_the_classes(cuts: Cuts) -> None:
    labelled = cuts.labels >= 0
    for k, share in zip(cuts.ks, cuts.agreement, strict=True):
        found = clusters_at(cuts.points.numpy(), k)[labelled]
        fits = max(
            sum(int(chosen[c] == of) for c, of in zip(cuts.labels[labelled], found, strict=True))
            for chosen in permutations(sorted({*found, -1, -2}), 3)
        )
        assert share == pytest.approx(fits / labelled.sum())


def test_room_is_the_part_of_their_clusters_that_labelled_images_fill(cuts: Cuts) -> None:
    for k, room in zip(cuts.ks, cuts.room, strict=True):
        found = clusters_at(cuts.points.numpy(), k)
        expected = [sum(1 / (found == found[i]).sum() for i in np.flatnonzero(cuts.labels == c)) for c in range(3)]
        assert room == pytest.approx(expected)


def test_silhouette_by_distances_to_centres(cuts: Cuts) -> None:
    points = cuts.points.double().numpy()
    for k, silhouette in zip(cuts.ks, cuts.silhouette, strict=True):
        found = clusters_at(points, k)
        scores = []
        for i, point in enumerate(points):
            others = (found == found[i]) & (np.arange(len(points)) != i)
            if not others.any():
                scores.append(0.0)
                continue
            a = np.linalg.norm(point - points[others].mean(axis=0))
            b = min(np.linalg.norm(point - points[found == c].mean(axis=0)) for c in set(found) - {found[i]})
            scores.append((b - a) / max(a, b))
        assert silhouette == pytest.approx(np.mean(scores), abs=1e-5)


def test_votes_are_the_best_cuts(cuts: Cuts) -> None:
    gap = dict(zip(range(3, 29), cuts.gap, strict=True))
    best = [k for k, share in zip(cuts.ks, cuts.agreement, strict=True) if share == max(cuts.agreement)]
    assert cuts.votes() == {
        "agreement": max(best, key=gap.__getitem__),
        "silhouette": cuts.ks[cuts.silhouette.argmax()],
        "gap": max(cuts.ks.tolist(), key=gap.__getitem__),
    }


def counted_neighbours(points: NDArray, y: NDArray, k: int) -> list[tuple[int, list[int]]]:
    """Of each labelled image its class and those of its k nearest, -1 if there is none."""
    found = []
    for i in np.flatnonzero(y >= 0):
        similarity = points @ points[i]
        similarity[i] = -np.inf
        found.append((int(y[i]), y[np.argsort(-similarity)[:k]].tolist()))
    return found


def test_deviation_of_a_labelled_share_by_hand(overlapping: tuple[NDArray[np.float32], NDArray, NDArray]) -> None:
    points, y, _ = overlapping
    k, total, labelled = 5, len(y), int((y >= 0).sum())
    size = [int((y == c).sum()) for c in range(3)]
    neighbours = LabelledNeighbours.of(torch.from_numpy(points), y, k)
    for f, deviation in zip((0.2, 0.5, 0.9), neighbours.deviation(np.array([0.2, 0.5, 0.9])), strict=True):
        difference, influence = 0.0, np.zeros(3)
        for c, near in counted_neighbours(points, y, k):
            same = f * near.count(c) * (size[c] / f - 1) / (size[c] - 1) - f * k
            difference += same
            influence[c] += same
            for other in near:
                if other not in (c, -1):
                    part = f * (total - size[c] / f) / (labelled - size[c])
                    difference += part
                    influence[c] += part
                    influence[other] += part
        variance = 3 * influence.var(ddof=1)
        least = 1 + f * sum(k * n * n / (n - 1) for n in size)
        assert deviation == pytest.approx(difference / np.sqrt(max(variance, least)))


@pytest.mark.parametrize("share", [0.25, 0.6])
def test_the_labelled_share_of_known_classes_is_found_though_classes_overlap(share: float) -> None:
    points, y, _ = blobs([40] * 30, known=12, noise=1.0, labelled=share)
    neighbours = LabelledNeighbours.of(torch.from_numpy(points), y)
    near = counted_neighbours(points, y, 8)
    purity = np.mean([share_of.count(c) for c, share_of in near]) / 8 / share
    assert purity < 0.8  # counted as it is, the share would be that much too low
    tried = np.linspace(0.1, 1, 91)
    deviation = neighbours.deviation(tried)
    assert abs(tried[np.abs(deviation).argmin()] / share - 1) < 0.15
    assert abs(neighbours.deviation(np.array([share]))[0]) < 2
    assert deviation[0] > 3 > -3 > deviation[-1]


@pytest.mark.parametrize("known", [2, 6, 11])
def test_clear_categories_are_counted_exactly_and_lie_in_the_interval(known: int) -> None:
    features, y, _ = blobs([16] * 12, known)
    count = combined(features, y)
    assert count.answer == 12
    assert count.low is not None
    assert count.high is not None
    assert count.low <= 12 <= count.high <= count.low + 3
    assert count.votes["agreement"] == count.votes["silhouette"] == count.votes["gap"] == 12
    assert count.sure == ("unsure" if known < 4 else "sure")


def test_overlapping_categories_lie_in_most_intervals() -> None:
    errors, held = [], 0
    for seed in range(6):
        features, y, _ = blobs([20] * 40, known=15, noise=0.9, seed=seed)
        count = combined(features, y)
        assert count.low is not None
        assert count.high is not None
        assert count.high < 3 * count.low
        errors.append(abs(count.answer / 40 - 1))
        held += count.low <= 40 <= count.high
    assert np.mean(errors) < 0.15
    assert held >= 4  # of 6: an interval of 90 % may miss


def test_the_same_images_give_the_same_count() -> None:
    features, y, _ = blobs([12] * 10, known=5, noise=0.7)
    assert combined(features, y) == combined(features, y)
    assert combined(features, y, random_state=1).curve == combined(features, y).curve


def test_features_that_were_learnt_with_the_labels_say_nothing_by_their_neighbours() -> None:
    features, y, _ = blobs([20] * 30, known=10, noise=0.9)
    alone, asked = combined(features, y, learnt=True), combined(features, y)
    assert "labelled neighbours" not in alone.votes
    assert "labelled neighbours" in asked.votes
    assert alone.high is not None
    assert alone.low is not None
    assert asked.high is not None
    assert asked.low is not None
    assert alone.high / alone.low > asked.high / asked.low


@pytest.mark.parametrize(
    ("sizes", "known", "labelled", "caution"),
    [
        ([10] * 12, 6, 0.01, "Most classes have fewer than 3 labelled images"),
        ([10] * 12, 2, 0.5, "Only 2 classes have labels"),
        ([2] * 30, 15, 0.5, "Most classes have fewer than 3"),
        ([100, 50, 20, 10, 5, 2, 1, 1], 4, 0.5, ""),
        ([1, 1, 2, 5, 10, 20, 50, 100], 5, 0.5, "Most classes have fewer than 3"),
        ([1, 1, 2], 2, 1.0, "Only 2 classes"),
    ],
)
def test_few_labels_and_long_tails_are_survived_and_said(
    sizes: list[int], known: int, labelled: float, caution: str
) -> None:
    features, y, _ = blobs(sizes, known, noise=0.5, labelled=labelled)
    count = combined(features, y)
    assert count.low is not None
    assert count.high is not None
    assert known <= count.low <= count.answer <= count.high
    assert count.caution.startswith(caution)
    if caution:
        assert count.sure == "unsure"
        assert caution in count_text(count)


def test_the_interval_is_said_and_drawn() -> None:
    features, y, _ = blobs([16] * 12, known=6)
    count = combined(features, y)
    said = f"Between {count.low} and {count.high} with a probability of 90 %."
    assert said in how_sure(count)
    assert how_sure(count) in count_text(count)
    assert "| labelled neighbours" in count_text(count)
    without = type(count)(count.answer, count.curve, count.method, count.known)
    assert how_sure(without) == ""
    assert plot(without) != plot(count)
