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
from ..assigners.resplit import FEWEST_CLASSES, Resplit, task_splits
from ..assigners.whitening import apply_whitening, whitening_of
from ..cluster.metrics import Accuracy, accuracy_by_name
from ..data.loader import seed_for
from ..errors import NewkindsError
from ..runs.config import OWN
from ..threads import threads_for

SPLITS, TRIALS = 4, 3  # for what is frozen and for what trains
MANY_IMAGES = 2000  # with more, a split differs little from the next, and takes long
MOST_IMAGES, IMAGES_PER_CATEGORY = 4000, 20  # that a split has; whichever of the two allows more
USUAL_SHRINKAGE = 0.5  # of whitening
RULE = (
    "The task itself is repeated with fewer labels: a quarter of the known classes act as new, and a quarter of the "
    "others' labels is hidden. What was hidden is judged: an image of a known class is right in the category of that "
    "name, those of new classes are matched with the new categories (All by name). The best mean over the splits wins, "
    "but of candidates in the same features the first that is within a standard error of the difference, if "
    "there are images enough to tell how to whiten them; "
    "training must win by more than the standard error of its gain over the best frozen answer, or that stays."
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
    """An assigner, whether the features are whitened for it, and those of its settings that are not the default."""

    assigner: str
    whiten: float | str = "none"
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Way":
        options = {name: value for name, value in settings["assigner"].items() if name != "name"}
        return cls(settings["assigner"]["name"], settings["embedding"]["whiten"], tuple(sorted(options.items())))

    @property
    def settings(self) -> dict[str, Any]:
        return {"assigner": {"name": self.assigner, **dict(self.options)}, "embedding": {"whiten": self.whiten}}

    def __str__(self) -> str:
        name = "own assigner" if self.assigner == OWN else self.assigner
        parts = [f"{option} {value}" for option, value in self.options]
        if self.whiten != "none":
            parts.append("whitened" if self.whiten == USUAL_SHRINKAGE else f"whitened at {self.whiten:g}")
        return ", ".join([name, *parts])

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
        # with all of its restarts, as for an answer: of three alone `em` is a point worse, and lost by that
        assigner = ASSIGNERS[self.assigner](rows.shape[1], split.known, split.categories, **dict(self.options))
        with torch.random.fork_rng(devices=[]), torch.no_grad(), threads_for(rows.numel()):
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


def judge_of(
    targets: NDArray[np.int64], seed: int, categories: int, groups: NDArray[np.int64] | None = None
) -> Judge[Resplit]:
    """Judges by the task itself, with some of the labels (`targets`, (n,); -1: none) hidden: see `task_splits`.

    So many `categories` are to be found. Of very many images some are drawn. Labels of one of the `groups` (n,) are
    hidden together.
    """
    random = np.random.RandomState(seed_for("plan", seed) % 2**32)
    most = max(MOST_IMAGES, IMAGES_PER_CATEGORY * categories)
    splits = TRIALS if len(targets) > MANY_IMAGES else SPLITS
    return Judge(task_splits(targets, categories, splits, random, most, groups), score_split)


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
