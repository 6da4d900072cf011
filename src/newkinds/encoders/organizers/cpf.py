"""Compositional Primitive Fields (CPF): the paper's method, in its order and with its letters.

For each image, X (N, D) are the patch tokens and CLS (D,) the class token, after the backbone's final norm; there are M
primitives and H heads.

    Image-conditioned primitive codebook
        codebook             P = P_base + Φ(MeanMax(X))
        initial assignment   A_prior = softmax over tokens of (X W) Pᵀ / √D      each primitive spreads one unit
    Primitive evidence refinement
        pooling              P0 = A_priorᵀ X
        update               P1 = P0 + γ · Attention(P0 → X)                     with the weights W_TP
        consolidation        P2 = Attention(P1 → P1)                             no residual
    Assignment fusion and token rewriting
        readout              A_data = softmax over primitives of the mean head of W_TPᵀ
        fusion               A = softmax over primitives of α_prior log A_prior + α_data log A_data
        decoding             X_refined = X + MLP₂(A · MLP₁(P2))                  each MLP is one linear map and a GELU
        image feature        CLS* = CLS + Mean(X_refined)

M is far smaller than N and D, so no token meets a D × D matrix: these formulas with other brackets, exactly. The
paper's brackets are in benchmarks/plain_cpf.py, against which this is tested. That Φ has two factors, and what an MLP
is, the paper does not say: our reading, which meets its 7.52 M parameters (docs/cpf.md). Another
form, next door: `cpf_parts`.
"""

import math
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import NewkindsError
from ...settings import AtLeastOne, Positive, section_of
from ..tokens import Encoded, Tokens
from .base import ORGANIZERS, Organizer
from .query_attention import QueryAttention, require_heads

PhiRank = AtLeastOne | Literal["auto"] | None
Readout = Literal["literal", "delta", "gated"]


class Field(NamedTuple):
    """All that CPF knows about B images."""

    feature: Tensor  # (B, D) CLS*
    tokens: Tensor  # (B, N, D) X_refined
    assignment: Tensor  # (B, N, M) A, the share of each primitive in each token; rows sum to 1
    primitives: Tensor  # (B, M, D) P2
    codebook: Tensor  # (B, M, D) P
    prior: Tensor  # (B, N, M) A_prior; columns sum to 1
    data: Tensor  # (B, N, M) A_data; rows sum to 1
    pooled: Tensor  # (B, M, D) P0
    updated: Tensor  # (B, M, D) P1


class PrimitiveField(Organizer):
    """From tokens to primitives and to the field A of where each is active: all but what is made of them."""

    alpha_prior: Tensor  # (1,)
    alpha_data: Tensor  # (1,)
    data_temperature: float = 1.0

    def __init__(self, dim: int, primitives: int, heads: int, phi_rank: PhiRank = "auto") -> None:
        super().__init__()
        require_heads("CPF", dim, heads)
        if phi_rank == "auto":
            phi_rank = max(1, dim // 8)
        widths = [2 * dim, primitives * dim] if phi_rank is None else [2 * dim, phi_rank, primitives * dim]
        self.base = nn.Parameter(torch.empty(primitives, dim))  # P_base
        self.phi = nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in pairwise(widths)))  # Φ
        self.w = nn.Linear(dim, dim, bias=False)  # W
        self.update = QueryAttention(dim, heads)  # W_q, W_k, W_v
        self.consolidation = QueryAttention(dim, heads)  # W_q', W_k', W_v'
        self.gamma = nn.Parameter(torch.ones(1))  # γ

    def set_alpha(self, name: str, learned: bool, used: bool = True) -> None:
        """α_prior or α_data: learned from 1, or fixed at 1, or at 0 if that assignment is not used."""
        alpha = torch.full((1,), float(used))
        if learned and used:
            self.register_parameter(name, nn.Parameter(alpha))
        else:
            self.register_buffer(name, alpha)

    def reset_parameters(self) -> None:
        """P_base has the size of tokens after a LayerNorm, each map the std 1/√inputs, Φ's last one a tenth of it.

        So every map keeps the size of what passes through it, and scores start with a std near 1. With the usual 0.02
        all primitives start as one, and training does not part them.
        """
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif name.endswith("weight"):
                nn.init.trunc_normal_(parameter, std=parameter.shape[1] ** -0.5)
        *_, shift = self.phi.parameters()  # (M·D, rank)
        nn.init.trunc_normal_(shift, std=0.1 * shift.shape[1] ** -0.5)
        nn.init.trunc_normal_(self.base)

    def codebook(self, x: Tensor, mean: Tensor) -> Tensor:
        """P: the shared primitives, shifted for each image. X (B, N, D), mean X (B, D) → (B, M, D)"""
        mean_max = torch.cat([mean, x.max(dim=1).values], dim=1)  # (B, 2D)
        return self.base + self.phi(mean_max).unflatten(1, self.base.shape)

    def log_prior(self, x: Tensor, codebook: Tensor) -> Tensor:
        """log A_prior, normalised over tokens. (B, N, D), (B, M, D) → (B, N, M)"""
        probes = codebook @ self.w.weight / math.sqrt(x.shape[2])  # (B, M, D): P Wᵀ instead of X W
        return (x @ probes.transpose(1, 2)).log_softmax(dim=1)

    def refine(self, x: Tensor, log_prior: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(B, N, D), (B, N, M) → P0, P1, P2 (B, M, D) each, and W_TP (B, H, M, N)."""
        p0 = log_prior.exp().transpose(1, 2) @ x  # (B, M, D)
        message, attention = self.update(p0, x)  # (B, M, D), (B, H, M, N)
        p1 = p0 + self.gamma * message  # (B, M, D)
        p2, _ = self.consolidation(p1, p1)  # (B, M, D)
        return p0, p1, p2, attention

    def log_data(self, attention: Tensor) -> Tensor:
        """log A_data, normalised over primitives. (B, H, M, N) → (B, N, M)"""
        return (attention.mean(dim=1).transpose(1, 2) / self.data_temperature).log_softmax(dim=2)

    def fuse(self, log_prior: Tensor, log_data: Tensor) -> Tensor:
        """A, normalised over primitives. (B, N, M) twice → (B, N, M)"""
        z = self.alpha_prior * log_prior + self.alpha_data * log_data  # (B, N, M) Z
        return z.softmax(dim=2)

    def organize(self, tokens: Tokens, details: bool = False) -> Encoded:
        if not details:
            return Encoded(self(tokens.cls, tokens.patches))
        field: Field = self(tokens.cls, tokens.patches, return_field=True)
        return Encoded(field.feature, field.tokens, field.assignment, tokens.grid)


@ORGANIZERS.register("cpf")
class CPF(PrimitiveField):
    """The primitive field between a vision transformer's tokens and a discovery head.

    >>> cpf = CPF(dim=768)
    >>> cpf(cls, patches).shape                                 # cls (B, 768), patches (B, N, 768)
    torch.Size([B, 768])
    >>> cpf(cls, patches, return_field=True).assignment.shape   # where each primitive is active
    torch.Size([B, N, 12])

    - `primitives`, `heads`: M and H; the paper takes 12 of each on fine-grained data, 16 on coarse data.
    - `phi_rank`: inner width of Φ; "auto" is dim // 8, None makes Φ one full matrix (2D × M·D).
    - `readout`: "literal" CLS + mean X_refined; for backbones whose class and patch tokens share no space, "delta"
      CLS + mean (X_refined − X), without the pooled patches, or "gated" CLS + g ⊙ mean X_refined with g learned.
    - `learn_alpha=False` keeps both α at 1. `use_prior=False`, `use_data=False` leave that one out of the fusion.
    - `data_temperature` divides the mean attention inside A_data. Attention weights are about 1/N, so at 1, the paper's
      formula, A_data is nearly uniform; 1/N brings it to the scale of the prior.
    """

    def __init__(
        self,
        dim: int,
        primitives: AtLeastOne = 12,
        heads: int = 12,
        phi_rank: PhiRank = "auto",
        readout: Readout = "literal",
        learn_alpha: bool = True,
        use_prior: bool = True,
        use_data: bool = True,
        data_temperature: Positive = 1.0,
    ) -> None:
        given = {"primitives": primitives, "phi_rank": phi_rank, "readout": readout}
        section_of("organizer", CPF, {**given, "data_temperature": data_temperature})  # refuses what is out of range
        if not (use_prior or use_data):
            raise NewkindsError("use_prior=false with use_data=false leaves CPF nothing to assign tokens by; drop one.")
        super().__init__(dim, primitives, heads, phi_rank)
        self.readout = readout
        self.data_temperature = data_temperature
        self.set_alpha("alpha_prior", learn_alpha, use_prior)
        self.set_alpha("alpha_data", learn_alpha, use_data)
        self.mlp1 = nn.Linear(dim, dim)
        self.mlp2 = nn.Linear(dim, dim)
        if readout == "gated":  # near the class token alone, but not at 0, where nothing behind the gate would learn
            self.gate = nn.Parameter(torch.full((dim,), 0.1))
        self.reset_parameters()

    def forward(self, cls: Tensor, patches: Tensor, return_field: bool = False) -> Tensor | Field:
        """Class tokens (B, D) and patch tokens (B, N, D), after the final norm → CLS* (B, D), or all of the field."""
        mean = mean_of_tokens(patches)  # (B, D)
        codebook = self.codebook(patches, mean)  # (B, M, D) P
        log_prior = self.log_prior(patches, codebook)  # (B, N, M) log A_prior
        p0, p1, p2, attention = self.refine(patches, log_prior)  # (B, M, D) three times, (B, H, M, N)
        log_data = self.log_data(attention)  # (B, N, M) log A_data
        assignment = self.fuse(log_prior, log_data)  # (B, N, M) A
        decoded = F.gelu(self.mlp1(p2)) @ self.mlp2.weight.T  # (B, M, D): MLP₂'s matrix meets M rows, not N
        message = F.gelu(assignment @ decoded + self.mlp2.bias)  # (B, N, D) X_refined − X
        feature = self.read_out(cls, mean, mean_of_tokens(message))  # (B, D) CLS*
        if not return_field:
            return feature
        return Field(feature, patches + message, assignment, p2, codebook, log_prior.exp(), log_data.exp(), p0, p1)

    def read_out(self, cls: Tensor, mean: Tensor, delta: Tensor) -> Tensor:
        """CLS* from the class token, mean X and mean (X_refined − X), (B, D) each."""
        if self.readout == "delta":
            return cls + delta
        if self.readout == "gated":
            return cls + self.gate * (mean + delta)
        return cls + mean + delta


def mean_of_tokens(tokens: Tensor) -> Tensor:
    """(B, N, D) → (B, D). Divided after the sum: the gradient of a plain mean divides all B·N·D numbers once more."""
    return tokens.sum(dim=1) / tokens.shape[1]
