"""What an organizer is: tokens in, the image feature out; its keyword arguments are its settings."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from ...registry import Registry
from ..tokens import Encoded, Tokens


class Organizer(nn.Module, ABC):
    """Built as `Organizer(dim, **settings)`; every keyword argument is a setting (`--set organizer.name=value`)."""

    title: str  # what tables call it; by default the name by which it is registered
    reads_patches = True  # without details; False spares the backbone all that only the patch tokens need
    starts_from_tokens = False  # whether `start` is to be called; it needs tokens of some training images

    fixed_slots = False  # whether nothing trains before `slots`, which are then computed once for every cached view

    def slots(self, tokens: Tokens) -> Tensor:
        """What the patches are summed up to, (B, S, D); for organizers that read nothing else of them."""
        raise NotImplementedError(f"{type(self).__name__} has no slots")

    def read_slots(self, cls: Tensor, slots: Tensor) -> Tensor:
        """The image feature (B, D) from class tokens (B, D) and slots (B, S, D)."""
        raise NotImplementedError(f"{type(self).__name__} has no slots")

    def start(self, tokens: Tokens) -> None:
        """Once, before training, with tokens of a sample of the training images: a start that fits them."""

    def loss(self, encoded: Encoded, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """Losses of its own, weighted, which are added to the method's in training and logged as `organizer/NAME`.

        `encoded` holds V views of B images, view-major; `labels` (B,; -1: none). By default what `organize` found.
        """
        return encoded.losses

    @abstractmethod
    def organize(self, tokens: Tokens, details: bool = False) -> Encoded:
        """The image feature; with `details` also the refined tokens and the field, which cost extra."""


ORGANIZERS: Registry[type[Organizer]] = Registry("organizer")
