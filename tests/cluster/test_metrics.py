"""Clustering accuracy against published numbers and against every possible match."""

import itertools
import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from newkinds.cluster.metrics import (
    accuracy_by_name,
    balanced_clustering_accuracy,
    clustering_accuracy,
    clustering_accuracy_v1,
    score_clustering,
)
from newkinds.errors import NewkindsError

PUBLISHED = json.loads((Path(__file__).parents[1] / "numbers" / "metrics.json").read_text())
by_tag = pytest.mark.parametrize("case", PUBLISHED, ids=[case["tag"] for case in PUBLISHED])


def same(got, expected):
    return tuple(got) == pytest.approx(tuple(expected), abs=1e-12, nan_ok=True)


@by_tag
def test_published_numbers(case):
    true, pred, mask = case["y_true"], case["y_pred"], case["mask_old"]
    assert same(clustering_accuracy(true, pred, mask), case["v2"])
    assert same(clustering_accuracy_v1(true, pred, mask), case["v1"])
    assert same(balanced_clustering_accuracy(true, pred, mask), case["v2_balanced"])
    assert clustering_accuracy(true, pred, mask).all == pytest.approx(case["cluster_acc"], abs=1e-12)


@by_tag
def test_known_is_a_mask_or_the_known_labels(case):
    true, pred, mask = np.array(case["y_true"]), np.array(case["y_pred"]), np.array(case["mask_old"])
    known = set(true[mask == 1].tolist())
    for way in (mask.astype(bool), mask.tolist(), mask.astype(bool).tolist(), known, sorted(known)):
        assert same(clustering_accuracy(true, pred, way), case["v2"])


# --- every possible match, one image at a time ------------------------------------------------------------


def every_match(true, pred):
    """Each one-to-one match of categories with classes, and how many images agree under it."""
    size = max(*true, *pred) + 1
    for match in itertools.permutations(range(size)):
        yield match, sum(match[p] == t for t, p in zip(true, pred, strict=True))


def best_matches(true, pred):
    scored = list(every_match(true, pred))
    most = max(score for _, score in scored)
    return [match for match, score in scored if score == most]


def share(true, pred, match, of):
    judged = [(t, p) for t, p in zip(true, pred, strict=True) if of(t)]
    return sum(match[p] == t for t, p in judged) / len(judged)


def mean_recall(true, pred, match, of):
    classes = {t for t in true if of(t)}
    return sum(share(true, pred, match, lambda t, c=c: t == c) for c in classes) / len(classes)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("classes", "categories"), [(4, 4), (5, 3), (3, 5)])
def test_against_every_possible_match(seed, classes, categories):
    rng = np.random.RandomState(seed)
    true = [*range(classes), *rng.randint(classes, size=16).tolist()]
    pred = rng.randint(categories, size=len(true)).tolist()
    known = [0, 1]
    splits = (lambda t: True, lambda t: t in known, lambda t: t not in known)

    # Several matches may be best: the answer must be that of one of them.
    for metric, naive in [(clustering_accuracy, share), (balanced_clustering_accuracy, mean_recall)]:
        possible = [[naive(true, pred, match, of) for of in splits] for match in best_matches(true, pred)]
        assert any(same(metric(true, pred, known), answer) for answer in possible)

    old, new = (
        max(score for _, score in every_match(*zip(*pairs, strict=True)))
        for pairs in (
            [(t, p) for t, p in zip(true, pred, strict=True) if t in known],
            [(t, p) for t, p in zip(true, pred, strict=True) if t not in known],
        )
    )
    olds = sum(t in known for t in true)
    v1 = ((old + new) / len(true), old / olds, new / (len(true) - olds))
    assert same(clustering_accuracy_v1(true, pred, known), v1)


# --- properties -----------------------------------------------------------------------------------------


@pytest.fixture
def labelled():
    rng = np.random.RandomState(0)
    true = rng.randint(7, size=300)
    pred = np.where(rng.rand(300) < 0.6, true, rng.randint(9, size=300))
    return true, pred


def test_names_and_order_of_categories_do_not_matter(labelled):
    true, pred = labelled
    expected = score_clustering(true, pred, known=range(4))
    rng = np.random.RandomState(1)
    order, renamed = rng.permutation(len(true)), rng.permutation(9)
    assert score_clustering(true[order], renamed[pred[order]], known=range(4)) == pytest.approx(expected)
    names = np.array(["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis"])
    assert score_clustering(names[true], names[pred], known=names[:4]) == pytest.approx(expected)
    assert score_clustering(names[true].tolist(), pred, known=set(names[:4].tolist())) == pytest.approx(expected)


@pytest.mark.parametrize("far", [[-5, -1, 3, -9, 2, 0, 7], [4, 10**9, 3, 10**8, 2, 0, 2001]])
def test_negative_and_huge_labels_do_not_ask_for_huge_matrices(labelled, far):
    true, pred = labelled
    got = score_clustering(np.array(far)[true], pred * 10**8, known=far[:4])
    assert got == pytest.approx(score_clustering(true, pred, known=range(4)))


def test_unsigned_labels_do_not_wrap_around():
    true = np.repeat(np.arange(250, dtype=np.uint8), 2)
    assert clustering_accuracy(true, true[::-1], known=range(100)) == (1, 1, 1)


def test_all_is_the_weighted_mean_of_old_and_new(labelled):
    true, pred = labelled
    olds = (true < 4).mean()
    for metric in (clustering_accuracy, clustering_accuracy_v1):
        got = metric(true, pred, range(4))
        assert got.all == pytest.approx(olds * got.old + (1 - olds) * got.new)
    assert clustering_accuracy_v1(true, pred, range(4)).new >= clustering_accuracy(true, pred, range(4)).new


def test_ties_are_settled_the_same_way_every_time():
    """Category 0 is half class 0 (known), half class 1 (new): either match is best, All does not change."""
    true, pred = [0, 0, 1, 1], [0, 0, 0, 0]
    answers = {clustering_accuracy(true, pred, known=[0]) for _ in range(5)}
    assert answers in ({(0.5, 1.0, 0.0)}, {(0.5, 0.0, 1.0)})


def test_evaluate_names_every_metric(labelled):
    true, pred = labelled
    scores = score_clustering(true, pred, known=range(4))
    assert list(scores) == [
        *(f"{name}_{split}" for name in ("acc", "acc_v1", "acc_balanced") for split in ("all", "old", "new")),
        "nmi",
        "ari",
    ]
    assert tuple(scores.values())[:3] == clustering_accuracy(true, pred, range(4))
    assert scores["nmi"] == pytest.approx(normalized_mutual_info_score(true, pred))
    assert scores["ari"] == pytest.approx(adjusted_rand_score(true, pred))
    assert all(type(value) is float for value in scores.values())


# --- empty splits and wrong input -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "rest"),
    [(clustering_accuracy, 2 / 3), (clustering_accuracy_v1, 2 / 3), (balanced_clustering_accuracy, 1 / 2)],
)
def test_an_empty_split_is_nan_with_a_warning(metric, rest):
    with pytest.warns(UserWarning, match="no evaluated image is of a known class"):
        assert same(metric([0, 0, 1], [1, 1, 1], known=[]), (rest, math.nan, rest))
    with pytest.warns(UserWarning, match="no evaluated image is of a new class"):
        assert same(metric([0, 0, 1], [1, 1, 1], known=[True] * 3), (rest, rest, math.nan))
    with pytest.warns(UserWarning, match="no images to evaluate"):
        assert same(metric([], [], known=[]), [math.nan] * 3)


def test_evaluate_warns_once_and_never_of_a_full_split():
    with pytest.warns(UserWarning, match="every metric is NaN") as caught:
        scores = score_clustering([], [], known=[1, 2])
    assert len(caught) == 1
    assert all(math.isnan(value) for value in scores.values())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score_clustering([0, 1], [0, 0], known=[0])


def test_a_single_image_and_a_single_category():
    assert clustering_accuracy([3, 4], [0, 0], known=[3]).all == 0.5
    with pytest.warns(UserWarning, match="new class"):
        assert clustering_accuracy(["a"], [12], known=["a"])[:2] == (1, 1)


def test_wrong_input_is_explained():
    with pytest.raises(NewkindsError, match=r"\(3,\) and \(2,\)"):
        clustering_accuracy([0, 1, 2], [0, 1], known=[0])
    with pytest.raises(NewkindsError, match="mask of 2 entries, but there are 3 images"):
        clustering_accuracy([0, 1, 2], [0, 1, 1], known=[True, False])
    with pytest.raises(NewkindsError, match="class 1 as known and others as new"):
        clustering_accuracy([0, 1, 1], [0, 1, 1], known=[True, True, False])


# --- names taken at their word ----------------------------------------------------------------------------


def by_name_naively(true, claimed, known):
    """(all, old, new, precision): every match of new categories with new classes is tried, one image at a time."""
    classes = sorted({t for t in true if t not in known})
    new = sorted({c for c in claimed if c not in known})
    slots = [*classes, *[None] * len(new)]  # a category may also stay without a class
    best = 0
    for match in itertools.permutations(slots, len(new)):
        class_of = dict(zip(new, match, strict=True))
        best = max(best, sum(c in class_of and class_of[c] == t for t, c in zip(true, claimed, strict=True)))
    right_old = sum(t == c for t, c in zip(true, claimed, strict=True) if t in known)
    of_old, under_names = sum(t in known for t in true), sum(c in known for c in claimed)
    return (right_old + best) / len(true), right_old / of_old, best / (len(true) - of_old), right_old / under_names


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("categories", [4, 5, 6])
def test_accuracy_by_name_against_every_match_of_the_new(seed, categories):
    rng = np.random.RandomState(seed)
    true = [*range(5), *rng.randint(5, size=16).tolist()]
    claimed = rng.permutation(np.concatenate([range(categories), rng.randint(categories, size=21 - categories)]))
    got = accuracy_by_name(np.array(true), claimed, known=[0, 1])
    expected = by_name_naively(true, claimed.tolist(), [0, 1])
    assert same((got.all, got.old, got.new, got.precision), expected)
    assert got.recall == got.old
    as_text = accuracy_by_name([f"c{t}" for t in true], [f"c{c}" for c in claimed], known={"c0", "c1"})
    assert as_text == got


def test_a_match_cannot_see_swapped_names_but_accuracy_by_name_does():
    true, swapped = [0, 0, 0, 1, 1, 2, 2], [1, 1, 1, 0, 0, 5, 5]
    assert clustering_accuracy(true, swapped, known=[0, 1]) == (1.0, 1.0, 1.0)
    found = accuracy_by_name(true, swapped, known=[0, 1])
    assert (found.old, found.new, found.precision) == (0.0, 1.0, 0.0)
    assert found.all == pytest.approx(2 / 7)


def test_accuracy_by_name_of_empty_splits_is_nan():
    none_new = accuracy_by_name([0, 0], [0, 3], known=[0])
    assert (none_new.all, none_new.old, none_new.precision) == (0.5, 0.5, 1.0)
    assert math.isnan(none_new.new)
    assert math.isnan(accuracy_by_name([0, 4], [3, 3], known=[0]).precision)
    assert math.isnan(accuracy_by_name([], [], known=[0]).all)
    with pytest.raises(NewkindsError, match="not 2 and 1"):
        accuracy_by_name([0, 1], [0], known=[0])
