"""GCD: contrastive training, then k-means that knows the labels.

Sagar Vaze, Kai Han, Andrea Vedaldi, Andrew Zisserman: Generalized Category Discovery. CVPR 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..cluster import SemiSupervisedKMeans
from ..settings import Count, Positive, Share
from . import losses
from .base import METHODS, Assignment, Method, Step
from .heads import CentreClassifier, UnitProjectionHead


class KMeansMethod(Method):
    """Features trained through a projection that is then dropped; categories are found by k-means.

    In the end the normalised features of all training images are clustered, where labelled images stay in
    the cluster of their class. An image belongs to the nearest centre.
    """

    @dataclass
    class Config(Method.Config):
        sup_weight: Share = 0.35  # share of the supervised terms; the unsupervised one gets the rest
        info_nce_temp: Positive = 1.0
        sup_con_temp: Positive = 0.07
        projection_hidden: Count = 2048
        projection_dim: Count = 256  # before the last, weight-normalised layer
        output_dim: Count = 65536
        kmeans_restarts: Count = 10
        kmeans_iterations: Count = 200
        as_published: bool = False  # an emptied cluster takes in every unlabelled image, not a far one

    config: Config

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        self.head = UnitProjectionHead(
            dim, config.projection_hidden, config.projection_dim, config.output_dim
        )
        self.classifier = CentreClassifier(dim, categories)

    def clustering(self) -> SemiSupervisedKMeans:
        """What finds the categories; its random numbers come from torch's generator."""
        return SemiSupervisedKMeans(
            self.categories,
            self.config.kmeans_restarts,
            int(torch.randint(2**31, ())),
            max_iter=self.config.kmeans_iterations,
            published_behaviour=self.config.as_published,
        )

    def on_fit_end(self, features: Tensor, labels: Tensor) -> None:
        found = self.clustering().fit(self.embedding(features), labels)
        # Clusters of classes come first. A known class of which no image has a label takes a new cluster.
        others = np.setdiff1d(np.arange(self.categories), found.classes_)
        cluster_of = np.argsort(np.concatenate([found.classes_, others]))  # (K,)
        self.classifier.keep(torch.from_numpy(found.cluster_centers_[cluster_of]))

    @torch.no_grad()
    def assign(self, features: Tensor) -> Assignment:
        return Assignment.of_logits(self.classifier(self.embedding(features)))


@METHODS.register("gcd")
class GCD(KMeansMethod):
    """Contrastive features and semi-supervised k-means (Vaze et al., CVPR 2022).

    All views are contrasted with each other, and labelled ones also class by class.
    The published script starts k-means 100 times (`kmeans_restarts`).
    """

    train_defaults: ClassVar[dict[str, Any]] = {"decay_biases": True}

    def loss(self, step: Step) -> dict[str, Tensor]:
        return self.loss_of(self.head(step.encoded.feature), step.batch.labels)

    def loss_of(self, embedding: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The loss and its terms from unit rows (2B, P) and labels (B,; -1: none)."""
        config = self.config
        labels = labels.repeat(2)  # (2B,), both views
        labelled = labels >= 0
        supervised = losses.supervised_contrastive(embedding[labelled], labels[labelled], config.sup_con_temp)
        unsupervised = losses.info_nce(embedding, config.info_nce_temp)  # sees labelled images too
        loss = config.sup_weight * supervised + (1 - config.sup_weight) * unsupervised
        return {"loss": loss, "supervised_contrastive": supervised, "info_nce": unsupervised}
