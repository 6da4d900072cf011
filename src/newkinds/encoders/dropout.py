"""Dropout that does not depend on how many processes share a batch: it is drawn for all images of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch.nn.functional as F
from torch import Tensor

_batch: ContextVar[tuple[int, slice] | None] = ContextVar("batch", default=None)  # images in all, and which are here


@contextmanager
def drawing_for(images: int, here: slice) -> Iterator[None]:
    """While it is open, rows are views of the images `here` of a batch of so many."""
    token = _batch.set((images, here))
    try:
        yield
    finally:
        _batch.reset(token)


def dropout(rows: Tensor, share: float, training: bool) -> Tensor:
    """`F.dropout` of view-major rows (V·b, …), as it would be for the rows (V·B, …) of the whole batch."""
    batch = _batch.get()
    if batch is None or not training or not share:
        return F.dropout(rows, share, training)
    images, here = batch
    views = len(rows) // (here.stop - here.start)
    kept = F.dropout(rows.new_ones(views, images, *rows.shape[1:]), share, training)[:, here]
    return rows * kept.flatten(0, 1)
