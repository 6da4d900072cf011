"""Compositional Primitive Fields (CPF): rewrite an image's patch tokens through a few shared primitives.

    codebook      P  = P_base + Φ([mean X ; max X])                    an image's own version of the M primitives
    prior         A_prior = softmax over tokens of (X W) Pᵀ / √D        every primitive spreads one unit over the image
    pooling       P0 = A_priorᵀ X
    update        P1 = P0 + γ · Attention(P0 → X)                       primitives ask the tokens once more
    consolidation P2 = Attention(P1 → P1)                               primitives talk to each other; no residual
    readout       A_data = softmax over primitives of the mean head of the update's attention, transposed
    fusion        A = softmax over primitives of α_prior log A_prior + α_data log A_data
    decoding      X_refined = X + MLP₂(A · MLP₁(P2))
    feature       CLS* = CLS + mean X_refined

The mean over tokens, and MLPs that all primitives share, throw away which primitive saw what. The read-out `apart`
keeps it: every primitive is decoded by a low-rank map of its own, which starts at zero, and so is the class token.

    decoding      D_m = LayerNorm(P2_m) V_m U_m,  X_refined = X + A · D
    feature       CLS* = CLS + LayerNorm(CLS) V U + Σ_m D_m

Shapes: B images, N patch tokens, D features, M primitives, H heads of d = D/H features. M is far smaller than N
and D, so products keep M in them, and no token meets a D × D matrix: the formulas with other brackets, exactly.
"""

import math
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor, nn

from ...errors import NewkindsError
from ...settings import Count, NonNegative, Positive, Share, section_of
from ..tokens import Encoded, Tokens
from .adapter import Adapter
from .apart import KeptApart
from .base import ORGANIZERS, Organizer

TOKENS_AT_START = 20_000  # on which `start` clusters

Readout = Literal["literal", "delta", "gated", "apart"]
Start = Literal["random", "hypergraph", "tokens"]

# settings of the form that tables call cpf-parts and `newkinds discover` tries: primitives are k-means parts of the
# images, do not train, and are read one by one
PARTS: dict[str, Any] = {"readout": "apart", "start": "tokens", "normalise": True, "train_field": False}


class Field(NamedTuple):
    """All that CPF knows about a batch of images."""

    feature: Tensor  # (B, D) CLS*
    tokens: Tensor  # (B, N, D) X_refined
    assignment: Tensor  # (B, N, M) A, the share of each primitive in each token; rows sum to 1
    primitives: Tensor  # (B, M, D) P2
    codebook: Tensor  # (B, M, D) P, the image's own
    prior: Tensor  # (B, N, M) A_prior; columns sum to 1
    data: Tensor  # (B, N, M) A_data; rows sum to 1
    pooled: Tensor  # (B, M, D) P0
    updated: Tensor  # (B, M, D) P1


class Attention(nn.Module):
    """Multi-head attention of a few queries to many tokens, which are then not projected.

    A head's scores q (X W_k)ᵀ are taken as (q W_kᵀ) Xᵀ and its message a (X W_v) as (a X) W_v, unless the tokens are
    so few that keys and values cost less.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, queries: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Queries (B, M, D) and tokens (B, N, D) → messages (B, M, D) and weights (B, H, M, N) over the tokens."""
        batch, count, dim = queries.shape
        q = self.q(queries).unflatten(2, (self.heads, -1)) / math.sqrt(dim // self.heads)  # (B, M, H, d)
        # Keys of all N tokens and d-wide products with them, or D-wide probes of all heads and products with those?
        if tokens.shape[1] * (dim + count) < count * (dim + self.heads * tokens.shape[1]):
            keys, values = (map_(tokens).unflatten(2, (self.heads, -1)) for map_ in (self.k, self.v))  # (B, N, H, d)
            weights = (q.transpose(1, 2) @ keys.permute(0, 2, 3, 1)).softmax(dim=3)  # (B, H, M, N)
            messages = (weights @ values.transpose(1, 2)).transpose(1, 2)  # (B, M, H, d)
            return self.o(messages.flatten(2)), weights
        w_k = self.k.weight.unflatten(0, (self.heads, -1))  # (H, d, D)
        w_v = self.v.weight.unflatten(0, (self.heads, -1))  # (H, d, D)
        probes = torch.einsum("bmhd,hde->bhme", q, w_k).reshape(batch, -1, dim)  # (B, H·M, D): q W_kᵀ
        weights = (probes @ tokens.transpose(1, 2)).softmax(dim=2)  # (B, H·M, N)
        seen = (weights @ tokens).unflatten(1, (self.heads, count))  # (B, H, M, D): a X
        messages = torch.einsum("bhme,hde->bmhd", seen, w_v).flatten(2)  # (B, M, D)
        return self.o(messages), weights.unflatten(1, (self.heads, count))


def require_heads(name: str, dim: int, heads: int) -> None:
    """Heads must share the features evenly."""
    if heads < 1 or dim % heads:
        divisors = ", ".join(str(count) for count in range(1, min(dim, 32) + 1) if dim % count == 0)
        raise NewkindsError(f"{name} cannot share {dim} features among {heads} heads; heads can be {divisors}.")


@ORGANIZERS.register("cpf")
class CPF(Organizer):
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
      "apart": see above; `rank` is the width of each V_m, `dropout` is of the class token and of the primitives (it
      makes two views of an image differ if only one is cached).
    - `start`: "random"; "hypergraph", as hypergraph layers begin: P_base Xavier-uniform and all maps, Φ too, at torch's
      default, so that most of the codebook is the image's own; or "tokens": P_base at the centres of k-means over
      tokens of the training images, the other maps up to P2 at the identity and Φ at 0, so that primitives begin as
      parts that occur.
    - `train_field=False` leaves all up to P2 at its start, so that only what reads the primitives trains.
    - `zero_start=True` lets MLP₂ begin at 0, so that nothing is added to the tokens before something has been learnt.
    - `norm=True` puts a LayerNorm on CLS*.
    - `reconstruction`: weight of a loss of CPF's own, the mean square of X − A·P2: tokens should be made of primitives.
    - `learn_alpha=False` keeps both α at 1. `use_prior=False`, `use_data=False` leave that one out of the fusion.
    - `data_temperature` divides the mean attention inside A_data. Attention weights are about 1/N, so at 1, the paper's
      formula, A_data is nearly uniform; 1/N brings it to the scale of the prior.
    - `prior_temperature` divides the scores of the prior: below 1 primitives look at fewer tokens.
    - `normalise=True` gives every token mean 0 and size 1 before CPF's maps, for backbones whose tokens are larger (2.5
      in DINOv2), which makes attention too sharp; X itself stays in X_refined.
    """

    alpha_prior: Tensor  # (1,)
    alpha_data: Tensor  # (1,)

    def __init__(
        self,
        dim: int,
        primitives: Count = 12,
        heads: int = 12,
        phi_rank: Count | Literal["auto"] | None = "auto",
        readout: Readout = "literal",
        learn_alpha: bool = True,
        use_prior: bool = True,
        use_data: bool = True,
        data_temperature: Positive = 1.0,
        prior_temperature: Positive = 1.0,
        normalise: bool = False,
        start: Start = "random",
        train_field: bool = True,
        zero_start: bool = False,
        norm: bool = False,
        reconstruction: NonNegative = 0.0,
        rank: Count = 48,
        dropout: Share = 0.0,
    ) -> None:
        super().__init__()
        if phi_rank == "auto":
            phi_rank = max(1, dim // 8)
        given = {
            "primitives": primitives, "phi_rank": phi_rank, "readout": readout, "start": start, "rank": rank,
            "data_temperature": data_temperature, "prior_temperature": prior_temperature,
            "reconstruction": reconstruction, "dropout": dropout,
        }  # fmt: skip
        section_of("organizer", CPF, given)  # refuses what is out of range
        require_heads("CPF", dim, heads)
        if not (use_prior or use_data):
            raise NewkindsError("use_prior=false with use_data=false leaves CPF nothing to assign tokens by; drop one.")
        self.readout, self.normalise, self.starts_from_tokens = readout, normalise, start == "tokens"
        self.data_temperature, self.prior_temperature = data_temperature, prior_temperature
        self.reconstruction = reconstruction
        self.base = nn.Parameter(torch.empty(primitives, dim))  # P_base
        widths = [2 * dim, *([phi_rank] if phi_rank else []), primitives * dim]
        self.phi = nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in pairwise(widths)))
        self.w = nn.Linear(dim, dim, bias=False)
        self.update = Attention(dim, heads)
        self.consolidation = Attention(dim, heads)
        if readout != "apart":
            self.mlp1, self.mlp2 = nn.Linear(dim, dim), nn.Linear(dim, dim)  # each MLP is one linear map and a GELU
        self.gamma = nn.Parameter(torch.ones(1))
        self._set_alpha("alpha_prior", use_prior, learn_alpha)
        self._set_alpha("alpha_data", use_data, learn_alpha)
        if readout == "gated":  # near the class token alone, but not at 0, where nothing behind the gate would learn
            self.gate = nn.Parameter(torch.full((dim,), 0.1))
        if start == "hypergraph":
            nn.init.xavier_uniform_(self.base)
        else:
            self._initialise()
        if zero_start and readout != "apart":
            nn.init.zeros_(self.mlp2.weight)
            nn.init.zeros_(self.mlp2.bias)
        if readout == "apart":  # these have their own start
            self.adapter = Adapter(dim, dropout=dropout)
            self.apart = KeptApart(primitives, dim, rank, dropout)
        self.norm = nn.LayerNorm(dim) if norm else nn.Identity()
        self.fixed_slots = readout == "apart" and not train_field and not reconstruction
        if not train_field:
            self.base.requires_grad_(False)
            self.gamma.requires_grad_(False)
            for part in (self.phi, self.w, self.update, self.consolidation):
                part.requires_grad_(False)

    def _set_alpha(self, name: str, used: bool, learned: bool) -> None:
        """A weight of the fusion: learned from 1, or fixed at 1, or at 0 if its assignment is left out."""
        if used and learned:
            self.register_parameter(name, nn.Parameter(torch.ones(1)))
        else:
            self.register_buffer(name, torch.full((1,), float(used)))

    def _initialise(self) -> None:
        """Every map keeps the size of what passes through it, whatever D is, and scores start with a std near 1.

        P_base gets the size of tokens after a LayerNorm, each linear map the std 1/√inputs, and Φ's last map a tenth of
        it. The usual 0.02 shrinks each map's output by 0.02·√D: all primitives then start as one, and training does not
        part them.
        """
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif name.endswith("weight"):
                nn.init.trunc_normal_(parameter, std=parameter.shape[1] ** -0.5)
        *_, shift = self.phi.parameters()  # (M·D, rank)
        nn.init.trunc_normal_(shift, std=0.1 * shift.shape[1] ** -0.5)
        nn.init.trunc_normal_(self.base)

    @torch.no_grad()
    def start(self, tokens: Tokens) -> None:
        """Primitives that are parts of the images: see `start` above."""
        every = self._seen(tokens.patches).flatten(0, 1)  # (B·N, D)
        some = every[torch.randperm(len(every))[:TOKENS_AT_START].to(every.device)].float().cpu().numpy()
        clusters = min(len(self.base), len(np.unique(some, axis=0)))
        found = KMeans(clusters, n_init=1, max_iter=30, random_state=0).fit(some).cluster_centers_  # (M, D)
        self.base[:clusters] = torch.from_numpy(found).to(self.base)
        *_, shift = self.phi.parameters()
        nn.init.zeros_(shift)
        for weight in (*self.w.parameters(), *self.update.parameters(), *self.consolidation.parameters()):
            nn.init.eye_(weight)

    def _seen(self, patches: Tensor) -> Tensor:
        """The tokens as CPF's maps see them. (B, N, D)"""
        return F.layer_norm(patches, patches.shape[2:]) if self.normalise else patches

    def codebook(self, x: Tensor, mean: Tensor) -> Tensor:
        """P: the shared primitives, shifted for each image. (B, N, D), mean X (B, D) → (B, M, D)"""
        context = torch.cat([mean, x.max(dim=1).values], dim=1)  # (B, 2D)
        return self.base + self.phi(context).unflatten(1, self.base.shape)

    def log_prior(self, x: Tensor, codebook: Tensor) -> Tensor:
        """log A_prior, normalised over tokens. (B, N, D), (B, M, D) → (B, N, M)"""
        scale = self.prior_temperature * math.sqrt(x.shape[2])
        probes = codebook @ self.w.weight / scale  # (B, M, D): P Wᵀ instead of X W
        return (x @ probes.transpose(1, 2)).log_softmax(dim=1)

    def log_data(self, weights: Tensor) -> Tensor:
        """log A_data, normalised over primitives. (B, H, M, N) → (B, N, M)"""
        return (weights.mean(dim=1).transpose(1, 2) / self.data_temperature).log_softmax(dim=2)

    def forward(self, cls: Tensor, patches: Tensor, return_field: bool = False) -> Tensor | Field:
        """Class tokens (B, D) and patch tokens (B, N, D), after the final norm → CLS* (B, D), or all of the field."""
        mean = _mean(patches)  # (B, D)
        codebook, log_prior, p0, weights, p1, p2 = self.primitives_of(patches, mean)
        if self.readout == "apart" and not return_field:  # the assignment is not needed
            return self.read_slots(cls, p2)
        log_data = self.log_data(weights)  # (B, N, M)
        z = self.alpha_prior * log_prior + self.alpha_data * log_data  # (B, N, M)
        assignment = z.softmax(dim=2)  # (B, N, M)
        if self.readout == "apart":
            decoded = self.apart(p2)  # (B, M, D)
            message = assignment @ decoded  # (B, N, D) = X_refined − X
            feature = self.norm(self.adapter(cls) + decoded.sum(dim=1))  # (B, D)
        else:
            decoded = F.gelu(self.mlp1(p2)) @ self.mlp2.weight.T  # (B, M, D): MLP₂'s matrix meets M rows, not N
            message = F.gelu(assignment @ decoded + self.mlp2.bias)  # (B, N, D)
            feature = self.norm(self.read_out(cls, mean, _mean(message)))  # (B, D)
        if not return_field:
            return feature
        return Field(feature, patches + message, assignment, p2, codebook, log_prior.exp(), log_data.exp(), p0, p1)

    def primitives_of(self, patches: Tensor, mean: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Tokens (B, N, D), mean X (B, D) → P (B, M, D), log A_prior (B, N, M), P0, attention (B, H, M, N), P1, P2."""
        x = self._seen(patches)  # (B, N, D)
        codebook = self.codebook(x, _mean(x) if self.normalise else mean)  # (B, M, D)
        log_prior = self.log_prior(x, codebook)  # (B, N, M)
        p0 = log_prior.exp().transpose(1, 2) @ x  # (B, M, D)
        update, weights = self.update(p0, x)  # (B, M, D), (B, H, M, N)
        p1 = p0 + self.gamma * update  # (B, M, D)
        p2, _ = self.consolidation(p1, p1)  # (B, M, D)
        return codebook, log_prior, p0, weights, p1, p2

    def slots(self, tokens: Tokens) -> Tensor:
        return self.primitives_of(tokens.patches, _mean(tokens.patches))[-1]

    def read_slots(self, cls: Tensor, slots: Tensor) -> Tensor:
        return self.norm(self.adapter(cls) + self.apart(slots).sum(dim=1))

    def read_out(self, cls: Tensor, mean: Tensor, delta: Tensor) -> Tensor:
        """CLS* from the class token, mean X and mean (X_refined − X), (B, D) each."""
        if self.readout == "delta":
            return cls + delta
        if self.readout == "gated":
            return cls + self.gate * (mean + delta)
        return cls + mean + delta

    def organize(self, tokens: Tokens, details: bool = False) -> Encoded:
        reconstructs = self.training and self.reconstruction > 0
        if not (details or reconstructs):
            return Encoded(self(tokens.cls, tokens.patches))
        field: Field = self(tokens.cls, tokens.patches, return_field=True)
        losses = {}
        if reconstructs:
            made = field.assignment @ field.primitives  # (B, N, D)
            losses["reconstruction"] = self.reconstruction * F.mse_loss(made, self._seen(tokens.patches))
        if not details:
            return Encoded(field.feature, losses=losses)
        return Encoded(field.feature, field.tokens, field.assignment, tokens.grid, losses=losses)


def _mean(tokens: Tensor) -> Tensor:
    """(B, N, D) → (B, D). Divided after the sum: the gradient of a plain mean divides all B·N·D numbers once more."""
    return tokens.sum(dim=1) / tokens.shape[1]
