"""InfoSieve: categories as short codes, the first bits of which matter most. Rastegar, Doughty, Snoek:
Learn to Categorize or Categorize to Learn? Self-Coding for Generalized Category Discovery. NeurIPS 2023.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..assigners.centres import BalancedKMeans
from ..precision import full_precision
from ..settings import AtLeastOne, NonNegative, Share
from . import losses
from .base import METHODS, Embed, Progress, Step
from .gcd import BalancedMethod
from .heads import Perceptron

CODE_LAYERS = 3  # hidden ones of the coder, the masker and the categoriser


@METHODS.register("infosieve")
class InfoSieve(BalancedMethod):
    """Contrast of images and of their codes, which are kept short (Rastegar et al., NeurIPS 2023).

    Before each epoch k-means sorts all training images into the categories; its clusters serve as labels. Of every
    projection a coder makes a code of numbers from -1 to 1, which harden from epoch to epoch, and a masker cuts it
    off: a way down a tree of categories. Projections and codes are both contrasted by distance: with the other view,
    by labels and by clusters. Late places of a code cost more, and the code alone must tell the known classes apart.
    The authors smooth by 1 on CUB, .5 on other fine-grained data and .1 elsewhere. At 1 the other view of an image is
    a target no more than any image: the unsupervised terms then only make distances alike.
    """

    @dataclass
    class Config(BalancedMethod.Config):
        smoothing: Share = 0.1  # share of the target that is spread over all images; see above
        code_length: AtLeastOne = 40
        code_hidden: AtLeastOne = 128
        code_weight: NonNegative = 1.0  # of the contrast of codes, beside that of projections
        length_weight: NonNegative = 0.1
        condition_weight: NonNegative = 0.01  # that codes become ±1 and use both alike, and that masks become 0 or 1
        category_weight: NonNegative = 0.01  # of telling known classes by the code
        # the length is summed over the batch, by the weights of epoch 0; distances of codes are divided by the sum
        # of the other row; k-means as in KMeansMethod, and its starts are drawn with a mistake (`k_means_plus_plus`)
        as_published: bool = False

    config: Config
    train_defaults: ClassVar[dict[str, Any]] = {"weight_decay": 1e-4, "decay_biases": True, "draw": "by_total"}
    backbone_defaults: ClassVar[dict[str, Any]] = {"train_blocks": 2}
    cluster: Tensor

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        length, hidden = config.code_length, config.code_hidden
        self.coder = Perceptron(config.output_dim, hidden, length, CODE_LAYERS)
        self.masker = Perceptron(config.output_dim, hidden, length, CODE_LAYERS)
        self.categoriser = Perceptron(length, hidden, known, CODE_LAYERS)
        # (n,) of the current epoch; found again when training is resumed
        self.register_buffer("cluster", torch.empty(0, dtype=torch.long), persistent=False)

    def kmeans(self, dim: int) -> BalancedKMeans:
        kmeans = super().kmeans(dim)
        if self.config.as_published:
            kmeans.init = "infosieve"
        return kmeans

    def on_epoch_start(self, epoch: int, embed: Embed) -> None:
        features, labels = embed(1)  # (1, n, D), (n,)
        random = np.random.RandomState(int(torch.randint(2**31, ())))
        clustering = self.classifier.clustering(self.categories, self.config.kmeans_restarts, random)
        found = clustering.fit(self.embedding(features[0]), labels)  # labelled images are in the cluster of their class
        self.cluster = torch.from_numpy(found.labels_).to(features.device)

    def loss(self, step: Step) -> dict[str, Tensor]:
        embedding, cluster = self.head(step.encoded.feature), self.cluster[step.batch.index]  # (2B, P), (B,)
        return self.loss_of(embedding, step.batch.labels, cluster, step.progress)

    def loss_of(self, embedding: Tensor, labels: Tensor, cluster: Tensor, progress: Progress) -> dict[str, Tensor]:
        """The loss and its terms from unit rows (2B, P), labels (B,; -1: none) and clusters (B,)."""
        config, classes = self.config, (labels.repeat(2), cluster.repeat(2))  # both views
        base = 2 - progress.epoch / max(progress.epochs, 1)  # places differ less and less in weight
        with full_precision(embedding) as z:
            code, mask = self.codes(z, progress.epoch)  # (2B, L) each
            place = torch.arange(config.code_length, device=z.device, dtype=z.dtype)  # (L,)
            weighted = code * base**-place  # (2B, L)
            of_views, of_codes, of_weighted = map(_distances, (z, F.normalize(code, dim=1), weighted))
            loss, terms = self.contrast(of_views, of_views, *classes)
            of_code, code_terms = self.contrast(of_codes, of_weighted, *classes, relative=True)
            terms |= {f"code_{name}": value for name, value in code_terms.items()}
            terms["code_length"] = self.length(mask, place, base)
            terms["code_condition"] = (1 - code.square()).mean() + code.mean(dim=0).square().mean()
            terms["mask_condition"] = (mask * (1 - mask)).square().mean()
            terms["category"] = self.category(mask * weighted, classes[0])
        loss = loss + config.code_weight * of_code + config.length_weight * terms["code_length"]
        loss = loss + config.condition_weight * (terms["code_condition"] + terms["mask_condition"])
        return {"loss": loss + config.category_weight * terms["category"], **terms}

    def codes(self, z: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Codes in [-1, 1] and masks in [0, 1], (2B, L) each, of unit rows (2B, P); codes are harder in late epochs."""
        age = (epoch + 1) / 10  # also when fewer epochs are trained: the codes then stay softer
        return (age * self.coder(z)).tanh(), (1 + (self.masker(z) + 1 / (age + 1)).tanh()) / 2

    def contrast(
        self, of_views: Tensor, of_classes: Tensor, labels: Tensor, cluster: Tensor, relative: bool = False
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss and terms from distances (2B, 2B) for views and for classes; `relative`: of each row, to its sum."""
        config, labelled = self.config, labels >= 0

        def scaled(distance: Tensor) -> Tensor:
            if not relative:
                return distance
            total = distance.sum(dim=1, keepdim=True)  # (n, 1)
            total = total.where(total > 0, 1)  # all codes are the same
            return distance / (total.T if config.as_published else total)

        evenly = of_views.new_tensor(1 / (len(of_views) - 1))
        unsupervised = losses.smoothed_info_nce(scaled(of_views), evenly, config.smoothing, config.info_nce_temp)
        of_labelled = scaled(of_classes[labelled][:, labelled])
        supervised = losses.class_contrast(-of_labelled / config.sup_con_temp, labels[labelled])
        clustered = losses.class_contrast(-scaled(of_classes) / config.sup_con_temp, cluster)
        loss = config.sup_weight * (supervised + clustered) / 2 + (1 - config.sup_weight) * unsupervised
        terms = {"supervised_contrastive": supervised, "clustered_contrastive": clustered}
        return loss, {**terms, "smoothed_info_nce": unsupervised}

    def length(self, mask: Tensor, place: Tensor, base: float) -> Tensor:
        """How much of the codes the mask (2B, L) leaves: 1 if all. Each place (L,) weighs `base` times the one before.

        A code therefore gets shorter from its end. In a batch of 128 the published sum over rows is 256 times as much.
        """
        published = self.config.as_published
        share = (place * math.log(2 if published else base)).softmax(dim=0)  # (L,)
        of_rows = mask @ share  # (2B,)
        return of_rows.sum() if published else of_rows.mean()

    def category(self, truncated: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of the known classes, each yes or no, from the codes (2B, L) that have labels (2B,)."""
        labelled = labels >= 0
        target = F.one_hot(labels[labelled], self.known).to(truncated.dtype)  # (l, C)
        total = F.binary_cross_entropy_with_logits(self.categoriser(truncated[labelled]), target, reduction="sum")
        return total / max(target.numel(), 1)


def _distances(rows: Tensor) -> Tensor:  # (n, n), by one matrix product: rows may have 65,536 features
    return losses.prefix_distances(rows, [rows.shape[1]])[0]
