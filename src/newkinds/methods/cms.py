"""CMS: contrast between images that have been moved towards their nearest neighbours.
Choi, Kang, Cho: Contrastive Mean-Shift Learning for Generalized Category Discovery. CVPR 2024.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..assigners.nearest_images import MeanShift
from ..precision import full_precision
from ..settings import AtLeastOne, Positive, Share
from . import losses
from .base import METHODS, Embed, Method, Step
from .heads import UnitProjectionHead, project


@METHODS.register("cms")
class CMS(Method):
    """Contrastive mean-shift (Choi et al., CVPR 2024).

    Before each epoch the projections of two random views of every training image go into a bank. In a step each view
    moves towards the mean of its nearest neighbours there, and the two moved views of an image attract each other.
    In the end all training images are moved round by round, as long as the labelled ones are clustered better for it,
    and Ward's clusters are the categories. Another image belongs to the category of the most similar training image.
    On coarse classes (CIFAR-100, ImageNet-100) the authors take shifted_temp=.3, train.lr=.01, train.min_lr_ratio=.001.
    """

    @dataclass
    class Config(Method.Config):
        sup_weight: Share = 0.35  # share of the supervised term; the unsupervised one gets the rest
        shift: Share = 0.5  # how far a view moves to the mean of its neighbours
        neighbours: AtLeastOne = 8
        shifted_temp: Positive = 0.25
        sup_con_temp: Positive = 0.07
        projection_hidden: AtLeastOne = 2048
        projection_dim: AtLeastOne = 256  # before the last, weight-normalised layer
        output_dim: AtLeastOne = 768
        max_rounds: AtLeastOne = 20  # of mean-shift in the end
        patience: AtLeastOne = 2  # rounds without gain on the labelled images before it stops
        # a step leaves out the nearest row, not the views of the image itself; in the end,
        # batches find the rows of earlier batches of the round moved already
        as_published: bool = False

    config: Config
    train_defaults: ClassVar[dict[str, Any]] = {"lr": 0.05, "min_lr_ratio": 5e-3, "decay_biases": True}
    classifier: MeanShift
    bank: Tensor

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        self.head = UnitProjectionHead(dim, config.projection_hidden, config.projection_dim, config.output_dim)
        self.embedding_dim = config.output_dim
        settings = (config.shift, config.neighbours, config.max_rounds, config.patience, config.as_published)
        self.classifier = MeanShift(config.output_dim, known, categories, *settings)
        # (2n, P) unit rows, view-major, of the current epoch; gathered again when training is resumed
        self.register_buffer("bank", torch.empty(0, config.output_dim), persistent=False)

    def on_epoch_start(self, epoch: int, embed: Embed) -> None:
        features, _ = embed(2)  # (2, n, D)
        self.bank = self.embedding(features.flatten(0, 1))

    def loss(self, step: Step) -> dict[str, Tensor]:
        embedding = self.head(step.encoded.feature)  # (2B, P)
        return self.loss_of(embedding, step.batch.labels, self.bank[self.neighbours(embedding, step.batch.index)])

    @torch.no_grad()
    def neighbours(self, embedding: Tensor, index: Tensor) -> Tensor:
        """(2B, k) nearest rows of the bank, of other images than the row's own, which `index` (B,) names."""
        if not len(self.bank):
            raise RuntimeError("the bank is empty: on_epoch_start must be called before an epoch's steps")
        with full_precision(embedding) as rows:
            similarity = rows @ self.bank.to(rows.dtype).T  # (2B, 2n), the largest tensor of a step
        count = min(self.config.neighbours, len(self.bank) - 2)
        if self.config.as_published:
            return similarity.topk(count + 1, dim=1).indices[:, 1:]
        own = index.repeat(2)[:, None]  # (2B, 1), in the first view
        similarity.scatter_(1, torch.cat([own, own + len(self.bank) // 2], dim=1), float("-inf"))
        return similarity.topk(count, dim=1).indices

    def loss_of(self, embedding: Tensor, labels: Tensor, neighbours: Tensor) -> dict[str, Tensor]:
        """The loss and its terms from unit rows (2B, P), labels (B,; -1: none), neighbours (2B, k, P)."""
        config = self.config
        with full_precision(embedding) as rows:
            shifted = (1 - config.shift) * rows + config.shift * neighbours.mean(dim=1)
            shifted = shifted / shifted.norm(dim=1, keepdim=True).detach()  # (2B, P)
        unsupervised = decoupled_contrastive(shifted, config.shifted_temp)
        supervised = losses.supervised_contrastive(embedding, labels.repeat(2), config.sup_con_temp)
        loss = config.sup_weight * supervised + (1 - config.sup_weight) * unsupervised
        return {"loss": loss, "supervised_contrastive": supervised, "shifted_contrastive": unsupervised}

    def embedding(self, features: Tensor) -> Tensor:
        """The projections (n, P) of any number of features (n, D)."""
        return project(self.head, features)


def decoupled_contrastive(z: Tensor, temperature: float) -> Tensor:
    """Find the other view of an image, itself not among its competitors: z (2B, d), view-major; 0 of a single image."""
    n = len(z)
    if n < 4:
        return z.sum() * 0.0
    with full_precision(z) as z:
        logits = z @ z.T / temperature  # (2B, 2B)
        row = torch.arange(n, device=z.device)
        partner = row.roll(n // 2)
        same_image = (row[:, None] == row) | (partner[:, None] == row)
        others = logits.masked_fill(same_image, float("-inf")).logsumexp(dim=1)  # (2B,)
        return (others - logits[row, partner]).mean()
