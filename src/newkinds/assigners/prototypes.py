"""Categories as prototypes that a method's loss has learnt."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import NewkindsError
from ..precision import full_precision
from .base import ASSIGNERS, Assigner


@ASSIGNERS.register("prototypes")
class PrototypeClassifier(Assigner):
    """The nearest of the prototypes that a method's loss has learnt, one per category (simgcd, uno, …).

    Logits are cosines, as of a bias-free linear layer under weight normalisation with its magnitude fixed at one.
    """

    learnt = True
    begins = False

    def __init__(self, dim: int, known: int, categories: int, /, temperature: float = 0.1) -> None:
        super().__init__(dim, known, categories)
        self.temperature = temperature
        self.prototypes = nn.Parameter(torch.empty(categories, dim))  # (K, D)
        # As nn.Linear starts. The output knows only directions, but a longer prototype turns more slowly.
        nn.init.uniform_(self.prototypes, -1 / math.sqrt(dim), 1 / math.sqrt(dim))

    def fit(self, embedding: Tensor, labels: Tensor) -> None:
        raise NewkindsError(
            "prototypes are learnt by the loss of a method (simgcd, uno, …) and cannot be fitted to features: "
            "choose another assigner, such as sskmeans."
        )

    def forward(self, embedding: Tensor) -> Tensor:
        with full_precision(embedding) as x:  # (n, D): cosines are divided by small temperatures later
            prototypes = self.prototypes.to(x.dtype)
            lengths = prototypes.norm(dim=1).clamp(min=1e-12)  # (K,)
            # The products are divided, not the prototypes: of these there may be 65,536.
            return F.normalize(x, dim=1) @ prototypes.T / lengths  # (n, K)
