"""Candidates that train: what is tried, in this order, and the features that come of it."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..assigners.resplit import Resplit
from ..data.table import Table
from ..errors import NewkindsError
from ..methods import METHODS
from ..runs.config import Config
from ..training.cache import TokenCache
from ..training.loop import Evaluator, Fitted, Pace
from ..training.model import Model
from .clock import Clock
from .evidence import TrialEvidence
from .ways import TRIALS, Features

BATCH, FEWEST_STEPS = 128, 25  # images in a step, steps in an epoch
LOOK_AFTER = 0.75  # of its epochs, a training is looked at: one that has collapsed is not finished
FEWEST_FILLED = 0.5  # of the categories that a training must fill, or it has collapsed
MARGIN = 0.1  # by which a training may know fewer labels than frozen features: these were not asked to forget any
STEP_SECONDS = 0.03  # of one step on class tokens, until it is measured

Train = Callable[[Table, Config, Evaluator | None, TokenCache | None, Pace | None], Fitted]


@dataclass(frozen=True)
class Trainer:
    """What trains, and what is known of a training before it begins."""

    train: Train
    step_seconds: Callable[[Table, Config], float]  # measured by a few steps
    uncached_views: Callable[[Table, Config], int]  # of all images, which it has to compute first


class Collapsed(NewkindsError):
    """A training that lost what the frozen features knew."""


@dataclass(frozen=True)
class Training:
    """One way to train. Its epochs depend on the number of images: what counts is the number of steps."""

    name: str  # the identity: candidates, plans, pages and recipes say which training they mean by it
    settings: Mapping[str, Any]
    steps: int
    views: int = 0  # of an image that go through the backbone first; 0: class tokens are all that it reads

    def epoch_size(self, images: int) -> int:
        """Images drawn in an epoch: an epoch of a few steps would be spent on writing checkpoints."""
        return max(images, BATCH * FEWEST_STEPS)

    def epochs(self, images: int) -> int:
        return max(1, round(self.steps / (self.epoch_size(images) // min(BATCH, images))))

    def settings_for(self, images: int) -> dict[str, Any]:
        """The settings for so many images."""
        epochs = self.epochs(images)
        sections: dict[str, Any] = copy.deepcopy(dict(self.settings))
        sections["train"] = {
            **sections.get("train", {}),
            "epochs": epochs,
            "epoch_size": self.epoch_size(images),
            "batch_size": BATCH,
        }
        method = METHODS[sections["method"]["name"]]
        if "warmup_teacher_epochs" in {setting.name for setting in fields(method.Config)}:
            sections["method"] = {"warmup_teacher_epochs": max(1, epochs // 3), **sections["method"]}
        return sections


ADAPTER: dict[str, Any] = {
    # a small projection: the feature is one token, and the published width would take most of the time
    "method": {"name": "simgcd", "memax_weight": 2.0, "projection_hidden": 512},
    "organizer": {"name": "adapter", "dropout": 0.1},
    "backbone": {"train_blocks": 0},
    "train": {"lr": 0.1, "cache_views": 1, "cache_precision": "float32"},
}
NARROW = {"projection_hidden": 1024, "output_dim": 2048}  # heads made for millions of images are most of the cost


def last_block(name: str, method: Mapping[str, Any], rate: float, steps: int) -> Training:
    """A method that trains the last block, at 1/100 of the head's rate. All of them read the same views: only the first
    that is tried has to compute the blocks before."""
    settings = {
        "method": method,
        "backbone": {"train_blocks": 1},
        "train": {"lr": rate, "backbone_lr_ratio": 0.01, "cache_views": 4},
    }
    return Training(name, settings, steps, views=5)


# In the order in which they are tried: what has gained most in its time comes first (results/choosing.md, "The
# trainings of the plan"). Rates and steps of SelEx and InfoSieve are those of results/systems.md.
TRAININGS = (
    Training("adapter on class tokens", ADAPTER, steps=600),
    last_block("last block, SelEx", {"name": "selex", **NARROW}, rate=0.3, steps=165),
    last_block("last block, InfoSieve", {"name": "infosieve", **NARROW}, rate=0.3, steps=165),
    Training(
        "adapter and primitives (CPF)",
        {**ADAPTER, "organizer": {"name": "cpf-parts", "dropout": 0.1}},
        steps=600,
        views=1,
    ),
    last_block("last block, slowly", {"name": "simgcd", "memax_weight": 2.0}, rate=0.1, steps=600),
)


def training_called(name: str) -> Training:
    """One of those that are tried, by its name."""
    found = next((training for training in TRAININGS if training.name == name), None)
    if found is None:
        known = ", ".join(training.name for training in TRAININGS)
        raise NewkindsError(f"there is no training '{name}', only: {known}. Choose another --out to begin again.")
    return found


@dataclass(frozen=True)
class Material:
    """What trainings are made of: the images, their frozen features, and what a pass of the backbone costs."""

    table: Table
    rows: Tensor  # (n, P) unit rows: frozen features of all images
    cache: TokenCache | None  # of their class tokens
    config_of: Callable[[Mapping[str, Any]], Config]  # settings of a candidate → all settings
    image_seconds: float  # of a pass over one image
    judged: int  # images in a split
    categories: int  # that are to be found
    row_of: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "row_of", {path: row for row, path in enumerate(self.table.paths)})

    def cache_for(self, training: Training) -> TokenCache | None:
        """Class tokens, if these are all that it reads."""
        return None if training.views else self.cache


class TrainedFeatures:
    """The features of a training on what a split leaves labelled; trained in memory, and thrown away."""

    def __init__(
        self, training: Training, material: Material, clock: Clock, trainer: Trainer, unfit: str = "", at: str = "",
        evidence: TrialEvidence | None = None,
    ) -> None:  # fmt: skip
        """`at`: of images at which size, for the name."""
        self.name, self.training = f"{training.name}{at}", training.name
        self.settings = training.settings
        self.most_splits: int | None = TRIALS
        self.images = len(material.table)
        self._training, self._material, self._clock, self._trainer = training, material, clock, trainer
        self._unfit, self._evidence = unfit, evidence
        self._needs: float | None = None  # once it is measured

    def unfit(self) -> str:
        return self._unfit

    def needs(self) -> float:
        """Seconds; of a training that begins with views of all images, by a few steps that need none, if a rough guess
        does not say already that there is no time for it."""
        if self._needs is None:
            training, table = self._training, self._material.table
            views, per_step = 0, STEP_SECONDS
            if training.views:
                config = self._config(training.settings_for(len(table)))
                views = self._trainer.uncached_views(table, config)
                if not self._clock.lack(self._seconds(per_step, TRIALS, views)):
                    per_step = self._trainer.step_seconds(table, config)
            self._needs = self._seconds(per_step, TRIALS, views)
        return self._needs

    def _seconds(self, per_step: float, splits: int, views: int) -> float:
        """Of training on so many splits and then on all images, if so many views are not there yet."""
        return (splits + 1) * self._training.steps * per_step + self._material.image_seconds * views

    def _config(self, settings: Mapping[str, Any]) -> Config:
        return replace(self._material.config_of(settings), k=self._material.categories)

    def features(self, split: Resplit, number: int) -> Features:
        table = table_of_split(self._material.table, split)
        cache = self._material.cache_for(self._training)
        config = self._config(watched(self._training.settings_for(len(table))))
        watch = watch_collapse(self._material, table)
        model, embedded = self._trainer.train(table, config, watch, cache, self._pace_on(number))
        require_sound(self._material, table, model, embedded.features)
        own = model.assign(embedded.features).category.cpu().numpy()
        rows = rows_of(model, embedded.features)
        if self._evidence is None:
            return Features(rows, own)
        return Features(rows, own, self._evidence.watch(self.name, rows, number))

    def _pace_on(self, number: int) -> Pace:
        """Whether the steps of a split are so slow that the rest would not be done in time."""

        def why_too_slow(per_step: float) -> str:
            later_views = self._training.views * (self.images - self._material.judged)
            # this split, those that follow, and all images
            lack = self._clock.lack(self._seconds(per_step, TRIALS - number, later_views))
            return f"by its first steps it {lack}" if lack else ""

        return why_too_slow


def watched(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a training that is looked at once, late in it."""
    train = settings["train"]
    return {**settings, "train": {**train, "eval_every": max(1, round(LOOK_AFTER * train["epochs"]))}}


def rows_of(model: Model, features: Tensor) -> Tensor:
    """(n, P) unit rows in which a trained model finds categories, of features (n, D)."""
    with torch.inference_mode():
        return model.rows(features.to(model.device)).float().cpu()


def watch_collapse(material: Material, table: Table) -> Evaluator:
    """Ends a training that has collapsed: most categories empty, or labels that frozen features knew forgotten."""

    def look(model: Model, features: Tensor) -> dict[str, float | None]:
        return require_sound(material, table, model, features)

    return look


def require_sound(material: Material, table: Table, model: Model, features: Tensor) -> dict[str, float | None]:
    """Refuse a training that has collapsed, by its features (m, D) of the images of a table; else, what was looked at.

    Labels are known where an image is nearest to the labelled ones of its class, in these features as in frozen ones:
    of the method's own categories, some are new, which frozen features need not tell from the known ones here.
    """
    targets = table.targets
    filled = len(model.assign(features).category.unique()) / model.k
    if filled < FEWEST_FILLED:
        raise Collapsed(f"it collapsed: {1 - filled:.0%} of the categories are empty")
    frozen = material.rows[[material.row_of[path] for path in table.paths]]  # (m, P)
    knew, knows = (share_known(rows, targets) for rows in (frozen, rows_of(model, features)))
    if knows < knew - MARGIN:
        raise Collapsed(f"it knows {knows:.0%} of the labels, frozen features {knew:.0%}")
    return {"agreement": knows, "filled": filled}


def share_known(rows: Tensor, targets: NDArray[np.int64]) -> float:
    """Of unit rows (m, P) with labels (m,; -1: none), the share that is nearest to the centre of its own class."""
    labelled = targets >= 0
    classes = np.unique(targets[labelled])
    centres = torch.stack([rows[targets == known].mean(0) for known in classes])
    nearest = (rows[labelled] @ F.normalize(centres, dim=1).T).argmax(1).numpy()
    return float((classes[nearest] == targets[labelled]).mean())


def table_of_split(table: Table, split: Resplit) -> Table:
    """The images of a split, with the labels that it leaves: what is trained on to be judged."""
    images = table.rows(split.rows.tolist())
    left = split.labels.tolist()
    names = {number: str(name) for number, name in zip(left, images.labels, strict=True) if number >= 0}
    labels = [names.get(number) for number in left]
    known = [names[number] for number in range(split.known)]
    caveat = "some of its labels are hidden to choose settings"
    return replace(images, labels=labels, known_first=known, categories=split.categories, truth=None, caveat=caveat)
