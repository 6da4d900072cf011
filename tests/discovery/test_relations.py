"""Categories that are close, categories that may be one, and a map: held to what plain loops find."""

import math

import numpy as np
import pytest

from newkinds.discovery.relations import (
    MAY_BE_ONE,
    NEIGHBOURS,
    may_be_one,
    mixing_of,
    nearest_neighbours,
    relate,
    rivals_of,
)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def clusters(k: int, each: int = 30, dim: int = 24, noise: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows around k random directions, far apart if `noise` is small; and the cluster of each."""
    rng = np.random.default_rng(0)
    category = np.repeat(np.arange(k), each)
    centres = rng.normal(size=(k, dim)) / np.sqrt(dim)
    rows = centres[category] + noise * rng.normal(size=(len(category), dim)) / np.sqrt(dim)
    return unit(rows), category


def test_mixing_is_the_share_of_neighbours_against_chance() -> None:
    rows, category = clusters(3, each=14, noise=2.0)
    rows, category = rows[6:], category[6:]  # one is smaller
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -np.inf)
    links, size = np.zeros((3, 3)), np.bincount(category)
    for i, row in enumerate(cosines):
        for j in np.argsort(-row)[: min(NEIGHBOURS, math.ceil((size[category[i]] - 1) / 2))]:
            links[category[i], category[j]] += 1
    expected = np.zeros((3, 3))
    for a in range(3):
        for b in range(3):
            one, other = (
                links[x, y] / (links[x, x] + links[x, y]) / (size[y] / (size[x] + size[y] - 1))
                for x, y in ((a, b), (b, a))
            )
            expected[a, b] = 0 if a == b else (one + other) / 2
    np.testing.assert_allclose(mixing_of(rows, category, 3), expected)


@pytest.mark.parametrize(("n", "count", "entries"), [(900, 10, 2**23), (900, 3, 20_000), (30, 10, 100), (11, 10, 1)])
def test_neighbours_in_blocks_are_those_of_the_whole_matrix(
    n: int, count: int, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("newkinds.discovery.relations.ENTRIES_AT_ONCE", entries)
    rows = unit(np.random.default_rng(1).normal(size=(n, 7)))
    rows[: n // 3] = rows[0]  # equal images, more than are asked for
    cosines = (rows @ rows.T).astype(np.float64)
    np.fill_diagonal(cosines, -np.inf)
    found = nearest_neighbours(rows, count)
    assert all(len(set(row)) == count and i not in row for i, row in enumerate(found.tolist()))
    np.testing.assert_allclose(np.take_along_axis(cosines, found, 1), -np.sort(-cosines, axis=1)[:, :count], atol=1e-6)


@pytest.mark.parametrize("dim", [16, 384])
@pytest.mark.parametrize("each", [4, 9, 30])
def test_well_separated_categories_are_never_suggested_to_be_one(each: int, dim: int) -> None:
    rows, category = clusters(12, each, dim, noise=0.4)
    assert relate(rows, category, 12, known=4).pairs == []


@pytest.mark.parametrize("dim", [8, 384])
def test_the_halves_of_one_cluster_are_found(dim: int) -> None:
    rows, category = clusters(12, noise=0.5, dim=dim)
    direction = rows[category == 11] @ np.roll(rows[category == 11].mean(axis=0), 1)  # any: the cut is arbitrary
    category[np.flatnonzero(category == 11)[direction > np.median(direction)]] = 12
    pairs = relate(rows, category, 13, known=4).pairs
    assert [(pair.first, pair.second) for pair in pairs] == [(11, 12)]
    assert pairs[0].mixing >= MAY_BE_ONE


def test_known_classes_are_two_and_show_how_freely_different_classes_mix() -> None:
    mixing = np.zeros((7, 7))
    mixing[0, 1] = mixing[1, 0] = 0.9  # two known ones: not suggested
    mixing[2, 6] = mixing[6, 2] = 0.7
    assert [(pair.first, pair.second) for pair in may_be_one(mixing, known=2)] == [(2, 6)]
    assert may_be_one(mixing, known=5) == [], "0.7 is less than two known classes mix"


def test_centres_spread_and_nearest() -> None:
    rows, category = clusters(5, each=9)
    relations = relate(rows, category, 6, known=2)  # the last is empty
    for c in range(5):
        own = rows[category == c]
        centre = own.mean(axis=0) / np.linalg.norm(own.mean(axis=0))
        assert relations.spread[c] == pytest.approx(np.mean([1 - row @ centre for row in own]), abs=1e-5)
        others = [x for x in np.argsort(-relations.similarity[c]) if x not in (c, 5)]
        assert relations.nearest(c) == others[:3]
    assert relations.nearest(5) == []
    assert np.isnan(relations.spread[5])


@pytest.mark.parametrize(("n", "k"), [(0, 2), (1, 1), (3, 3), (4, 1), (40, 9)])
def test_the_map_has_a_place_for_every_image_and_is_the_same_each_time(n: int, k: int) -> None:
    rows = unit(np.random.default_rng(0).normal(size=(n, 5)))
    category = np.arange(n, dtype=np.int64) % k
    first, second = (relate(rows, category, k, known=1) for _ in range(2))
    assert first.places.shape == (n, 2)
    assert np.isfinite(first.places).all()
    assert ((first.places >= 0) & (first.places <= 1)).all()
    np.testing.assert_array_equal(first.places, second.places)


def test_images_lie_near_their_category_on_the_map() -> None:
    rows, category = clusters(10, noise=0.5)
    relations = relate(rows, category, 10, known=5)
    apart = np.linalg.norm(relations.places[:, None] - relations.centres[None], axis=2)
    assert (apart.argmin(axis=1) == category).mean() > 0.95


@pytest.mark.parametrize(("each", "compared"), [(3, False), (4, True)])
def test_neighbours_of_very_few_images_say_nothing(each: int, compared: bool) -> None:
    """Two categories whose images lie in pairs, one of each: as mixed as can be."""
    rng = np.random.default_rng(0)
    rows = unit(np.repeat(rng.normal(size=(each, 5)), 2, axis=0) + rng.normal(size=(2 * each, 5)) / 100)
    assert bool(mixing_of(rows, np.arange(2 * each) % 2, 2)[0, 1] > 0) is compared


def test_the_second_best_category_is_that_of_plain_loops() -> None:
    rows, of = clusters(4, each=7, noise=1.5)
    of = of * 3 + 2  # ids have gaps
    of[[0, 9]] = -1, -2  # in no category
    of[1] = 40  # alone in its own
    rivals = rivals_of(rows, of)
    ids = sorted({number for number in of.tolist() if number >= 0})
    for place, number in enumerate(of.tolist()):
        like = {}
        for category in ids:
            inside = [row for row in range(len(of)) if of[row] == category and row != place]
            mean = rows[inside].mean(axis=0) if inside else np.zeros(rows.shape[1])
            like[category] = float(rows[place] @ mean / max(np.linalg.norm(mean), 1e-12))
        own = like.pop(number, 0.0)
        other = max(like, key=lambda category: like[category])
        assert rivals.other_id[place] == other
        assert rivals.own[place] == pytest.approx(own, abs=1e-5)
        assert rivals.margin[place] == pytest.approx(own - like[other], abs=1e-5)


@pytest.mark.parametrize("of", [[5, 5], [-1, -1], []])
def test_without_another_category_there_is_no_second_best(of: list[int]) -> None:
    rivals = rivals_of(unit(np.ones((len(of), 3))), np.array(of, np.int64))
    assert rivals.other_id.tolist() == [-1] * len(of)
    assert np.isfinite(rivals.margin).all()
