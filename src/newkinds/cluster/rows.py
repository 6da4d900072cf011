"""Points that are looked at a block at a time: in memory, or in files that are larger than it."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

NUMBERS_AT_ONCE = 2**22  # of a block: 16 MB in float32
HELD = 2**31  # bytes: fewer are read once and kept
FLOATS = (torch.float32, torch.float64)


class Source(Protocol):
    """What rows are read from: an array that stays on the disk, for instance."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


class Rows:
    """Points (n, D) to compute with: some rows of a source, less a shift. Each block is read when it is its turn.

    A tensor is worked on where it is, and its blocks are views.
    """

    def __init__(
        self, source: Tensor | Source, chosen: Tensor | None = None, shift: Tensor | None = None,
        spare: list[Tensor] | None = None,
    ) -> None:  # fmt: skip
        self.source = source
        self.chosen = chosen  # (n,) rows of the source; None: all
        self.shift = shift  # (D,)
        self.shape = (source.shape[0] if chosen is None else len(chosen), source.shape[1])
        self.device = source.device if isinstance(source, Tensor) else torch.device("cpu")
        own = getattr(torch, str(getattr(source, "dtype", "")).removeprefix("torch."), None)
        self.dtype: torch.dtype = own if own in FLOATS else torch.float32
        # Memory for blocks that nobody uses now. Taken anew each time, between small results that stay, it adds up:
        # the allocator finds no place as large as before.
        self._spare: list[Tensor] = [] if spare is None else spare

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def block(self) -> int:
        """Rows in a block, if nobody says otherwise."""
        return max(1, NUMBERS_AT_ONCE // self.shape[1])

    def split(self, rows: int | None = None) -> Iterator[Tensor]:
        """The points in blocks of so many rows, as `Tensor.split` gives them: of no points, an empty one.

        A block that had to be read or computed is overwritten by the next.
        """
        size, held = rows or self.block, None
        if not self._is_plain:
            wanted = min(size, self.source.shape[0])
            fitting = [place for place, spare in enumerate(self._spare) if len(spare) >= wanted]
            held = self._spare.pop(fitting[-1]) if fitting else torch.empty(
                wanted, self.shape[1], dtype=self.dtype, device=self.device
            )  # fmt: skip
        try:
            for start in range(0, max(len(self), 1), size):
                yield self._read(slice(start, start + size), held)
        finally:
            if held is not None:
                self._spare.append(held)

    def beside(self, values: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The points in blocks, each with what belongs to them of `values` (n, …)."""
        return zip(self.split(), values.split(self.block), strict=True)

    def _read(self, rows: slice, held: Tensor | None) -> Tensor:
        found = self.source[rows if self.chosen is None else _index(self.source, self.chosen[rows])]
        if held is None:
            return found
        block = held[: len(found)]
        if isinstance(found, Tensor):
            block.copy_(found)
        else:
            np.copyto(block.numpy(), found, casting="unsafe")
        return block if self.shift is None else block.sub_(self.shift)

    def __getitem__(self, some: Tensor) -> Self:
        """The points of a mask (n,) or at ascending places (m,), which are read when they are needed."""
        places = some.nonzero()[:, 0] if some.dtype == torch.bool else some
        if self._is_plain:
            return type(self)(self.whole()[places])
        chosen = places if self.chosen is None else self.chosen[places]
        return type(self)(self.source, chosen, self.shift, self._spare)

    def less(self, shift: Tensor) -> Self:
        """The points relative to another origin (D,)."""
        return type(self)(self.source, self.chosen, shift if self.shift is None else self.shift + shift, self._spare)

    def mean(self, dtype: torch.dtype | None = None) -> Tensor:  # (D,)
        total = torch.zeros(self.shape[1], dtype=torch.float64, device=self.device)
        for block in self.split():
            total += block.sum(dim=0, dtype=torch.float64)
        return (total / len(self)).to(dtype or self.dtype)

    def sums(self, group: Tensor, groups: int, dtype: torch.dtype | None = None) -> Tensor:  # (groups, D)
        """The sum of the points of each group, (n,) 0, 1, …"""
        sums = torch.zeros(groups, self.shape[1], dtype=dtype or self.dtype, device=self.device)
        for block, own in self.beside(group):
            sums.index_add_(0, own, block.to(sums.dtype))
        return sums

    @property
    def _is_plain(self) -> bool:
        return isinstance(self.source, Tensor) and self.source.dtype == self.dtype and self.chosen is self.shift is None

    def whole(self) -> Tensor:  # (n, D)
        """All points at once."""
        if self._is_plain:
            assert isinstance(self.source, Tensor)
            return self.source
        blocks = self.split()
        whole = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for place in whole.split(self.block):
            place.copy_(next(blocks))
        return whole

    def hold(self) -> Self:
        """All points at once if they are not too many: then nothing is read or computed twice."""
        size = self.shape[0] * self.shape[1] * self.dtype.itemsize
        return type(self)(self.whole()) if size <= HELD else self


def _index(source: Tensor | Source, places: Tensor) -> Tensor | NDArray[np.int64]:
    return places if isinstance(source, Tensor) else places.cpu().numpy()
