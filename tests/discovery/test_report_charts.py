"""The drawings of the page: every image has a dot, names do not cover each other, the curve shows its answer."""

import re

import numpy as np
import pytest

from newkinds.cluster.count import Count
from newkinds.discovery.report.charts import (
    CHART_HEIGHT,
    CHART_WIDTH,
    LABEL_HEIGHT,
    LETTER_WIDTH,
    MAP_HEIGHT,
    MAP_WIDTH,
    count_curve,
    dots,
)


def test_every_image_has_a_dot_in_its_category_and_inside_the_map() -> None:
    places, category = np.random.default_rng(0).random((500, 2)), np.random.default_rng(1).integers(0, 7, 500)
    drawn, _ = dots(places, category, places[:8], [f"c{i}" for i in range(8)])
    assert sorted(drawn) == list(range(7)), "the last has no image"
    for number, entry in drawn.items():
        pieces = np.array([(int(x), int(y)) for x, y in re.findall(r"M(\d+) (\d+)h0", entry.path)])
        assert re.fullmatch(r"(M\d+ \d+h0)+", entry.path)
        assert len(pieces) == (category == number).sum()
        assert ((pieces >= 0) & (pieces <= [MAP_WIDTH, MAP_HEIGHT])).all()
        own = places[category == number]
        for axis in (0, 1):  # what lies to the left of another image in the layout does so on the map
            assert (np.diff(pieces[np.argsort(own[:, axis]), axis]) >= 0).all()


def test_names_do_not_cover_each_other_and_the_largest_come_first() -> None:
    names = ["a", "b", "far", "x" * 300]
    centres = np.array([[0.5, 0.5], [0.5, 0.51], [0.1, 0.9], [0.9, 0.1]])
    category = np.repeat([0, 1, 2, 3], [10, 20, 10, 10])
    drawn, _ = dots(np.full((50, 2), 0.5), category, centres, names)
    assert [drawn[c].label for c in range(3)] == ["", "b", "far"]
    assert len(drawn[3].label) <= 18
    shown = [entry for entry in drawn.values() if entry.label]
    for one in shown:
        half = LETTER_WIDTH * len(one.label) / 2
        assert half <= one.x <= MAP_WIDTH - half
        for other in shown:
            apart = abs(one.x - other.x) >= half + LETTER_WIDTH * len(other.label) / 2
            assert one is other or apart or abs(one.y - other.y) >= LABEL_HEIGHT


def test_a_map_of_nothing() -> None:
    assert dots(np.empty((0, 2)), np.empty(0, dtype=np.int64), np.full((2, 2), np.nan), ["a", "b"])[0] == {}


@pytest.mark.parametrize("largest", [30, 900])  # the second on a logarithmic scale
def test_the_curve_shows_its_answer_and_interval_inside_the_frame(largest: int) -> None:
    scores = [(k, 1 - abs(k - 20) / 1000) for k in range(4, largest)]
    drawn = count_curve(Count(20, scores[::-1], "ward", 3, low=12, high=2000, level=0.9))
    assert drawn is not None
    points = np.array([[float(part) for part in point.split(",")] for point in drawn.line.split()])
    assert (np.diff(points[:, 0]) >= 0).all(), "in the order of K, not in that of the search"
    assert points.min() == 0
    assert points.max(axis=0).tolist() == [CHART_WIDTH, CHART_HEIGHT]
    assert drawn.answer == tuple(points[20 - 4])
    assert drawn.answer[1] == 0, "the best score is on top"
    assert drawn.interval is not None
    left, width = drawn.interval
    assert left == points[12 - 4][0]
    assert left + width == pytest.approx(CHART_WIDTH), "cut where the curve ends"
    assert drawn.x_ticks[0] == (0, "4")


@pytest.mark.parametrize("scores", [[], [(4, 0.5)], [(4, 0.5), (5, float("nan"))]])
def test_a_single_point_is_no_curve(scores: list[tuple[int, float]]) -> None:
    assert count_curve(Count(4, scores, "ward", 3)) is None


def test_a_flat_curve_has_no_division_by_zero() -> None:
    drawn = count_curve(Count(5, [(4, 0.5), (5, 0.5)], "ward", 3))
    assert drawn is not None
    assert drawn.interval is None
    assert "nan" not in drawn.line
