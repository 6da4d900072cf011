"""The organizers without parameters: the class token alone, and the class token plus the mean patch."""

from dataclasses import replace

from ..tokens import Encoded, Tokens
from .base import ORGANIZERS, Organizer


@ORGANIZERS.register("none")
class ClassToken(Organizer):
    """The host alone: the feature is the class token."""

    reads_patches = False

    def __init__(self, dim: int) -> None:
        super().__init__()

    def organize(self, tokens: Tokens, details: bool = False) -> Encoded:
        if not details:
            return Encoded(tokens.cls)
        return Encoded(tokens.cls, tokens=tokens.patches, grid=tokens.grid)


@ORGANIZERS.register("patches")
class PooledPatches(ClassToken):
    """CLS + mean X, the control without parameters: what an organizer gains beyond this comes from organizing."""

    reads_patches = True

    def organize(self, tokens: Tokens, details: bool = False) -> Encoded:
        encoded = super().organize(tokens, details)
        return replace(encoded, feature=tokens.cls + tokens.patches.mean(dim=1))
