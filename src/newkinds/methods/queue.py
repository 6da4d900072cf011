"""What methods remember of earlier steps: the latest rows, with their labels."""

import torch
from torch import Tensor

from ..assigners.base import SizedByState
from ..console import warn
from ..settings import AtLeastOne


class Queue(SizedByState):
    """A ring of the latest `size` rows (size, dim) and their labels; saved with the weights, so that a kill loses none.

    >>> queue = Queue(4, 2)
    >>> queue.push(torch.ones(3, 2), torch.tensor([0, -1, 1]))
    >>> len(queue), queue.rows.shape
    (3, torch.Size([3, 2]))
    """

    ring: Tensor
    ring_labels: Tensor
    pushed: Tensor

    def __init__(self, size: AtLeastOne, dim: int) -> None:
        super().__init__()
        self.register_buffer("ring", torch.zeros(size, dim))
        self.register_buffer("ring_labels", torch.full((size,), -1))  # -1: none
        self.register_buffer("pushed", torch.zeros((), dtype=torch.long))  # rows so far

    def limit(self, images: int) -> None:
        """Before training: no more rows than there are training images, else it holds the same image several times."""
        if len(self.ring) > images:
            larger = f"a queue of {len(self.ring):,} rows is larger than the {images:,} training images"
            warn(f"{larger}: it holds {images:,}.")
            self.ring = self.ring[:images].clone()
            self.ring_labels = self.ring_labels[:images].clone()

    def __len__(self) -> int:
        return min(int(self.pushed), len(self.ring))

    @property
    def rows(self) -> Tensor:
        """(n, dim), in the order of the ring: once it is full, the oldest row is not the first."""
        return self.ring[: len(self)]

    @property
    def labels(self) -> Tensor:
        """(n,) of `rows`."""
        return self.ring_labels[: len(self)]

    @torch.no_grad()
    def push(self, rows: Tensor, labels: Tensor | None = None) -> None:
        """Rows (b, dim) in the place of the oldest; if there are more than it holds, the last of them."""
        size = len(self.ring)
        place = (int(self.pushed) + torch.arange(len(rows), device=self.ring.device))[-size:] % size
        self.ring[place] = rows[-size:].to(self.ring.dtype)
        self.ring_labels[place] = -1 if labels is None else labels[-size:]
        self.pushed += len(rows)

    def replaced(self, rows: Tensor, slot: int) -> Tensor:
        """`rows` of this queue with others (b, dim) in their slot: it has slots of b rows, after the last the first."""
        size = len(self.ring)
        rows = rows[-size:].to(self.ring.dtype)
        first = slot % (size // len(rows)) * len(rows)
        ring = torch.cat([self.ring[:first], rows, self.ring[first + len(rows) :]])
        return ring[: max(len(self), first + len(rows))]

    @torch.no_grad()
    def write(self, rows: Tensor) -> None:
        """What `replaced` gave, in the place of all rows."""
        self.ring[: len(rows)] = rows
        self.pushed.clamp_(min=len(rows))
