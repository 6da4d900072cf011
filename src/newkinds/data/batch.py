"""What a training step sees."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pixels:
    """Views of images as they were cropped; the encoder normalises them."""

    values: Tensor  # (n, 3, H, W) uint8


@dataclass(frozen=True)
class CachedTokens:
    """What enters the backbone's first trained block for as many views, from a cache."""

    values: Tensor  # (n, T, D) float16 or float32


@dataclass(frozen=True)
class CachedSlots:
    """Class tokens, and what an organizer that does not train there made of the patches (see `Organizer.slots`)."""

    values: Tensor  # (n, 1 + S, D) float16


@dataclass(frozen=True)
class Batch:
    """B images in V random views. Rows of `inputs` are view-major: partner of row i is (i + B) mod 2B."""

    inputs: Pixels | CachedTokens | CachedSlots  # n = V·B
    labels: Tensor  # (B,) known class 0..C-1, or -1 if there is no label
    index: Tensor  # (B,) row of the table, for methods that remember images between steps

    def to(self, device: torch.device) -> "Batch":
        inputs = type(self.inputs)(self.inputs.values.to(device))
        return Batch(inputs, self.labels.to(device), self.index.to(device))
