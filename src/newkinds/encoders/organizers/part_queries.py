"""Parts of an image by shared queries, "APL-style": re-implemented from what is known of adaptive part learning (2025).

    prior        I  = patches most like the class token, none beside another            one for each part
    queries      q̂  = a decoder layer: queries attend to each other, then to X_I        q are shared by all images
    assignment   every patch goes to one part: softmax over q̂ of cos(q̂, x) / τ, the largest taken as 1, the others as 0
    parts        p_k  = mean of the patches of part k; empty parts are left out
    refinement   p'_k = p_k + Σ over its patches of softmax(p_k · x / √D) x
    feature      mean of p'; the class token is dropped

with two losses over p: `all_min` and `diversity`. From the cosines of a query its mean over the image is subtracted:
tokens of one image have so much in common that a few queries would win them all, and training makes it fewer.

Shapes: B images, N patch tokens on a grid of h × w, D features, K parts.
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...precision import full_precision
from ...settings import AtLeastOne, NonNegative, Positive, section_of
from ..tokens import Encoded, Tokens
from .base import ORGANIZERS, Organizer
from .part_losses import all_min, diversity
from .query_attention import QueryAttention, require_heads


@ORGANIZERS.register("parts")
class PartQueries(Organizer):
    """APL-style parts: each patch goes to one of a few shared queries, and the feature is the mean of the parts.

    - `count`: K parts; the same number of patches are the prior, if there are as many.
    - `heads`: of the decoder layer's two attentions.
    - `temperature`: τ, of the assignment and of `all_min`.
    - `keep_class=True` adds the class token to the feature, which the paper drops.
    - `all_min`, `diversity`: weights of the losses. `as_published=True` takes all-min as it is printed in the paper,
      which goes on pushing rows apart that are far apart already.
    """

    def __init__(
        self,
        dim: int,
        count: AtLeastOne = 12,
        heads: int = 4,
        temperature: Positive = 0.07,
        keep_class: bool = False,
        all_min: NonNegative = 0.35,
        diversity: NonNegative = 0.1,
        as_published: bool = False,
    ) -> None:
        super().__init__()
        given = {"count": count, "temperature": temperature, "all_min": all_min, "diversity": diversity}
        section_of("organizer", PartQueries, given)  # refuses what is out of range
        require_heads("parts", dim, heads)
        self.temperature = temperature
        self.keep_class = keep_class
        self.as_published = as_published
        self.all_min = all_min  # this one and the next are weights
        self.diversity = diversity
        self.queries = nn.Parameter(torch.empty(count, dim))
        self.among = QueryAttention(dim, heads)
        self.to_prior = QueryAttention(dim, heads)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self._initialise()

    def _initialise(self) -> None:
        """Every map keeps the size of what passes through it (see `PrimitiveField.reset_parameters`).

        What queries get from the prior passes unchanged, so that they begin among the tokens they are compared with.
        """
        nn.init.trunc_normal_(self.queries)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=module.in_features**-0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.eye_(self.to_prior.v.weight)
        nn.init.eye_(self.to_prior.o.weight)

    def queries_of(self, prior: Tensor) -> Tensor:
        """q̂: the shared queries after they have seen each other and an image's prior tokens. (B, P, D) → (B, K, D)"""
        q = self.queries.expand(prior.shape[0], -1, -1)
        normed = self.norms[0](q)
        q = q + self.among(normed, normed)[0]
        q = q + self.to_prior(self.norms[1](q), F.layer_norm(prior, prior.shape[2:]))[0]
        return q + self.mlp(self.norms[2](q))

    def assignment(self, queries: Tensor, x: Tensor) -> Tensor:
        """1 where a patch is of a part, else 0; the gradient is a softmax's. (B, K, D), (B, N, D) → (B, N, K)"""
        cosines = F.normalize(x, dim=2) @ F.normalize(queries, dim=2).transpose(1, 2)
        soft = ((cosines - cosines.mean(dim=1, keepdim=True)) / self.temperature).softmax(dim=2)
        hard = F.one_hot(soft.argmax(dim=2), soft.shape[2]).to(soft)
        return hard + (soft - soft.detach())  # the difference is 0

    def organize(self, tokens: Tokens, details: bool = False) -> Encoded:
        with full_precision(tokens.patches) as x:  # cosines are divided by τ
            places = prior_places(tokens, len(self.queries))[..., None].expand(-1, -1, x.shape[2])  # (B, P, D)
            assignment = self.assignment(self.queries_of(x.gather(1, places)), x)  # (B, N, K)
            patches = assignment.sum(dim=1)[..., None]  # (B, K, 1), how many a part has
            filled = patches[..., 0] > 0.5
            parts = assignment.transpose(1, 2) @ x / patches.clamp(min=1)  # (B, K, D)
            feature = _mean_of_filled(refine_parts(parts, x, assignment.detach() > 0), filled)  # (B, D)
            if self.keep_class:
                feature = feature + tokens.cls
        found = Encoded(feature, slots=parts, filled=filled) if details or self.training else Encoded(feature)
        return replace(found, tokens=tokens.patches, field=assignment, grid=tokens.grid) if details else found

    def loss(self, encoded: Encoded, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        if encoded.slots is None or encoded.filled is None:
            return {}
        losses = {}
        if self.all_min:
            pulled = all_min(encoded.slots, encoded.filled, labels, self.temperature, self.as_published)
            losses["all_min"] = self.all_min * pulled
        if self.diversity:
            losses["diversity"] = self.diversity * diversity(encoded.slots, encoded.filled)
        return losses


@torch.no_grad()
def prior_places(tokens: Tokens, count: int) -> Tensor:
    """Patches most like the class token (B, P): the best, then always the best that is not beside one taken before.

    It stands for the patches that the heads of DINO's last block look at, which cached tokens do not tell. Where no
    patch is left that is beside none, the one beside fewest is taken.
    """
    alike = F.cosine_similarity(tokens.patches.float(), tokens.cls[:, None].float(), dim=2)  # (B, N)
    place = torch.arange(alike.shape[1], device=alike.device)
    row, column = place // tokens.grid[1], place % tokens.grid[1]  # (N,)
    taken = []
    for _ in range(min(count, alike.shape[1])):
        best = alike.argmax(dim=1, keepdim=True)  # (B, 1)
        taken.append(best)
        beside = ((row - row[best]).abs() <= 1) & ((column - column[best]).abs() <= 1)  # (B, N)
        alike = (alike - 3.0 * beside).scatter(1, best, -torch.inf)  # cosines differ by 2 at most
    return torch.cat(taken, dim=1)


def refine_parts(parts: Tensor, x: Tensor, members: Tensor) -> Tensor:
    """p': a part and those of its patches that are most like it. (B, K, D), (B, N, D), members (B, N, K) → (B, K, D)"""
    scores = parts @ x.transpose(1, 2) / math.sqrt(x.shape[2])  # (B, K, N)
    # the least number instead of −∞: the softmax of an empty part, which nobody reads, is then not NaN
    weights = scores.masked_fill(~members.transpose(1, 2), torch.finfo(scores.dtype).min).softmax(dim=2)
    return parts + weights @ x


def _mean_of_filled(parts: Tensor, filled: Tensor) -> Tensor:
    """(B, K, D), (B, K) → (B, D); every image has a part that is filled."""
    return (parts * filled[..., None]).sum(dim=1) / filled.sum(dim=1, keepdim=True)
