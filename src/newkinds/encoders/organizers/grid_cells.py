"""The control of `cpf-parts`: fixed cells of the image in the place of primitives."""

import torch.nn.functional as F
from torch import Tensor

from ...settings import AtLeastOne, Share
from ..tokens import Encoded, Tokens
from .adapter import Adapter
from .base import ORGANIZERS, Organizer
from .slot_maps import SlotMaps


@ORGANIZERS.register("grid")
class Grid(Organizer):
    """CLS + LayerNorm(CLS)·V·U + Σ_s D_s: the adapter, and the cells of a grid, each read by a map of its own.

    What primitives gain beyond this comes from where they look, not from further parameters or from patches as such.
    """

    fixed_slots = True

    def __init__(
        self, dim: int, rows: AtLeastOne = 4, columns: AtLeastOne = 3, rank: AtLeastOne = 48, dropout: Share = 0.0
    ) -> None:
        super().__init__()
        self.cells = (rows, columns)
        self.adapter = Adapter(dim, dropout=dropout)
        self.maps = SlotMaps(rows * columns, dim, rank, dropout)

    def slots(self, tokens: Tokens) -> Tensor:
        on_image = tokens.patches.unflatten(1, tokens.grid).permute(0, 3, 1, 2)  # (B, D, h, w)
        return F.adaptive_avg_pool2d(on_image, self.cells).flatten(2).transpose(1, 2)

    def read_slots(self, cls: Tensor, slots: Tensor) -> Tensor:
        return self.adapter(cls) + self.maps(slots).sum(dim=1)

    def organize(self, tokens: Tokens, details: bool = False) -> Encoded:
        feature = self.read_slots(tokens.cls, self.slots(tokens))
        if not details:
            return Encoded(feature)
        return Encoded(feature, tokens=tokens.patches, grid=tokens.grid)
