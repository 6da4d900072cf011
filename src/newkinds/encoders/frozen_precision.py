"""In which precision frozen blocks are computed: bfloat16 where the processor multiplies it natively.

Nothing is learnt in these blocks, so rounding does not add up over steps: features of DINOv2 ViT-S/14 keep a cosine of
.9998 to those in float32 on average, and a pass takes a half to a third of the time (results/cost.md)."""

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Literal

import torch

FrozenPrecision = Literal["auto", "float32", "bfloat16"]


def frozen_dtype(wanted: FrozenPrecision) -> torch.dtype:
    """The type in which frozen blocks multiply; auto: what suits this machine.

    >>> frozen_dtype("bfloat16")
    torch.bfloat16
    """
    if wanted == "auto":
        return torch.bfloat16 if multiplies_bfloat16() else torch.float32
    return torch.bfloat16 if wanted == "bfloat16" else torch.float32


@lru_cache
def multiplies_bfloat16() -> bool:
    """Whether this machine computes on a CPU that has instructions for bfloat16 (AVX-512 BF16 or AMX).

    Other CPUs emulate them, slower than float32. On a machine with a GPU nothing changes: there it was not measured.
    """
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        return False
    asked = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(ask() for ask in asked if ask is not None)


def computing_in(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """While it is open, products are computed in this type; sums of a block and what it is given stay float32."""
    return nullcontext() if dtype is torch.float32 else torch.autocast(device.type, dtype)
