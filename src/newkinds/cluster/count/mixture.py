"""How many images are of known classes, by a mixture of known and new clusters; and which number of categories fits.

EM at K clusters, of which the C known classes are pinned by their labels, gives M of n images to the known ones. If new
categories are as frequent as known ones on average, there are C n / M categories in all. With too few clusters images
of new categories have nowhere else to go; with too many, spare ones take from the known classes as well, but less than
their share: C n / (M K) falls with K. Where nothing is confused it falls as 1 / K, and K is right where it is 1. Where
much is confused it falls more slowly, and is a little below 1 at the right number, because labels pull. How far was
measured once, and is much the same on very different images (benchmarks/counting.py).

EM whitens by the clusters that it finds, so it sees what no tree does: directions that tell classes apart where most do
not, as on cars, and new classes that resemble known ones.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..balanced import BalancedSemiSupervisedKMeans
from ..em import SharedCovarianceEM, covariance_within, inverse_root
from ..metrics import Labels
from ..points import UNLABELLED
from ..rows import Rows

MOST_ROWS = 4000  # of more, so many are drawn
FEWEST_CLASSES, FEWEST_LABELS = 4, 3  # labelled classes, and images of most of them, to be asked at all
ROWS_PER_CLASS = 8  # of all images, for each known class
LOOKS = 4  # numbers of clusters that are tried
START_SHRINKAGE, SHRINKAGE = 0.5, 0.3  # of the whitening by labelled rows, in which EM starts, and of its own
RATIO = -0.18  # ln(C n / (M K)) at the right number; on draws of creatures, cars and CUB -.25 to -.09
RATIO_ERROR = 0.1  # wider than that of EM alone: it errs together with the rest, and trees are surer than they say
SLOPE, FLATTEST, STEEPEST = -0.5, -0.35, -1.0  # of ln(C n / (M K)) over ln K: usual, and what is believed
FAR_APART = 0.25  # in ln K, what is seen must be to tell a slope


@dataclass(frozen=True)
class Mixture:
    """Unit rows (n, D) around their mean, labels (n,; 0..C-1 or -1), and what EM makes of them."""

    points: Tensor
    labels: Labels
    known: int
    largest: int  # number of clusters
    seed: int = 0

    @classmethod
    def of(cls, points: Tensor, labels: Labels, largest: int, seed: int = 0) -> "Mixture | None":
        """Of very many rows some are drawn; None if labels or images are too few to ask."""
        if len(points) > MOST_ROWS:
            rows = np.sort(np.random.default_rng(seed).permutation(len(points))[:MOST_ROWS])
            points, labels = points[torch.from_numpy(rows).to(points.device)], labels[rows]
        labelled = labels != UNLABELLED
        classes, own, sizes = np.unique(labels[labelled], return_inverse=True, return_counts=True)
        if len(classes) < FEWEST_CLASSES or np.median(sizes) < FEWEST_LABELS:
            return None
        largest = min(largest, len(points) // 2)
        if len(points) < ROWS_PER_CLASS * len(classes) or largest <= len(classes):
            return None
        labels = np.full(len(points), UNLABELLED)
        labels[labelled] = own
        return cls(points, labels, len(classes), largest, seed)

    def answer(self, start: float) -> tuple[float, float]:
        """ln K and its error; looked for from `start` (ln K) on."""
        at, slope = start, SLOPE
        seen: dict[int, float] = {}
        for _ in range(LOOKS):
            clusters = round(min(max(math.exp(at), self.known + 1), self.largest))
            if clusters in seen:
                break
            seen[clusters] = self.log_ratio(clusters)
            at, slope = _where(seen)
            if len(seen) == 1 and abs(at - math.log(clusters)) < FAR_APART:
                at = math.log(clusters) + math.copysign(FAR_APART, at - math.log(clusters))
        at = min(max(at, math.log(self.known)), math.log(self.largest))
        return at, math.hypot(RATIO_ERROR / slope, self._error_of_sizes(math.exp(at)))

    def log_ratio(self, clusters: int) -> float:
        """ln(C n / (M K)) at K clusters."""
        labels = torch.from_numpy(self.labels).to(self.points.device)
        start = BalancedSemiSupervisedKMeans(clusters, 1, self.seed, cluster_size=None)
        start.fit(_whiten_by_labels(self.points, labels), labels)
        em = SharedCovarianceEM(clusters, start.labels_, shrinkage=SHRINKAGE).fit(self.points, labels)
        in_known = float(em.predict_proba(self.points, labels)[:, : self.known].sum())
        return math.log(self.known * len(self.points) / in_known / clusters)

    def _error_of_sizes(self, categories: float) -> float:
        """Of ln K, because new categories are as frequent as known ones only on average: the known ones show how much
        sizes differ, beyond what drawing the labelled images adds."""
        sizes = np.bincount(self.labels[self.labels != UNLABELLED])
        variance = max(sizes.var(ddof=1) - sizes.mean(), 0) / sizes.mean() ** 2
        new = max(categories - self.known, 1)
        return new / categories * math.sqrt(variance * (1 / self.known + 1 / new))


def _whiten_by_labels(points: Tensor, labels: Tensor) -> Tensor:
    some = labels != UNLABELLED
    weight = torch.ones(int(some.sum()), dtype=points.dtype, device=points.device)
    covariance = covariance_within(Rows(points[some]), labels[some], weight, int(labels.max()) + 1)
    centred = points - points.mean(dim=0)
    return F.normalize(centred @ inverse_root(covariance, START_SHRINKAGE).to(points), dim=1)


def _where(seen: dict[int, float]) -> tuple[float, float]:
    """The ln K at which the ratio is as it should be, on a line through what was seen, and the slope of that line."""
    x, y = np.log(list(seen)), np.array(list(seen.values()))
    slope = SLOPE
    if np.ptp(x) > FAR_APART / 2:
        slope = float(np.clip(np.polyfit(x, y, 1)[0], STEEPEST, FLATTEST))
    wanted = RATIO * min((slope - STEEPEST) / (SLOPE - STEEPEST), 1)  # 0 where nothing is confused
    return float(x.mean() + (wanted - y.mean()) / slope), slope
