"""Features of all images of a table, all details batch by batch, and the fields and attention of a few."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..console import track
from ..data.batch import Inputs, Pixels
from ..data.loader import ReadyVectors, ViewStore, evaluation_batches, no_longer_readable
from ..data.table import Skipped, Table
from ..data.world import ALONE, World, chunks
from ..encoders.backbone import Backbone
from ..encoders.class_attention import class_attention
from ..encoders.encoder import Encoder
from ..encoders.tokens import Encoded, Tokens
from .device import choose_workers
from .distributed import all_gather, share_errors, shared, world

SAMPLE = 512  # images whose tokens an organizer sees before it starts


@dataclass(frozen=True)
class Embedded:
    """Features of the images of a table that could be read."""

    features: Tensor  # (n, D) float32 on the CPU
    rows: list[int]  # which rows of the table they are
    skipped: list[Skipped]  # the others, with the reason
    seconds: float = 0.0  # that it took; 0: they were there already

    @classmethod
    def of_all(cls, features: Tensor) -> "Embedded":
        """Features (n, D) of all images of a table, known from before."""
        return cls(features, list(range(len(features))), [])


@dataclass(frozen=True)
class Fields:
    """Where each primitive is active in a few images."""

    views: np.ndarray  # (n, H, W, 3) uint8, what the encoder saw
    shares: np.ndarray  # (n, N, M)
    grid: tuple[int, int]


@dataclass(frozen=True)
class ClassAttention:
    """Where the class token looks in the last block, in a few images."""

    views: np.ndarray  # (n, H, W, 3) uint8, what the backbone saw
    weights: np.ndarray  # (n, N), the mean of all heads; the rest, up to 1, is on class and register tokens
    grid: tuple[int, int]


@dataclass(frozen=True)
class Details:
    """All that an encoder makes of a batch of images."""

    rows: list[int]  # which rows of the table they are
    tokens: Tokens  # of the backbone
    encoded: Encoded  # with details


@shared
@torch.inference_mode()
def embed(
    encoder: Encoder,
    table: Table,
    device: torch.device,
    batch_size: int = 64,
    workers: int = -1,
    cache: ViewStore | None = None,
) -> Embedded:
    """The feature of every image of a table, trained encoder or not; unreadable images are skipped and listed.

    With a cache that holds them, the images themselves are not read again. Images of one group have the same feature,
    see `share_in_groups`.
    """
    started = time.perf_counter()
    encoder.to(device).eval()
    batches, count = _evaluation_batches(encoder, table, device, batch_size, workers, cache, world())
    done: list[Embedded] = []  # batch by batch
    with share_errors():
        for batch in track(batches, "embedding images", total=count):
            features = torch.empty(0, encoder.dim)
            if batch.rows:
                features = encoder(batch.on(device)).feature.float().cpu()
            done.append(Embedded(features, batch.rows, batch.skipped))
    every = world().in_turn(all_gather(done))
    features = torch.cat([torch.empty(0, encoder.dim), *(part.features for part in every)])
    rows = [row for part in every for row in part.rows]
    if table.groups is not None:
        features = share_in_groups(features, table.group_numbers()[rows])
    return Embedded(
        features,
        rows,
        [image for part in every for image in part.skipped],
        time.perf_counter() - started,
    )


def share_in_groups(features: Tensor, groups: np.ndarray) -> Tensor:
    """Features (n, D) where all rows of a group (`groups`, (n,), equal numbers) are alike: the mean of their
    directions, as long as they are on average. One that is alone stays as it is, to the bit."""
    numbers, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    at = torch.from_numpy(place)
    lengths = features.norm(dim=1)  # (n,)
    units = F.normalize(features, dim=1).double()
    sums = torch.zeros(len(numbers), features.shape[1], dtype=units.dtype).index_add_(0, at, units)  # (G, D)
    length = torch.zeros(len(numbers), dtype=units.dtype).index_add_(0, at, lengths.double()) / torch.from_numpy(sizes)
    means = F.normalize(sums, dim=1) * length[:, None]
    several = torch.from_numpy(sizes > 1)[at] & (sums.norm(dim=1)[at] > 0)
    return torch.where(several[:, None], means[at].to(features.dtype), features)


@torch.inference_mode()
def sample_tokens(
    encoder: Encoder, table: Table, device: torch.device, seed: int, workers: int = -1, cache: ViewStore | None = None
) -> Tokens:
    """Tokens of the evaluation views of up to SAMPLE images, of which none is skipped silently."""
    encoder.to(device).eval()
    sample = np.random.default_rng(seed).permutation(len(table))[:SAMPLE]
    chosen = table.rows(sorted(sample.tolist()))
    batches, _ = _evaluation_batches(encoder, chosen, device, 64, workers, cache)
    parts = []
    for batch in batches:
        if batch.skipped:
            raise no_longer_readable(batch.skipped[0])
        parts.append(encoder.tokens(batch.on(device)))
    return Tokens(torch.cat([part.cls for part in parts]), torch.cat([part.patches for part in parts]), parts[0].grid)


@dataclass(frozen=True)
class _EvaluationBatch:
    """The evaluation views of some images of a table."""

    inputs: Inputs
    rows: list[int]  # which rows of the table they are
    skipped: list[Skipped]  # images of the batch that cannot be read

    def on(self, device: torch.device) -> Inputs:
        return type(self.inputs)(self.inputs.values.to(device))


def _evaluation_batches(
    encoder: Encoder, table: Table, device: torch.device, batch_size: int, workers: int, cache: ViewStore | None,
    world: World = ALONE,
) -> tuple[Iterator[_EvaluationBatch], int]:  # fmt: skip
    """The images in batches, from a cache that holds them or read again, and how many batches there are.

    Of several processes, each gets every so many-th batch.
    """
    cache = ReadyVectors.of(table) or cache
    if cache is not None and cache.holds(table):
        places = cache.rows_of(table)
        own = world.turns(chunks(len(table), batch_size))
        return (_load_batch(cache, places, rows) for rows in own), len(own)
    reading = choose_workers(workers, device)
    loader = evaluation_batches(table, encoder.backbone.preprocessing, batch_size, reading, world)
    return (_stack_batch(batch, table) for batch in loader), len(loader)


def _load_batch(cache: ViewStore, places: np.ndarray, rows: range) -> _EvaluationBatch:
    """Some rows of a table, whose images are at `places` (n,) of the cache."""
    first_views = np.zeros(len(rows), dtype=np.int64)
    return _EvaluationBatch(cache.inputs(places[list(rows)], first_views), list(rows), [])


def _stack_batch(batch: list[tuple[int, Tensor | str]], table: Table) -> _EvaluationBatch:
    """What was read of some rows: a view (3, H, W) each, or why there is none."""
    views, rows, skipped = [], [], []
    for row, view in batch:
        if isinstance(view, str):
            skipped.append(Skipped(table.paths[row], view))
        else:
            views.append(view)
            rows.append(row)
    return _EvaluationBatch(Pixels(torch.stack(views) if views else torch.empty(0)), rows, skipped)


def details_of(encoder: Encoder, table: Table, device: torch.device, batch_size: int = 64) -> Iterator[Details]:
    """All details of the images of a table that can be read, batch by batch."""
    encoder.to(device).eval()
    loader = evaluation_batches(table, encoder.backbone.preprocessing, batch_size, choose_workers(-1, device))
    for batch in track(loader, "looking at images", total=len(loader)):
        views = _stack_batch(batch, table)
        if views.rows:
            with torch.inference_mode():
                tokens = encoder.tokens(views.on(device))
                encoded = encoder.organizer.organize(tokens, details=True)
            yield Details(views.rows, tokens, encoded)


@torch.inference_mode()
def fields_of(encoder: Encoder, table: Table, rows: list[int], device: torch.device) -> Fields | None:
    """The assignment fields of a few images; None if the organizer has none."""
    views = _views(encoder.backbone, table, rows)
    encoded = encoder.to(device).eval()(Pixels(views.to(device)), details=True)
    if encoded.field is None or encoded.grid is None:
        return None
    return Fields(_as_images(views), encoded.field.float().cpu().numpy(), encoded.grid)


@torch.inference_mode()
def attention_of(backbone: Backbone, table: Table, rows: list[int], device: torch.device) -> ClassAttention:
    """The class token's attention in a few images; an error that says why if the backbone has none."""
    views = _views(backbone, table, rows)
    backbone.to(device).eval()
    with class_attention(backbone) as seen:
        tokens = backbone(backbone.preprocessing.normalise(views.to(device)))
    return ClassAttention(_as_images(views), seen[0].mean(dim=1).float().cpu().numpy(), tokens.grid)


def _views(backbone: Backbone, table: Table, rows: list[int]) -> Tensor:
    """The evaluation views (n, 3, H, W) uint8 of a few images."""
    preprocessing = backbone.preprocessing
    return torch.stack([preprocessing.centre_view(preprocessing.resize(table.open(row))) for row in rows])


def _as_images(views: Tensor) -> np.ndarray:
    return views.permute(0, 2, 3, 1).numpy()  # (n, H, W, 3)
