"""PIM: categories by maximising information, on features that are not trained any further.
Chiaroni, Dolz, Masud, Mitiche, Ben Ayed: Parametric Information Maximization for Generalized Category Discovery.
ICCV 2023.
"""

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import Self

from ..cluster import KMeans, SemiSupervisedKMeans
from ..cluster.metrics import match_known
from ..cluster.neighbours import nearest_centre
from ..settings import AtLeastOne, NonNegative, Range
from .base import ASSIGNERS, Assigner, draw_seed
from .centres import centres_of_classes
from .start import find_start

SCALE = 25.0  # of the logits
STEPS, PUBLISHED_STEPS = 250, 1000
RESTARTS, PUBLISHED_RESTARTS = 10, 100
RATE, BETAS, EPSILON = 1e-3, (0.9, 0.999), 1e-8  # of Adam
DECAY = 1e-2  # of the classifier: a part of the gradient
WEIGHTS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)  # of the entropy that are tried
PUBLISHED_WEIGHTS = tuple(0.05 * step for step in range(1, 21))


@ASSIGNERS.register("pim")
class PIM(Assigner):
    """A linear classifier that is sure of each image and spread over all categories (Chiaroni et al., ICCV 2023).

    From the centres of `find_start` it minimises `Objective` over all images at once.

    - `entropy_weight`: λ, of the entropy of single predictions. `auto` takes the one whose clusters, learnt without
      labels from the centres of plain k-means, match the labels best.
    - `alpha`: of the entropies; 1 is Shannon's. Above it uneven sizes are tolerated: in whitened rows, with sizes 1 to
      6, 1.5 and 2 were better than 1; with even sizes 1.5 was level and 2 worse.
    - `as_published=True`: the weight is always searched, as the published code does with float32 features: each weight
      continues from where the one before ended, in full length (1,000 `steps`), and the first one can never win. It
      starts from the centres of semi-supervised k-means, the best of 100 (`restarts`, see `published_start`).
    """

    temperature = 1.0
    weights: Tensor

    def __init__(
        self,
        dim: int,
        known: int,
        categories: int,
        /,
        entropy_weight: NonNegative | Literal["auto"] = 0.1,
        steps: AtLeastOne | None = None,  # 250; as published 1,000
        alpha: Annotated[float, Range(1)] = 1.0,
        search_steps: AtLeastOne = 200,  # for each weight that is tried; of far fewer, heavy weights look best
        restarts: AtLeastOne | None = None,  # of k-means: 10; of the one that training starts from, as published 100
        as_published: bool = False,
    ) -> None:
        super().__init__(dim, known, categories)
        self.entropy_weight = "auto" if as_published else entropy_weight
        self.chosen_weight = self.entropy_weight
        self.alpha = alpha
        self.restarts = restarts or RESTARTS
        self.start_restarts = restarts or (PUBLISHED_RESTARTS if as_published else RESTARTS)
        self.as_published = as_published
        self.steps = steps or (PUBLISHED_STEPS if as_published else STEPS)
        self.search_steps = self.steps if as_published else search_steps
        self.register_buffer("weights", torch.zeros(categories, dim))  # (K, P); all zero: not found yet

    def fit(self, embedding: Tensor, labels: Tensor) -> None:
        embedding = embedding.float()
        weight = self.entropy_weight
        if weight == "auto":
            found = KMeans(self.categories, self.restarts, draw_seed()).fit(embedding)
            centres = torch.from_numpy(found.cluster_centers_).to(embedding)
            weight = self.choose(embedding, labels, centres)
            self.note = f"entropy weight {weight:g} chosen on labelled images"
        self.chosen_weight = weight
        if self.as_published:
            random = np.random.RandomState(draw_seed())
            start = published_start(embedding, labels, self.categories, self.start_restarts, random)
        else:
            category = find_start(embedding, labels, self.categories, self.start_restarts)
            start = mean_directions(embedding, category, self.categories)
        self.weights.copy_(maximise_information(start, embedding, labels, weight, self.steps, alpha=self.alpha))

    def trial(self, known: int, categories: int) -> Self:
        """With the weight that was chosen."""
        other = super().trial(known, categories)
        other.entropy_weight = self.chosen_weight
        return other

    def choose(self, embedding: Tensor, labels: Tensor, centres: Tensor) -> float:
        """The entropy's weight whose clusters, found without labels from `centres` (K, P), match the labels best."""
        tried = PUBLISHED_WEIGHTS if self.as_published else WEIGHTS
        matches, start = [], centres
        for weight in tried:
            found = maximise_information(start, embedding, labels, weight, self.search_steps, False, self.alpha)
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


def published_start(
    embedding: Tensor, labels: Tensor, categories: int, restarts: int, random: np.random.RandomState
) -> Tensor:
    """(K, P) the centres of semi-supervised k-means of unit rows (n, P), the best of some starts as published.

    The best one has the least sum of distances, not of their squares, from all rows to the nearest centre, also from
    labelled rows that belong to another one; and every start goes on until nothing moves.
    """
    least, best = np.inf, torch.empty(0)
    for _ in range(restarts):
        clustering = SemiSupervisedKMeans(categories, 1, random, tol=0.0)
        centres = centres_of_classes(clustering, embedding, labels).to(embedding)
        total = nearest_centre(embedding, centres)[1].double().sqrt().sum().item()
        if total < least:
            least, best = total, centres
    return best


def mean_directions(embedding: Tensor, category: Tensor, categories: int) -> Tensor:
    """(K, P) the mean of the rows of each category, as a unit row; zeros for one that is empty."""
    sums = embedding.new_zeros(categories, embedding.shape[1]).index_add_(0, category, embedding)
    return F.normalize(sums, dim=1)


def maximise_information(
    start: Tensor,
    embedding: Tensor,
    labels: Tensor,
    entropy_weight: float,
    steps: int,
    learn_labels: bool = True,
    alpha: float = 1.0,
) -> Tensor:
    """(K, P) the classifier after so many steps of Adam from `start`, see `Objective`."""
    objective = Objective(embedding, labels, entropy_weight, learn_labels, alpha)
    return descend(start, objective.gradient, steps)


def descend(start: Tensor, gradient: Callable[[Tensor], Tensor], steps: int) -> Tensor:
    """Where so many steps of Adam lead. The same bits as torch's own, which would import its compiler for seconds."""
    weights = start.detach().clone()
    mean, square = torch.zeros_like(weights), torch.zeros_like(weights)
    for step in range(1, steps + 1):
        slope = gradient(weights).add(weights, alpha=DECAY)
        mean.lerp_(slope, 1 - BETAS[0])
        square.mul_(BETAS[1]).addcmul_(slope, slope, value=1 - BETAS[1])
        begun, begun_square = (1 - beta**step for beta in BETAS)  # both means start at 0
        spread = (square.sqrt() / begun_square**0.5).add_(EPSILON)
        weights.addcdiv_(mean, spread, value=-RATE / begun)
    return weights


class Objective:
    """What PIM minimises over classifiers (K, P), for unit rows (n, P) and labels (n,; -1: none).

    The mean entropy of unlabelled rows' predictions, times `entropy_weight`, minus the entropy of the mean prediction
    of all rows, plus the cross-entropy of labelled rows. With `alpha` other than 1 both entropies are
    (1 - Σ p^α) / (α - 1) in the place of Shannon's, which is the limit at 1.
    """

    def __init__(
        self, embedding: Tensor, labels: Tensor, entropy_weight: float, learn_labels: bool = True, alpha: float = 1.0
    ) -> None:
        self.rows = embedding
        self.alpha = alpha
        labelled = labels >= 0
        known, unknown = labelled.to(embedding)[:, None], (~labelled).to(embedding)[:, None]
        # (n, 1) how much the entropy and the cross-entropy of each row count
        self.entropy = entropy_weight * unknown / unknown.sum().clamp(min=1)
        self.cross_entropy = int(learn_labels) * known / known.sum().clamp(min=1)
        self.labelled = labelled.nonzero()[:, 0]  # (m,)
        self.classes = labels[self.labelled]  # (m,)

    def gradient(self, weights: Tensor) -> Tensor:
        """(K, P) at the classifier (K, P); by hand, as autograd keeps and passes over more tensors of (n, K)."""
        log_shares = (self.rows @ (SCALE * weights).T).log_softmax(dim=1)  # (n, K)
        shares = log_shares.exp()  # (n, K)
        mean = shares.mean(dim=0).clamp(min=torch.finfo(shares.dtype).tiny)  # (K,)
        of_mean = self.slope(mean.log()) / len(shares)
        slope = self.slope(log_shares).mul_(-self.entropy).add_(of_mean)  # (n, K), of both entropies over the shares
        along = torch.linalg.vecdot(shares, slope)[:, None]  # (n, 1); the softmax takes what all categories share away
        slope.sub_(along - self.cross_entropy).mul_(shares)  # now over the logits
        slope[self.labelled, self.classes] -= self.cross_entropy[self.labelled, 0]
        return SCALE * (slope.T @ self.rows)

    def slope(self, log_shares: Tensor) -> Tensor:
        """How fast the entropy falls as each share grows, up to a constant; it may be written into `log_shares`."""
        if self.alpha == 1:
            return log_shares
        return log_shares.mul_(self.alpha - 1).expm1_().mul_(self.alpha / (self.alpha - 1))
