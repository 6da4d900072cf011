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


Inputs = Pixels | CachedTokens | CachedSlots


@dataclass(frozen=True)
class Batch:
    """B images in V random views. Rows of `inputs` are view-major: partner of row i is (i + B) mod 2B."""

    inputs: Inputs  # n = V·B
    labels: Tensor  # (B,) known class 0..C-1, or -1 if there is no label
    index: Tensor  # (B,) row of the table, for methods that remember images between steps
    for_teacher: Inputs | None = None  # the views of the averaged model, if it has its own (see `ViewPlan`)
    whole: int | None = None  # if this is one process's share of a batch: how many images all processes have

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device. A GPU is not waited for: what a loader has pinned is copied while it computes."""
        at_once = device.type == "cuda"
        inputs, for_teacher = _to(self.inputs, device), self.for_teacher and _to(self.for_teacher, device)
        labels, index = (rows.to(device, non_blocking=at_once) for rows in (self.labels, self.index))
        return Batch(inputs, labels, index, for_teacher, self.whole)


def split_views(inputs: Inputs, views: int, others: int) -> tuple[Inputs, Inputs | None]:
    """View-major rows of `views` views and of `others` more, apart."""
    if not others:
        return inputs, None
    first = len(inputs.values) // (views + others) * views
    return type(inputs)(inputs.values[:first]), type(inputs)(inputs.values[first:])


def _to(inputs: Inputs, device: torch.device) -> Inputs:
    return type(inputs)(inputs.values.to(device, non_blocking=device.type == "cuda"))
