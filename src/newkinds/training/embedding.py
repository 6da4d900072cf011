"""Features of all images of a table, all details batch by batch, and the fields and attention of a few."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..console import track
from ..data.batch import CachedSlots, CachedTokens, Pixels
from ..data.loader import ReadyVectors, ViewStore, evaluation_batches, no_longer_readable
from ..data.table import Skipped, Table
from ..data.world import ALONE, World, chunks
from ..encoders.attention import class_attention
from ..encoders.backbones import Backbone
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
class Attention:
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

    With a cache that holds them, the images themselves are not read again.
    """
    started = time.perf_counter()
    encoder.to(device).eval()
    done: list[tuple[Tensor, list[int], list[Skipped]]] = []  # for each batch: its features, rows and skipped images
    rows: list[int] = []
    skipped: list[Skipped] = []
    inputs, steps = _evaluation_views(encoder, table, device, batch_size, workers, cache, rows, skipped, world())
    with share_errors():
        for some in track(inputs, "embedding images", total=steps):
            here = encoder(type(some)(some.values.to(device))).feature.float().cpu() if len(some.values) else None
            done.append((torch.empty(0, encoder.dim) if here is None else here, list(rows), list(skipped)))
            rows.clear()
            skipped.clear()
    every = world().in_turn(all_gather(done))
    features = torch.cat([torch.empty(0, encoder.dim), *(some for some, _, _ in every)])
    return Embedded(
        features,
        [row for _, some, _ in every for row in some],
        [image for _, _, some in every for image in some],
        time.perf_counter() - started,
    )


@torch.inference_mode()
def sample_of_tokens(
    encoder: Encoder, table: Table, device: torch.device, seed: int, workers: int = -1, cache: ViewStore | None = None
) -> Tokens:
    """Tokens of the evaluation views of up to SAMPLE images, of which none is skipped silently."""
    encoder.to(device).eval()
    sample = np.random.default_rng(seed).permutation(len(table))[:SAMPLE]
    chosen, skipped = table.rows(sorted(sample.tolist())), list[Skipped]()
    inputs, _ = _evaluation_views(encoder, chosen, device, 64, workers, cache, [], skipped)
    parts = [encoder.tokens(type(some)(some.values.to(device))) for some in inputs if len(some.values)]
    if skipped:
        raise no_longer_readable(skipped[0])
    return Tokens(torch.cat([part.cls for part in parts]), torch.cat([part.patches for part in parts]), parts[0].grid)


def _evaluation_views(
    encoder: Encoder, table: Table, device: torch.device, batch_size: int, workers: int,
    cache: ViewStore | None, rows: list[int], skipped: list[Skipped], world: World = ALONE,
) -> tuple[Iterator[Pixels | CachedTokens | CachedSlots], int]:  # fmt: skip
    """The images in batches, from a cache that holds them or read again, and how many batches there are.

    Of several processes, each gets every so many-th batch. `rows` and `skipped` are told which images could be read
    and which could not, as the batches are taken.
    """
    cache = ReadyVectors.of(table) or cache
    if cache is not None and cache.holds(table):
        places = cache.rows_of(table)
        own = world.turns(chunks(len(table), batch_size))
        return (_stored(cache, places, some, rows) for some in own), len(own)
    reading = choose_workers(workers, device)
    loader = evaluation_batches(table, encoder.backbone.preprocessing, batch_size, reading, world)
    return (_readable(batch, table, rows, skipped) for batch in loader), len(loader)


def _stored(cache: ViewStore, places: np.ndarray, some: range, rows: list[int]) -> Pixels | CachedTokens | CachedSlots:
    """The evaluation views of some rows of a table, whose images are at `places` (n,) of the cache."""
    rows += some
    return cache.inputs(places[list(some)], np.zeros(len(some), dtype=np.int64))


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


def details_of(encoder: Encoder, table: Table, device: torch.device, batch_size: int = 64) -> Iterator[Details]:
    """All details of the images of a table that can be read, batch by batch."""
    encoder.to(device).eval()
    loader = evaluation_batches(table, encoder.backbone.preprocessing, batch_size, choose_workers(-1, device))
    for batch in track(loader, "looking at images", total=len(loader)):
        rows: list[int] = []
        pixels = _readable(batch, table, rows, [])
        if rows:
            with torch.inference_mode():
                tokens = encoder.tokens(Pixels(pixels.values.to(device)))
                encoded = encoder.organizer.organize(tokens, details=True)
            yield Details(rows, tokens, encoded)


@torch.inference_mode()
def fields_of(encoder: Encoder, table: Table, rows: list[int], device: torch.device) -> Fields | None:
    """The assignment fields of a few images; None if the organizer has none."""
    views = _views(encoder.backbone, table, rows)
    encoded = encoder.to(device).eval()(Pixels(views.to(device)), details=True)
    if encoded.field is None or encoded.grid is None:
        return None
    return Fields(_as_images(views), encoded.field.float().cpu().numpy(), encoded.grid)


@torch.inference_mode()
def attention_of(backbone: Backbone, table: Table, rows: list[int], device: torch.device) -> Attention:
    """The class token's attention in a few images; an error that says why if the backbone has none."""
    views = _views(backbone, table, rows)
    backbone.to(device).eval()
    with class_attention(backbone) as seen:
        tokens = backbone(backbone.preprocessing.normalise(views.to(device)))
    return Attention(_as_images(views), seen[0].mean(dim=1).float().cpu().numpy(), tokens.grid)


def _views(backbone: Backbone, table: Table, rows: list[int]) -> Tensor:
    """The evaluation views (n, 3, H, W) uint8 of a few images."""
    preprocessing = backbone.preprocessing
    return torch.stack([preprocessing.centre_view(preprocessing.resize(table.open(row))) for row in rows])


def _as_images(views: Tensor) -> np.ndarray:
    return views.permute(0, 2, 3, 1).numpy()  # (n, H, W, 3)
