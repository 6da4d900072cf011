"""What an organizer is: tokens in, the image feature out; its keyword arguments are its settings."""

from abc import ABC, abstractmethod

from torch import nn

from ...registry import Registry
from ..tokens import Encoded, Tokens


class Organizer(nn.Module, ABC):
    """Built as `Organizer(dim, **settings)`; every keyword argument is a setting (`--set organizer.name=value`)."""

    reads_patches = True  # without details; False spares the backbone all that only the patch tokens need
    starts_from_tokens = False  # whether `start` is to be called; it needs tokens of some training images

    def start(self, tokens: Tokens) -> None:
        """Once, before training, with tokens of a sample of the training images: a start that fits them."""

    @abstractmethod
    def organize(self, tokens: Tokens, details: bool = False) -> Encoded:
        """The image feature; with `details` also the refined tokens and the field, which cost extra."""


ORGANIZERS: Registry[type[Organizer]] = Registry("organizer")
