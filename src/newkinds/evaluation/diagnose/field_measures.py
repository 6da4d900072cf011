"""What primitive fields do: how decided they are, how much they overlap, and which primitives are of no use.

A field (n, N, M) holds the share of each of M primitives in each of N tokens of n images; a token's shares sum to 1.
"""

import math

import torch
from torch import Tensor

from .spectra import entropies

DEAD = 0.1  # of an even share, 1/M: a primitive that has less than this on average
ALIKE = 0.95  # correlation of two fields, or cosine of two states, from which on one is a duplicate of the other


def token_entropy(field: Tensor) -> Tensor:
    """How undecided each token is, (n, N): 0 if it belongs to one primitive, 1 if to all M alike (or M is 1)."""
    return _of_most(entropies(field.double()), field.shape[2])


def spread_over_tokens(field: Tensor) -> Tensor:
    """How widely each primitive is spread over an image, (n, M): 0 in one token or none, 1 over all N tokens alike."""
    return _of_most(entropies(_columns(field).transpose(1, 2)), field.shape[1])


def use_entropy(field: Tensor) -> float:
    """How evenly the primitives are used over all tokens: 1 if each has the same mean share, 0 if one has all."""
    return float(_of_most(entropies(field.double().mean(dim=(0, 1))), field.shape[2]))


def _columns(field: Tensor) -> Tensor:
    """A field (n, N, M) whose columns sum to 1 over the tokens, or to 0 where a primitive has none."""
    field = field.double()
    return field / field.sum(dim=1, keepdim=True).clamp(min=1e-300)


def _of_most(entropy: Tensor, places: int) -> Tensor:
    return entropy / math.log(places) if places > 1 else torch.ones_like(entropy)


def overlap(field: Tensor) -> float | None:
    """Mean over images and pairs of primitives of Σ min(a, b), each primitive's column scaled to sum 1 over the tokens:
    1 if they lie in the same place, 0 if they are apart or one is nowhere. None for a single primitive."""
    count = field.shape[2]
    if count < 2:
        return None
    columns = _columns(field)  # (n, N, M)
    shared = sum(
        torch.minimum(columns[:, :, m, None], columns[:, :, m + 1 :]).sum(dim=(1, 2)).mean() for m in range(count - 1)
    )
    return float(shared) / (count * (count - 1) / 2)


def over_primitives(prior: Tensor) -> Tensor:
    """A_prior, whose columns sum to 1 over the tokens, as a distribution over primitives for each token: what the
    fusion would make of it alone, with α = 1."""
    return prior / prior.sum(dim=2, keepdim=True)


def disagreement(one: Tensor, other: Tensor) -> float:
    """Mean over tokens of the Jensen-Shannon divergence of two fields, of ln 2: 0 if equal, 1 if they share nothing."""
    one, other = one.double(), other.double()
    divergence = entropies((one + other) / 2) - (entropies(one) + entropies(other)) / 2  # (n, N)
    return float(divergence.clamp(min=0).mean()) / math.log(2)


def dead(field: Tensor) -> int:
    """Primitives with less than a tenth of an even share, on average over all tokens."""
    return int((field.double().mean(dim=(0, 1)) * field.shape[2] < DEAD).sum())


def winless(field: Tensor) -> int:
    """Primitives that have the largest share in no token at all."""
    return field.shape[2] - len(field.argmax(dim=2).unique())


def duplicate_fields(field: Tensor) -> int:
    """Primitives whose share rises and falls, over all tokens, with that of an earlier one (correlation above 0.95)."""
    columns = field.double().flatten(0, 1)  # (n·N, M)
    columns = columns - columns.mean(dim=0)
    return _duplicates(_unit(columns.T) @ _unit(columns.T).T)


def duplicate_states(states: Tensor) -> int:
    """Primitives whose state points where an earlier one's does: mean cosine over images above 0.95. (n, M, D)"""
    unit = _unit(states.double())
    return _duplicates((unit @ unit.transpose(1, 2)).mean(dim=0))


def _unit(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows, dim=-1, eps=1e-300)


def _duplicates(alike: Tensor) -> int:
    """How many of M have an earlier one (a smaller row of the matrix) that they are like."""
    return int((alike.tril(diagonal=-1) > ALIKE).any(dim=1).sum())


def same_for_all(vectors: Tensor) -> float | None:
    """The share of the energy of vectors (n, D) that is in their mean: 1 if all are equal. None if all are zero."""
    rows = vectors.double()
    energy = rows.square().sum(dim=1).mean()
    return float(rows.mean(dim=0).square().sum() / energy) if energy else None
