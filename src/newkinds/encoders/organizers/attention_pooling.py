"""Learned queries over the patches: the obvious control of CPF, and CPF's codebook and field read in the same way.

    scores      S = X Qᵀ / √D                                   X: patches of mean 0 and size 1, Q: one row per query
    pooling     a = softmax over patches of S                   each query spreads one unit over the image
    slots       s_m = Σ_n a_nm x_n
    feature     CLS* = CLS + LayerNorm(CLS) V U + Σ_m LayerNorm(s_m) V_m U_m      U and all U_m start at zero

`grid` has cells of the image in the place of queries, `cpf-parts` CPF's refined primitives: all three are read by the
same maps, so that they differ only in where they look. `cpf-attention` adds CPF's two ideas one by one:

    codebook    Q = P_base + Φ(MeanMax(X))                      primitives that are shifted for each image
    field       A = softmax over primitives of S, a = A / Σ_n A       primitives compete for every patch
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...settings import AtLeastOne, Share, section_of
from ..tokens import Encoded, Tokens
from .adapter import Adapter
from .base import ORGANIZERS, Organizer
from .cpf import mean_of_tokens
from .slot_maps import SlotMaps
from .token_centres import centres_of_tokens

Start = Literal["random", "tokens"]


@ORGANIZERS.register("attention-pooling")
class AttentionPooling(Organizer):
    """The adapter, and patches pooled by a few learned queries, each read by a map of its own.

    What primitives gain beyond this comes from the codebook or the field, not from choosing patches by what they show.

    - `queries`: how many. `start`: "random", or "tokens" for the centres of k-means over tokens of the training images.
    - `rank`: the width of each V_m. `dropout`: of the class token and of the slots.
    """

    def __init__(
        self,
        dim: int,
        queries: AtLeastOne = 12,
        start: Start = "random",
        rank: AtLeastOne = 48,
        dropout: Share = 0.0,
    ) -> None:
        super().__init__()
        given = {"queries": queries, "start": start, "rank": rank, "dropout": dropout}
        section_of("organizer", AttentionPooling, given)  # refuses what is out of range
        self.starts_from_tokens = start == "tokens"
        self.queries = nn.Parameter(torch.randn(queries, dim))  # scores start with a std near 1
        self.adapter = Adapter(dim, dropout=dropout)
        self.maps = SlotMaps(queries, dim, rank, dropout)

    @torch.no_grad()
    def start(self, tokens: Tokens) -> None:
        centres = centres_of_tokens(normalise(tokens.patches), len(self.queries))
        self.queries[: len(centres)] = centres

    def queries_for(self, x: Tensor) -> Tensor:
        """The queries of each image. (B, N, D) → (Q, D) or (B, Q, D)"""
        return self.queries

    def scores(self, x: Tensor) -> Tensor:
        """(B, N, D) → (B, N, Q)"""
        return x @ self.queries_for(x).transpose(-1, -2) / math.sqrt(x.shape[2])

    def weights(self, scores: Tensor) -> Tensor:
        """What share of a slot each patch is; columns sum to 1. (B, N, Q)"""
        return scores.softmax(dim=1)

    def slots(self, tokens: Tokens) -> Tensor:
        x = normalise(tokens.patches)  # (B, N, D)
        return self.weights(self.scores(x)).transpose(1, 2) @ x  # (B, Q, D)

    def organize(self, tokens: Tokens, details: bool = False) -> Encoded:
        decoded = self.maps(self.slots(tokens))  # (B, Q, D)
        feature = self.adapter(tokens.cls) + decoded.sum(dim=1)  # (B, D)
        if not details:
            return Encoded(feature)
        field = self.scores(normalise(tokens.patches)).softmax(dim=2)  # (B, N, Q): which query holds which patch
        return Encoded(feature, tokens=tokens.patches + field @ decoded, field=field, grid=tokens.grid)


@ORGANIZERS.register("cpf-attention")
class CPFAttention(AttentionPooling):
    """CPF read by attention: its primitives are queries that begin as parts of the images, and compete for patches.

    - `primitives`: M. `start`, `rank`, `dropout`: as in `attention-pooling`.
    - `codebook=False` takes the same primitives for all images, without Φ.
    - `field=False` lets every primitive look at all patches by itself, without competition.
    With both False, and `start="random"`, it is `attention-pooling`.
    """

    def __init__(
        self,
        dim: int,
        primitives: AtLeastOne = 12,
        start: Start = "tokens",
        codebook: bool = True,
        field: bool = True,
        rank: AtLeastOne = 48,
        dropout: Share = 0.0,
    ) -> None:
        section_of("organizer", CPFAttention, {"primitives": primitives})  # refuses what is out of range
        super().__init__(dim, primitives, start, rank, dropout)
        self.field = field
        self.phi = None
        if codebook:
            inner = max(1, dim // 8)
            shift = nn.Linear(inner, primitives * dim, bias=False)
            nn.init.zeros_(shift.weight)  # at first the primitives are the same for all images
            self.phi = nn.Sequential(nn.Linear(2 * dim, inner, bias=False), shift)

    def queries_for(self, x: Tensor) -> Tensor:
        if self.phi is None:
            return self.queries
        mean_max = torch.cat([mean_of_tokens(x), x.max(dim=1).values], dim=1)  # (B, 2D)
        return self.queries + self.phi(mean_max).unflatten(1, self.queries.shape)  # (B, M, D)

    def weights(self, scores: Tensor) -> Tensor:
        if not self.field:
            return super().weights(scores)
        # A / Σ_n A in logarithms, so that a primitive that no patch is like still gets a mean, and no division by 0
        return scores.log_softmax(dim=2).softmax(dim=1)


def normalise(patches: Tensor) -> Tensor:
    """Every token with mean 0 and size 1: tokens of some backbones are larger, which makes attention too sharp."""
    return F.layer_norm(patches, patches.shape[2:])
