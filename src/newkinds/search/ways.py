"""How categories are found in given features, and how that is judged on a split of the labelled images."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..assigners import ASSIGNERS, Assignment
from ..assigners.known_clusters import name_categories
from ..assigners.resplit import FEWEST_CLASSES, Resplit, resplits, some_labels
from ..assigners.whitening import apply_whitening, whitening_of
from ..cluster.metrics import Accuracy, accuracy_by_name
from ..data.loader import seed_for
from ..errors import NewkindsError
from ..runs.config import OWN

SPLITS, TRIALS = 6, 3  # of the labelled images, for what is frozen and for what trains
MANY_LABELS = 1000  # images: with more, a split differs little from the next, and takes long
MOST_LABELS, LABELS_PER_CLASS = 5000, 20  # images that are judged by; whichever of the two allows more
USUAL_SHRINKAGE = 0.5  # of whitening
RESTARTS = 3  # of a clustering while it is judged; an answer has the assigner's own number
RULE = (
    "Labelled images alone are split again: half of their classes act as new, half of the others' images lose their "
    "label. What was hidden is judged: an image of a known class is right in the category of that name, those of new "
    "classes are matched with the new categories (All by name). The best mean over the splits wins; training must win "
    "by more than the standard error of its gain over the best frozen answer, or the frozen answer stays."
)
NOTHING_TO_JUDGE_BY = f"fewer than {FEWEST_CLASSES} classes with two labelled images leave nothing to judge by"

S = TypeVar("S")  # a split of the labelled images


@dataclass(frozen=True)
class Features:
    """What a source of features gives for the images of a split."""

    rows: Tensor  # (m, P) unit rows, not whitened
    own: NDArray[np.int64] | None = None  # (m,) the categories that the trained method itself gives; None: none trained
    watch: Callable[["Way", Resplit, Tensor], None] | None = None  # is told the categories (m,) that a way finds

    def __post_init__(self) -> None:
        if bad := int((~self.rows.isfinite().all(dim=1)).sum()):
            raise NewkindsError(f"its features of {bad} of {len(self.rows)} images are NaN or infinite")


@dataclass(frozen=True)
class Way:
    """An assigner, and whether the features are whitened for it."""

    assigner: str
    whiten: float | str = "none"

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Way":
        return cls(settings["assigner"]["name"], settings["embedding"]["whiten"])

    @property
    def settings(self) -> dict[str, Any]:
        return {"assigner": {"name": self.assigner}, "embedding": {"whiten": self.whiten}}

    def __str__(self) -> str:
        name = "own prototypes" if self.assigner == OWN else self.assigner
        if self.whiten == "none":
            return name
        return f"{name}, whitened" if self.whiten == USUAL_SHRINKAGE else f"{name}, whitened at {self.whiten:g}"

    def unfit(self, images: int) -> str:
        """Why it is not tried on so many images; empty if it may be."""
        most = None if self.assigner == OWN else ASSIGNERS[self.assigner].most_images
        if most is None or images <= most:
            return ""
        return f"it compares all pairs, too many of more than {most:,} images"

    def whiten_rows(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Unit rows (m, P), whitened by those of them that have labels (m,; -1: none), if that is the way."""
        if self.whiten == "none":
            return rows
        return apply_whitening(rows, *whitening_of(rows, labels, float(self.whiten)))

    def find(self, features: Features, split: Resplit) -> NDArray[np.int64]:
        """The category (m,) of each image of a split."""
        if self.assigner == OWN:
            assert features.own is not None, "nothing was trained"
            return features.own
        labels = torch.from_numpy(split.labels)
        rows = self.whiten_rows(features.rows, labels)
        quick = {"restarts": RESTARTS} if self.assigner in ("kmeans", "sskmeans", "balanced") else {}
        assigner = ASSIGNERS[self.assigner](rows.shape[1], split.known, split.categories, **quick)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.default_generator.manual_seed(seed_for("categories", split.seed))
            assigner.fit(rows, labels)
            cluster = Assignment.of_logits(assigner(rows)).category.cpu().numpy()
        return name_categories(cluster, split.labels, split.known, assigner.categories)


@dataclass(frozen=True)
class Judge(Generic[S]):
    """Splits of the labelled images, and how a way is scored on one of them."""

    splits: Sequence[S]
    score: Callable[[Way, Features, S], Accuracy]
    rule: str = RULE
    silent_because: str = NOTHING_TO_JUDGE_BY  # why there are no splits, if there are none


def judge_of(targets: NDArray[np.int64], seed: int) -> Judge[Resplit]:
    """Judges by the labelled images (`targets`, (n,); -1: no label) split again into known and new classes.

    Of very many labelled images some are drawn: the time of some assigners grows with the square of their number.
    """
    random = np.random.RandomState(seed_for("plan", seed) % 2**32)
    targets = some_labels(targets, MOST_LABELS, LABELS_PER_CLASS, random)
    splits = resplits(targets, TRIALS if (targets >= 0).sum() > MANY_LABELS else SPLITS, random)
    return Judge(splits, score_split)


def score_split(way: Way, features: Features, split: Resplit) -> Accuracy:
    """All, Old and New by name of the images that a split hides."""
    category = way.find(features, split)
    if features.watch is not None:
        features.watch(way, split, torch.from_numpy(category))
    return hidden_accuracy(split, category)


def hidden_accuracy(split: Resplit, category: NDArray[np.int64]) -> Accuracy:
    """All, Old and New by name of the images that a split hides, from the category (m,) of each of its images."""
    found = accuracy_by_name(split.truth[split.hidden], category[split.hidden], range(split.known))
    return Accuracy(found.all, found.old, found.new)
