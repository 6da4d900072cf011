"""What a discovery method is: a loss over features, and a way to assign features to categories."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from ..data.batch import Batch
from ..encoders.tokens import Encoded
from ..registry import Registry
from ..settings import section_of

# `embed(views)`: features (views, n, D) of all n training images in as many random views each, and their
# labels (n,; -1: none). Rows are those of the table (`Batch.index`), the model is in evaluation mode, nothing
# has a gradient.
Embed = Callable[[int], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Progress:
    """Where training stands; schedules read it."""

    epoch: int  # 0-based
    epochs: int


@dataclass(frozen=True)
class Step:
    """What a method's loss is given: a batch, what the encoder made of it, and where training stands."""

    batch: Batch  # labels and index of B images
    encoded: Encoded  # feature (V·B, D) float32, view-major
    progress: Progress


@dataclass(frozen=True)
class Assignment:
    """The category of each image: 0..C-1 are the known classes, the rest are new."""

    category: Tensor  # (n,) int64
    confidence: Tensor  # (n,) in [0, 1]

    @classmethod
    def of_logits(cls, logits: Tensor, temperature: float = 0.1) -> Assignment:
        """The largest of the logits (n, K); its share in their softmax is the confidence."""
        shares = (logits / temperature).softmax(dim=1)
        return cls(category=logits.argmax(dim=1), confidence=shares.amax(dim=1))


class Method(nn.Module, ABC):
    """A discovery head with its loss. It sees features only: nothing here knows how they were made."""

    @dataclass
    class Config:
        """Settings of the method (`--set method.name=value`), each declared with its range (`settings.Range`)."""

        def __post_init__(self) -> None:
            given = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
            vars(self).update(section_of("method", type(self), given))

    # What the method's authors train with, where it differs from TrainConfig's defaults.
    train_defaults: ClassVar[dict[str, Any]] = {}
    backbone_defaults: ClassVar[dict[str, Any]] = {}  # likewise, the backbone's

    def __init__(self, config: Any, dim: int, known: int, categories: int) -> None:
        """`dim` of the features, `known` classes with labels, `categories` in all (known and new)."""
        super().__init__()
        self.config = config
        self.known = known
        self.categories = categories

    @abstractmethod
    def loss(self, step: Step) -> dict[str, Tensor]:
        """Losses of a step: "loss" is minimised, the rest is logged."""

    def on_epoch_start(self, epoch: int, embed: Embed) -> None:
        """Before an epoch: gather what its losses need of the whole training set.

        What is gathered is not saved: a resumed run gathers it again, from the same weights and, as
        torch's generator has just been seeded by (seed, epoch), with the same random numbers.
        """

    def on_fit_end(self, features: Tensor, labels: Tensor) -> None:
        """After training: features (n, D) of the training images' evaluation views, labels (n,; -1: none).

        Methods that find categories by clustering do so here, and keep what `assign` needs in buffers.
        """

    def embedding(self, features: Tensor) -> Tensor:
        """Unit rows (n, P) of features (n, D): the space in which the method compares and clusters images."""
        return F.normalize(features.float(), dim=1)

    @abstractmethod
    def assign(self, features: Tensor) -> Assignment:
        """Categories for features (n, D), of training images and of images never seen alike."""


METHODS: Registry[type[Method]] = Registry("method")
