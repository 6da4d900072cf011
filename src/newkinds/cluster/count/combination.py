"""One estimate of the number of categories from all that is cheap, with an interval that says how much to trust it.

The labelled images tell how finely to cut the tree of all images: where the known classes, seen for themselves, make
as many clusters as there are known classes. A cluster may hold images of a known and of a new class, and nobody says
which unlabelled images are of known classes. But the labelled ones fill a share of every cluster: summed over them,
1 / size of the cluster is the room R(K) that they fill at K clusters, and all images of the known classes fill
R(K) / f, where f is the share of them that is labelled. So K is right where R(K) / f = C, the number of known classes,
if a new category takes as much room as a known one on average. f comes from the neighbours of labelled images
(share.py).

Other readings of the tree (cuts.py) see too few categories on real features, because no label shows when a new class
is merged with another. How far they are off was measured once (benchmarks/counting.py) and is corrected. They decide
where there are too few labels for f. Where clusters are clear, a gap in the tree decides between close numbers.

A mixture of known and new clusters (mixture.py) says which number fits the images that known classes attract. It sees
what no tree does: directions that tell classes apart, and new classes that resemble known ones.

All of it is multiplied to a distribution over K. Its median is the answer, its quantiles are the interval.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..metrics import Labels
from ..points import UNLABELLED, Features, as_features
from .base import COUNTERS, Count, Given, check_features, count_differing
from .cuts import Cuts, Leaves, matched_share
from .mixture import Mixture
from .share import LabelledNeighbours

# Chosen on CUB and CIFAR-100, classes of even number only, by benchmarks/counting.py --tune.
LEVEL = 0.9  # probability of the interval
SUBSAMPLES, SUBSAMPLE = 4, 0.7  # trees of a share of the images: their votes are averaged with those of all images
BIAS = {"agreement": -0.15, "silhouette": -0.3, "gap": -0.35}  # of ln K, by each reading of the tree
SPREAD = 0.6  # of ln K around such a vote; larger than measured, as the three are much alike
GAP_WEIGHT = 1.0  # of K times the logarithm of the gap at K, which is about 1 if there are no clear categories
CLEAREST_GAP = 10  # up to which a gap adds to the logarithm of the probability
OTHER_ERRORS = 0.05  # of ln K, where nothing else is uncertain
SOLID_CLASSES, SOLID_LABELS = 4, 3  # labelled classes, and images of each: with fewer one cannot be sure
SURE, FAIRLY_SURE = 1.5, 2.5  # high / low up to which an estimate is called so
RESOLUTION = 600  # points at which the distribution over ln K is smoothed


@dataclass(frozen=True)
class CountEvidence:
    """What the images say about each number of categories from C on, before it is weighed."""

    sizes: NDArray[np.int64]  # (C,) labelled images of each known class
    cuts: Cuts
    neighbours: LabelledNeighbours | None  # None: the features were learnt with the labels
    votes: list[dict[str, int]]  # of the whole tree, then of those of subsamples
    mixture: tuple[float, float] | None = None  # ln K by EM, and its error; None: too few labels to measure by

    def averaged_votes(self) -> dict[str, float]:
        """The mean logarithm of each vote over the trees. One label per class agrees with any K: it has no vote."""
        names = [name for name in self.votes[0] if name != "agreement" or np.median(self.sizes) > 1]
        return {name: float(np.mean([math.log(vote[name]) for vote in self.votes])) for name in names}


@COUNTERS.register("combined")
def combined(features: Features, y: Given, *, learnt: bool = False, em: bool = True, random_state: int = 0) -> Count:
    """Labelled neighbours, readings of Ward trees, and a mixture of known and new clusters: an estimate, an interval.

    It expects new categories to be about as frequent as known ones, and the labelled images to be drawn at random from
    those of their class. `learnt=True` says that the features were trained with these labels: labelled images are then
    closer to each other than to others of their class, so neither their neighbours nor the mixture are asked.
    `em=False` leaves out the mixture. `random_state` draws the subsamples of the images, over which the readings of the
    trees are averaged, and starts the mixture.
    """
    points, labels, known, differing = check_features(features, y)
    evidence = gather_evidence(points, labels, known, differing, learnt, random_state, em and not learnt)
    answer, low, high = quantiles(*distribution(evidence))
    cuts, labelled = evidence.cuts, labels != UNLABELLED
    curve = dict(zip(cuts.ks.tolist(), cuts.agreement.tolist(), strict=True))
    curve[answer] = matched_share(cuts.at(answer)[labelled], labels[labelled])
    caution = _caution(evidence.sizes)
    sure = "sure" if high <= SURE * low else "fairly sure" if high <= FAIRLY_SURE * low else "unsure"
    return Count(
        answer, sorted(curve.items()), "combined", known, low=low, high=high, level=LEVEL,
        sure="unsure" if caution else sure, votes=_said_alone(evidence), caution=caution,
    )  # fmt: skip


def by_shape(features: Features, known: int = 0) -> Count:
    """A guess without labels, or with those of one class: the clusters that the silhouette and gaps of a tree show.

    >>> by_shape(features).answer
    """
    points = as_features(features)
    points = F.normalize(points - points.mean(dim=0), dim=1)
    leaves, fewest, sizes = Leaves.made_of(points), max(known, 2), np.zeros(known, np.int64)
    differing = min(count_differing(points), len(leaves.sums))
    if differing <= fewest:
        answer = max(known, differing)
        return Count(answer, [(answer, 0.0)], "shape", known, "silhouette", sure="unsure", caution=_caution(sizes))
    largest = min(differing, max(2 * fewest, len(points) // 2))
    cuts = Cuts(points, np.full(len(points), UNLABELLED), fewest, largest, leaves)
    evidence = CountEvidence(sizes, cuts, None, [cuts.votes()])
    answer, low, high = quantiles(*distribution(evidence))
    curve = dict(zip(cuts.ks.tolist(), cuts.silhouette.tolist(), strict=True))
    curve.setdefault(answer, cuts.silhouette_at(answer))
    return Count(
        answer, sorted(curve.items()), "shape", known, "silhouette", low, high, LEVEL, "unsure",
        _said_alone(evidence), _caution(sizes),
    )  # fmt: skip


def gather_evidence(
    points: Tensor, labels: Labels, known: int, differing: int, learnt: bool = False, random_state: int = 0,
    em: bool = True,
) -> CountEvidence:  # fmt: skip
    """Trees of all images and of subsamples, neighbours of labelled images, and a mixture, around the mean image."""
    points = F.normalize(points - points.mean(dim=0), dim=1)
    leaves = Leaves.made_of(points)
    largest = min(differing, len(leaves.sums), max(2 * known, len(points) // 2))
    cuts = Cuts(points, labels, known, largest, leaves)
    votes = [cuts.votes()]
    random = np.random.default_rng(random_state)
    for _ in range(SUBSAMPLES):
        rows = np.sort(random.permutation(len(points))[: math.ceil(SUBSAMPLE * len(points))])
        part, own = points[rows], labels[rows]
        labelled = own != UNLABELLED
        classes, own[labelled] = np.unique(own[labelled], return_inverse=True)
        some = leaves.part(part, rows)
        most = min(largest, count_differing(part), len(some.sums))
        if len(classes) > 1 and most > known:
            votes.append(Cuts(part, own, known, most, some).votes())
    neighbours = None if learnt else LabelledNeighbours.of(points, labels)
    evidence = CountEvidence(np.bincount(labels[labels != UNLABELLED]), cuts, neighbours, votes)
    mixture = Mixture.of(points, labels, largest, random_state) if em else None
    if mixture is None:
        return evidence
    without = quantiles(*distribution(evidence))[0]  # where to begin
    return replace(evidence, mixture=mixture.answer(math.log(without)))


def distribution(evidence: CountEvidence) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Numbers of categories from C on, and the probability of each."""
    cuts = evidence.cuts
    numbers = np.arange(cuts.smallest, cuts.largest + 1)
    logs = np.log(numbers)
    weight = np.exp(np.minimum(GAP_WEIGHT * numbers * np.log(cuts.gap), CLEAREST_GAP))
    weight /= numbers  # a priori each factor is as probable as any other
    for name, vote in evidence.averaged_votes().items():
        off = (logs - (vote - BIAS[name])) / SPREAD
        weight *= (1 + off**2 / 3) ** -2  # Student's t: a vote that is far from all others has little weight
    if evidence.neighbours is not None:
        weight *= _by_neighbours(evidence.neighbours, cuts, logs)
    if evidence.mixture is not None:
        vote, error = evidence.mixture
        weight *= np.exp(-(((logs - vote) / error) ** 2) / 2) + 1e-9
    return numbers, weight / weight.sum()


def quantiles(numbers: NDArray[np.int64], weights: NDArray[np.float64]) -> tuple[int, int, int]:
    """The median of a distribution over whole numbers, and the ends of an interval of probability LEVEL around it."""
    tail = (1 - LEVEL) / 2
    median = int(numbers[np.searchsorted(weights.cumsum(), 0.5)])
    low, high = np.interp([tail, 1 - tail], weights.cumsum() - weights / 2, numbers)
    return median, min(median, math.floor(low)), max(median, math.ceil(high))


def _by_neighbours(
    neighbours: LabelledNeighbours, cuts: Cuts, logs: NDArray[np.float64]
) -> NDArray[np.float64]:  # like logs
    """How well each number of categories, given by its logarithm, fits the labelled share that the neighbours show."""
    known = len(neighbours.sizes)
    line = np.linspace(logs[0], logs[-1], RESOLUTION)
    deviation = neighbours.deviation(cuts.room.sum(axis=1) / known)  # (g,) of the share that each cut implies
    likelihood = np.exp(-(np.interp(line, np.log(cuts.ks), deviation) ** 2) / 2)
    # Classes fill more or less room than their mean, the new ones as well: the best fit is known no better than that.
    best = math.exp(line[likelihood.argmax()])
    room = cuts.room[np.abs(np.log(cuts.ks / best)).argmin()]  # (C,)
    variation = room.std(ddof=1) / room.mean()
    new = max(best - known, 1)
    error = math.hypot(new / best * variation * math.sqrt(1 / known + 1 / new), OTHER_ERRORS)
    kernel = np.exp(-(((line[:, None] - line) / error) ** 2) / 2)
    smooth = kernel @ likelihood / kernel.sum(axis=1)
    return np.interp(logs, line, smooth) + 1e-9


def _said_alone(evidence: CountEvidence) -> dict[str, int]:
    """The number of categories by each part of the estimate alone, as it is read: those of the trees tend to be low."""
    cuts, neighbours = evidence.cuts, evidence.neighbours
    votes = {name: round(math.exp(vote)) for name, vote in evidence.averaged_votes().items()}
    if neighbours is not None and (neighbours.sizes > 1).any():
        deviation = neighbours.deviation(cuts.room.sum(axis=1) / len(evidence.sizes))
        votes["labelled neighbours"] = int(cuts.ks[np.abs(deviation).argmin()])
    if evidence.mixture is not None:
        votes["mixture"] = round(math.exp(evidence.mixture[0]))
    return votes


def _caution(sizes: NDArray[np.int64]) -> str:
    """What is missing to be sure, given the number of labelled images of each known class."""
    if not len(sizes):
        return f"No image has a label: label images of {SOLID_CLASSES} classes or more to be surer."
    if len(sizes) < SOLID_CLASSES:
        have = "1 class has" if len(sizes) == 1 else f"{len(sizes)} classes have"
        return f"Only {have} labels: label images of {SOLID_CLASSES} or more to be surer."
    if np.median(sizes) < SOLID_LABELS:
        return f"Most classes have fewer than {SOLID_LABELS} labelled images: label more to be surer."
    return ""
