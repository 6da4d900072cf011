"""Deep visual prompts. Jia, Tang, Chen, Cardie, Belongie, Hariharan, Lim: Visual Prompt Tuning. ECCV 2022."""

import torch
from torch import Tensor, nn

from ...settings import AtLeastOne
from .base import TUNINGS, Anatomy, Tuning, last_blocks, require_vit

START_STD = 0.02  # as PromptCAL's start; those of Jia et al. start as a patch embedding would


@TUNINGS.register("prompts")
class Prompts(Tuning):
    """A few learnable tokens enter every block beside the image's own, and are replaced before the next (deep prompts).

    They stand behind class and register tokens and have no position. What leaves the last block in their place is given
    to methods that read it (promptcal). `blocks`: only the last so many blocks have prompts, and all before them can be
    cached; by default every block has some, and nothing can.
    """

    def __init__(self, anatomy: Anatomy, /, count: AtLeastOne = 5, blocks: AtLeastOne | None = None) -> None:
        super().__init__(anatomy)
        require_vit("prompts", anatomy)
        self.first = last_blocks(anatomy, blocks)
        self.extra = count
        self.prefix = anatomy.prefix
        self.values = nn.Parameter(torch.empty(anatomy.blocks - self.first, count, anatomy.dim))  # (L, P, D)
        nn.init.trunc_normal_(self.values, std=START_STD)

    def enter(self, number: int, sequence: Tensor) -> Tensor:
        prompts = self.values[number - self.first].to(sequence.dtype).expand(sequence.shape[0], -1, -1)  # (n, P, D)
        behind = self.prefix + (0 if number == self.first else self.extra)  # earlier prompts are dropped
        return torch.cat([sequence[:, : self.prefix], prompts, sequence[:, behind:]], dim=1)
