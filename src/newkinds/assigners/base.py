"""What an assigner is: fitted once to all training images, it gives every image a category."""

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ..errors import NewkindsError
from ..registry import Registry


class CannotAssign(NewkindsError):
    """A way that cannot find categories in these data; another one may."""


@dataclass(frozen=True)
class Assignment:
    """The category of each image: 0..C-1 are the known classes, the rest are new."""

    category: Tensor  # (n,) int64
    confidence: Tensor  # (n,) in [0, 1]
    unlike: Tensor | None = None  # (n,) distance to its category; above 1: unlike every category. None: not calibrated

    @classmethod
    def of_logits(cls, logits: Tensor, temperature: float = 0.1, category: Tensor | None = None) -> Self:
        """The largest of the logits (n, K), -inf for a category without members; or a given `category` (n,).

        Its share of the softmax is a confidence that is not calibrated, see `Calibration`.
        """
        if bad := int((~logits.amax(dim=1).isfinite()).sum()):  # a maximum over NaN is NaN
            raise CannotAssign(
                f"the assigner gives {bad} of {len(logits)} images no finite score for any category, so they belong "
                "nowhere: choose another one (--assigner), or look at its settings."
            )
        shares = (logits / temperature).softmax(dim=1)
        if category is not None:
            return cls(category=category, confidence=shares.gather(1, category[:, None])[:, 0])
        return cls(category=logits.argmax(dim=1), confidence=shares.amax(dim=1))


class SizedByState(nn.Module):
    """A module whose buffers get their size when they are fitted, or when a saved state is loaded."""

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, buffer in list(self.named_buffers(recurse=False)):
            if (saved := state.get(prefix + name)) is not None:
                setattr(self, name, torch.empty_like(saved, device=buffer.device))
        super()._load_from_state_dict(state, prefix, *rest)


class Assigner(nn.Module, ABC):
    """Built as `Assigner(dim, known, categories, **settings)`; the three are given by position alone, and every
    keyword argument is a setting (`--set assigner.name=value`).

    >>> assigner = ASSIGNERS["sskmeans"](384, 100, 200, restarts=5)
    >>> assigner.fit(embedding, labels)                # (n, 384) unit rows, (n,) classes, -1: none
    >>> Assignment.of_logits(assigner(embedding), assigner.temperature).category
    """

    learnt: ClassVar[bool] = False  # by a method's loss: nothing is left to fit
    begins: ClassVar[bool] = True  # finds categories by itself, rather than going on from what was learnt or found
    most_images: ClassVar[int | None] = None  # beyond which nobody is advised to take it: it compares all pairs
    temperature: float = 0.1  # of the softmax that turns logits into a confidence
    note: str = ""  # what `fit` chose, for the protocol

    def __init__(self, dim: int, known: int, categories: int, /) -> None:
        """`dim` of the embedding, `known` classes with labels, `categories` in total (known and new)."""
        super().__init__()
        self.known = known
        self.categories = categories

    @abstractmethod
    def fit(self, embedding: Tensor, labels: Tensor) -> None:
        """Find the categories of all training images: unit rows (n, P), labels (n,; -1: none).

        What `forward` needs is kept in buffers, and so is saved. Random numbers come from torch's generator.
        """

    def trial(self, known: int, categories: int) -> Self:
        """One like this for other data with so many categories, by which this one is judged; not fitted yet."""
        other = deepcopy(self)
        other.known = known
        other.categories = categories
        for name, buffer in list(other.named_buffers(recurse=False)):
            if buffer.shape[:1] == (self.categories,):  # one row per category
                setattr(other, name, buffer.new_zeros(categories, *buffer.shape[1:]))
        return other

    @abstractmethod
    def forward(self, embedding: Tensor) -> Tensor:
        """Logits (n, K) of unit rows (n, P), of training images and of images never seen."""

    def logits(self, embedding: Tensor) -> Tensor:
        """What `forward` gives, as one piece of arithmetic that an export can write down: no look at the values of
        tensors, no loop over blocks of rows. To be overridden by an assigner whose `forward` does either."""
        return self(embedding)

    def own_space(self) -> tuple[Tensor, Tensor] | None:
        """Mean (P,) and map (P, P) of the whitened space in which it compares rows, if it has found one of its own."""
        return None

    def own_space_of(self, embedding: Tensor, cluster: Tensor, labelled: Tensor) -> tuple[Tensor, Tensor] | None:
        """As `own_space`, if it had found these unit rows (n, P) in these clusters (n,); `labelled` (n,): which of them
        have a label."""
        return None

    def require_fitted(self, fitted: bool) -> None:
        if not fitted:
            raise NewkindsError(
                "the categories are found by clustering after the last epoch, which has not happened yet: "
                "finish the training first."
            )


def draw_seed() -> int:
    """A seed for scikit-learn's generators, from torch's."""
    return int(torch.randint(2**31, ()))


ASSIGNERS: Registry[type[Assigner]] = Registry("assigner")
