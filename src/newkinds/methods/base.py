"""What a discovery method is: a loss over features, and its own assigner."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from ..assigners.base import Assigner
from ..assigners.base import Assignment as Assignment
from ..data.batch import Batch
from ..data.views import TWO_CROPS, Gathered, ViewPlan
from ..encoders.tokens import Encoded
from ..registry import Registry
from ..settings import section_of

# `embed(views)`: features (views, n, D) of all n training images in random views, or (1, n, D) of the "centre" of each,
# without gradients, and their labels (n,; -1: none). Rows are those of the table (`Batch.index`); the model is in
# evaluation mode.
Embed = Callable[[Gathered], tuple[Tensor, Tensor]]


class Extra(NamedTuple):
    """A value of a method's setting that needs a package which is an extra, and the value that does without."""

    setting: str
    value: Any
    package: str  # also the name of the extra
    instead: Any

    @property
    def is_installed(self) -> bool:
        return find_spec(self.package) is not None


@dataclass(frozen=True)
class Progress:
    """Where training stands; schedules read it."""

    epoch: int  # 0-based
    epochs: int
    step: int = 0  # of the epoch, 0-based
    steps: int = 1  # in each epoch

    @property
    def taken(self) -> int:
        """Steps before this one, of all epochs."""
        return self.epoch * self.steps + self.step


@dataclass(frozen=True)
class Step:
    """What a method's loss is given: a batch, what the encoder made of it, and where training stands."""

    batch: Batch  # labels and index of B images
    encoded: Encoded  # feature (V·B, D) float32, view-major
    progress: Progress
    taught: Any = None  # what `Method.teach` made of the same views, with averaged weights and without gradients


class Method(nn.Module, ABC):
    """A discovery head with its loss. It sees features only: nothing here knows how they were made."""

    @dataclass
    class Config:
        """Settings of the method (`--set method.name=value`), each declared with its range (`settings.Range`)."""

        def __post_init__(self) -> None:
            given = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
            vars(self).update(section_of("method", type(self), given))

    title: ClassVar[str]  # what tables call it; by default the name of the class
    trains: ClassVar[bool] = True  # False: there is no loss, and train.epochs is always 0
    # What the method's authors train with, if it differs from TrainConfig's defaults.
    train_defaults: ClassVar[dict[str, Any]] = {}
    backbone_defaults: ClassVar[dict[str, Any]] = {}  # likewise, the backbone's
    tuning_defaults: ClassVar[dict[str, Any]] = {}  # likewise, what else trains in the backbone: its name and settings
    extras: ClassVar[tuple[Extra, ...]] = ()  # what a table takes another value for, if a package is missing
    starts_from: ClassVar[str | None] = None  # the method of its first stage: a run of that comes before (train.start)
    starts_afresh: ClassVar[tuple[str, ...]] = ()  # its own parts that are not taken over from that first stage
    views: ViewPlan = TWO_CROPS  # of each image in a step
    teacher_answers: bool = False  # whether the trained model is the averaged one
    reads_prompts: ClassVar[bool] = False  # whether losses need `encoded.prompts`
    classifier: Assigner  # assigns embedded images to categories

    def __init__(self, config: Any, dim: int, known: int, categories: int) -> None:
        """`dim` of the features, `known` classes with labels, `categories` in total (known and new)."""
        super().__init__()
        self.config = config
        self.known = known
        self.categories = categories
        self.embedding_dim = dim  # of the rows of `embedding`

    @abstractmethod
    def loss(self, step: Step) -> dict[str, Tensor]:
        """Losses of a step: "loss" is minimised, the rest is logged."""

    def begin(self, labels: Tensor) -> None:
        """Before training is started or resumed: the labels (n,; -1: none) of all training images.

        Nothing has been written yet: what is missing or does not fit is refused here.
        """

    def teacher_momentum(self, progress: Progress) -> float | None:
        """How much of the average of all that trains stays when a step's weights are mixed in; None: no average."""
        return None

    def teach(self, encoded: Encoded) -> Any:
        """What the averaged encoder and head say of V·B views, for `Step.taught`."""
        raise NotImplementedError(f"{type(self).__name__} has no teacher")

    def on_epoch_start(self, epoch: int, embed: Embed) -> None:
        """Before an epoch: gather what its losses need of the whole training set.

        It is not saved: a resumed run gathers it again, from the same weights and, as torch's generator has just been
        seeded by (seed, epoch), with the same random numbers.
        """

    def embedding(self, features: Tensor) -> Tensor:
        """Unit rows (n, P) of features (n, D): the space in which the method compares and clusters images."""
        return F.normalize(features.float(), dim=1)

    def assigner(self) -> Assigner:
        """Assigns embedded images; fitted to all training images after the last epoch, unless the loss learns it."""
        return self.classifier


METHODS: Registry[type[Method]] = Registry("method")
