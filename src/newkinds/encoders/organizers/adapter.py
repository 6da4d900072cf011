"""The cheapest way to adapt a backbone that does not train: one linear map of the class token."""

from torch import Tensor, nn

from ...settings import AtLeastOne, Share
from ..dropout import dropout
from ..tokens import Encoded, Tokens
from .base import ORGANIZERS, Organizer


@ORGANIZERS.register("adapter")
class Adapter(Organizer):
    """CLS + LayerNorm(CLS)·V·U on the class token alone, with U = 0 at the start: a metric learnt on frozen features.

    It reads no patches, so a backbone that does not train (`backbone.train_blocks=0`) is computed once per view, and
    only its class tokens are cached. `dropout` of the class token makes two views of one image differ, if only its
    evaluation view is cached (`train.cache_views=1`).
    """

    reads_patches = False

    def __init__(self, dim: int, rank: AtLeastOne | None = None, dropout: Share = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.norm = nn.LayerNorm(dim)
        self.down = nn.Linear(dim, rank or dim, bias=False)  # V
        self.up = nn.Linear(rank or dim, dim, bias=False)  # U
        nn.init.orthogonal_(self.down.weight)
        nn.init.zeros_(self.up.weight)  # at the start the feature is the class token, as good as it was

    def forward(self, cls: Tensor) -> Tensor:
        """(B, D) → (B, D)"""
        cls = dropout(cls, self.dropout, self.training)
        return cls + self.up(self.down(self.norm(cls)))

    def organize(self, tokens: Tokens, details: bool = False) -> Encoded:
        feature = self(tokens.cls)
        return Encoded(feature, tokens=tokens.patches, grid=tokens.grid) if details else Encoded(feature)
