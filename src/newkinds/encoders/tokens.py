"""What goes from a backbone to an organizer, and from there to everything else."""

import dataclasses
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Tokens:
    """What a backbone gives for a batch of images, after its final norm."""

    cls: Tensor  # (B, D)
    patches: Tensor  # (B, N, D), row by row over the grid; N = 0 if nobody reads them
    grid: tuple[int, int]  # rows, columns; N = rows · columns
    prompts: Tensor | None = None  # (B, P, D) what a tuning's extra tokens became, if it has some and patches are read


@dataclass(frozen=True)
class Encoded:
    """What an encoder gives: always the feature, the rest if it was requested or exists."""

    feature: Tensor  # (B, D), what every head, bank and clustering sees
    tokens: Tensor | None = None  # (B, N, D) refined patch tokens, with details
    field: Tensor | None = None  # (B, N, M) share of each primitive (part, slot) in each token, with details
    grid: tuple[int, int] | None = None  # how the N tokens lie on the image, with details
    prompts: Tensor | None = None  # (B, P, D) see `Tokens.prompts`; for methods that read them
    slots: Tensor | None = None  # (B, M, D) one vector per primitive, part or slot; in training and with details
    filled: Tensor | None = None  # (B, M) whether a slot holds anything; None: all do
    losses: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # found on the way: see `Organizer.loss`
