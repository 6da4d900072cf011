"""Slots of an image, "ConGCD-style": built from an abstract and its relatives, not a reproduction of ConGCD (2025).

    slots        s  = slot attention: 3 times, slots compete for the tokens, take the mean of what they won,
                 and go through a GRU and an MLP with a residual; s starts at queries that all images share
    dominant     f₁ = Σ over the K/2 slots most like CLS of softmax(CLS · s / √D) s
    contextual   f₂ = mean of all slots
    router       g  = softmax(MLP [CLS ; f₁ ; f₂])                                     two shares
    feature      CLS* = CLS + g₁ f₁ + g₂ f₂

with two losses: the tokens, which get no gradient by it, must be found again from the slots (reconstruction), and the
router must use both units over a batch (balance).

    decoder      a_ik = GELU(W_s s_k + W_p place_i),  m_ik = softmax over slots of w · a_ik,  x̂_i = W_x Σ_k m_ik a_ik

Shapes: B images, N patch tokens on a grid of h × w, D features, K slots. K is far smaller than N, so keys, values and
decoded tokens are never computed for every slot and token: the formulas with other brackets, exactly.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...precision import full_precision
from ...settings import AtLeastOne, NonNegative, WholeNumber, section_of
from ..tokens import Encoded, Tokens
from .base import ORGANIZERS, Organizer

UNITS = 2  # dominant and contextual
OCTAVES = 6  # of the sines and cosines that tell a place


class Decoder(nn.Module):
    """Tokens from slots: each slot says what it would be and how sure it is at every place."""

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.of_slot = nn.Linear(dim, width)  # W_s
        self.of_place = nn.Linear(4 * OCTAVES, width, bias=False)  # W_p
        self.sure = nn.Linear(width, 1, bias=False)  # w; the softmax would ignore a bias
        self.out = nn.Linear(width, dim)  # W_x

    def forward(self, slots: Tensor, grid: tuple[int, int]) -> Tensor:
        """(B, K, D) → (B, N, D)"""
        place = self.of_place(places(grid, slots))  # (N, width)
        hidden = F.gelu(self.of_slot(slots)[:, :, None] + place)  # (B, K, N, width)
        share = self.sure(hidden).softmax(dim=1)  # (B, K, N, 1)
        return self.out(torch.einsum("bknw,bkn->bnw", hidden, share[..., 0]))


def places(grid: tuple[int, int], like: Tensor) -> Tensor:
    """Sines and cosines of where each patch lies, as shares of the image's height and width: any grid will do.
    (N, 4 · OCTAVES)"""
    steps = [(torch.arange(count, device=like.device, dtype=like.dtype) + 0.5) / count for count in grid]
    where = torch.cartesian_prod(*steps).view(-1, 2)  # (N, 2), row by row
    octaves = math.pi * 2.0 ** torch.arange(OCTAVES, device=like.device, dtype=like.dtype)
    angles = (where[..., None] * octaves).flatten(1)  # (N, 2 · OCTAVES)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


@ORGANIZERS.register("slots")
class Slots(Organizer):
    """ConGCD-style slots (not a reproduction): slot attention, two units, and a router that weighs them.

    - `count`, `iterations`: K slots, and how often they compete.
    - `decoder_width`: inner width of the decoder.
    - `reconstruction`: weight of its loss, reached linearly over the first `warmup` epochs; 0 leaves the decoder out.
    - `balance`: weight of the Kullback–Leibler divergence of a batch's mean shares from even ones.
    """

    def __init__(
        self,
        dim: int,
        count: AtLeastOne = 8,
        iterations: AtLeastOne = 3,
        decoder_width: AtLeastOne = 128,
        reconstruction: NonNegative = 0.1,
        warmup: WholeNumber = 10,
        balance: NonNegative = 0.01,
    ) -> None:
        super().__init__()
        given = {"count": count, "iterations": iterations, "decoder_width": decoder_width, "warmup": warmup}
        section_of("organizer", Slots, {**given, "reconstruction": reconstruction, "balance": balance})
        self.iterations = iterations
        self.reconstruction = reconstruction
        self.warmup = warmup
        self.balance = balance
        self.queries = nn.Parameter(torch.empty(count, dim))
        self.q, self.k, self.v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.gru = nn.GRUCell(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.norm_mlp = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        inner = max(1, dim // 8)
        self.router = nn.Sequential(nn.Linear((1 + UNITS) * dim, inner), nn.GELU(), nn.Linear(inner, UNITS))
        self.decoder = Decoder(dim, decoder_width) if reconstruction else None
        nn.init.trunc_normal_(self.queries)
        for map_ in (self.q, self.k, self.v):  # scores start with a std near 1, see `PrimitiveField.reset_parameters`
            nn.init.trunc_normal_(map_.weight, std=dim**-0.5)
        *_, weight, bias = self.router.parameters()
        nn.init.zeros_(weight)  # both units count alike at the start
        nn.init.zeros_(bias)

    def compete(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Slots and their shares in each token. (B, N, D) → (B, K, D), (B, N, K); a token's shares sum to 1"""
        slots = self.queries.expand(x.shape[0], -1, -1)  # (B, K, D)
        for _ in range(self.iterations):
            probes = self.q(self.norm(slots)) @ self.k.weight / math.sqrt(x.shape[2])  # (B, K, D): Q W_kᵀ for X W_k
            shares = (x @ probes.transpose(1, 2)).softmax(dim=2)  # (B, N, K)
            won = (shares / shares.sum(dim=1, keepdim=True)).transpose(1, 2) @ x  # (B, K, D), the mean
            slots = self.gru(self.v(won).flatten(0, 1), slots.flatten(0, 1)).view_as(slots)
            slots = slots + self.mlp(self.norm_mlp(slots))
        return slots, shares

    def organize(self, tokens: Tokens, details: bool = False) -> Encoded:
        with full_precision(F.layer_norm(tokens.patches, tokens.patches.shape[2:])) as x:
            cls = tokens.cls.to(x)
            slots, shares = self.compete(x)
            dominant, contextual = dominant_of(cls, slots), slots.mean(dim=1)  # (B, D)
            route = self.router(torch.cat([cls, dominant, contextual], dim=1)).log_softmax(dim=1)  # (B, 2)
            g = route.exp()
            feature = cls + g[:, :1] * dominant + g[:, 1:] * contextual
            losses = self._losses(slots, route, x, tokens.grid) if self.training else {}
        if details:
            return Encoded(feature, tokens.patches, shares, tokens.grid, slots=slots, losses=losses)
        return Encoded(feature, slots=slots if self.training else None, losses=losses)

    def _losses(self, slots: Tensor, route: Tensor, x: Tensor, grid: tuple[int, int]) -> dict[str, Tensor]:
        losses = {"balance": self.balance * imbalance(route)}
        if self.decoder is not None:
            losses["reconstruction"] = self.reconstruction * F.mse_loss(self.decoder(slots, grid), x.detach())
        return losses

    def loss(self, encoded: Encoded, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        losses = dict(encoded.losses)
        if "reconstruction" in losses and epoch + 1 < self.warmup:
            losses["reconstruction"] = losses["reconstruction"] * ((epoch + 1) / self.warmup)
        return losses


def dominant_of(cls: Tensor, slots: Tensor) -> Tensor:
    """The half of the slots that is most like the class token, weighted by how much. (B, D), (B, K, D) → (B, D)"""
    scores = (slots @ cls[..., None])[..., 0] / math.sqrt(cls.shape[1])  # (B, K)
    most = scores.topk(max(1, scores.shape[1] // 2), dim=1)
    weights = torch.zeros_like(scores).scatter(1, most.indices, most.values.softmax(dim=1))
    return (weights[:, None] @ slots)[:, 0]


def imbalance(route: Tensor) -> Tensor:
    """Kullback–Leibler divergence of mean shares from even ones, from logs of shares (n, U): 0 if all are alike."""
    log_mean = route.logsumexp(dim=0) - math.log(len(route))  # (U,), in log space: an unused unit is no NaN
    return math.log(route.shape[1]) + (log_mean.exp() * log_mean).sum()
