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
