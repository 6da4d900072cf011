"""Values that change from epoch to epoch, as pure functions of the (0-based) epoch."""

import math


def cosine_lr(epoch: int, epochs: int, lr: float, min_ratio: float = 1e-3) -> float:
    """Learning rate of an epoch: half a cosine from `lr` down to `min_ratio * lr`, reached after the last."""
    lowest = lr * min_ratio
    return lowest + (lr - lowest) * (1 + math.cos(math.pi * epoch / epochs)) / 2


def linear_then_constant(epoch: int, start: float, end: float, warmup: int) -> float:
    """From `start` at epoch 0 in equal steps to `end` at epoch `warmup - 1`, and `end` from there on."""
    if epoch >= warmup:
        return end
    return start + (end - start) * epoch / max(warmup - 1, 1)
