"""GCD: contrastive training, then k-means that knows the labels.
Vaze, Han, Vedaldi, Zisserman: Generalized Category Discovery. CVPR 2022.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from ..assigners.centres import BalancedKMeans, LabelledKMeans
from ..settings import AtLeastOne, Positive, Share
from . import losses
from .base import METHODS, Method, Step
from .heads import UnitProjectionHead


class KMeansMethod(Method):
    """Features trained through a projection that is then dropped; categories are found by semi-supervised k-means."""

    @dataclass
    class Config(Method.Config):
        sup_weight: Share = 0.35  # share of the supervised terms; the unsupervised one gets the rest
        info_nce_temp: Positive = 1.0
        sup_con_temp: Positive = 0.07
        projection_hidden: AtLeastOne = 2048
        projection_dim: AtLeastOne = 256  # before the last, weight-normalised layer
        output_dim: AtLeastOne = 65536
        kmeans_restarts: AtLeastOne = 10
        kmeans_iterations: AtLeastOne = 200
        as_published: bool = False  # an emptied cluster takes in every unlabelled image, not a far one

    config: Config
    classifier: LabelledKMeans

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        self.head = UnitProjectionHead(dim, config.projection_hidden, config.projection_dim, config.output_dim)
        self.classifier = self.kmeans(dim)

    def kmeans(self, dim: int) -> LabelledKMeans:
        """What finds the categories."""
        config = self.config
        settings = (config.kmeans_restarts, config.kmeans_iterations, config.as_published)
        return LabelledKMeans(dim, self.known, self.categories, *settings)


class BalancedMethod(KMeansMethod):
    """The same with k-means that is steered towards categories of one size, as SelEx and InfoSieve do."""

    @dataclass
    class Config(KMeansMethod.Config):
        balanced: bool = True  # steer k-means towards categories of the same size
        kmeans_iterations: AtLeastOne = 10  # with balancing, then as many without

    config: Config

    def kmeans(self, dim: int) -> BalancedKMeans:
        config = self.config
        settings = (config.kmeans_restarts, config.kmeans_iterations, config.balanced, config.as_published)
        return BalancedKMeans(dim, self.known, self.categories, *settings)


@METHODS.register("gcd")
class GCD(KMeansMethod):
    """Contrastive features and semi-supervised k-means (Vaze et al., CVPR 2022).

    All views are contrasted with each other, and labelled ones also class by class. The published script starts
    k-means 100 times (`kmeans_restarts`).
    """

    train_defaults: ClassVar[dict[str, Any]] = {"decay_biases": True}

    def loss(self, step: Step) -> dict[str, Tensor]:
        return self.loss_of(self.head(step.encoded.feature), step.batch.labels)

    def loss_of(self, embedding: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The loss and its terms from unit rows (2B, P) and labels (B,; -1: none)."""
        config = self.config
        supervised = losses.supervised_contrastive(embedding, labels.repeat(2), config.sup_con_temp)
        unsupervised = losses.info_nce(embedding, config.info_nce_temp)  # sees labelled images too
        loss = config.sup_weight * supervised + (1 - config.sup_weight) * unsupervised
        return {"loss": loss, "supervised_contrastive": supervised, "info_nce": unsupervised}
