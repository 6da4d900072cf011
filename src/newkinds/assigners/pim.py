"""PIM: categories by maximising information, on features that are not trained any further.
Chiaroni, Dolz, Masud, Mitiche, Ben Ayed: Parametric Information Maximization for Generalized Category Discovery.
ICCV 2023.
"""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import Self

from ..cluster import KMeans, SemiSupervisedKMeans
from ..cluster.metrics import match_known
from ..settings import AtLeastOne, NonNegative
from .base import ASSIGNERS, Assigner, draw_seed
from .centres import centres_of_classes

SCALE = 25.0  # of the logits
WEIGHTS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)  # of the entropy that are tried
PUBLISHED_WEIGHTS = tuple(0.05 * step for step in range(1, 21))


@ASSIGNERS.register("pim")
class PIM(Assigner):
    """A linear classifier that is sure of each image and spread over all categories (Chiaroni et al., ICCV 2023).

    It starts from the centres of semi-supervised k-means, and minimises `objective` over all images at once. The weight
    `auto` is the one whose clusters, learnt without labels from the centres of plain k-means, match the labels best.
    `as_published=True` searches as the published code does with float32 features: each weight continues from where
    the one before ended, in full length, and the first one can never win.
    """

    temperature = 1.0
    weights: Tensor

    def __init__(
        self,
        dim: int,
        known: int,
        categories: int,
        /,
        entropy_weight: NonNegative | Literal["auto"] = "auto",
        steps: AtLeastOne = 1000,
        search_steps: AtLeastOne = 200,  # for each weight that is tried; of far fewer, heavy weights look best
        restarts: AtLeastOne = 10,  # of k-means
        as_published: bool = False,
    ) -> None:
        super().__init__(dim, known, categories)
        self.entropy_weight = entropy_weight
        self.restarts = restarts
        self.as_published = as_published
        self.chosen_weight = entropy_weight
        self.steps = steps
        self.search_steps = steps if as_published else search_steps
        self.register_buffer("weights", torch.zeros(categories, dim))  # (K, P); all zero: not found yet

    def fit(self, embedding: Tensor, labels: Tensor) -> None:
        weight = self.entropy_weight
        if weight == "auto":
            found = KMeans(self.categories, self.restarts, draw_seed()).fit(embedding)
            centres = torch.from_numpy(found.cluster_centers_).to(embedding)
            weight = self.choose(embedding, labels, centres)
            self.note = f"entropy weight {weight:g} chosen on labelled images"
        self.chosen_weight = weight
        clustering = SemiSupervisedKMeans(self.categories, self.restarts, draw_seed())
        start = centres_of_classes(clustering, embedding, labels).to(embedding)
        self.weights.copy_(maximise_information(start, embedding, labels, weight, self.steps))

    def trial(self, known: int, categories: int) -> Self:
        """With the weight that was chosen, and as few steps as the search took."""
        other = super().trial(known, categories)
        other.entropy_weight = self.chosen_weight
        other.steps = min(self.steps, self.search_steps)
        return other

    def choose(self, embedding: Tensor, labels: Tensor, centres: Tensor) -> float:
        """The entropy's weight whose clusters, found without labels from `centres` (K, P), match the labels best."""
        tried = PUBLISHED_WEIGHTS if self.as_published else WEIGHTS
        matches, start = [], centres
        for weight in tried:
            found = maximise_information(start, embedding, labels, weight, self.search_steps, learn_labels=False)
            cluster = (embedding @ found.T).argmax(dim=1)
            match = match_known(cluster.cpu().numpy(), labels.cpu().numpy(), self.known, self.categories)[1]
            matches.append(round(100 * match, 2))
            start = found if self.as_published else centres
        first = 1 if self.as_published else 0
        return tried[first + int(np.argmax(matches[first:]))]

    def forward(self, embedding: Tensor) -> Tensor:
        self.require_fitted(bool(self.weights.any()))
        return self.logits(embedding)

    def logits(self, embedding: Tensor) -> Tensor:
        return SCALE * embedding.float() @ self.weights.T


def maximise_information(
    start: Tensor, embedding: Tensor, labels: Tensor, entropy_weight: float, steps: int, learn_labels: bool = True
) -> Tensor:
    """(K, P) the classifier after so many steps of Adam from `start`, see `objective`."""
    with torch.enable_grad():
        weights = start.detach().clone().requires_grad_()
        optimizer = torch.optim.Adam([weights], lr=1e-3, weight_decay=1e-2)  # the decay is part of the gradient
        for _ in range(steps):
            optimizer.zero_grad()
            objective(weights, embedding, labels, entropy_weight, learn_labels).backward()
            optimizer.step()
    return weights.detach()


def objective(
    weights: Tensor, embedding: Tensor, labels: Tensor, entropy_weight: float, learn_labels: bool = True
) -> Tensor:
    """What PIM minimises, for a classifier (K, P), unit rows (n, P) and labels (n,; -1: none).

    The mean entropy of unlabelled images' predictions, times `entropy_weight`, minus the entropy of the mean
    prediction, plus the cross-entropy of labelled images.
    """
    labelled = labels >= 0
    log_shares = (SCALE * embedding @ weights.T).log_softmax(dim=1)  # (n, K)
    shares = log_shares.exp()
    entropy = -(shares * log_shares).sum(dim=1)  # (n,)
    loss = entropy_weight * entropy[~labelled].sum() / max(int((~labelled).sum()), 1)
    loss = loss - torch.special.entr(shares.mean(dim=0)).sum()
    if learn_labels and labelled.any():
        loss = loss + F.nll_loss(log_shares[labelled], labels[labelled])
    return loss
