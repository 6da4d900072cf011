"""Slots of an organizer that does not train before them, computed once: a step then reads a few vectors per view."""

import numpy as np
import torch
from torch import Tensor

from ..console import track
from ..data.batch import CachedSlots
from ..data.loader import ViewStore
from ..data.table import Table
from ..encoders.encoder import Encoder
from .cache import BATCH


class SlotStore:
    """Class token and slots of every view of a cache, in memory."""

    def __init__(self, encoder: Encoder, cache: ViewStore, table: Table) -> None:
        self.cache = cache
        self.random_views = cache.random_views
        self.kinds = cache.kinds
        self._rows = rows = np.unique(cache.rows_of(table))  # of the cache, in order
        views = [np.full(len(rows), number) for number in range(self.random_views + 1)]
        every = np.stack([np.tile(rows, len(views)), np.concatenate(views)])  # (2, views · n)
        chunks = [every[:, start : start + BATCH] for start in range(0, every.shape[1], BATCH)]
        computed = [
            self._compute(encoder, *chunk)
            for chunk in track(chunks, "reading the primitives of all views", total=len(chunks))
        ]
        self._slots = torch.cat(computed).unflatten(0, (len(views), len(rows)))  # (views, n, 1 + S, D)

    @torch.inference_mode()
    def _compute(self, encoder: Encoder, rows: np.ndarray, numbers: np.ndarray) -> Tensor:
        inputs = self.cache.inputs(rows, numbers)
        device = next(encoder.parameters()).device
        tokens = encoder.tokens(type(inputs)(inputs.values.to(device)))
        return torch.cat([tokens.cls[:, None], encoder.organizer.slots(tokens)], dim=1).half().cpu()

    def rows_of(self, table: Table) -> np.ndarray:
        return self.cache.rows_of(table)

    def holds(self, table: Table) -> bool:
        return self.cache.holds(table) and bool(np.isin(self.cache.rows_of(table), self._rows).all())

    def inputs(self, rows: np.ndarray, numbers: np.ndarray) -> CachedSlots:
        places = torch.as_tensor(np.searchsorted(self._rows, rows))
        return CachedSlots(self._slots[torch.as_tensor(numbers), places])


def with_slots(encoder: Encoder, cache: ViewStore | None, table: Table) -> ViewStore | None:
    """The slots of a cache's tokens, if nothing trains before them, else the cache."""
    if cache is None or not encoder.organizer.fixed_slots or not encoder.backbone.is_fixed:
        return cache
    return SlotStore(encoder.eval(), cache, table)
