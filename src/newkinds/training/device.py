"""Which device to compute on, in which precision, and how many processes feed it."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from ..errors import NewkindsError
from ..process import sharing_machine
from ..runs.config import TrainConfig


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
    """Reading processes: a GPU must be fed; on a CPU the network needs the cores itself.

    `workers` are those of the machine: the processes that work on it for one command (torchrun, --jobs) share them.
    """
    if workers < 0:
        workers = min(8, os.cpu_count() or 1) if device.type == "cuda" else 0
    return max(1, workers // sharing_machine()) if workers else 0


@contextmanager
def compute_as(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """While it is open, torch computes as the settings say; afterwards as before."""
    deterministic, warns = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    product, convolution = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    searches = torch.backends.cudnn.benchmark
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else products on a GPU are refused
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)
    if config.tf32 and device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        if config.deterministic:  # else it would import torch's compiler
            torch.use_deterministic_algorithms(deterministic, warn_only=warns)
            torch.backends.cudnn.benchmark = searches
        if config.tf32 and device.type == "cuda":
            torch.set_float32_matmul_precision(product)
            torch.backends.cudnn.allow_tf32 = convolution


class MixedPrecision:
    """Mixed precision for the encoder; losses stay in float32.

    "auto" is bfloat16 on CUDA (float16 if the card lacks it) and float32 elsewhere, where training in half precision
    was never tested by us. Blocks that do not train have a setting of their own, `backbone.precision`.
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
