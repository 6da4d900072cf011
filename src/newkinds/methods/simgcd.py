"""SimGCD: a prototype classifier over known and new categories, taught by its own other view.
Wen, Zhao, Qi: Parametric Classification for Generalized Category Discovery: A Baseline Study. ICCV 2023.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from ..assigners.prototypes import PrototypeClassifier
from ..precision import full_precision
from ..settings import AtLeastOne, NonNegative, Positive, Share, WholeNumber
from . import losses
from .base import METHODS, Method, Progress, Step
from .heads import ProjectionHead
from .schedules import linear_then_constant


class PrototypeMethod(Method):
    """A classifier of one prototype per category, which learns from predictions that are sharper than its own."""

    @dataclass
    class Config(Method.Config):
        sup_weight: Share = 0.35  # share of the supervised terms; the unsupervised ones get the rest
        memax_weight: NonNegative = 1.0  # of the mean-entropy term; SimGCD's authors take 2 on CUB, 4 on CIFAR-100
        student_temp: Positive = 0.1
        teacher_temp: Positive = 0.04
        warmup_teacher_temp: Positive = 0.07  # at epoch 0, from where it falls linearly to teacher_temp
        warmup_teacher_epochs: WholeNumber = 30  # also when fewer are trained: the temperature then stays higher

    config: Config
    classifier: PrototypeClassifier

    def teacher_temp(self, progress: Progress) -> float:
        config = self.config
        warmup = (config.warmup_teacher_temp, config.teacher_temp, config.warmup_teacher_epochs)
        return linear_then_constant(progress.epoch, *warmup)


@METHODS.register("simgcd")
class SimGCD(PrototypeMethod):
    """Parametric prototypes with self-distillation (Wen et al., ICCV 2023).

    The classifier holds one prototype per category, known classes first: it learns the labels, and from every image
    that one view should predict what the other does, while the mean prediction is kept spread over all categories. A
    projection is trained by contrast, with labels if there are any. The category of an image is its nearest prototype.
    """

    @dataclass
    class Config(PrototypeMethod.Config):
        info_nce_temp: Positive = 1.0
        sup_con_temp: Positive = 0.07
        projection_hidden: AtLeastOne = 2048
        projection_dim: AtLeastOne = 256

    config: Config

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        self.projection = ProjectionHead(dim, config.projection_hidden, config.projection_dim)
        self.classifier = PrototypeClassifier(dim, known, categories, config.student_temp)

    def loss(self, step: Step) -> dict[str, Tensor]:
        features = step.encoded.feature  # (2B, D)
        return self.loss_of(self.classifier(features), self.projection(features), step.batch.labels, step.progress)

    def loss_of(self, logits: Tensor, projections: Tensor, labels: Tensor, progress: Progress) -> dict[str, Tensor]:
        """The loss and its terms from cosine logits (2B, K), projections (2B, P), labels (B,; -1: none)."""
        config = self.config
        labels = labels.repeat(2)  # (2B,), both views
        with full_precision(projections) as h:
            unit = F.normalize(h, dim=1)  # (2B, P)
        terms = {
            "labelled_cross_entropy": losses.labelled_cross_entropy(logits, labels, config.student_temp),
            "supervised_contrastive": losses.supervised_contrastive(unit, labels, config.sup_con_temp),
            # The unsupervised terms see every image, labelled ones too.
            "self_distillation": self.self_distillation(logits, progress),
            "mean_entropy_gap": losses.mean_entropy_gap(logits, config.student_temp),
            "info_nce": self.info_nce(projections, progress),
        }
        supervised = terms["labelled_cross_entropy"] + terms["supervised_contrastive"]
        unsupervised = terms["self_distillation"] + config.memax_weight * terms["mean_entropy_gap"] + terms["info_nce"]
        loss = config.sup_weight * supervised + (1 - config.sup_weight) * unsupervised
        return {"loss": loss, **terms}

    # Methods that differ from SimGCD in one term put their own in its place.

    def self_distillation(self, logits: Tensor, progress: Progress) -> Tensor:
        """What each view learns from the prediction of the other: cosine logits (2B, K)."""
        return losses.self_distillation(logits, self.teacher_temp(progress), self.config.student_temp)

    def info_nce(self, projections: Tensor, progress: Progress) -> Tensor:
        """The contrast that needs no labels: projections (2B, P)."""
        return losses.info_nce(projections, self.config.info_nce_temp)
