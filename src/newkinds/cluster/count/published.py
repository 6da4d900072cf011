"""The published ways of counting, judged by the labelled images alone.

All features are clustered into K clusters without any label, and these are matched with the known classes one to one.
The share of labelled images in the cluster of their class is the score: too small a K joins classes, too large splits.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import fcluster
from scipy.optimize import minimize_scalar

from ...errors import NewkindsError
from .. import Ward
from ..metrics import Labels, clustering_accuracy
from ..points import UNLABELLED, Features, whole_number
from .base import COUNTERS, Count, Given, check_features
from .cuts import gaps, matched_share

PUBLISHED_LARGEST = 1000
IMAGES_A_CATEGORY = 4  # where a search begins by default: begun among smaller clusters, it often stays there

Score = Callable[[int], float]
Search = Callable[[Score, int, int], int]
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
    points, labels, known, differing = check_features(features, y)
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
    answer = tied[0] if ties == "first" else tied[int(gaps(tree.linkage_[:, 2], np.array(tied)).argmax())]
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


def _count_by_kmeans(
    method: str, search: Search, features: Features, y: Given, largest: int | None, n_init: int, random_state: int
) -> Count:
    from sklearn.cluster import KMeans  # slow to import

    points, labels, known, differing = check_features(features, y)
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
