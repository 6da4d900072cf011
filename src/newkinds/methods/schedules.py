"""Values that change from epoch to epoch, as pure functions of the (0-based) epoch."""

import math


def cosine(epoch: float, epochs: int, start: float, end: float) -> float:
    """Half a cosine from `start` to `end`, reached after the last epoch."""
    return end + (start - end) * (1 + math.cos(math.pi * epoch / epochs)) / 2


def cosine_lr(epoch: int, epochs: int, lr: float, min_ratio: float = 1e-3, cycle: int = 0) -> float:
    """Learning rate of an epoch, from `lr` down to `min_ratio * lr`; with a `cycle`, once every so many epochs."""
    if cycle:
        epoch, epochs = epoch % cycle, cycle
    return cosine(epoch, epochs, lr, lr * min_ratio)


def linear_then_constant(epoch: int, start: float, end: float, warmup: int) -> float:
    """From `start` at epoch 0 in equal steps to `end` at epoch `warmup - 1`, and `end` from there on."""
    if epoch >= warmup:
        return end
    return start + (end - start) * epoch / max(warmup - 1, 1)
