"""What a plan tries, and how it judges: on labelled images alone, split again into known and new classes."""

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..assigners import ASSIGNERS
from ..assigners.resplit import FEWEST_CLASSES, Resplit, resplits, some_labels
from ..assigners.whitening import apply_whitening, whitening_of
from ..cluster.metrics import Accuracy, clustering_accuracy
from ..data.loader import seed_for
from ..data.table import Table
from ..errors import NewkindsError
from ..runs.config import OWN
from ..text import percent, text_table

JUDGED = "judged"
SPLITS, TRIALS = 6, 3  # of the labelled images, for what is frozen and for what trains
MANY_LABELS = 1000  # images: with more, a split differs little from the next, and takes long
MOST_LABELS, LABELS_PER_CLASS = 5000, 20  # images that are judged by; whichever of the two allows more
RESTARTS = 3  # of a clustering while it is judged; an answer has the assigner's own number
RULE = (
    "Labelled images alone are split again: half of their classes act as new, half of the others' images lose their "
    "label. What was hidden is judged (All). The best mean over the splits wins; training must win by more than the "
    "standard error of its gain over the best frozen answer, or the frozen answer stays."
)

WHITENED: tuple[float | str, ...] = ("none", 0.5)  # shrinkages
FROZEN = "frozen features"


@dataclass(frozen=True)
class Way:
    """How categories are found in given features."""

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
        return name if self.whiten == "none" else f"{name}, whitened"

    def on(self, rows: Tensor, split: Resplit) -> Accuracy:
        """Judged on what a split of labelled images hides: unit rows (m, P) of these images."""
        labels = torch.from_numpy(split.labels)
        if self.whiten != "none":
            rows = apply_whitening(rows, *whitening_of(rows, labels, float(self.whiten)))
        quick = {"restarts": RESTARTS} if self.assigner in ("kmeans", "sskmeans", "balanced") else {}
        fitted = ASSIGNERS[self.assigner](rows.shape[1], split.known, split.categories, **quick)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.default_generator.manual_seed(seed_for("categories", split.seed))
            fitted.fit(rows, labels)
            return accuracy_on(split, fitted(rows).argmax(dim=1).cpu().numpy())


@dataclass(frozen=True)
class Candidate:
    """One way to find categories, and what became of it."""

    name: str
    settings: dict[str, Any]
    trains: bool = False
    scores: list[float] = field(default_factory=list)  # All on the hidden labelled images, one per split
    old: float | None = None  # means
    new: float | None = None
    seconds: float = 0.0
    state: str = "not tried yet"

    @property
    def score(self) -> float | None:
        return float(np.mean(self.scores)) if self.scores else None

    @property
    def error(self) -> float | None:
        """Standard error of the mean over the splits."""
        return standard_error(self.scores)

    def judged(self, accuracies: Sequence[Accuracy], seconds: float) -> "Candidate":
        old, new = (float(np.mean([getattr(found, part) for found in accuracies])) for part in ("old", "new"))
        scores = [found.all for found in accuracies]
        return replace(self, scores=scores, old=old, new=new, seconds=round(seconds, 2), state=JUDGED)

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "score": self.score, "error": self.error}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> "Candidate":
        return cls(**{name: value for name, value in record.items() if name not in ("score", "error")})


def standard_error(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else None


def frozen_candidates(
    assigners: Sequence[str] = ("balanced", "sskmeans", "ward", "meanshift"),
    whitened: Sequence[float | str] = WHITENED,
) -> list[Candidate]:
    """Nothing is trained: an assigner in the backbone's features, with and without whitening.

    The first is the default if nothing can be judged. PIM and plain k-means are left out: on 50 kinds of birds PIM is
    no better than `balanced` and takes minutes, and k-means does not look at labels at all.
    """
    ways = [Way(assigner, whiten) for assigner in assigners for whiten in whitened]
    return [Candidate(f"{FROZEN}, {way}", {"method": {"name": "frozen"}, **way.settings}) for way in ways]


def ways_after(frozen: Candidate) -> list["Way"]:
    """How categories are found in trained features: by the method itself, and by the best assigner of frozen ones."""
    best = Way.of(frozen.settings)
    return [Way(OWN, "none"), best, replace(best, whiten=next(other for other in WHITENED if other != best.whiten))]


def choose(candidates: Iterable[Candidate]) -> tuple[Candidate, str]:
    """The best by the rule, and why."""
    judged = [candidate for candidate in candidates if candidate.state == JUDGED]
    frozen = max((c for c in judged if not c.trains), key=_score, default=None)
    trained = max((c for c in judged if c.trains), key=_score, default=None)
    if frozen is None:
        raise NewkindsError("no candidate could be judged.")
    on_hidden = "on labelled images split again"
    if trained is None:
        others = f"the best of {len(judged)} that were judged"
        return frozen, f"{_percent(frozen)} {on_hidden}, {others}"
    gains = np.subtract(trained.scores, frozen.scores[: len(trained.scores)])
    gain, error = float(gains.mean()), standard_error(gains.tolist()) or 0.0
    figures = f"{_percent(trained)} {on_hidden}, {100 * gain:+.1f} ± {100 * error:.1f} against the best frozen answer"
    if gain > error:
        return trained, figures
    return frozen, f"training did not pay: {trained.name} has {figures}"


def _score(candidate: Candidate) -> float:
    assert candidate.score is not None  # it was judged
    return candidate.score


def _percent(candidate: Candidate) -> str:
    return f"{percent(candidate.score)} %"


# -- judging ---------------------------------------------------------------------------------------------------------


def splits_of(targets: np.ndarray, seed: int) -> list[Resplit]:
    """The splits of the labelled images (`targets`, (n,); -1: no label) by which a plan judges; none of few classes.

    Of very many labelled images some are drawn: the time of some assigners grows with the square of their number.
    """
    random = np.random.RandomState(seed_for("plan", seed) % 2**32)
    targets = some_labels(targets, MOST_LABELS, LABELS_PER_CLASS, random)
    return resplits(targets, TRIALS if (targets >= 0).sum() > MANY_LABELS else SPLITS, random)


def judge_frozen(candidate: Candidate, embedding: Tensor, splits: Sequence[Resplit]) -> Candidate:
    """An assigner in fixed unit rows (n, P) of all images, fitted to each split of the labelled ones."""
    if not splits:
        few = f"fewer than {FEWEST_CLASSES} labelled classes"
        return replace(candidate, state=f"not tried: {few} leave nothing to judge by")
    most = ASSIGNERS[candidate.settings["assigner"]["name"]].most_images
    if most is not None and len(embedding) > most:
        return replace(candidate, state=f"not tried: it compares all pairs, too many of more than {most:,} images")
    started = time.perf_counter()
    try:
        found = [Way.of(candidate.settings).on(embedding[split.rows], split) for split in splits]
    except NewkindsError as error:
        return replace(candidate, state=f"stopped: {error}")
    return candidate.judged(found, time.perf_counter() - started)


def choose_frozen(candidates: Sequence[Candidate]) -> tuple[Candidate, str]:
    """The best of those that train nothing, or the first if nothing could be judged by; and why."""
    if all(candidate.state.startswith("not tried") for candidate in candidates):
        return candidates[0], f"the default: with fewer than {FEWEST_CLASSES} labelled classes nothing can be judged"
    return choose(candidates)


def accuracy_on(split: Resplit, category: np.ndarray) -> Accuracy:
    """All, Old and New of the images that a split hides."""
    return clustering_accuracy(split.truth[split.hidden], category[split.hidden], list(range(split.known)))


def table_of(table: Table, split: Resplit) -> Table:
    """The labelled images of a table as a small benchmark of their own: what is trained on to be judged."""
    labelled = table.rows(split.rows.tolist())
    truth = [str(label) for label in labelled.labels]
    names: dict[int, str] = dict(zip(split.truth.tolist(), truth, strict=True))
    labels = [name if number >= 0 else None for name, number in zip(truth, split.labels, strict=True)]
    known = [names[number] for number in range(split.known)]
    caveat = "only its labelled images are taken, split again to choose settings"
    return replace(labelled, labels=labels, known_first=known, categories=split.categories, truth=None, caveat=caveat)


def table_text(candidates: Sequence[Candidate], chosen: str) -> str:
    """What was compared, for the terminal."""
    rows = []
    for candidate in sorted(candidates, key=lambda c: -(c.score if c.score is not None else -1.0)):
        error = "" if candidate.error is None else f" ± {100 * candidate.error:.1f}"
        figures = [percent(candidate.score) + error, percent(candidate.old), percent(candidate.new)]
        state = "" if candidate.state == JUDGED else candidate.state
        mark = "*" if candidate.name == chosen else ""
        rows.append([mark, candidate.name, *figures, f"{candidate.seconds:.0f}", state])
    return text_table(["", "candidate", "All %", "Old %", "New %", "seconds", ""], rows)


# -- candidates that train -------------------------------------------------------------------------------------------


BATCH, FEWEST_STEPS = 128, 25  # images in a step, steps in an epoch
LOOKS = 4  # in a training, at whether it has collapsed


@dataclass(frozen=True)
class Recipe:
    """A way to train, whose epochs depend on the number of images: what counts is the number of steps."""

    name: str
    settings: dict[str, Any]
    steps: int
    passes: float  # views of an image that go through the backbone, over one
    blocks: float = 0.0  # backbone passes that one epoch of training costs, forwards and backwards

    def epoch_size(self, images: int) -> int:
        """Images drawn in an epoch: an epoch of a few steps would be spent on writing checkpoints."""
        return max(images, BATCH * FEWEST_STEPS)

    def epochs(self, images: int) -> int:
        return max(1, round(self.steps / (self.epoch_size(images) // min(BATCH, images))))

    def layer(self, images: int) -> dict[str, Any]:
        """The settings for so many images."""
        epochs = self.epochs(images)
        sections: dict[str, Any] = copy.deepcopy(self.settings)
        sections["train"] = {
            **sections.get("train", {}),
            "epochs": epochs,
            "epoch_size": self.epoch_size(images),
            "batch_size": BATCH,
            "eval_every": max(1, epochs // LOOKS),
        }
        sections["method"] = {**sections["method"], "warmup_teacher_epochs": max(1, epochs // 3)}
        return sections


ADAPTER = {
    # a small projection: the feature is one token, and the published width would take most of the time
    "method": {"name": "simgcd", "memax_weight": 2.0, "projection_hidden": 512},
    "organizer": {"name": "adapter", "dropout": 0.1},
    "backbone": {"train_blocks": 0},
    "train": {"lr": 0.1, "cache_views": 1, "cache_precision": "float32"},
}
PRIMITIVES = {**ADAPTER, "organizer": {"name": "cpf-parts", "dropout": 0.1}}  # on top of the adapter
RECIPES = (
    Recipe("adapter on class tokens", ADAPTER, steps=600, passes=0),
    Recipe("adapter and primitives (CPF)", PRIMITIVES, steps=600, passes=1),
    Recipe(
        "last block, slowly",
        {
            "method": {"name": "simgcd", "memax_weight": 2.0},
            "train": {"lr": 0.1, "backbone_lr_ratio": 0.01, "cache_views": 4},
        },
        steps=600,
        passes=5,
        blocks=0.5,
    ),
)
