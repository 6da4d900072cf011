"""AMEND: SimGCD whose contrast also draws images to their neighbours, and to the neighbours of these.
Banerjee, Kallooriyakath, Biswas: AMEND: Adaptive Margin and Expanded Neighborhood for Efficient Generalized Category
Discovery. WACV 2024.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..precision import full_precision
from ..settings import AtLeastOne, NonNegative
from . import losses
from .base import METHODS, Embed, Progress, Step
from .heads import project
from .queue import Queue
from .simgcd import SimGCD

SKIPPED = 2  # most similar rows of the bank, taken for the row itself and the other view of its image


@METHODS.register("amend")
class AMEND(SimGCD):
    """SimGCD with contrast over an expanded neighbourhood (Banerjee et al., WACV 2024).

    A bank holds projections of other images: before the first step, of images drawn at random. Positives of a view are,
    beside the other view of its image, its nearest neighbours in the bank and, with less weight, the neighbours of each
    of these. Prototypes repel each other by their cosine. The margin that the authors add to that, the mean distance of
    all pairs, cancels out in the sum over all pairs; with `hinge=True`, where only pairs nearer than the mean count, it
    does not.
    The authors take neighbours, expansion 5, 5 on CIFAR-10 and Cars, 5, 4 on CIFAR-100, 7, 5 on ImageNet-100, 5, 6 on
    CUB, 4, 5 on Aircraft and Herbarium 19.
    """

    @dataclass
    class Config(SimGCD.Config):
        memax_weight: NonNegative = 2.0
        neighbours: AtLeastOne = 5
        expansion: AtLeastOne = 5  # neighbours of each neighbour
        expansion_weight: NonNegative = 0.1  # of each of these; the other positives have weight 1
        bank: AtLeastOne = 2048  # earlier images, beside those of the batch
        regulariser_weight: NonNegative = 1.0  # besides the supervised and unsupervised shares
        # Not the default: the margin as released has no effect, and a hinge on it is only our guess at what is meant.
        hinge: bool = False
        # the released loss, mended only so that it runs: see `neighbourhood_nce`; and the released bank: see `bank`
        as_published: bool = False

    config: Config

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        self.queue = Queue(config.bank, config.projection_dim)

    def begin(self, labels: Tensor) -> None:
        self.queue.limit(len(labels))

    def on_epoch_start(self, epoch: int, embed: Embed) -> None:
        if epoch > 0:  # saved with the weights
            return
        features, _ = embed(1)  # (1, n, D)
        drawn = torch.randperm(features.shape[1])[: len(self.queue.ring)].to(features.device)
        self.queue.push(F.normalize(project(self.projection, features[0, drawn]), dim=1))

    def loss(self, step: Step) -> dict[str, Tensor]:
        features = step.encoded.feature  # (2B, D)
        projections = self.projection(features)
        terms = self.loss_of(self.classifier(features), projections, step.batch.labels, step.progress)
        if self.training and self.config.as_published:
            self.queue.write(self.bank(projections, step.progress))
        elif self.training:
            self.queue.push(_first_views(projections))  # a step adds its own images itself
        return terms

    def bank(self, projections: Tensor, progress: Progress) -> Tensor:
        """Unit rows (Q, P) among which a step looks for neighbours, with the first views of its images.

        The published bank has no more rows for these: they take the slot of the step's number in its epoch, so that it
        is not always the oldest rows that go. With fewer steps than slots, some rows stay as they were before training.
        """
        first = _first_views(projections)
        if self.config.as_published:
            return self.queue.replaced(first, progress.step)
        return torch.cat([first, self.queue.rows])

    def loss_of(self, logits: Tensor, projections: Tensor, labels: Tensor, progress: Progress) -> dict[str, Tensor]:
        config = self.config
        terms = super().loss_of(logits, projections, labels, progress)
        terms["regulariser"] = repulsion(self.classifier.prototypes, config.hinge)
        terms["loss"] = terms["loss"] + config.regulariser_weight * terms["regulariser"]
        return terms

    def info_nce(self, projections: Tensor, progress: Progress) -> Tensor:
        config = self.config
        bank = self.bank(projections, progress)
        sizes = (config.neighbours, config.expansion, config.expansion_weight)
        return neighbourhood_nce(projections, bank, *sizes, config.info_nce_temp, config.as_published)


def _first_views(projections: Tensor) -> Tensor:  # (B, P) unit rows, detached
    with full_precision(projections.detach()) as rows:
        return F.normalize(rows[: len(rows) // 2], dim=1)


def neighbourhood_nce(
    z: Tensor,
    bank: Tensor,
    neighbours: int,
    expansion: int,
    expansion_weight: float = 0.1,
    temperature: float = 1.0,
    published: bool = False,
) -> Tensor:
    """Find the other view, neighbours in the bank, and neighbours of these, among rows of the batch and of the bank.

    `z` (2B, P) are view-major, `bank` (Q, P) unit rows. If the bank is small there are fewer neighbours; without any
    this is InfoNCE. In the released code (`published`) the positive is not the other view but a detached similarity to
    the bank, expanded neighbours are compared with their neighbour instead of the view, so that these have no gradient
    either, as many of them are counted as neighbours squared, and the most similar rows of the batch are no negatives.
    """
    count = min(neighbours, len(bank) - SKIPPED)
    if count < 1:
        return losses.info_nce(z, temperature)
    with full_precision(z) as z:
        n, bank = len(z), bank.to(z.dtype)
        unit = F.normalize(z, dim=1)
        to_bank, to_batch = unit @ bank.T, unit @ unit.T  # (2B, Q), (2B, 2B)
        near = _nearest(to_bank.detach(), count)  # (2B, N)
        of_near = bank[near.flatten()] @ bank.T  # (2B · N, Q)
        further = _nearest(of_near, expansion)  # (2B · N, M)
        expanded = further.reshape(n, -1)  # (2B, N · M)
        if published:
            in_neighbourhood = torch.cat([near, expanded], dim=1)
            positive = to_bank.detach().scatter(1, in_neighbourhood, -1.0).topk(2, dim=1).values[:, 1:]
            to_expanded = of_near.gather(1, further).reshape(n, -1)
            negatives = to_batch.sort(dim=1, descending=True).values[:, SKIPPED + count :]
            counted = count**2  # which may reach into the negatives
        else:
            row = torch.arange(n, device=z.device)[:, None]  # (2B, 1)
            partner = row.roll(n // 2, dims=0)
            positive, to_expanded = to_batch.gather(1, partner), to_bank.gather(1, expanded)
            negatives = to_batch.scatter(1, torch.cat([row, partner], dim=1), -torch.inf)
            counted = expanded.shape[1]
        logits = torch.cat([positive, to_bank.gather(1, near), to_expanded, negatives], dim=1) / temperature
        log_share = logits.log_softmax(dim=1)
        nearest, others = log_share[:, : 1 + count], log_share[:, 1 + count :][:, :counted]
        total = nearest.sum(dim=1) + expansion_weight * others.sum(dim=1)  # (2B,)
        return -total.mean() / (1 + count + expansion_weight * counted)


def _nearest(similarity: Tensor, count: int) -> Tensor:  # (n, count or as many as there are), columns
    return similarity.topk(min(count + SKIPPED, similarity.shape[1]), dim=1).indices[:, SKIPPED:]


def repulsion(prototypes: Tensor, hinge: bool = False) -> Tensor:
    """Cosines of all pairs of prototypes (K, D), summed and divided by K.

    With the `hinge`, plus what a pair's squared distance lacks to the mean of all pairs, if it does. Without it, as
    released, this is added to (and so subtracted from) all pairs, whose sum does not change.
    """
    with full_precision(prototypes) as rows:
        unit = F.normalize(rows, dim=1)
        a, b = torch.triu_indices(len(rows), len(rows), offset=1, device=rows.device)
        cosines = (unit @ unit.T)[a, b]  # (K (K − 1) / 2,)
        total = cosines.sum()
        if hinge and len(cosines):
            total = total + 2 * (cosines - cosines.mean()).relu().sum()  # ‖a − b‖² = 2 − 2 cos
        return total / len(rows)
