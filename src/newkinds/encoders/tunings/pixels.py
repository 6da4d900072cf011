"""Prompts in pixel space. Wang, Vaze, Han: SPTNet: An Efficient Alternative Framework for Generalized Category
Discovery with Spatial Prompt Tuning. ICLR 2024."""

from typing import Literal

import torch
from torch import Tensor, nn

from ...errors import NewkindsError
from ...settings import AtLeastOne, WholeNumber
from .base import TUNINGS, Anatomy, Tuning, Turn

FRAME_OF = 224  # the image size for which the width of the frame is given


@TUNINGS.register("pixels")
class PixelPrompts(Tuning):
    """Learnable pixels are added to every image: a ring inside each patch, a frame along the image's border, or both.

    For `alternate` steps the prompts train and all else waits, then the other way round. While all else trains, the two
    views of an image are one crop, without and with prompts. Every image is changed, so nothing can be cached.
    """

    inside: Tensor
    border: Tensor

    def __init__(
        self,
        anatomy: Anatomy,
        /,
        where: Literal["both", "patches", "frame"] = "both",
        ring: AtLeastOne = 1,  # pixels inside the border of each patch
        frame: AtLeastOne = 30,  # pixels along each side of an image of 224; other sizes have their share
        shared: bool = False,  # one ring for all patches
        alternate: WholeNumber = 20,  # steps; 0: all trains at once
        as_published: bool = False,  # turns begin anew with each epoch, and its first is one step shorter
    ) -> None:
        super().__init__(anatomy)
        self.first = 0
        self.alternate = alternate
        self.as_published = as_published
        self.pairs_views = alternate > 0
        size, patch = anatomy.size, anatomy.patch
        pixel = torch.arange(size)
        self.patches: nn.Parameter | None = None
        self.frame: nn.Parameter | None = None
        if where != "frame":
            if not patch:
                raise NewkindsError(
                    f"the backbone {anatomy.name} does not cut images into patches, so none has a place for prompts: "
                    "choose a ViT, or --set tuning.where=frame."
                )
            self.times = size // patch if shared else 1
            self.patches = nn.Parameter(torch.zeros(3, size // self.times, size // self.times))
            self.register_buffer("inside", _along_sides(pixel % patch, patch, ring), persistent=False)
        if where != "patches":
            width = max(round(frame * size / FRAME_OF), 1)
            self.frame = nn.Parameter(torch.zeros(3, size, size))
            self.register_buffer("border", _along_sides(pixel, size, width), persistent=False)

    def prompt(self) -> Tensor:
        """What is added to every image. (3, H, W)"""
        parts = []
        if self.patches is not None:
            parts.append(self.patches.repeat(1, self.times, self.times) * self.inside)
        if self.frame is not None:
            parts.append(self.frame * self.border)
        return torch.stack(parts).sum(dim=0)

    def turn(self, step: int, of_epoch: int) -> Turn:
        if not self.alternate:
            return "all"
        taken = of_epoch + 1 if self.as_published else step
        return "rest" if taken // self.alternate % 2 else "tuning"

    def images(self, images: Tensor) -> Tensor:
        if self.now != "rest":
            return images + self.prompt()
        first, _ = images.chunk(2)
        return torch.cat([first, first + self.prompt().detach()])


def _along_sides(place: Tensor, size: int, width: int) -> Tensor:
    """(n, n) 1 at pixels that are within `width` of a side of their square, 0 elsewhere; `place` (n,) in the square."""
    near = (place < width) | (place >= size - width)
    return (near[:, None] | near).float()
