"""One low-rank map per slot: what each slot of an image adds to its class token."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..dropout import dropout


class SlotMaps(nn.Module):
    """D_s = LayerNorm(slot_s)·V_s·U_s: what each of S slots adds to the class token, by a low-rank map of its own.

    U = 0 at the start, so that nothing is added before something has been learnt. One map for all slots, or the mean
    of the slots, would throw away which slot saw what.
    """

    def __init__(self, slots: int, dim: int, rank: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.down = nn.Parameter(torch.empty(slots, dim, rank))  # V
        self.up = nn.Parameter(torch.zeros(slots, rank, dim))  # U
        for down in self.down:
            nn.init.orthogonal_(down)

    def forward(self, slots: Tensor) -> Tensor:
        """(B, S, D) → (B, S, D)"""
        slots = dropout(slots, self.dropout, self.training)
        return torch.einsum("bsd,sdr,sre->bse", F.layer_norm(slots, slots.shape[2:]), self.down, self.up)
