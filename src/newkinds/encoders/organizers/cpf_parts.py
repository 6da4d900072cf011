"""CPF's primitives as parts of the images, each read by a map of its own: not the paper's form, which is `cpf`.

The paper's mean over tokens, and MLPs that all primitives share, throw away which primitive saw what. Here every
primitive P2_m is decoded by a low-rank map of its own, which starts at zero, and so is the class token:

    decoding      D_m = LayerNorm(P2_m) V_m U_m,  X_refined = X + A · D
    feature       CLS* = CLS + LayerNorm(CLS) V U + Σ_m D_m

Up to P2 and A all is as in `cpf`, on normalised tokens. Primitives begin as k-means centres of tokens, and stay so.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...settings import AtLeastOne, Share, section_of
from ..tokens import Tokens
from .adapter import Adapter
from .base import ORGANIZERS
from .cpf import Field, PrimitiveField, mean_of_tokens
from .slot_maps import SlotMaps
from .token_centres import centres_of_tokens


@ORGANIZERS.register("cpf-parts")
class CPFParts(PrimitiveField):
    """CPF's field over parts that occur in the images, and each primitive kept apart from the others.

    - `primitives`, `heads`: M and H.
    - `start`: "tokens" puts P_base at the centres of k-means over tokens of the training images, the other maps up to
      P2 at the identity and Φ at 0, so that primitives begin as parts that occur; "random" is CPF's start.
    - `train_field=False` leaves all up to P2 at its start, so that only what reads the primitives trains; with a frozen
      backbone primitives are then computed once for every cached view.
    - `normalise` gives every token mean 0 and size 1 before the maps, for backbones whose tokens are larger (2.5 in
      DINOv2), which makes attention too sharp; X itself stays in X_refined.
    - `rank`: the width of each V_m. `dropout`: of the class token and of the primitives; it makes two views of an image
      differ if only one is cached.
    """

    def __init__(
        self,
        dim: int,
        primitives: AtLeastOne = 12,
        heads: int = 12,
        start: Literal["tokens", "random"] = "tokens",
        train_field: bool = False,
        normalise: bool = True,
        rank: AtLeastOne = 48,
        dropout: Share = 0.0,
    ) -> None:
        given = {"primitives": primitives, "start": start, "rank": rank, "dropout": dropout}
        section_of("organizer", CPFParts, given)  # refuses what is out of range
        super().__init__(dim, primitives, heads)
        self.normalise = normalise
        self.starts_from_tokens = start == "tokens"
        self.fixed_slots = not train_field
        self.set_alpha("alpha_prior", learned=False)  # no loss depends on A
        self.set_alpha("alpha_data", learned=False)
        self.reset_parameters()
        self.adapter = Adapter(dim, dropout=dropout)  # these two have their own start
        self.maps = SlotMaps(primitives, dim, rank, dropout)
        if not train_field:
            self.base.requires_grad_(False)
            self.gamma.requires_grad_(False)
            for part in (self.phi, self.w, self.update, self.consolidation):
                part.requires_grad_(False)

    @torch.no_grad()
    def start(self, tokens: Tokens) -> None:
        centres = centres_of_tokens(self.prepare(tokens.patches), len(self.base))
        self.base[: len(centres)] = centres
        *_, shift = self.phi.parameters()
        nn.init.zeros_(shift)
        for weight in (*self.w.parameters(), *self.update.parameters(), *self.consolidation.parameters()):
            nn.init.eye_(weight)

    def prepare(self, patches: Tensor) -> Tensor:
        """The tokens as the maps see them. (B, N, D)"""
        return F.layer_norm(patches, patches.shape[2:]) if self.normalise else patches

    def slots(self, tokens: Tokens) -> Tensor:
        """P2 (B, M, D)"""
        x = self.prepare(tokens.patches)  # (B, N, D)
        codebook = self.codebook(x, mean_of_tokens(x))  # (B, M, D)
        return self.refine(x, self.log_prior(x, codebook))[2]

    def read_slots(self, cls: Tensor, slots: Tensor) -> Tensor:
        return self.adapter(cls) + self.maps(slots).sum(dim=1)

    def forward(self, cls: Tensor, patches: Tensor, return_field: bool = False) -> Tensor | Field:
        """Class tokens (B, D) and patch tokens (B, N, D), after the final norm → CLS* (B, D), or all of the field."""
        x = self.prepare(patches)  # (B, N, D)
        codebook = self.codebook(x, mean_of_tokens(x))  # (B, M, D) P
        log_prior = self.log_prior(x, codebook)  # (B, N, M)
        p0, p1, p2, attention = self.refine(x, log_prior)  # (B, M, D) three times, (B, H, M, N)
        if not return_field:  # the assignment is not needed
            return self.read_slots(cls, p2)
        log_data = self.log_data(attention)  # (B, N, M)
        assignment = self.fuse(log_prior, log_data)  # (B, N, M) A
        decoded = self.maps(p2)  # (B, M, D)
        feature = self.adapter(cls) + decoded.sum(dim=1)  # (B, D) CLS*
        refined = patches + assignment @ decoded  # (B, N, D)
        return Field(feature, refined, assignment, p2, codebook, log_prior.exp(), log_data.exp(), p0, p1)
