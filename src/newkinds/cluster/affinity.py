"""How alike rows are by the company they keep: shared neighbours, spread over a graph.

Thresholds are found among all pairs, so time and memory grow with the square of the number of rows, and no faster.
"""

import torch
from torch import Tensor


@torch.no_grad()
def consensus(near: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """(n, n) how many lists of neighbours (n, k), none of which holds its own row, have both rows of a pair in common.

    Being in the other's list counts as much. With G_ij = 1 if j is in the list of i: GᵀG without its diagonal + G + Gᵀ.
    """
    n, k = near.shape
    owner = torch.arange(n, device=near.device)[:, None].expand(-1, k)  # (n, k)
    one, other = near[:, :, None].expand(-1, -1, k), near[:, None, :].expand(-1, k, -1)  # (n, k, k)
    rows = torch.cat([part.flatten() for part in (one, owner, near)])
    columns = torch.cat([part.flatten() for part in (other, near, owner)])
    counts = torch.zeros(n, n, dtype=dtype, device=near.device)
    counts.index_put_((rows, columns), counts.new_ones(()), accumulate=True)
    return counts.fill_diagonal_(0)


@torch.no_grad()
def diffuse(transition: Tensor, steps: int = 1) -> Tensor:
    """(n, n) affinities Q after some steps Q ← P Q Pᵀ + I from Q = P, a transition matrix P (n, n) with rows of sum 1.

    P has few entries that are not zero, about k² of n in a graph of k neighbours, and only these are multiplied. No
    entry of Q that is zero gets a rounding error instead: P and Q are never negative.
    """
    # metal has no sparse products
    sparse = transition if transition.device.type == "mps" else transition.to_sparse()
    affinity = transition
    for _ in range(steps):
        # P (P Qᵀ)ᵀ; a transposed view would be many times slower, and a name would keep one more n × n matrix
        affinity = torch.mm(sparse, torch.mm(sparse, affinity.T.contiguous()).T.contiguous())
        affinity.diagonal().add_(1)
    return affinity


@torch.no_grad()
def strong_from(affinity: Tensor, quantile: float) -> Tensor:
    """(,) above which an affinity counts as strong: this quantile of all that exceed the mean of those above zero."""
    mean = affinity.sum() / affinity.count_nonzero().clamp(min=1)
    above = affinity[affinity > mean]  # too many for torch.quantile
    if not len(above):  # all are the same
        return mean
    place = quantile * (len(above) - 1)
    low = above.kthvalue(int(place) + 1).values
    high = above.kthvalue(min(int(place) + 2, len(above))).values
    return torch.lerp(low, high, place - int(place))


def draw_negatives(pseudo: Tensor, pairs: int, keys: Tensor, published: bool = False) -> Tensor:
    """(n, M) of the columns that are not in `pseudo` (n, M), those with the smallest keys: with them, `pairs` a row.

    Where `pseudo` has more than `pairs` there are none; as published, all but as many as are too many.
    """
    positives = pseudo.sum(dim=1, keepdim=True)  # (n, 1)
    left = pairs - positives
    if published:  # a list of the others is cut at a place that may be negative: that counts from its end
        left = left.where(left >= 0, pseudo.shape[1] - positives + left)
    order = keys.masked_fill(pseudo, torch.inf).argsort(dim=1)
    place = torch.arange(pseudo.shape[1], device=pseudo.device).expand_as(pseudo)
    return torch.zeros_like(pseudo).scatter(1, order, place < left) & ~pseudo


def apply_labels(pseudo: Tensor, negative: Tensor, labels: Tensor, bank_labels: Tensor) -> tuple[Tensor, Tensor]:
    """Positives and negatives (n, M) when labels (n,) and (M,), -1: none, have the last word.

    What is strongly linked but has another label is a negative. Labels change the number of pairs, which was fixed
    before, as published.
    """
    both = (labels >= 0)[:, None] & (bank_labels >= 0)
    same = both & (labels[:, None] == bank_labels)
    other = both & ~same
    return (pseudo & ~other) | same, (negative & ~same) | (pseudo & other)
