"""Multi-head attention of a few queries to many tokens."""

import math

import torch
from torch import Tensor, nn

from ...errors import NewkindsError


class QueryAttention(nn.Module):
    """The usual multi-head attention (maps q, k, v, o without bias), with the brackets where they cost least.

    M queries are far fewer than N tokens, so tokens are not projected: a head's scores q (X W_k)ᵀ are taken as
    (q W_kᵀ) Xᵀ and its message a (X W_v) as (a X) W_v, unless the tokens are so few that keys and values cost less.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)

    def forward(self, queries: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Queries (B, M, D) and tokens (B, N, D) → messages (B, M, D) and weights (B, H, M, N) over the tokens."""
        batch, count, dim = queries.shape
        q = self.q(queries).unflatten(2, (self.heads, -1)) / math.sqrt(dim // self.heads)  # (B, M, H, d)
        # Keys of all N tokens and d-wide products with them, or D-wide probes of all heads and products with those?
        if tokens.shape[1] * (dim + count) < count * (dim + self.heads * tokens.shape[1]):
            keys = self.k(tokens).unflatten(2, (self.heads, -1))  # (B, N, H, d)
            values = self.v(tokens).unflatten(2, (self.heads, -1))  # (B, N, H, d)
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
