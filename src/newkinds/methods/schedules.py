"""Values that change from epoch to epoch, as pure functions of the (0-based) epoch."""

import math


def cosine_lr(epoch: int, epochs: int, lr: float, min_ratio: float = 1e-3) -> float:
    """Learning rate of an epoch: half a cosine from `lr` down to `min_ratio * lr`, reached after the last.

    >>> [round(cosine_lr(e, epochs=200, lr=0.1), 6) for e in (0, 100, 199)]
    [0.1, 0.05005, 0.000106]
    """
    lowest = lr * min_ratio
    return lowest + (lr - lowest) * (1 + math.cos(math.pi * epoch / epochs)) / 2


def linear_then_constant(epoch: int, start: float, end: float, warmup: int) -> float:
    """From `start` at epoch 0 in equal steps to `end` at epoch `warmup - 1`, and `end` from there on.

    >>> [round(linear_then_constant(e, start=0.07, end=0.04, warmup=30), 4) for e in (0, 15, 29, 199)]
    [0.07, 0.0545, 0.04, 0.04]
    """
    if epoch >= warmup:
        return end
    return start + (end - start) * epoch / max(warmup - 1, 1)
