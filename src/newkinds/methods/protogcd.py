"""ProtoGCD: SimGCD with targets that become one-hot, the surest first, and prototypes that repel each other.
Ma, Zhu, Zhang, Liu: ProtoGCD: Unified and Unbiased Prototype Learning for Generalized Category Discovery. TPAMI 2025.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..precision import full_precision
from ..settings import NonNegative, Positive, Share, WholeNumber
from . import losses
from .base import METHODS, Progress
from .schedules import linear_then_constant
from .simgcd import SimGCD

BASE_TEMP = 0.1  # at which the separation is a plain mean


@METHODS.register("protogcd")
class ProtoGCD(SimGCD):
    """SimGCD with hard and soft targets and separated prototypes (Ma et al., TPAMI 2025).

    Each view still predicts what the other one does, but the surest of these targets are one-hot: none at first, all of
    them from epoch 100 on. Prototypes are pushed apart, most of all those that are nearest to each other.
    The authors take separation_weight .1 on CIFAR-100 and .05 on CUB, and have not said what on other data.
    """

    @dataclass
    class Config(SimGCD.Config):
        memax_weight: NonNegative = 2.0
        teacher_temp: Positive = 0.05
        warmup_teacher_temp: Positive = 0.05
        warmup_teacher_epochs: WholeNumber = 0  # the temperature is constant
        hard_share: Share = 0.0  # of the targets at epoch 0, from where it rises linearly to 1
        hard_epochs: WholeNumber = 100  # also when fewer are trained: some targets then stay soft
        separation_weight: NonNegative = 0.1  # of the separation of prototypes among the unsupervised terms
        separation_temp: Positive = 0.1

    config: Config

    def loss_of(self, logits: Tensor, projections: Tensor, labels: Tensor, progress: Progress) -> dict[str, Tensor]:
        config = self.config
        terms = super().loss_of(logits, projections, labels, progress)
        terms["separation"] = separation(self.classifier.prototypes, config.separation_temp)
        weight = (1 - config.sup_weight) * config.separation_weight
        terms["loss"] = terms["loss"] + weight * terms["separation"]
        return terms

    def self_distillation(self, logits: Tensor, progress: Progress) -> Tensor:
        config = self.config
        share = linear_then_constant(progress.epoch, config.hard_share, 1.0, config.hard_epochs)
        with full_precision(logits) as logits:
            soft = (logits.detach() / self.teacher_temp(progress)).softmax(dim=1)  # (2B, K)
            return losses.swapped_cross_entropy(logits, harden(soft, share), config.student_temp)


def harden(targets: Tensor, share: float) -> Tensor:
    """Targets (2B, K) of which a share in each view, the surest rows, are made one-hot.

    A row is the surer, the more often its first category is as likely as its second.
    """
    if targets.shape[1] < 2:  # nothing to be unsure about
        return targets
    views = targets.unflatten(0, (2, -1))  # (2, B, K)
    first, second = views.topk(2, dim=2).values.unbind(dim=2)  # (2, B) each
    surest = (first / (second + 1e-6)).topk(int(views.shape[1] * share), dim=1).indices  # (2, ⌊B · share⌋)
    is_hard = torch.zeros_like(first, dtype=torch.bool).scatter_(1, surest, True)
    one_hot = F.one_hot(targets.argmax(dim=1), targets.shape[1]).to(targets.dtype)
    return one_hot.where(is_hard.flatten()[:, None], targets)


def separation(prototypes: Tensor, temperature: float = 0.1) -> Tensor:
    """Mean over prototypes (K, D) of log mean exp(cosine / temperature) with the other ones; 0 if there is only one.

    It is multiplied by temperature / 0.1, so that gradients are as large at every temperature.
    """
    others = len(prototypes) - 1
    if others < 1:
        return prototypes.sum() * 0.0
    with full_precision(prototypes) as rows:
        unit = F.normalize(rows, dim=1)
        logits = (unit @ unit.T / temperature).fill_diagonal_(-torch.inf)  # (K, K)
        return temperature / BASE_TEMP * (logits.logsumexp(dim=1) - math.log(others)).mean()
