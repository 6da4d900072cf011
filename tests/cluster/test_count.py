"""Counting categories: the published searches, the score by brute force, and blobs whose number is known."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans

from newkinds.cluster.count import COUNTERS, Count, binary, brent, brent_maximum, halving_maximum, plot, ward
from newkinds.errors import NewkindsError

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "count.json").read_text())


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Matrices this small gain nothing from a second thread, and on a busy machine they wait for it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def published_points() -> tuple[NDArray, NDArray, NDArray]:
    """Features (96, 6), their classes 0..7, and labels in which 0..3 are known."""
    arrays = np.load(DATA / "count.npz")
    known = EXPECTED["ward"]["known"]
    return arrays["X"], arrays["Y"], np.where(arrays["Y"] < known, arrays["Y"], -1)


def blobs(
    classes: int, known: int, each: int = 16, noise: float = 0.1, labelled: float = 0.5, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray]:
    """Unit rows around `classes` directions, and labels of a share of the first `known` classes."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(classes), each)
    points = rng.normal(size=(classes, 16))[truth] + noise * rng.normal(size=(len(truth), 16))
    given = (truth < known) & (np.arange(len(truth)) % each < labelled * each)
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    return unit.astype(np.float32), np.where(given, truth, -1)


def best_match(cluster: NDArray, y: NDArray) -> float:
    """Share of labelled images that fit, over every way to give each class a cluster of its own."""
    classes = sorted(set(y[y >= 0]))
    return max(
        sum(int(c == chosen[classes.index(label)]) for c, label in zip(cluster[y >= 0], y[y >= 0], strict=True))
        for chosen in permutations(sorted(set(cluster)), len(classes))
    ) / int((y >= 0).sum())


def peaked(case: dict[str, Any]) -> tuple[Callable[[int], float], list[int]]:
    """The score of a published search, and the list of K it has been asked for."""
    asked: list[int] = []

    def score(k: int) -> float:
        asked.append(k)
        return math.exp(-(((k - case["peak"]) / case["width"]) ** 2))

    return score, asked


@pytest.mark.parametrize("case", EXPECTED["brent"], ids=lambda case: str(case["peak"]))
def test_brent_asks_for_the_published_numbers(case: dict[str, Any]) -> None:
    score, asked = peaked(case)
    assert brent_maximum(score, case["smallest"], case["largest"]) == case["answer"]
    assert asked == case["asked"]


def test_halving_asks_for_the_published_numbers() -> None:
    case = EXPECTED["binary"]
    score, asked = peaked(case)
    assert halving_maximum(score, case["smallest"], case["largest"]) == case["answer"]
    assert asked == case["asked"]


def test_ward_with_the_truth_gives_the_published_answer() -> None:
    features, truth, y = published_points()
    count = ward(features, y, published_truth=truth)
    assert count.answer == EXPECTED["ward"]["answer"]
    assert count.score == pytest.approx(EXPECTED["ward"]["old_accuracy"], abs=1e-12)


def old_accuracy(truth: NDArray, cluster: NDArray, known: int) -> float:
    size = max(truth.max(), cluster.max()) + 1
    counts = np.zeros((size, size), dtype=int)
    np.add.at(counts, (cluster, truth), 1)
    match = dict(zip(*linear_sum_assignment(counts.max() - counts), strict=True))
    return float(np.mean([match[c] == t for c, t in zip(cluster, truth, strict=True) if t < known]))


def published_search(features: NDArray, truth: NDArray, known: int) -> tuple[int, list[tuple[int, float]], bool]:
    """The answer, the K that were tried with their scores, and whether other numbers of the clusters change one."""
    tree = linkage(features, "ward")
    answer, best, waited, tried, numbers_decide = 0, 0.0, 0, {}, False
    for j in range(len(features) - 2 - known, -1, -1):
        cluster = fcluster(tree, tree[j, 2], "distance")
        k, score = len(set(cluster)), old_accuracy(truth, cluster, known)
        tried[k] = score
        numbers_decide |= score != old_accuracy(truth, k - cluster, known)
        if score > best:
            answer, best, waited = k, score, 0
        else:
            waited += 1
        if waited == 50:
            break
    return answer, list(tried.items()), numbers_decide


@pytest.mark.parametrize("whole", [False, True])  # whole numbers: some merges are equally high
def test_published_search_numbers_clusters_as_scipy_does(whole: bool) -> None:
    decided = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        truth = rng.permutation(np.arange(70) % 7)
        features = rng.normal(size=(7, 3))[truth] + rng.normal(size=(70, 3))
        features = (2 * features).round() if whole else features
        y = np.where((truth < 3) & (np.arange(70) % 5 > 0), truth, -1)
        answer, tried, numbers_decide = published_search(features, truth, known=3)
        count = ward(features, y, published_truth=truth)
        assert (count.answer, count.curve) == (answer, tried)
        decided += numbers_decide
    assert decided > 0


def test_without_the_truth_the_score_is_another() -> None:
    features, truth, y = published_points()
    assert ward(features, y).curve != ward(features, y, published_truth=truth).curve


@pytest.mark.parametrize("ties", ["gap", "first"])
@pytest.mark.parametrize("seed", range(3))
def test_ward_is_the_plain_search_with_scipys_tree(seed: int, ties: str) -> None:
    features, y = blobs(classes=7, known=3, each=8, noise=0.9, seed=seed)
    tree = linkage(features.astype(np.float64), "ward")
    curve, best, waited = [], -1.0, 0
    for k in range(4, len(y) + 1):
        score = best_match(fcluster(tree, k, "maxclust"), y)
        curve.append((k, score))
        if score > best:
            best, waited = score, 0
        else:
            waited += 1
        if waited == 6:
            break
    tied = [k for k, score in curve if score == best]
    # Merge -k leaves k clusters, merge -k + 1 is the next.
    gaps = {k: tree[-k + 1, 2] / tree[-k, 2] for k in tied}
    count = ward(features, y, patience=6, ties=ties)  # type: ignore[arg-type]
    assert dict(count.curve) == pytest.approx(dict(curve))
    assert count.answer == (tied[0] if ties == "first" else max(tied, key=gaps.__getitem__))
    assert (count.method, count.known, count.score) == ("ward", 3, pytest.approx(best))


@pytest.mark.parametrize("counter", [brent, binary])
def test_kmeans_scores_are_the_best_match_and_each_k_is_tried_once(
    counter: Callable[..., Count], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    class Counted(KMeans):
        def fit(self, X: NDArray) -> KMeans:
            tried.append(self.n_clusters)
            return super().fit(X)

    monkeypatch.setattr("sklearn.cluster.KMeans", Counted)
    features, y = blobs(classes=5, known=3, each=8, noise=0.8)
    count = counter(features, y, largest=12, n_init=2, random_state=3)
    assert [k for k, _ in count.curve] == tried
    assert len(set(tried)) == len(tried)
    for k, score in count.curve:
        assert score == pytest.approx(best_match(KMeans(k, n_init=2, random_state=3).fit(features).labels_, y))
    assert min(tried) >= 3
    assert max(tried) <= 12
    assert count.score >= max(score for k, score in count.curve if abs(k - count.answer) <= 1)


@pytest.mark.parametrize("known", [2, 6, 11])
def test_ward_finds_the_number_of_blobs(known: int) -> None:
    features, y = blobs(classes=12, known=known)
    count = ward(features, y)
    assert (count.answer, count.new) == (12, 12 - known)
    assert count.score == 1


def test_the_first_of_equally_good_numbers_is_too_small() -> None:
    features, y = blobs(classes=12, known=2)
    assert ward(features, y, ties="first").answer < 12


@pytest.mark.parametrize("counter", [brent, binary])
def test_kmeans_searches_find_the_number_of_blobs(counter: Callable[..., Count]) -> None:
    features, y = blobs(classes=9, known=8, noise=0.3)
    assert counter(features, y, largest=20, n_init=5).answer == 9


@pytest.mark.parametrize("name", list(COUNTERS))
def test_class_numbers_and_kinds_of_array_do_not_matter(name: str) -> None:
    features, y = blobs(classes=6, known=3, each=8, noise=0.6)
    other = torch.from_numpy(np.where(y >= 0, 5 * y + 7, -1))
    assert COUNTERS[name](features, y) == COUNTERS[name](torch.from_numpy(features), other)


def test_copies_of_images_are_not_taken_for_categories() -> None:
    features, y = blobs(classes=5, known=2, each=1, labelled=1)
    copies, labels = features.repeat(6, axis=0), y.repeat(6)
    labels[1::2] = -1
    assert ward(copies, labels).answer == 5
    features, y = blobs(classes=6, known=3, each=8, labelled=0.1)  # an image a class: every cut keeps it whole
    features[-4:-2] = features[-2:]
    assert ward(features, y).answer == 6


@pytest.mark.parametrize("name", list(COUNTERS))
def test_a_class_with_one_image_and_constant_features(name: str) -> None:
    features, y = blobs(classes=6, known=4)
    y[(y == 2) & (np.arange(len(y)) % 16 > 0)] = -1
    assert (y == 2).sum() == 1
    padded = np.concatenate([features, np.full((len(features), 3), 7, dtype=np.float32)], axis=1)
    assert COUNTERS[name](padded, y).answer >= 4
    assert ward(padded, y).answer == 6


def test_count_can_be_written_as_json_and_read_back() -> None:
    features, y = blobs(classes=6, known=3)
    for name in COUNTERS:
        count = COUNTERS[name](features, y)
        read = Count(**json.loads(json.dumps(asdict(count))))
        assert (read.answer, read.new, read.known, read.score) == (count.answer, count.new, count.known, count.score)
        assert plot(read) == plot(count)


@pytest.mark.parametrize("name", list(COUNTERS))
def test_features_without_room_for_a_new_category_are_refused(name: str) -> None:
    y = [0, 0, 1, 1] + [-1] * 8
    for features, differing in ((np.ones((12, 3)), 1), (np.eye(2).repeat(6, axis=0), 2)):
        with pytest.raises(NewkindsError, match=f"only {differing} different features, .* 2 classes are known"):
            COUNTERS[name](features, y)


@pytest.mark.parametrize("name", list(COUNTERS))
def test_no_more_categories_than_images_that_differ(name: str) -> None:
    image = np.arange(60) % 5
    features = np.random.default_rng(0).normal(size=(5, 4))[image]
    y = np.where(np.arange(60) < 20, image % 3, -1)  # copies of an image with different labels
    count = COUNTERS[name](features, y)
    assert min(k for k, _ in count.curve) >= 3
    assert max(k for k, _ in count.curve) <= 5


def test_images_without_clusters_are_not_each_a_category() -> None:
    features = np.random.default_rng(0).normal(size=(40, 4))
    count = ward(features, [0, 1] + [-1] * 38)  # two labels are soon apart: every K is as good
    assert count.curve[-1] == (40, 1)
    assert count.answer < 40


def test_default_upper_end_follows_the_number_of_images() -> None:
    features, y = blobs(classes=4, known=2, each=10)
    assert max(k for k, _ in binary(features, y, n_init=1).curve) == 10
    few, labels = blobs(classes=4, known=3, each=3)
    assert max(k for k, _ in binary(few, labels, n_init=1).curve) == 4


@pytest.mark.parametrize("name", list(COUNTERS))
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([-1] * 8, "none of the images has a label.*label some images of two classes"),
        ([4, 4] + [-1] * 6, "one class.*label some images of two classes"),
        ([0, 1] * 4, "all 8 images have a label"),
        ([0, 1, -1], "one number per point"),
        ([0, 1, -2] + [-1] * 5, "row 2"),
    ],
)
def test_labels_that_cannot_be_counted_by(name: str, labels: list[int], message: str) -> None:
    with pytest.raises(NewkindsError, match=message):
        COUNTERS[name](np.random.default_rng(0).normal(size=(8, 2)), labels)


@pytest.mark.parametrize("name", list(COUNTERS))
def test_features_that_are_not_numbers_are_named(name: str) -> None:
    features, y = blobs(classes=3, known=2)
    features[5, 0] = np.nan
    with pytest.raises(NewkindsError, match="row 5"):
        COUNTERS[name](features, y)


@pytest.mark.parametrize("counter", [brent, binary])
@pytest.mark.parametrize(
    ("largest", "message"), [(3, "3 classes are known"), (49, "only 48 different features"), (9.5, "whole number")]
)
def test_upper_ends_out_of_range(counter: Callable[..., Count], largest: Any, message: str) -> None:
    features, y = blobs(classes=3, known=3)
    with pytest.raises(NewkindsError, match=message):
        counter(features, y, largest=largest)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0}, "patience is a whole number"),
        ({"ties": "last"}, "'gap' or 'first'"),
        ({"published_truth": [0, 1]}, "published_truth"),
        ({"published_truth": [0] * 48}, "published_truth and the labels disagree"),
    ],
)
def test_ward_refuses_options_it_does_not_know(options: dict[str, Any], message: str) -> None:
    features, y = blobs(classes=3, known=2)
    with pytest.raises(NewkindsError, match=message):
        ward(features, y, **options)


def test_published_search_needs_a_number_to_try() -> None:
    with pytest.raises(NewkindsError, match="two images more"):
        ward(np.eye(3), [0, 1, -1], published_truth=[0, 1, 2])


def test_unknown_way_of_counting_suggests_the_nearest() -> None:
    with pytest.raises(NewkindsError, match="'ward'"):
        COUNTERS["wart"]


def test_plot_is_a_png_that_shows_the_answer(tmp_path: Path) -> None:
    curve = [(5, 0.5), (40, 0.9), (6, 0.6), (200, 0.2)]
    count = Count(answer=40, curve=curve, method="brent", known=5)
    png = plot(count, tmp_path / "count.png")
    assert (tmp_path / "count.png").read_bytes() == png == plot(count)
    places = []
    for answer in (6, 40):
        picture = np.asarray(Image.open(io.BytesIO(plot(Count(answer, curve, "brent", 5)))).convert("RGB"))
        orange = np.abs(picture.astype(int) - (0xD5, 0x5E, 0x00)).max(axis=2) < 8  # (h, w)
        places.append(np.argwhere(orange[: int(0.85 * len(orange))]).mean(axis=0))  # the legend is below
    (row_of_6, column_of_6), (row_of_40, column_of_40) = places
    assert column_of_6 + 50 < column_of_40  # more categories: further right
    assert row_of_6 > row_of_40 + 50  # a better score: further up
