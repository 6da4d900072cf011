"""The drawings of the page as numbers for SVG: no colours, which are the style sheet's, and no text from files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...category_count import Count

MAP_WIDTH, MAP_HEIGHT, MAP_MARGIN = 1000, 500, 32
LABEL_HEIGHT, LETTER_WIDTH, LONGEST_LABEL = 24, 9.5, 18  # px on the map, and letters
CHART_WIDTH, CHART_HEIGHT = 600, 240


@dataclass(frozen=True)
class Dots:
    """The images of one category on the map."""

    path: str  # of a stroke with round ends: one dot for each piece of no length
    x: int  # of its name
    y: int
    label: str  # its name, shortened; empty if there is no room


@dataclass(frozen=True)
class CountCurve:
    """The score of each number of categories that was tried."""

    line: str
    answer: tuple[float, float]
    interval: tuple[float, float] | None  # left end and width
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


def dots(
    places: NDArray[np.float64], category: NDArray[np.int64], centres: NDArray[np.float64], names: Sequence[str]
) -> tuple[dict[int, Dots], float]:
    """The dots of each category (n,) that has any, of images at `places` (n, 2) in [0, 1]; and how wide a dot is.

    Names are put where the category's centre (K, 2) is, the largest categories first, as long as there is room.
    """
    size = np.array([MAP_WIDTH, MAP_HEIGHT]) - 2 * MAP_MARGIN
    at = np.round(MAP_MARGIN + places * size).astype(int)
    middle = MAP_MARGIN + np.clip(centres, 0, 1) * size
    counts = np.bincount(category, minlength=len(names))
    order = np.argsort(category, kind="stable")
    pieces = np.char.add(np.char.add(np.char.add("M", at[order, 0].astype(str)), " "), at[order, 1].astype(str))
    starts = np.concatenate([[0], np.cumsum(counts)])
    fewest = max(2, np.median(counts[counts > 0]) / 4) if len(category) else 0  # names of a few dots would hide others
    taken: list[tuple[float, float, float]] = []
    drawn = {}
    for c in np.argsort(-counts, kind="stable"):
        if not counts[c]:
            break
        x, y = middle[c]
        label = names[c] if len(names[c]) <= LONGEST_LABEL else names[c][: LONGEST_LABEL - 1] + "…"
        half = LETTER_WIDTH * len(label) / 2 + 6
        x = float(np.clip(x, half, MAP_WIDTH - half))
        covered = (abs(x - x2) < half + half2 and abs(y - y2) < LABEL_HEIGHT for x2, y2, half2 in taken)
        if counts[c] < fewest or any(covered):
            label = ""
        else:
            taken.append((x, float(y), half))
        path = "h0".join([*pieces[starts[c] : starts[c + 1]], ""])
        drawn[int(c)] = Dots(path, round(x), round(float(y)), label)
    return drawn, round(float(np.clip(260 / math.sqrt(max(len(places), 1)), 4, 12)), 1)


def count_curve(count: Count) -> CountCurve | None:
    """The curve behind the number of categories; None if fewer than two numbers were tried."""
    tried = np.array(sorted(count.curve), dtype=float).reshape(-1, 2)
    ks, scores = tried[np.isfinite(tried[:, 1])].T
    if len(ks) < 2:
        return None
    log = ks[-1] > 20 * max(ks[0], 1)  # the peak would be squeezed into the left margin
    scale = np.log if log else np.asarray
    low, high = float(scale(ks[0])), float(scale(ks[-1]))
    bottom, top = float(scores.min()), float(scores.max())

    def x(k: float) -> float:
        return round(float((scale(np.clip(k, ks[0], ks[-1])) - low) / (high - low)) * CHART_WIDTH, 1)

    def y(score: float) -> float:
        return round((1 - (score - bottom) / max(top - bottom, 1e-9)) * CHART_HEIGHT, 1)

    points = " ".join(f"{x(k)},{y(s)}" for k, s in zip(ks, scores, strict=True))
    at_answer = float(scores[np.abs(ks - count.answer).argmin()])
    interval = None
    if count.low is not None and count.high is not None:
        interval = (x(count.low), round(max(x(count.high) - x(count.low), 2), 1))
    values = np.unique(np.round(np.exp(np.linspace(low, high, 6)) if log else np.linspace(low, high, 6)).astype(int))
    return CountCurve(
        points, (x(count.answer), y(at_answer)), interval,
        [(x(float(k)), f"{k:,}") for k in values],
        [(y(share), f"{100 * share:.0f} %") for share in sorted({bottom, top})],
    )  # fmt: skip
