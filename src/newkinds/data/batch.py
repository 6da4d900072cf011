"""What a training step sees."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """B images in V random views. Rows of `views` are view-major: partner of row i is (i + B) mod 2B."""

    views: Tensor  # (V·B, 3, H, W)
    labels: Tensor  # (B,) known class 0..C-1, or -1 where there is no label
    index: Tensor  # (B,) row of the table, for methods that remember images between steps
