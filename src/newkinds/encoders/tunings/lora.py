"""Low-rank changes of frozen weights. Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Wang, Chen: LoRA. ICLR 2022."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ...settings import AtLeastOne, Positive
from .base import TUNINGS, Anatomy, Compute, Tuning, last_blocks, require_vit

QKV = "attn.qkv"


@TUNINGS.register("lora")
class LoRA(Tuning):
    """W + scale · B A in the place of the attention's query, key and value maps, with B = 0 at the start.

    In the last `blocks` blocks; those before can be cached. Usually with `--set backbone.train_blocks=0`.
    """

    def __init__(
        self, anatomy: Anatomy, /, rank: AtLeastOne = 8, scale: Positive = 1.0, blocks: AtLeastOne | None = 4
    ) -> None:
        super().__init__(anatomy)
        require_vit("lora", anatomy)
        self.first = last_blocks(anatomy, blocks)
        self.scale = scale
        changed = anatomy.blocks - self.first
        self.down = nn.Parameter(torch.empty(changed, rank, anatomy.dim))  # A
        self.up = nn.Parameter(torch.zeros(changed, 3 * anatomy.dim, rank))  # B
        nn.init.normal_(self.down, std=anatomy.dim**-0.5)

    def through(self, number: int, block: nn.Module, compute: Compute, sequence: Tensor) -> Tensor:
        change = self.scale * self.up[number - self.first] @ self.down[number - self.first]  # (3D, D)
        qkv: Any = block.get_submodule(QKV)  # not get_parameter: the weight of an averaged teacher is none
        return functional_call(_Computed(block, compute), {f"block.{QKV}.weight": qkv.weight + change}, (sequence,))


class _Computed(nn.Module):
    """A function of a block as a module, so that it can be called with other weights."""

    def __init__(self, block: nn.Module, compute: Compute) -> None:
        super().__init__()
        self.block = block
        self.compute = compute

    def forward(self, sequence: Tensor) -> Tensor:
        return self.compute(self.block, sequence)
