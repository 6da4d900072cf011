"""The few products that half precision would spoil."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor


@contextmanager
def full_precision(x: Tensor) -> Iterator[Tensor]:
    """The tensor in at least float32, with autocast off inside the block; float64 stays float64.

    Casting alone is not enough: under autocast a product of two float32 matrices is again rounded to
    half precision. Cosines divided by a temperature of 0.04 turn bfloat16's error of 1/256 into 0.1.

    >>> with full_precision(features) as x:
    ...     similarity = x @ x.T
    """
    device = x.device.type
    on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    off = torch.autocast(device, enabled=False) if on else nullcontext()
    with off:
        yield x.to(torch.promote_types(x.dtype, torch.float32))
