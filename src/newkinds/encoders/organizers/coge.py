"""CoGe's place in the encoder: tokens gathered into concepts and spread again, in the paper's and the released form.

    codebook      P  = P₀ + φ([mean X ; max X])                  an image's own version of the M concepts
    scores        S  = mean over heads of X_h P_hᵀ / √d          = X Pᵀ / √(D·H): heads only change its size
    assignment    A  = softmax over tokens of S / τ              every concept spreads one unit over the image
    calibration   Ã  = ½ A + ½ G(A)                              G: smoothed over places near by, columns sum to 1 again
    gathering     F' = σ(Ãᵀ X W_e)
    spreading     X' = σ(D⁻¹ Ã F' W_n)                           D: what each token has of all concepts
    feature       CLS* = CLS + mean X'

The released code does otherwise: tokens pass a linear map before the scores; the scores themselves are dropped out
and then calibrated, by their neighbours on the grid (`smooth_by_neighbours`); there is no D; X' keeps X; and the
feature is ½ CLS + ½ mean X'. It also never trains the module (`train.freeze_organizer=true`).

Shapes: B images, N patch tokens on a grid of h × w, D features, M concepts, H heads.
"""

import math
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...precision import full_precision
from ...settings import AtLeastOne, Positive, Share, section_of
from ..dropout import dropout
from ..tokens import Encoded, Tokens
from .base import ORGANIZERS, Organizer
from .query_attention import require_heads

STEP = 0.1  # of the released calibration
TINY = 1e-12  # divides what may be 0


@ORGANIZERS.register("coge")
class CoGe(Organizer):
    """CoGe, the hypergraph of concepts (re-implementation): as in its paper, or as in the released code.

    - `variant`: "paper" or "release", see above; both train, unless `train.freeze_organizer` says otherwise.
    - `primitives`, `heads`: M and H of the paper; the released trainer takes 8 and 4 unless told otherwise.
    - `phi_rank`: inner width of φ, two maps with a GELU between; None makes φ one full matrix (2D × M·D). "auto" is
      dim // 8 in the paper's form, whose φ is a "tiny MLP" of unknown width, and None in the released one.
    - `temperature`: τ, 1 in the released code; the paper's value is unknown.
    - `dropout`: of the scores, in the released form alone.
    """

    def __init__(
        self,
        dim: int,
        variant: Literal["paper", "release"] = "paper",
        primitives: AtLeastOne = 16,
        heads: int = 8,
        phi_rank: AtLeastOne | Literal["auto"] | None = "auto",
        temperature: Positive = 1.0,
        dropout: Share = 0.1,
    ) -> None:
        super().__init__()
        given = {"variant": variant, "primitives": primitives, "phi_rank": phi_rank, "temperature": temperature}
        section_of("organizer", CoGe, {**given, "dropout": dropout})  # refuses what is out of range
        require_heads("CoGe", dim, heads)
        self.released = variant == "release"
        self.heads = heads
        self.temperature = temperature
        self.dropout = dropout
        if phi_rank == "auto":
            phi_rank = None if self.released else max(1, dim // 8)
        biased = self.released  # the paper's maps are plain matrices
        self.base = nn.Parameter(torch.empty(primitives, dim))  # P₀
        widths = [2 * dim, *([phi_rank] if phi_rank else []), primitives * dim]
        maps = [nn.Linear(a, b, bias=biased) for a, b in pairwise(widths)]
        self.phi = nn.Sequential(maps[0], *(layer for map_ in maps[1:] for layer in (nn.GELU(), map_)))
        self.projection = nn.Linear(dim, dim) if self.released else None
        self.gather = nn.Linear(dim, dim, bias=biased)  # W_e
        self.spread = nn.Linear(dim, dim, bias=biased)  # W_n
        self._initialise()

    def _initialise(self) -> None:
        """The released form begins as hypergraph layers do: P₀ Xavier-uniform, maps at torch's default.

        In the paper's form every map keeps the size of what passes through it, as in `PrimitiveField.reset_parameters`.
        The mean over heads makes scores √H times smaller than a product over √D, so P₀ is √H times larger than tokens
        after a LayerNorm: else all concepts begin as the mean token.
        """
        if self.released:
            nn.init.xavier_uniform_(self.base)
            return
        size = math.sqrt(self.heads)
        nn.init.trunc_normal_(self.base, std=size, a=-2 * size, b=2 * size)
        for name, weight in self.named_parameters():
            if name.endswith("weight"):
                nn.init.trunc_normal_(weight, std=weight.shape[1] ** -0.5)
        *_, shift = self.phi.parameters()  # (M·D, rank)
        nn.init.trunc_normal_(shift, std=0.1 * size * shift.shape[1] ** -0.5)

    def scores(self, x: Tensor) -> Tensor:
        """S. (B, N, D) → (B, N, M)"""
        context = torch.cat([x.mean(dim=1), x.amax(dim=1)], dim=1)  # (B, 2D)
        codebook = self.base + self.phi(context).unflatten(1, self.base.shape)  # (B, M, D): P
        probes = codebook / math.sqrt(x.shape[2] * self.heads)
        if self.projection is None:
            return x @ probes.transpose(1, 2)
        # P (x W + b) as (P Wᵀ) x + P b: the matrix meets M rows, not N
        constant = probes @ self.projection.bias  # (B, M)
        return x @ (probes @ self.projection.weight).transpose(1, 2) + constant[:, None]

    def assignment(self, tokens: Tokens) -> Tensor:
        """Ã, whose columns sum to 1. (B, N, M)"""
        with full_precision(self.scores(tokens.patches)) as scores:
            if self.released:
                scores = dropout(scores, self.dropout, self.training)
                scores = scores + STEP * smooth_by_neighbours(scores, tokens.patches.to(scores), tokens.grid)
            assignment = (scores / self.temperature).softmax(dim=1)
            if self.released:
                return assignment
            return (assignment + smooth_by_distance(assignment, tokens.grid)) / 2

    def organize(self, tokens: Tokens, details: bool = False) -> Encoded:
        x, assignment = tokens.patches, self.assignment(tokens)
        share = assignment / assignment.sum(dim=2, keepdim=True).clamp(min=TINY)  # (B, N, M): D⁻¹ Ã
        concepts = F.gelu(self.gather(assignment.transpose(1, 2).to(x) @ x))  # (B, M, D): F'
        decoded = concepts @ self.spread.weight.T  # (B, M, D): W_n meets M rows, not N
        if self.released:
            message = F.gelu(assignment.to(decoded) @ decoded + self.spread.bias)  # (B, N, D)
            feature = (tokens.cls + x.mean(dim=1) + message.mean(dim=1)) / 2
        else:
            message = F.gelu(share.to(decoded) @ decoded)  # (B, N, D)
            feature = tokens.cls + message.mean(dim=1)
        if not details:
            return Encoded(feature)
        refined = x + message if self.released else message
        return Encoded(feature, tokens=refined, field=share, grid=tokens.grid, slots=concepts)


def smooth_by_distance(assignment: Tensor, grid: tuple[int, int]) -> Tensor:
    """G(A): Gaussian means of A (B, N, M) over places, exp(−distance²) in patches; columns sum to 1 again.

    On a grid the Gaussian is a product of one for rows and one for columns, so no N × N matrix is needed.
    """
    rows, columns = (_gaussian(count, assignment) for count in grid)  # (h, h), (w, w)
    smooth = torch.einsum("ik,jl,bklm->bijm", rows, columns, assignment.unflatten(1, grid)).flatten(1, 2)
    return smooth / smooth.sum(dim=1, keepdim=True).clamp(min=TINY)


def _gaussian(count: int, like: Tensor) -> Tensor:
    """exp(−(i − j)²), rows sum to 1. (count, count)"""
    place = torch.arange(count, dtype=like.dtype, device=like.device)
    return (-(place[:, None] - place).square()).softmax(dim=1)


def smooth_by_neighbours(scores: Tensor, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """What the released code adds to the scores (B, N, M), by the four neighbours of each token (B, N, D) on the grid.

    Three means: of the neighbours; weighted by how alike their tokens are (cosine, at least 0); the same of the first
    mean. Each counts as much as it differs from the scores: max(0, 1 − ⟨S, mean⟩ / ⟨S, S⟩), made to sum to 1.
    """
    unit = F.normalize(tokens, dim=2).unflatten(1, grid)  # (B, h, w, D)
    below = (unit[:, 1:] * unit[:, :-1]).sum(dim=3, keepdim=True).clamp(min=0)  # (B, h-1, w, 1)
    beside = (unit[:, :, 1:] * unit[:, :, :-1]).sum(dim=3, keepdim=True).clamp(min=0)  # (B, h, w-1, 1)
    on_image = scores.unflatten(1, grid)  # (B, h, w, M)
    plain = _mean_of_neighbours(on_image, torch.ones_like(below), torch.ones_like(beside))
    means = torch.stack([plain, *(_mean_of_neighbours(v, below, beside) for v in (on_image, plain))])  # (3, B, h, w, M)
    energy = on_image.square().sum(dim=(1, 2, 3)).clamp(min=TINY)  # (B,)
    differs = (1 - (means * on_image).sum(dim=(2, 3, 4)) / energy).clamp(min=0)  # (3, B)
    weights = differs / differs.sum(dim=0).clamp(min=TINY)
    return torch.einsum("rb,rbijm->bijm", weights, means).flatten(1, 2)


def _mean_of_neighbours(values: Tensor, below: Tensor, beside: Tensor) -> Tensor:
    """Weighted mean of the 4 neighbours' values (B, h, w, M); weights of the edges between rows and between columns."""

    def total(of: Tensor) -> Tensor:
        return (
            F.pad(below * of[:, :-1], (0, 0, 0, 0, 1, 0))  # from above
            + F.pad(below * of[:, 1:], (0, 0, 0, 0, 0, 1))
            + F.pad(beside * of[:, :, :-1], (0, 0, 1, 0))  # from the left
            + F.pad(beside * of[:, :, 1:], (0, 0, 0, 1))
        )

    return total(values) / total(torch.ones_like(values[..., :1])).clamp(min=TINY)
