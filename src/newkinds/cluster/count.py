"""How many categories there are, judged by the labelled images alone.

All features are clustered into K clusters without any label, and these are matched with the known classes one to one.
The share of labelled images in the cluster of their class is the score: too small a K joins classes, too large splits.

>>> count = COUNTERS["ward"](features, y)  # y (n,): the class of labelled images, -1 for the others
>>> count.answer, count.new
"""

import io
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import fcluster
from scipy.optimize import linear_sum_assignment, minimize_scalar
from sklearn.cluster import KMeans
from torch import Tensor

from ..errors import NewkindsError
from ..files import write_whole
from ..registry import Registry
from ..text import percent, text_table
from . import Ward
from .metrics import Labels, clustering_accuracy
from .points import UNLABELLED, Features, as_features, as_labels, whole_number

PUBLISHED_LARGEST = 1000
IMAGES_A_CATEGORY = 4  # where a search begins by default: begun among smaller clusters, it often stays there
CURVE_SHOWN = 8  # numbers of categories in a summary, of those that were tried
LOWEST_MERGE = 0.02  # of the highest; below that are copies of an image, between which no gap is looked for


@dataclass(frozen=True)
class Count:
    """An estimate of the number of categories, and what it rests on."""

    answer: int  # categories in total, known ones included
    curve: list[tuple[int, float]]  # (K, score), each K once, in the order in which they were tried
    method: str  # its name in COUNTERS
    known: int  # classes with labelled images
    score_is: str = "labelled images that fit"  # in words, a share

    @property
    def new(self) -> int:
        """Categories besides the known ones."""
        return self.answer - self.known

    @property
    def score(self) -> float:
        """The score at the answer."""
        return dict(self.curve)[self.answer]


COUNTERS: Registry[Callable[..., Count]] = Registry("counter")

Score = Callable[[int], float]
Search = Callable[[Score, int, int], int]
Given = ArrayLike | Tensor  # (n,) classes, -1 if there is none
Ties = Literal["gap", "first"]


@COUNTERS.register("brent")
def brent(
    features: Features, y: Given, largest: int | None = None, *, n_init: int = 10, random_state: int = 0
) -> Count:
    """Brent's search for the K whose k-means clusters fit the labelled images best (Vaze et al., CVPR 2022).

    K lies between the number of known classes and `largest`: by default 1000 as published, or twice the known classes
    if that is more, but at most one for four images, and no more than there are images that differ. The search expects
    a score with a single peak; on few images it may stop far from the best K: give the smallest `largest` you can
    justify, or count by `ward`. k-means is scikit-learn's, as published, on the CPU, the best of `n_init` starts.
    """
    return _count_by_kmeans("brent", brent_maximum, features, y, largest, n_init, random_state)


@COUNTERS.register("binary")
def binary(
    features: Features, y: Given, largest: int | None = None, *, n_init: int = 10, random_state: int = 0
) -> Count:
    """As `brent`, by halving the range: the other search of the published GCD code, which needs fewer K."""
    return _count_by_kmeans("binary", halving_maximum, features, y, largest, n_init, random_state)


@COUNTERS.register("ward")
def ward(
    features: Features, y: Given, patience: int = 50, *, ties: Ties = "gap", published_truth: ArrayLike | None = None
) -> Count:
    """The cut of Ward's tree that fits the labelled images best, after CMS (Choi et al., CVPR 2024).

    K grows from one more than the known classes until `patience` of them in a row have not been better than the best.
    Often many K are equally good, as labelled images do not notice whether new classes are apart. The first of them,
    which is CMS's choice (`ties="first"`), tends to be too small. `ties="gap"` takes the one at the widest gap of the
    tree, where the next merge is highest, compared with the last one. Where classes overlap, small new ones are missed.

    `published_truth` (n,) gives the score of the published code, to reproduce its figures: Old accuracy with the true
    class of every image. The first of the best is then taken, and `ties` is ignored.
    """
    points, labels, known, differing = _checked(features, y)
    patience = whole_number("patience", patience)
    if ties not in ("gap", "first"):
        raise NewkindsError(f"ties is 'gap' or 'first', not {ties!r}.")
    tree = Ward().fit(points)
    if published_truth is not None:
        truth = _checked_truth(published_truth, labels)
        curve = _until_no_better(_published_scores(tree.linkage_, truth, labels), patience)
        best = max(curve, key=lambda point: point[1])  # the first of them
        return Count(best[0], curve, "ward", known, "Old accuracy, with the true class of every image")
    labelled = labels != UNLABELLED
    ks = range(known + 1, differing + 1)  # copies stay together
    scores = ((k, matched_share(tree.labels_at(k)[labelled], labels[labelled])) for k in ks)
    curve = _until_no_better(scores, patience)
    best_score = max(score for _, score in curve)
    tied = [k for k, score in curve if score == best_score]
    answer = tied[0] if ties == "first" else _widest_gap(tree.linkage_[:, 2], tied)
    return Count(answer, curve, "ward", known)


def brent_maximum(score: Score, smallest: int, largest: int) -> int:
    """Where `score` is highest, by SciPy's bounded Brent search over real numbers, rounded down; it repeats K."""
    return int(minimize_scalar(lambda k: -score(int(k)), bounds=(smallest, largest), method="bounded").x)


def halving_maximum(score: Score, smallest: int, largest: int) -> int:
    """Where `score` is highest, by keeping the half of the range on the side of its better end."""
    low, high = smallest, largest
    ends = {high: score(high), low: score(low)}
    middle = (low + high) // 2
    for _ in range(int(math.log2(largest - smallest))):
        ends[middle] = score(middle)
        low, high = (middle, high) if ends[high] > ends[low] else (low, middle)
        middle = (low + high) // 2
    ends[middle] = score(middle)
    return max((low, middle, high), key=ends.__getitem__)


def matched_share(cluster: Labels, of_class: Labels) -> float:
    """Share of images whose cluster is that of their class: (n,) each, under the best one-to-one match."""
    classes = of_class.max() + 1
    counts = np.bincount(cluster * classes + of_class, minlength=(cluster.max() + 1) * classes).reshape(-1, classes)
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / len(cluster))


def summary(count: Count) -> str:
    """The answer, and the best of the curve it was chosen from."""
    best = sorted(count.curve, key=lambda point: (point[0] != count.answer, -point[1], point[0]))[:CURVE_SHOWN]
    rows = [[f"{k}{' *' if k == count.answer else ''}", percent(score)] for k, score in sorted(best)]
    tied = [k for k, score in count.curve if score == count.score]
    tried = f"({count.method}; {len(count.curve)} numbers tried)"
    answer = f"{count.answer} categories: {count.known} known and {count.new} new {tried}"
    lines = [answer, text_table(["best of them", f"{count.score_is} %"], rows)]
    if len(tied) > 1:
        lines.append(f"{len(tied)} numbers from {min(tied)} to {max(tied)} are equally good; * is the answer.")
    return "\n\n".join(lines)


def plot(count: Count, path: str | Path | None = None) -> bytes:
    """The score of each K that was tried, and the answer, as a PNG; written to `path` if one is given."""
    # Imported here: counting does without matplotlib. No pyplot: it has global state.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter, ScalarFormatter

    figure = Figure(figsize=(6.4, 3.6), dpi=160, facecolor="white", layout="constrained")
    axes = figure.subplots()
    ink, blue, orange, pale = "#222222", "#0072b2", "#d55e00", "#999999"
    ks, scores = zip(*sorted(count.curve), strict=True)
    axes.plot(ks, scores, color=blue, linewidth=1.2, marker="o", markersize=3)
    axes.axvline(count.known, color=pale, linewidth=1, linestyle=":", label=f"{count.known} known classes")
    answer = f"answer: {count.answer} categories, {count.new} of them new"
    axes.plot(count.answer, count.score, "o", markersize=9, color=orange, label=answer)
    if ks[-1] > 20 * count.known:  # the peak would be squeezed into the left margin
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(ScalarFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("categories K", color=ink)
    axes.set_ylabel(count.score_is, color=ink)
    axes.set_title(f"How many categories? ({count.method})", fontsize=10, color=ink)
    axes.grid(color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})  # no version: same input, same bytes
    if path is not None:
        write_whole(Path(path), png.getvalue())
    return png.getvalue()


def _count_by_kmeans(
    method: str, search: Search, features: Features, y: Given, largest: int | None, n_init: int, random_state: int
) -> Count:
    points, labels, known, differing = _checked(features, y)
    if largest is None:
        largest = min(max(PUBLISHED_LARGEST, 2 * known), max(len(points) // IMAGES_A_CATEGORY, known + 1), differing)
    if whole_number("largest", largest) <= known:
        raise NewkindsError(
            f"largest is {largest}, but {known} classes are known already: raise it to the most categories you expect."
        )
    if largest > differing:
        raise NewkindsError(f"largest is {largest}, but the images have only {differing} different features: lower it.")
    n_init = whole_number("n_init", n_init)
    rows, labelled = points.cpu().numpy(), labels != UNLABELLED
    curve: dict[int, float] = {}

    def score(k: int) -> float:
        if k not in curve:
            found = KMeans(k, n_init=n_init, random_state=random_state).fit(rows)
            curve[k] = matched_share(found.labels_[labelled].astype(np.int64), labels[labelled])
        return curve[k]

    return Count(search(score, known, largest), list(curve.items()), method, known)


def _checked(features: Features, y: Given) -> tuple[Tensor, Labels, int, int]:
    """Features (n, D), labels (n,) as 0..C-1 or -1, C, and how many rows differ; or what is missing to count by."""
    points = as_features(features)
    labels = as_labels(y, len(points))
    labelled = labels != UNLABELLED
    classes, labels[labelled] = np.unique(labels[labelled], return_inverse=True)
    if len(classes) < 2:
        have = "all labelled images are of one class" if len(classes) else "none of the images has a label"
        raise NewkindsError(
            f"{have}, but the number of categories is judged by how well known classes are separated: "
            "label some images of two classes or more, or say how many categories there are."
        )
    if labelled.all():
        raise NewkindsError(f"all {len(points)} images have a label: there are no new categories to count.")
    differing = len(points.unique(dim=0))
    if differing <= len(classes):
        raise NewkindsError(
            f"the {len(points)} images have only {differing} different features, but {len(classes)} classes are known "
            "already: look at how the features were made."
        )
    return points, labels, len(classes), differing


def _checked_truth(truth: ArrayLike, labels: Labels) -> NDArray:
    """The true class of every image (n,), if labelled images (label not -1) are of the same classes in both."""
    classes, labelled = np.asarray(truth), labels != UNLABELLED
    if classes.shape != labels.shape:
        raise NewkindsError(f"published_truth is one class per image: shape {labels.shape}, not {classes.shape}.")
    pairs = np.unique(np.stack([np.unique(classes[labelled], return_inverse=True)[1], labels[labelled]]), axis=1)
    if not pairs.shape[1] == pairs[0].max() + 1 == pairs[1].max() + 1:
        raise NewkindsError("published_truth and the labels disagree about which labelled images are of one class.")
    if len(labels) < pairs.shape[1] + 2:
        raise NewkindsError("the published search needs two images more than there are known classes: add some.")
    return classes


def _published_scores(linkage: NDArray, truth: NDArray, labels: Labels) -> Iterator[tuple[int, float]]:
    """K and Old accuracy of cuts at each height. SciPy's numbers of the clusters decide between equal matches."""
    known_classes = np.unique(truth[labels != UNLABELLED])
    for height in linkage[: -len(known_classes), 2][::-1]:
        cluster = fcluster(linkage, height, "distance")
        yield int(cluster.max()), clustering_accuracy(truth, cluster, known_classes).old


def _until_no_better(scores: Iterable[tuple[int, float]], patience: int) -> list[tuple[int, float]]:
    """The scores up to the `patience`-th in a row that is not above all before, each K once."""
    curve: dict[int, float] = {}
    best, waited = -math.inf, 0
    for k, score in scores:
        curve[k] = score
        best, waited = (score, 0) if score > best else (best, waited + 1)
        if waited == patience:
            break
    return list(curve.items())


def _widest_gap(heights: NDArray, ks: list[int]) -> int:
    """The K of `ks` (each at least 2) at which the next of the sorted merges is highest against the last."""
    points = len(heights) + 1
    heights = np.concatenate([heights[:1], heights])  # every point a cluster: no merge gave it, nor is there a gap
    heights = np.maximum(heights, LOWEST_MERGE * heights[-1])
    last = heights[points - np.array(ks)]  # the merge that gave K clusters
    following = heights[points - np.array(ks) + 1]
    return ks[int((following / last).argmax())]
