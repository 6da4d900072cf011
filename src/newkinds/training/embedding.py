"""Features of all images of a table, and the fields of a few."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..console import track
from ..data.batch import CachedTokens, Pixels
from ..data.loader import evaluation_batches
from ..data.table import Skipped, Table
from ..encoders.encoder import Encoder
from .cache import TokenCache
from .device import choose_workers


@dataclass(frozen=True)
class Embedded:
    """Features of the images of a table that could be read."""

    features: Tensor  # (n, D) float32 on the CPU
    rows: list[int]  # which rows of the table they are
    skipped: list[Skipped]  # the others, with the reason


@dataclass(frozen=True)
class Fields:
    """Where each primitive is active in a few images."""

    views: np.ndarray  # (n, H, W, 3) uint8, what the encoder saw
    shares: np.ndarray  # (n, N, M)
    grid: tuple[int, int]


@torch.inference_mode()
def embed(
    encoder: Encoder,
    table: Table,
    device: torch.device,
    batch_size: int = 64,
    workers: int = -1,
    cache: TokenCache | None = None,
) -> Embedded:
    """The feature of every image of a table, trained encoder or not; unreadable images are skipped and listed.

    With a cache that holds them, the images themselves are not read again.
    """
    encoder.to(device).eval()
    features = [torch.empty(0, encoder.dim)]  # of no image at all
    rows: list[int] = []
    skipped: list[Skipped] = []
    inputs: Iterator[Pixels | CachedTokens]
    if cache is not None and cache.holds(table):
        places = cache.rows_of(table)
        chunks = [places[start : start + batch_size] for start in range(0, len(places), batch_size)]
        inputs = (CachedTokens(cache.take(some, np.zeros_like(some))) for some in chunks)
        rows, steps = list(range(len(table))), len(chunks)
    else:
        loader = evaluation_batches(table, encoder.backbone.preprocessing, batch_size, choose_workers(workers, device))
        inputs, steps = (_readable(batch, table, rows, skipped) for batch in loader), len(loader)
    for some in track(inputs, "embedding images", total=steps):
        if len(some.values):
            features.append(encoder(type(some)(some.values.to(device))).feature.float().cpu())
    return Embedded(torch.cat(features), rows, skipped)


def _readable(batch: list[tuple[int, Tensor | str]], table: Table, rows: list[int], skipped: list[Skipped]) -> Pixels:
    """The views of a batch; `rows` and `skipped` are told which images could be read and which could not."""
    views = []
    for row, view in batch:
        if isinstance(view, str):
            skipped.append(Skipped(table.paths[row], view))
        else:
            views.append(view)
            rows.append(row)
    return Pixels(torch.stack(views) if views else torch.empty(0))


@torch.inference_mode()
def fields_of(encoder: Encoder, table: Table, rows: list[int], device: torch.device) -> Fields | None:
    """The assignment fields of a few images; None if the organizer has none."""
    encoder.to(device).eval()
    preprocessing = encoder.backbone.preprocessing
    views = torch.stack([preprocessing.centre_view(preprocessing.resize(table.open(row))) for row in rows])
    encoded = encoder(Pixels(views.to(device)), details=True)
    if encoded.field is None or encoded.grid is None:
        return None
    return Fields(views.permute(0, 2, 3, 1).numpy(), encoded.field.float().cpu().numpy(), encoded.grid)
