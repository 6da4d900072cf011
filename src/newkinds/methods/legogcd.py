"""LegoGCD: SimGCD, with known classes kept from being forgotten.
Cao, Zheng, Wang, Yu, Shen, Li, Lu, Tian: Solving the Catastrophic Forgetting Problem in Generalized Category Discovery.
CVPR 2024.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..precision import full_precision
from ..settings import NonNegative, Positive, Share
from .base import METHODS, Progress, Step
from .simgcd import SimGCD


@METHODS.register("legogcd")
class LegoGCD(SimGCD):
    """SimGCD with two more terms for the known classes (Cao et al., CVPR 2024).

    Unlabelled views that are surely of a known class sharpen their prediction against a margin that is wider for
    categories predicted rarely, and the predictions of the two views of an image are drawn together.
    The authors take known_threshold .7 on CUB and Herbarium, .8 on ImageNet-100, .85 on Cars and CIFAR-100,
    .9 on Aircraft, .95 on CIFAR-10; and memax_weight 2 on CUB and CIFAR-100, 1 elsewhere.
    """

    @dataclass
    class Config(SimGCD.Config):
        known_threshold: Share = 0.7  # probability from which a view is surely of a known class
        entropy_weight: NonNegative = 2.0  # of the entropy term, besides the supervised and unsupervised shares
        entropy_temp: Positive = 0.05
        margin: NonNegative = 0.4  # how far the log of the mean prediction moves the logits
        mean_momentum: Share = 0.999  # of the running mean prediction
        as_published: bool = False  # the KL term takes a softmax of probabilities

    config: Config
    mean_prediction: Tensor

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        self.register_buffer("mean_prediction", torch.full((categories,), 1 / categories))  # (K,)

    def loss(self, step: Step) -> dict[str, Tensor]:
        features = step.encoded.feature  # (2B, D)
        logits = self.classifier(features)  # (2B, K)
        terms = self.loss_of(logits, self.projection(features), step.batch.labels, step.progress)
        if self.training:
            self.follow(logits.detach())  # a step sees the mean of the steps before it
        return terms

    def loss_of(self, logits: Tensor, projections: Tensor, labels: Tensor, progress: Progress) -> dict[str, Tensor]:
        config = self.config
        terms = super().loss_of(logits, projections, labels, progress)
        terms["view_divergence"] = view_divergence(logits, config.student_temp, config.as_published)
        terms["known_entropy"] = self.known_entropy(logits, labels.repeat(2) < 0).mean()
        divergence = (1 - config.sup_weight) * terms["view_divergence"]
        terms["loss"] = terms["loss"] + divergence + config.entropy_weight * terms["known_entropy"]
        return terms

    def known_entropy(self, logits: Tensor, unlabelled: Tensor) -> Tensor:
        """(2B,) cross-entropy of each row with itself under the margin; 0 if it is not surely known."""
        config = self.config
        with full_precision(logits) as logits:
            highest, category = (logits / config.student_temp).softmax(dim=1).max(dim=1)  # (2B,) each
            surely_known = unlabelled & (highest >= config.known_threshold) & (category < self.known)
            sharp = logits / config.entropy_temp  # (2B, K)
            with_margin = sharp + config.margin * self.mean_prediction.to(sharp.dtype).log()
            # The target is not detached: both sides are sharpened.
            return -(sharp.softmax(dim=1) * with_margin.log_softmax(dim=1)).sum(dim=1) * surely_known

    def follow(self, logits: Tensor) -> None:
        """Move the running mean prediction a little towards this step's, at temperature 1."""
        now = logits.softmax(dim=1).mean(dim=0)  # (K,)
        self.mean_prediction.lerp_(now.to(self.mean_prediction.dtype), 1 - self.config.mean_momentum)


def view_divergence(logits: Tensor, temperature: float = 0.1, published: bool = False) -> Tensor:
    """KL divergence from each image's prediction in view 1 to that in view 2, averaged over images.

    `logits` (2B, K), view-major; both views have a gradient. The published code takes the softmax of the probabilities
    inside the logarithms (`published`), which hardly differs between categories: the term is several times smaller.
    """
    with full_precision(logits) as logits:
        scaled = logits / temperature
        probabilities = scaled.softmax(dim=1)  # (2B, K)
        logs = (probabilities if published else scaled).log_softmax(dim=1)  # (2B, K)
        images = len(logits) // 2
        divergence = (probabilities[:images] * (logs[:images] - logs[images:])).sum(dim=1)  # (B,)
        return divergence.sum() / max(images, 1)
