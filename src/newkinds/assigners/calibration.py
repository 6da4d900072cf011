"""How far an assignment can be trusted: the probability that it is right, and whether an image fits anywhere at all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from ..cluster.metrics import is_correct
from ..errors import NewkindsError
from ..precision import full_precision
from .base import Assigner, Assignment, SizedByState
from .centres import LabelledKMeans
from .resplit import Resplit, resplits, some_labels
from .whitening import Whitening

SPLITS = 4  # of the labelled images, by which confidence is calibrated
MOST_IMAGES, IMAGES_PER_CLASS = 2500, 10  # labelled ones that are taken: whichever of the two allows more
FALSE_ALARMS = 0.02  # share of labelled images that may be farther from their category than the threshold
FEWEST_DISTANCES = 20  # by which a threshold can be chosen
BINS = 10


class Curve(NamedTuple):
    """The probability that an assignment is right: a logistic function of two figures of an image.

    Its log-odds rise with the silhouette, and fall with what `unlike` has above 1. The defaults are what is believed
    without evidence: the median of what real data gave.
    """

    offset: float = -1.3
    slope: float = 5.5  # of the log-odds over the silhouette
    fall: float = 10.0  # of the log-odds for each 1 that `unlike` is above 1

    def at(self, silhouette: Tensor, unlike: Tensor) -> Tensor:
        """(n,) of silhouettes (n,) and `unlike` (n,)."""
        return probability(silhouette, unlike, *(silhouette.new_tensor(value) for value in self))


@dataclass(frozen=True)
class HeldOutImages:
    """Images that were assigned without their label, and whether rightly."""

    silhouette: NDArray[np.float64]  # (h,)
    correct: NDArray[np.bool_]  # (h,)
    unlike: NDArray[np.float64]  # (h,) by the threshold of the split: features that were trained on it have their own

    @classmethod
    def of(cls, rows: Tensor, category: Tensor, split: Resplit, whitening: Whitening | None = None) -> "HeldOutImages":
        """From the rows (m, P) of a split, not whitened, all of which were assigned: what became of the hidden ones.

        Each is compared with the others of its category, as images are that were never seen. Those that are alone in
        their category are left out: nothing is known of the others there.
        """
        labels = torch.from_numpy(split.labels).to(category.device)
        categories = max(split.categories, int(category.max()) + 1)  # some find how many there are
        centres, sizes = centres_of(rows, category, categories), category.bincount(minlength=categories)
        threshold, _ = choose_threshold(rows, labels, category, centres)
        hidden = torch.from_numpy(split.hidden).to(category.device)
        correct = is_correct(split.truth[split.hidden], category[hidden].cpu().numpy())
        told = sizes[category[hidden]] > 1
        rows, category = rows[hidden[told]], category[hidden[told]]
        own = centres_of_others(rows, centres[category], sizes[category])
        fits = silhouette_of_rows(rows, category, centres, whitening, own)
        unlike = half_square(rows, own) / threshold
        return cls(fits.cpu().double().numpy(), correct[told.cpu().numpy()], unlike.cpu().double().numpy())


class Calibration(SizedByState):
    """Confidence and `unlike` of assignments, from where an image lies between the centres of the categories.

    `unlike` is the distance 1 - cosine to the centre of its category, before any whitening, in multiples of a
    threshold which few labelled images exceed: above 1, an image is like none of the categories. One threshold serves
    all categories: those of each alone separate worse, because the widest of them take strange images in.
    Confidence is a logistic function of the silhouette and of what `unlike` has above 1, fitted to labelled images
    that were held out: it is low beyond the threshold only as far as these were wrong there.

    >>> calibration = Calibration()
    >>> calibration.fit(rows, labels, assignment.category, assigner)
    >>> calibration(rows, assignment).unlike > 1
    """

    centres: Tensor
    sizes: Tensor
    threshold: Tensor
    offset: Tensor
    slope: Tensor
    fall: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.note = ""  # what `fit` found, for the protocol
        self.record: dict[str, Any] = {}  # reliability of held-out images, for the report
        self.register_buffer("centres", torch.empty(0, 0))  # (K, P); empty: not calibrated
        self.register_buffer("sizes", torch.empty(0, dtype=torch.long))  # (K,) how many images each is the mean of
        self.register_buffer("threshold", torch.tensor(1.0))
        for name, value in Curve()._asdict().items():
            self.register_buffer(name, torch.tensor(value))

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        # runs of earlier versions have neither
        state.setdefault(prefix + "fall", torch.tensor(Curve().fall))
        if (centres := state.get(prefix + "centres")) is not None:
            state.setdefault(prefix + "sizes", torch.zeros(len(centres), dtype=torch.long))
        super()._load_from_state_dict(state, prefix, *rest)

    @property
    def fitted(self) -> bool:
        return len(self.centres) > 0

    def fit(
        self,
        rows: Tensor,
        labels: Tensor,
        category: Tensor,
        assigner: Assigner,
        whitening: Whitening | None = None,
        seed: int = 0,
        evidence: Sequence[HeldOutImages] | None = None,
        categories: int | None = None,
        trained: bool = False,
    ) -> None:
        """Calibrate the categories (n,) of all training images: unit rows (n, P) before whitening, labels (-1: none).

        `categories`: how many there are, if not as many as the assigner has.
        `evidence`: one per split, for a model that was `trained` anew on each. Otherwise labelled images are split
        again here, and the assigner is fitted to each split; for one that is learnt semi-supervised k-means stands in.
        """
        self.centres = centres_of(rows, category, categories or assigner.categories)
        self.sizes = category.bincount(minlength=len(self.centres))
        threshold, about_threshold = choose_threshold(rows, labels, category, self.centres)
        evidence = [one for one in evidence or () if len(one.correct)]
        from_trials = bool(evidence)
        if not from_trials:
            evidence = hold_out(rows, labels, assigner, whitening, seed)
            evidence = [one for one in evidence if len(one.correct)]
        self.threshold, self.offset, self.slope, self.fall = (
            torch.tensor(value).to(self.threshold) for value in (threshold, *fit_curve(evidence))
        )
        images = sum(len(one.correct) for one in evidence)
        if not evidence:
            about = "Confidence is not calibrated: too few labelled classes or images to split again."
        else:
            about = f"Confidence is calibrated on labelled images, split again {len(evidence)} times."
            if trained or assigner.learnt:
                about += (
                    " A model was trained on each split, without the labels that it was asked about."
                    if from_trials
                    else " These were seen in training, so it is somewhat too high."
                )
        self.note = f"{about} {about_threshold}"
        self.record = reliability(evidence) | {"images": images, "note": self.note}

    def forward(
        self,
        rows: Tensor,
        assignment: Assignment,
        whitening: Whitening | None = None,
        centres: Tensor | None = None,
        inside: bool = False,
    ) -> Assignment:
        """The assignment of unit rows (n, P), before whitening, with calibrated confidence and `unlike`.

        `centres`: of all categories, if there are others besides those that were calibrated. `inside`: they are of the
        images that the categories were found in. Each is then compared with the others of its category: it is a part
        of the centre, and would look surer than an image that is not.
        """
        category = assignment.category
        with full_precision(rows) as x:
            centres = (self.centres if centres is None else centres).to(x.dtype)
            own = centres_of_others(x, centres[category], self.sizes[category]) if inside else None
            unlike = distance(x, category, centres, own) / self.threshold
            fits = silhouette_of_rows(x, category, centres, whitening, own)
            confidence = probability(fits, unlike, self.offset, self.slope, self.fall)
        return replace(assignment, confidence=confidence, unlike=unlike)


def centres_of(rows: Tensor, category: Tensor, categories: int) -> Tensor:
    """(K, P) the mean of the rows of each category; zeros for one that is empty."""
    sums = rows.new_zeros(categories, rows.shape[1]).index_add_(0, category, rows)
    return sums / category.bincount(minlength=categories).clamp(min=1)[:, None]


def distance(rows: Tensor, category: Tensor, centres: Tensor, own_centres: Tensor | None = None) -> Tensor:
    """(n,) 1 - cosine of each unit row and the centre of its category, `own_centres` (n, P) if that is to be another
    one; 1 if the category is empty.

    It is taken as half the squared difference of both: of images that are much alike, 1 - cosine would be rounding.
    """
    own = centres[category] if own_centres is None else own_centres
    return half_square(rows, own).where(centres.any(dim=1)[category], 1.0)


def half_square(rows: Tensor, centres: Tensor) -> Tensor:
    """(n,) half the squared difference of unit rows (n, P) and the directions of as many centres."""
    return (rows - F.normalize(centres, dim=1)).square().sum(dim=1) / 2


def centres_of_others(rows: Tensor, centres: Tensor, sizes: Tensor) -> Tensor:
    """(n, P) the mean of the others in each row's category, of which the row is one: from its centre (n, P) and size
    (n,). A row that is alone there is its own centre."""
    others = (centres * sizes[:, None] - rows) / (sizes - 1).clamp(min=1)[:, None]
    return torch.where((sizes > 1)[:, None], others, centres)


def silhouette_of_rows(
    rows: Tensor,
    category: Tensor,
    centres: Tensor,
    whitening: Whitening | None = None,
    own_centres: Tensor | None = None,
) -> Tensor:
    """(n,) in [-1, 1]: (b - a) / max(a, b) of the distances to the own centre, a, and to the nearest other one, b.

    Distances are 1 - cosine after whitening. Where there is no other category it is 1. `own_centres` (n, P): of each
    row's category, if that is to be another one.
    """
    filled = centres.any(dim=1)
    if whitening is not None:
        rows, centres = whitening(rows), whitening(centres)
        own_centres = None if own_centres is None else whitening(own_centres)
    nearer = None if own_centres is None else half_square(rows, own_centres)
    unit = F.normalize(centres, dim=1).where(filled[:, None], 0.0)
    middle = unit.sum(dim=0) / filled.sum().clamp(min=1)  # from there, squared differences lose no digits
    rows, unit = rows - middle, unit - middle
    squares = rows.square().sum(dim=1)[:, None] + unit.square().sum(dim=1)  # (n, K)
    away = (squares / 2 - rows @ unit.T).clamp(min=0)  # (n, K)
    own = away.gather(1, category[:, None])[:, 0] if nearer is None else nearer
    away = away.where(filled, torch.inf).scatter(1, category[:, None], torch.inf)
    other = away.amin(dim=1)
    between = (other - own) / torch.maximum(own, other).clamp(min=1e-12)
    return between.where(other.isfinite(), 1.0)


def probability(silhouette: Tensor, unlike: Tensor, offset: Tensor, slope: Tensor, fall: Tensor) -> Tensor:
    """(n,) that an assignment is right, see `Curve`."""
    return (offset + slope * silhouette - fall * (unlike - 1).clamp(min=0)).sigmoid()


def choose_threshold(rows: Tensor, labels: Tensor, category: Tensor, centres: Tensor) -> tuple[float, str]:
    """The distance to the others of their category that few labelled images exceed, and what it is good for.

    It is never below what few of all images would exceed if distances were normally distributed, by their median and
    median deviation, which a few strangers do not change: labelled images that were trained on lie too close.
    """
    away, alone = distance_from_others(rows, category, len(centres))
    of_all, labelled = away[~alone].cpu().double().numpy(), labels >= 0
    of_labelled = away[~alone & labelled].cpu().double().numpy()
    middle = float(np.median(of_all)) if len(of_all) else 0.5
    deviation = 1.4826 * float(np.median(np.abs(of_all - middle))) if len(of_all) else 0.0
    threshold = max(middle + NormalDist().inv_cdf(1 - FALSE_ALARMS) * deviation, 1e-3)
    if len(of_labelled) < FEWEST_DISTANCES:
        return threshold, "The threshold of `unlike` comes from all images: too few are labelled."
    threshold = max(threshold, float(np.quantile(of_labelled, 1 - FALSE_ALARMS)))
    similar = rows[labelled] @ F.normalize(centres, dim=1).T
    elsewhere = 1 - similar.scatter(1, category[labelled, None], -1.0).amax(dim=1)  # as if its category were not there
    flagged, found = float((of_labelled > threshold).mean()), float((elsewhere > threshold).double().mean())
    return threshold, (
        f"{100 * flagged:.1f} % of labelled images are farther from their category than the limit (unlike > 1). If "
        f"their own category did not exist, {100 * found:.0f} % would be: about so often a kind that is missing "
        "here is noticed."
    )


def distance_from_others(rows: Tensor, category: Tensor, categories: int) -> tuple[Tensor, Tensor]:
    """(n,) 1 - cosine of each unit row and the mean of the others of its category; (n,) whether there are none."""
    sizes = category.bincount(minlength=categories)[category]
    others = centres_of(rows, category, categories)[category] * sizes[:, None] - rows
    return 1 - (rows * F.normalize(others, dim=1)).sum(dim=1), sizes < 2


def hold_out(
    rows: Tensor, labels: Tensor, assigner: Assigner, whitening: Whitening | None, seed: int
) -> list[HeldOutImages]:
    """Labelled images alone, split again: what the assigner makes of those that were hidden from it."""
    random = np.random.RandomState(seed % 2**32)
    given = some_labels(labels.cpu().numpy(), MOST_IMAGES, IMAGES_PER_CLASS, random)
    if assigner.learnt:
        assigner = LabelledKMeans(rows.shape[1], assigner.known, assigner.categories).to(rows.device)
    found = []
    for split in resplits(given, SPLITS, random):
        points, left = rows[torch.from_numpy(split.rows)], torch.from_numpy(split.labels).to(labels.device)
        try:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(split.seed)
                whitened = None if whitening is None else whitening.refit(points, left)
                trial = assigner.trial(split.known, split.categories)
                embedding = points if whitened is None else whitened(points)
                trial.fit(embedding, left)
                category = Assignment.of_logits(trial(embedding)).category
        except NewkindsError:  # such as one image per class
            return []
        found.append(HeldOutImages.of(points, category, split, whitened))
    return found


def fit_curve(evidence: Sequence[HeldOutImages]) -> Curve:
    """The curve that is most likely given the evidence.

    Each of its numbers has a prior (a normal distribution of width 1 around the default offset, and around the
    logarithms of the others) that counts as much as a few images, so that few images change little. Slope and fall
    are positive, so that confidence rises with the silhouette and falls with `unlike`.
    """
    believed = Curve()
    if not evidence:
        return believed
    silhouette = np.concatenate([one.silhouette for one in evidence])
    beyond = np.maximum(np.concatenate([one.unlike for one in evidence]) - 1, 0)
    sign = np.where(np.concatenate([one.correct for one in evidence]), 1.0, -1.0)
    begin = np.array([believed.offset, np.log(believed.slope), np.log(believed.fall)])

    def loss(parameters: NDArray[np.float64]) -> float:
        offset, slope, fall = parameters[0], *np.exp(parameters[1:])
        prior = np.square(parameters - begin).sum() / 2
        return float(np.logaddexp(0, -sign * (offset + slope * silhouette - fall * beyond)).sum() + prior)

    offset, *logarithms = minimize(loss, begin, method="L-BFGS-B", bounds=[(-20, 20), (-5, 5), (-5, 5)]).x
    return Curve(float(offset), *map(float, np.exp(logarithms)))


def reliability(evidence: Sequence[HeldOutImages]) -> dict[str, Any]:
    """Confidence against correctness of held-out images, each split judged by a fit to the others.

    Bins are of equal width; the error is the mean difference of both, weighted by images (expected calibration error).
    """
    if len(evidence) < 2:
        return {"bins": [], "error": None}
    judged = []
    for i, one in enumerate(evidence):
        curve = fit_curve([other for j, other in enumerate(evidence) if j != i])
        judged.append(curve.at(torch.from_numpy(one.silhouette), torch.from_numpy(one.unlike)).numpy())
    confidence, correct = np.concatenate(judged), np.concatenate([one.correct for one in evidence])
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    images, sums, right = (
        np.bincount(place, weights, minlength=BINS) for weights in (None, confidence, correct.astype(float))
    )
    bins = [
        {
            "low": i / BINS, "high": (i + 1) / BINS, "images": int(images[i]),
            "confidence": round(sums[i] / images[i], 4), "correct": round(right[i] / images[i], 4),
        }
        for i in range(BINS) if images[i]
    ]  # fmt: skip
    return {"bins": bins, "error": round(float(np.abs(sums - right).sum() / images.sum()), 4)}


def probabilities(logits: Tensor, confidence: Tensor) -> Tensor:
    """(n, K) of logits (n, K), rows sum to 1: a softmax whose temperature, of each row its own, makes the largest
    probability the calibrated confidence (n,), or little more than an even share if that is less.

    A category without members, whose logit is -inf, has none.
    """
    gaps = (logits.amax(dim=1, keepdim=True) - logits).double()  # (n, K)
    even = 1 / gaps.isfinite().sum(dim=1)
    wanted = torch.maximum(confidence.double(), 1.01 * even).clamp(max=1 - 1e-9)
    low, high = (gaps.new_full((len(gaps), 1), end) for end in (-20.0, 20.0))  # of the logarithm of 1 / temperature
    for _ in range(60):  # the largest share rises with it
        middle = (low + high) / 2
        enough = 1 / (-gaps * middle.exp()).exp().sum(dim=1, keepdim=True) >= wanted[:, None]
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return (-gaps * high.exp()).softmax(dim=1)
