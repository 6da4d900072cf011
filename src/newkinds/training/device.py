"""Which device to compute on, and how many processes feed it."""

import os

import torch

from ..errors import NewkindsError


def choose_device(name: str = "auto") -> torch.device:
    """CUDA, else MPS, else CPU; or the named device, if it can be used."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
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
