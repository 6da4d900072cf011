"""Tokens of the frozen part of a backbone, computed once: what enters its first trained block.

View 0 of an image is the evaluation view, the others are random ones that stay the same.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

import numpy as np
import timm
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..console import say, track
from ..data.loader import FixedViews, no_longer_readable
from ..data.table import Skipped, Table
from ..encoders.backbones import Backbone, blocks_of
from ..errors import NewkindsError
from .device import choose_workers
from .store import PIECE, ROOT_VARIABLE, CacheUnavailable, Store, digest_of, gigabytes

FORMAT = 1  # of the files, and of the arithmetic that makes them: another number is another cache

StoredAs = Literal["float16", "float32"]


class TokenCache:
    """The tokens of a table's images, in V random views and the evaluation view, on disk.

    >>> cache = cached_tokens(backbone, table, views=8)
    >>> cache.take(rows, numbers)      # (n, T, D): view numbers[i] of the image in row rows[i]
    """

    def __init__(self, contents: Sequence[str], views: list[np.ndarray]) -> None:
        self.views = views  # [view 0, the evaluation view; V random views], (images, T, D) each, memory-mapped
        self._row = {content: row for row, content in enumerate(contents)}

    @property
    def random_views(self) -> int:
        return len(self.views) - 1

    def holds(self, table: Table) -> bool:
        """Whether every image of the table is in it, pixel by pixel."""
        return table.contents is not None and all(content in self._row for content in table.contents)

    def rows_of(self, table: Table) -> np.ndarray:
        """Where the images of a table are in it. (n,)"""
        return np.array([self._row[content] for content in table.contents or []], dtype=np.int64)

    def take(self, rows: np.ndarray, numbers: np.ndarray) -> Tensor:
        """View `numbers[i]` of the image in row `rows[i]` of the cache: (n, T, D)."""
        taken = np.empty((len(rows), *self.views[0].shape[1:]), dtype=self.views[0].dtype)
        for number in np.unique(numbers):
            of_this_view = numbers == number
            taken[of_this_view] = self.views[number][rows[of_this_view]]
        return torch.from_numpy(taken)


def cached_tokens(
    backbone: Backbone,
    table: Table,
    views: int,
    *,
    about: str = "",
    seed: int = 0,
    precision: StoredAs = "float16",
    device: torch.device | None = None,
    workers: int = -1,
    build: bool = True,
) -> TokenCache | None:
    """The cache of a table's images, made (or completed) first unless `build` is false: then None if it is not whole.

    `views`: how many random ones beside the evaluation view. `table` must come from `readable(…, contents=True)`.
    `about`: a few words for `newkinds cache list`.
    """
    if not backbone.has_frozen_part:
        raise NewkindsError(
            f"the frozen part of {type(backbone.network).__name__} cannot be computed apart from its trained one, so "
            "its tokens cannot be cached: leave out --cache-views, or choose a plain ViT."
        )
    assert table.contents is not None, "readable(table, contents=True)"
    contents = sorted(set(table.contents))  # copies share their tokens, and the table's order does not matter
    store = Store(
        origin=_origin(backbone, contents, seed, precision),
        contents=contents,
        shape=backbone.sequence_shape,
        dtype=np.dtype(precision),
        about=about,
    )
    numbers = range(views + 1)
    if min(store.sound_pieces(numbers).values()) == store.pieces:
        store.list_contents()
    elif not build:
        return None
    else:
        with store.locked():
            store.describe()
            row_of = {content: row for row, content in enumerate(table.contents)}
            rows = [row_of[content] for content in contents]
            _compute(backbone, table, rows, store, numbers, seed, device or torch.device("cpu"), workers)
    return TokenCache(contents, [store.open(number) for number in numbers])


def _origin(backbone: Backbone, contents: Sequence[str], seed: int, precision: StoredAs) -> dict[str, object]:
    """All that the tokens depend on."""
    preprocessing = backbone.preprocessing
    return {
        "format": FORMAT,
        "timm": timm.__version__,
        "backbone": backbone.name,
        "network": sha256(repr(backbone.network).encode()).hexdigest(),
        "heads": [getattr(getattr(block, "attn", None), "num_heads", 0) for block in blocks_of(backbone.network)],
        "frozen_weights": backbone.frozen_digest(),
        "train_blocks": backbone.train_blocks,
        "image_size": preprocessing.size,
        "crop_ratio": preprocessing.crop_ratio,
        "mean": list(preprocessing.mean),
        "std": list(preprocessing.std),
        "view_seed": seed,
        "precision": precision,
        "images": digest_of(contents),
    }


class _Piece(NamedTuple):
    """What is to be made of a piece."""

    places: range  # of its images in the cache
    absent: list[int]  # those places whose images no other cache has
    numbers: list[int]  # of the views that are missing


def _compute(
    backbone: Backbone,
    table: Table,
    rows: Sequence[int],
    store: Store,
    numbers: Sequence[int],
    seed: int,
    device: torch.device,
    workers: int,
) -> None:
    """Make what is missing of these views, piece by piece."""
    done = store.sound_pieces(numbers, tell=True)  # again: somebody else may have made it while we waited
    first = min(done.values())
    if first == store.pieces:
        return
    for number in numbers:
        store.cut(number, done[number])
    elsewhere = _elsewhere(store, numbers)
    pieces = []
    for start in range(first * PIECE, store.images, PIECE):
        places = range(start, min(start + PIECE, store.images))
        absent = [place for place in places if store.contents[place] not in elsewhere]
        pieces.append(_Piece(places, absent, [number for number in numbers if done[number] * PIECE <= start]))
    backbone.to(device)
    _announce(backbone, store, pieces, device)
    wanted = {place: piece.numbers for piece in pieces for place in piece.absent}
    numbers_of = [wanted.get(place, []) for place in range(len(rows))]
    dataset = FixedViews(table, backbone.preprocessing, seed, rows, numbers_of)
    loader = DataLoader(
        dataset,
        batch_sampler=[piece.absent for piece in pieces],
        num_workers=choose_workers(workers, device),
        collate_fn=list,
    )
    for piece, seen in zip(pieces, track(loader, "caching tokens", total=len(pieces)), strict=True):
        for place, views in zip(piece.absent, seen, strict=True):
            if isinstance(views, str):
                raise no_longer_readable(Skipped(table.paths[rows[place]], views))
        for which, number in enumerate(piece.numbers):
            tokens = {}  # place → (T, D)
            if seen:
                views = torch.stack([each[which] for each in seen])  # (images, 3, H, W)
                tokens = dict(zip(piece.absent, _entering(backbone, views, device).cpu().numpy(), strict=True))
            for place in set(piece.places) - tokens.keys():
                cache, row = elsewhere[store.contents[place]]
                tokens[place] = cache.views[number][row]
            store.append(number, piece.places.start // PIECE, np.stack([tokens[place] for place in piece.places]))


def _elsewhere(store: Store, numbers: Sequence[int]) -> dict[str, tuple[TokenCache, int]]:
    """Of the images that another cache has in all these views: which one, and in which row."""
    found: dict[str, tuple[TokenCache, int]] = {}
    wanted = set(store.contents)
    for other in store.siblings():
        if wanted.isdisjoint(other.contents):
            continue
        try:
            images = min(PIECE * min(other.sound_pieces(numbers).values()), other.images)
            shared = [row for row, content in enumerate(other.contents[:images]) if content in wanted]
            if not shared:
                continue
            cache = TokenCache(other.contents, [other.open(number, images) for number in numbers])
        except CacheUnavailable:
            continue  # this one is made without it
        found |= {other.contents[row]: (cache, row) for row in shared}
        wanted -= found.keys()
        say(
            f"the cache {other.key} has {len(shared):,} of these {store.images:,} images: their tokens are taken from "
            f"there (newkinds cache clear {other.key} deletes it)"
        )
    return found


@torch.inference_mode()
def _entering(backbone: Backbone, views: Tensor, device: torch.device) -> Tensor:
    """Tokens (n, T, D) of uint8 views (n, 3, H, W)."""
    return backbone.frozen_part(backbone.preprocessing.normalise(views.to(device)))


def _announce(backbone: Backbone, store: Store, pieces: Sequence[_Piece], device: torch.device) -> None:
    """Size and time, before anything long begins."""
    views = sum(len(piece.numbers) * len(piece.absent) for piece in pieces)
    needed = sum(len(piece.numbers) * len(piece.places) for piece in pieces) * store.view_bytes
    free = shutil.disk_usage(store.folder).free
    if needed > free:
        raise CacheUnavailable(
            f"the tokens of {store.images:,} images need {gigabytes(needed)} in {store.folder.parent}, where "
            f"{gigabytes(free)} are free: make room (newkinds cache list, newkinds cache clear), name another place in "
            f"the environment variable {ROOT_VARIABLE}, or take fewer views (--cache-views N; 0 for none)."
        )
    size = backbone.preprocessing.size
    probe = torch.zeros(8, 3, size, size, dtype=torch.uint8)
    _entering(backbone, probe, device)  # the first call is slower
    started = time.perf_counter()
    _entering(backbone, probe, device)
    seconds = (time.perf_counter() - started) / len(probe) * views
    expected = f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"
    say(
        f"caching the tokens of {views:,} views of {store.images:,} images: {gigabytes(needed)} in "
        f"{store.folder}, about {expected} and the reading of the images (an interrupted cache goes on)"
    )
