"""Several arrays as one, of which only the rows that are asked for are read."""

from collections.abc import Sequence
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from .errors import NewkindsError


class Shards:
    """Arrays or .npy files whose rows follow one another. Files stay on the disk until their rows are read.

    `starts`: the number of the first row of each, ascending, if there are rows between them that are nowhere.

    >>> KMeans(100, random_state=0).fit(Shards(["part-0.npy", "part-1.npy"])).labels_
    """

    def __init__(self, parts: Sequence[str | PathLike[str] | NDArray], starts: Sequence[int] | None = None) -> None:
        self.parts = [_opened(part) for part in parts]
        if len({part.shape[1:] for part in self.parts}) != 1 or self.parts[0].ndim < 2:
            shapes = ", ".join(str(part.shape) for part in self.parts) or "none at all"
            raise NewkindsError(f"shards are tables (points, features) of the same width, not {shapes}.")
        ends = np.cumsum([len(part) for part in self.parts])
        self.starts = np.concatenate([[0], ends[:-1]]) if starts is None else np.asarray(starts)  # (parts,)
        self.shape = (int(self.starts[-1]) + len(self.parts[-1]), *self.parts[0].shape[1:])
        self.dtype = np.result_type(*(part.dtype for part in self.parts))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NDArray:
        """The rows (m, …) of a slice, or of numbers (m,) in any order."""
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        part_of = np.searchsorted(self.starts, numbers, side="right") - 1  # (m,) the last that starts before it
        used = np.unique(part_of)
        if len(used) == 1:
            return np.take(self.parts[used[0]], numbers - self.starts[used[0]], axis=0).astype(self.dtype, copy=False)
        taken = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        for part in used:
            here = part_of == part
            taken[here] = self.parts[part][numbers[here] - self.starts[part]]
        return taken


def _opened(part: str | PathLike[str] | NDArray) -> NDArray:
    if not isinstance(part, (str, PathLike)):
        return part
    try:
        return np.lib.format.open_memmap(part, mode="r")
    except Exception as error:  # the header is read as Python: a damaged one can fail in any way
        raise NewkindsError(f"{part} is no table of numbers ({error}): write one by np.save(FILE, X).") from None
