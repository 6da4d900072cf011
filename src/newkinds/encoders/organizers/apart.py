"""Slots kept apart: each through a map of its own, onto the class token. And the control whose slots are cells."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...settings import Count, Share
from ..dropout import dropout
from ..tokens import Encoded, Tokens
from .adapter import Adapter
from .base import ORGANIZERS, Organizer


class KeptApart(nn.Module):
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


@ORGANIZERS.register("grid")
class Grid(Organizer):
    """The control of CPF's read-out `apart`: fixed cells of the image in the place of primitives, and the adapter.

    What primitives gain beyond this comes from where they look, not from further parameters or from patches as such.
    """

    fixed_slots = True

    def __init__(self, dim: int, rows: Count = 4, columns: Count = 3, rank: Count = 48, dropout: Share = 0.0) -> None:
        super().__init__()
        self.cells = rows, columns
        self.adapter = Adapter(dim, dropout=dropout)
        self.apart = KeptApart(rows * columns, dim, rank, dropout)

    def slots(self, tokens: Tokens) -> Tensor:
        on_image = tokens.patches.unflatten(1, tokens.grid).permute(0, 3, 1, 2)  # (B, D, h, w)
        return F.adaptive_avg_pool2d(on_image, self.cells).flatten(2).transpose(1, 2)

    def read_slots(self, cls: Tensor, slots: Tensor) -> Tensor:
        return self.adapter(cls) + self.apart(slots).sum(dim=1)

    def organize(self, tokens: Tokens, details: bool = False) -> Encoded:
        feature = self.read_slots(tokens.cls, self.slots(tokens))
        return Encoded(feature, tokens=tokens.patches, grid=tokens.grid) if details else Encoded(feature)
