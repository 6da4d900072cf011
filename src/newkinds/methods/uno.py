"""UNO+: one cross-entropy for all images, with equally spread targets for those without a label.
Fini, Sangineto, Lathuilière, Zhong, Nabi, Ricci: A Unified Objective for Novel Class Discovery. ICCV 2021. As UNO+,
where images without a label may also be of known classes, in Vaze et al.: Generalized Category Discovery. CVPR 2022.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..assigners.prototypes import PrototypeClassifier
from ..precision import full_precision
from ..settings import AtLeastOne, Positive, WholeNumber
from . import losses
from .base import METHODS, Method, Progress, Step
from .heads import NormalisedPerceptron, project


@METHODS.register("uno")
class UNO(Method):
    """Swapped targets that use all categories alike, UNO+ re-implemented (Fini et al., ICCV 2021; Vaze et al., 2022).

    Several heads learn side by side, each a projection with one prototype per category, known classes first. A labelled
    image has its class as target. The others of a batch are spread over all categories, each to prototypes that it is
    near to; this is the target for the other view. Over-clustering heads learn the same with more prototypes for what
    is new. The head whose loss is lowest over the latest epoch gives embedding and categories.
    There is no published code of UNO+: this is UNO's loss, over all categories and with two views.
    """

    @dataclass
    class Config(Method.Config):
        heads: AtLeastOne = 5  # and as many that over-cluster
        overclustering: WholeNumber = 3  # prototypes of these for each new category; 0: no such heads
        student_temp: Positive = 0.1
        sinkhorn_epsilon: Positive = 0.05  # divides the cosines themselves, not those over student_temp
        sinkhorn_iterations: AtLeastOne = 3
        projection_hidden: AtLeastOne = 2048
        projection_dim: AtLeastOne = 256

    config: Config
    train_defaults: ClassVar[dict[str, Any]] = {"weight_decay": 1.5e-4, "decay_biases": True}
    running: Tensor

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        self.embedding_dim = config.projection_dim
        finer = known + config.overclustering * (categories - known)
        self.heads = nn.ModuleList(Head(dim, known, categories, config) for _ in range(config.heads))
        over = config.heads if config.overclustering else 0
        self.finer_heads = nn.ModuleList(Head(dim, known, finer, config) for _ in range(over))
        self.register_buffer("running", torch.zeros(config.heads))  # each head's losses, summed over an epoch's steps
        self._best: int | None = None  # the head whose loss is lowest, once somebody has asked
        self.register_load_state_dict_post_hook(_ask_again)

    def loss(self, step: Step) -> dict[str, Tensor]:
        features, labels = step.encoded.feature, step.batch.labels  # (2B, D), (B,)
        both = [*self.heads, *self.finer_heads]
        # BatchNorm sees a view at a time, as Sinkhorn does; one image alone is compared with its other view.
        views = features.chunk(2) if len(labels) > 1 else [features]
        cosines = [torch.cat([head(view) for view in views]) for head in both]  # (2B, K) each
        of_heads = torch.stack([self.loss_of(logits, labels) for logits in cosines])
        of_categories, finer = of_heads[: len(self.heads)], of_heads[len(self.heads) :]
        if self.training:
            self.follow(of_categories.detach(), step.progress)
        terms = {"loss": of_heads.mean(), "clustering": of_categories.mean()}
        return {**terms, "overclustering": finer.mean()} if len(finer) else terms

    def loss_of(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of one head from its cosines (2B, K), labels (B,; -1: none): of all images, labelled or not."""
        with full_precision(logits) as logits:
            targets = [self.targets(view, labels) for view in logits.detach().chunk(2)]  # (B, K) each
            return losses.swapped_cross_entropy(logits, torch.cat(targets), self.config.student_temp)

    def targets(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(B, K) of one view: the class of a labelled image, and for the others their share in all categories."""
        config, unlabelled = self.config, labels < 0
        targets = F.one_hot(labels.clamp(min=0), logits.shape[1]).to(logits.dtype)
        spread = losses.sinkhorn(logits[unlabelled], config.sinkhorn_iterations, config.sinkhorn_epsilon)
        targets[unlabelled] = spread
        return targets

    def follow(self, of_heads: Tensor, progress: Progress) -> None:
        """Add the losses (H,) of a step to those of its epoch."""
        if progress.step == 0:
            self.running.zero_()
        self.running += of_heads.to(self.running.dtype)
        self._best = None

    @property
    def best(self) -> "Head":
        if self._best is None:
            self._best = int(self.running.argmin())
        return cast(Head, self.heads[self._best])

    def embedding(self, features: Tensor) -> Tensor:
        """The best head's projections (n, P), of unit length."""
        return F.normalize(project(self.best.projection, features), dim=1)

    def assigner(self) -> PrototypeClassifier:
        return self.best.classifier


class Head(nn.Module):
    """Features (n, D) → cosines (n, K) of their projections with prototypes."""

    def __init__(self, dim: int, known: int, categories: int, config: UNO.Config) -> None:
        super().__init__()
        self.projection = NormalisedPerceptron(dim, config.projection_hidden, config.projection_dim)
        self.classifier = PrototypeClassifier(config.projection_dim, known, categories, config.student_temp)

    def forward(self, features: Tensor) -> Tensor:
        return self.classifier(self.projection(features))


def _ask_again(uno: "UNO", _: object) -> None:
    """Other weights may have another best head."""
    uno._best = None
