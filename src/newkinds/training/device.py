"""Which device to compute on, in which precision, and how many processes feed it."""

import os
from contextlib import AbstractContextManager, nullcontext

import torch

from ..errors import NewkindsError


def choose_device(name: str = "auto") -> torch.device:
    """CUDA, else MPS, else CPU; or the named device, if it can be used."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError("it holds no values")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise NewkindsError(f"the device '{name}' cannot be used: {reason}. Try --device auto.") from None
    return device


def choose_workers(workers: int, device: torch.device) -> int:
    """Reading processes: a GPU must be fed; on a CPU the network needs the cores itself."""
    if workers >= 0:
        return workers
    return min(8, os.cpu_count() or 1) if device.type == "cuda" else 0


class MixedPrecision:
    """Mixed precision for the encoder; losses stay in float32.

    "auto" is bfloat16 on CUDA (float16 if the card lacks it) and float32 elsewhere, where half precision
    gains nothing (CPU) or was never tested by us (MPS).
    """

    def __init__(self, name: str, device: torch.device) -> None:
        if name == "auto" and device.type == "cuda":
            name = "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
        elif name == "auto":
            name = "float32"
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
