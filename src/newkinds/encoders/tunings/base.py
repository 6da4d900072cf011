"""What a tuning is: something small that trains inside or in front of a backbone, whose own weights may stay frozen."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from ...errors import NewkindsError
from ...registry import Registry

# who trains in a step: all that trains, the tuning alone, or all but the tuning
Turn = Literal["all", "tuning", "rest"]
Compute = Callable[[Any, Tensor], Tensor]  # (block, its input) → its output, or a part of it


@dataclass(frozen=True)
class Anatomy:
    """What a tuning must know of its backbone."""

    name: str
    dim: int
    size: int  # of the images in pixels
    blocks: int = 0  # that can be computed one by one: those of a plain ViT; 0: none
    prefix: int = 0  # class and register tokens
    patch: int | None = None  # pixels along one side; None: the network does not cut images into patches


class Tuning(nn.Module):
    """Built as `Tuning(anatomy, **settings)`; every keyword argument is a setting (`--set tuning.name=value`).

    >>> build_backbone("tiny", tuning={"name": "prompts", "count": 5})
    """

    first: int  # the first block that depends on what trains here; 0: nothing of the backbone can be cached
    extra: int = 0  # tokens it adds to the sequence, behind class and register tokens
    pairs_views: bool = False  # whether in training it wants two views of every image, view-major
    now: Turn = "all"  # whose turn it is; set for the time of a training step

    def __init__(self, anatomy: Anatomy, /) -> None:
        super().__init__()
        self.first = anatomy.blocks

    def turn(self, step: int, of_epoch: int) -> Turn:
        """Who trains in a step, by its number since training began and in its epoch, both from 0."""
        return "all"

    def images(self, images: Tensor) -> Tensor:
        """Normalised images (n, 3, H, W) as the backbone sees them."""
        return images

    def enter(self, number: int, sequence: Tensor) -> Tensor:
        """The tokens (n, T, D) that enter the block with this number, from `first` on."""
        return sequence

    def through(self, number: int, block: nn.Module, compute: Compute, sequence: Tensor) -> Tensor:
        """What `compute` makes of a block and its input (n, T, D)."""
        return compute(block, sequence)


def require_vit(tuning: str, anatomy: Anatomy) -> None:
    if not anatomy.blocks:
        raise NewkindsError(
            f"the tuning '{tuning}' works inside the blocks of a plain ViT, which the backbone {anatomy.name} is not: "
            "choose a ViT (`newkinds list backbones`), or another tuning or method."
        )


def last_blocks(anatomy: Anatomy, count: int | None) -> int:
    """The number of the first of the last `count` blocks; all of them if there are fewer, or if it is None."""
    return 0 if count is None else max(anatomy.blocks - count, 0)


TUNINGS: Registry[type[Tuning]] = Registry("tuning")


@TUNINGS.register("blocks")
class LastBlocks(Tuning):
    """Nothing beside the last blocks, of which `backbone.train_blocks` train."""
