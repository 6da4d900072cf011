"""PromptCAL: prompts, and contrast with images that keep the same company. Zhang, Khan, Shen, Naseer, Chen, Khan:
PromptCAL: Contrastive Affinity Learning via Auxiliary Prompts for Generalized Novel Category Discovery. CVPR 2023.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..cluster.affinity import apply_labels, consensus, diffuse, draw_negatives, strong_from
from ..cluster.neighbours import most_similar
from ..encoders.tokens import Encoded
from ..precision import full_precision
from ..settings import AtLeastOne, NonNegative, Positive, Share, WholeNumber
from . import losses
from .base import METHODS, Progress, Step
from .gcd import GCD
from .heads import UnitProjectionHead
from .queue import Queue
from .schedules import linear_then_constant

PROMPTS = "prompt_"  # before the names of terms


@METHODS.register("promptcal-stage1")
class PromptCALStage1(GCD):
    """GCD on the class token and on prompts: the first stage of PromptCAL (Zhang et al., CVPR 2023).

    Prompts are learnable tokens beside those of the image. What became of the first of them is contrasted as the
    image's feature is, with a head of its own. The authors also keep the features of ImageNet's images near those of
    the untrained backbone for 5 epochs; that is left out, because it needs ImageNet.
    """

    @dataclass
    class Config(GCD.Config):
        prompt_weight: NonNegative = 0.35  # of all that is learnt on prompts
        supervised_prompts: AtLeastOne = 2  # the first ones, whose mean is learnt on; the others only help

    config: Config
    tuning_defaults: ClassVar[dict[str, Any]] = {"name": "prompts"}
    reads_prompts: ClassVar[bool] = True

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        self.prompt_head = UnitProjectionHead(dim, config.projection_hidden, config.projection_dim, config.output_dim)

    def loss(self, step: Step) -> dict[str, Tensor]:
        branches = zip((self.head, self.prompt_head), self.features(step.encoded), strict=True)
        return self.combine(*(self.loss_of(head(rows), step.batch.labels) for head, rows in branches))

    def features(self, encoded: Encoded) -> tuple[Tensor, Tensor]:
        """(2B, D) of each branch: of the image, and of its prompts."""
        assert encoded.prompts is not None, "reads_prompts"
        with full_precision(encoded.prompts) as prompts:  # (2B, P, D)
            return encoded.feature, prompts[:, : self.config.supervised_prompts].mean(dim=1)

    def combine(self, terms: dict[str, Tensor], of_prompts: dict[str, Tensor]) -> dict[str, Tensor]:
        """The terms of both branches, with their loss."""
        loss = terms["loss"] + self.config.prompt_weight * of_prompts["loss"]
        return {**terms, **{PROMPTS + name: value for name, value in of_prompts.items()}, "loss": loss}


@METHODS.register("promptcal")
class PromptCAL(PromptCALStage1):
    """Contrastive affinity learning with prompts, the second of two stages (Zhang et al., CVPR 2023).

    An averaged teacher sees the same views; what it makes of earlier images is kept in a bank. Batch and bank become a
    graph of neighbours. Images of the bank that are linked strongly enough to a view, or have its label, are its
    positives. GCD's two terms remain, between student and teacher. Class token and prompts each have such a loss.
    The authors take neighbours=10, quantile=.5 on coarse classes; on Herbarium 19 neighbours=7, bank=20000, pairs=5000.
    The graph costs time and memory with the square of bank + 2 train.batch_size: if it is slow, make the bank smaller.
    """

    @dataclass
    class Config(PromptCALStage1.Config):
        teacher_momentum: Share = 0.999
        bank: AtLeastOne = 4096  # features of the teacher: two views of each image of earlier steps
        neighbours: AtLeastOne = 5
        diffusion_steps: AtLeastOne = 1
        quantile: Share = 0.8  # of the affinities above their mean: only stronger ones make positives
        pairs: AtLeastOne = 1024  # of each view with the bank; what is not positive is drawn at random
        affinity_temp: Positive = 0.07
        affinity_weight: Share = 0.6  # its share of the unsupervised terms
        affinity_warmup_epochs: WholeNumber = 2  # in which that share grows from 0, step by step
        # the class token's positive in the teacher is the same view, not the other one; a view with more positives than
        # `pairs` has nearly all negatives, not none; and k-means as in KMeansMethod
        as_published: bool = False

    config: Config
    starts_from: ClassVar[str | None] = "promptcal-stage1"
    starts_afresh: ClassVar[tuple[str, ...]] = ("prompt_head",)
    train_defaults: ClassVar[dict[str, Any]] = {**PromptCALStage1.train_defaults, "epochs": 100}

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        self.bank = Queue(config.bank, 2 * dim)  # unit rows of both branches, side by side

    def begin(self, labels: Tensor) -> None:
        self.bank.limit(len(labels))

    def teacher_momentum(self, progress: Progress) -> float:
        return self.config.teacher_momentum

    def teach(self, encoded: Encoded) -> list[tuple[Tensor, Tensor]]:
        """Unit features (2B, D) and projections (2B, P) of each branch."""
        branches = zip((self.head, self.prompt_head), self.features(encoded), strict=True)
        return [(_unit(rows), head(rows)) for head, rows in branches]

    def loss(self, step: Step) -> dict[str, Tensor]:
        labels, weight, taught = step.batch.labels, self.share(step.progress), step.taught
        # a copy: the ring changes before gradients are computed
        banks, same_views = self.bank.rows.clone().chunk(2, dim=1), (self.config.as_published, False)
        terms = []
        for here, there, bank, same in zip(self.teach(step.encoded), taught, banks, same_views, strict=True):
            affinity = self.affinity(here[0], there[0], labels, bank, same)
            terms.append(self.taught_loss(here[1], there[1], labels, affinity, weight))
        if self.training:
            self.bank.push(torch.cat([rows for rows, _ in taught], dim=1), labels.repeat(2))
        return self.combine(*terms)

    def share(self, progress: Progress) -> float:
        """Of contrast by affinity in the unsupervised terms, at a step."""
        config, taken = self.config, progress.taken
        warmup = config.affinity_warmup_epochs * progress.steps
        return linear_then_constant(taken, 0.0, config.affinity_weight, warmup + 1)

    def taught_loss(
        self, embedding: Tensor, taught: Tensor, labels: Tensor, affinity: Tensor, weight: float
    ) -> dict[str, Tensor]:
        """The loss of a branch and its terms from unit rows (2B, P) of student and teacher, labels (B,; -1: none)."""
        config = self.config
        supervised = losses.supervised_contrastive(embedding, labels.repeat(2), config.sup_con_temp, taught)
        unsupervised = losses.info_nce(embedding, config.info_nce_temp, taught)
        mixed = (1 - weight) * unsupervised + weight * affinity
        loss = config.sup_weight * supervised + (1 - config.sup_weight) * mixed
        return {"loss": loss, "supervised_contrastive": supervised, "info_nce": unsupervised, "affinity": affinity}

    def affinity(self, rows: Tensor, taught: Tensor, labels: Tensor, bank: Tensor, same_view: bool = False) -> Tensor:
        """Contrast of the student's unit rows (2B, D) with a bank (M, D): the teacher's rows find the positives."""
        with full_precision(rows) as rows:
            taught, bank = taught.to(rows.dtype), bank.to(rows.dtype)
            other = taught.roll(len(taught) // 2, dims=0)  # (2B, D) each row's image in its other view
            pseudo = self.find_links(other, bank)  # (2B, M)
            keys = torch.rand(pseudo.shape, device=rows.device)
            negative = draw_negatives(pseudo, self.config.pairs, keys, self.config.as_published)
            masks = apply_labels(pseudo, negative, labels.repeat(2), self.bank.labels)
            return affinity_contrast(rows, taught if same_view else other, bank, *masks, self.config.affinity_temp)

    @torch.no_grad()
    def find_links(self, rows: Tensor, bank: Tensor) -> Tensor:
        """(2B, M) whether rows (2B, D) are strongly linked to rows of a bank (M, D), all of the teacher."""
        config, every = self.config, torch.cat([rows, bank])
        if not len(bank):
            return torch.zeros(len(rows), 0, dtype=torch.bool, device=rows.device)
        itself = torch.arange(len(every), device=rows.device)
        near = most_similar(every, every, min(config.neighbours, len(every) - 1), itself=itself)
        together = consensus(near, rows.dtype)
        affinity = diffuse(together.div_(together.sum(dim=1, keepdim=True)), config.diffusion_steps)
        return affinity[: len(rows), len(rows) :] > strong_from(affinity, config.quantile)


def _unit(rows: Tensor) -> Tensor:
    with full_precision(rows) as rows:
        return F.normalize(rows, dim=1)


def affinity_contrast(
    rows: Tensor, taught: Tensor, bank: Tensor, positive: Tensor, negative: Tensor, temperature: float = 0.07
) -> Tensor:
    """Find the teacher's row of the same image, and the positives, among these and the negatives.

    Unit `rows` and `taught` (n, D), `bank` (M, D), masks (n, M). Each row counts the mean of its positives.
    """
    always = torch.ones(len(rows), 1, dtype=torch.bool, device=rows.device)
    logits = torch.cat([(rows * taught).sum(dim=1, keepdim=True), rows @ bank.T], dim=1) / temperature  # (n, 1 + M)
    found, left_out = torch.cat([always, positive], dim=1), torch.cat([~always, ~(positive | negative)], dim=1)
    log_share = logits - logits.masked_fill(left_out, -torch.inf).logsumexp(dim=1, keepdim=True)
    return -((log_share * found).sum(dim=1) / found.sum(dim=1)).mean()
