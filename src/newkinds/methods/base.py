"""What a discovery method is: a loss over features, and a way to assign features to categories."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from ..data.batch import Batch
from ..registry import Registry


@dataclass(frozen=True)
class Progress:
    """Where training stands; schedules read it."""

    epoch: int  # 0-based
    epochs: int


@dataclass(frozen=True)
class Assignment:
    """The category of each image: 0..C-1 are the known classes, the rest are new."""

    category: Tensor  # (n,) int64
    confidence: Tensor  # (n,) in [0, 1]


class Method(nn.Module, ABC):
    """A discovery head with its loss. It sees features only: nothing here knows how they were made."""

    @dataclass
    class Config:
        """Settings of the method (`--set method.name=value`)."""

    # What the method's authors train with, where it differs from TrainConfig's defaults.
    train_defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, config: Any, dim: int, known: int, categories: int) -> None:
        """`dim` of the features, `known` classes with labels, `categories` in all (known and new)."""
        super().__init__()
        self.config = config
        self.known = known
        self.categories = categories

    @abstractmethod
    def loss(self, batch: Batch, features: Tensor, progress: Progress) -> dict[str, Tensor]:
        """Losses of a step, from features (V·B, D): "loss" is minimised, the rest is logged."""

    @abstractmethod
    def assign(self, features: Tensor) -> Assignment:
        """Categories for features (n, D), of training images and of images never seen alike."""


METHODS: Registry[type[Method]] = Registry("method")
