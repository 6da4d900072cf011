"""Mixed precision: where it is used, and the few products that half precision would spoil."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from .errors import NewkindsError


@contextmanager
def full_precision(x: Tensor) -> Iterator[Tensor]:
    """The tensor in at least float32, with autocast off inside the block; float64 stays float64.

    Casting alone is not enough: under autocast a product of two float32 matrices is again rounded to
    half precision. Cosines divided by a temperature of 0.04 turn bfloat16's error of 1/256 into 0.1.

    >>> with full_precision(features) as x:
    ...     similarity = x @ x.T
    """
    device = x.device.type
    off = torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()
    with off:
        yield x.to(torch.promote_types(x.dtype, torch.float32))


class Precision:
    """Mixed precision for the encoder; losses stay in float32.

    "auto" is bfloat16 on CUDA (float16 where the card lacks it) and float32 elsewhere, where half precision
    gains nothing (CPU) or was never tested by us (MPS).
    """

    def __init__(self, name: str, device: torch.device) -> None:
        if name == "auto":
            if device.type != "cuda":
                name = "float32"
            else:
                name = "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
        if name == "float16" and device.type == "cpu":
            raise NewkindsError("train.precision=float16 needs a GPU; use auto, float32 or bfloat16.")
        self.device = device
        self.dtype: torch.dtype = getattr(torch, name)
        # float16 gradients underflow without scaling; bfloat16 has float32's range
        self.scaler = torch.amp.GradScaler(device.type, enabled=name == "float16")

    def autocast(self) -> AbstractContextManager[object]:
        if self.dtype is torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.dtype)
