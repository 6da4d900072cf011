"""Which device to compute on, and how many processes feed it."""

from __future__ import annotations

import ctypes
import os
import platform

import torch

from ..errors import NewkindsError


def choose_device(name: str = "auto") -> torch.device:
    """CUDA, else MPS, else CPU; or the device asked for, if it is there. A CPU is made ready for it."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise NewkindsError(f"the device '{name}' cannot be used: {reason}. Try --device auto.") from None
    if device.type == "cpu":
        _keep_freed_memory()
    return device


def _keep_freed_memory() -> None:
    """Let the process reuse the memory of one step in the next.

    Linux's C library gives large blocks back to the system as soon as they are freed, and gets them again page by
    page, filled with zeros. In a training step on the CPU, which frees all its activations, that takes up to half of
    the time.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD, M_MMAP_MAX of malloc.h
        libc.mallopt(mmap_max, 0)  # no block is one of its own, which is given back when freed
        libc.mallopt(trim_threshold, -1)  # nor is the end of the heap, however large


def choose_workers(workers: int, device: torch.device) -> int:
    """Reading processes: a GPU must be fed; on a CPU the network needs the cores itself."""
    if workers >= 0:
        return workers
    return min(8, os.cpu_count() or 1) if device.type == "cuda" else 0
