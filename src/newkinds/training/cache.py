"""Tokens of the frozen part of a backbone, computed once: what enters its first trained block. View 0 of an image is
the evaluation view, the others are random ones that stay the same."""

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..console import say, track, warn
from ..data.batch import CachedTokens
from ..data.loader import FixedViews, no_longer_readable
from ..data.table import Skipped, Table
from ..data.views import View
from ..data.world import chunks
from ..encoders.backbone import Backbone, blocks_of
from ..errors import NewkindsError
from .device import choose_workers
from .distributed import broadcast, in_first, share_errors, shared, work_alone, world
from .store import ROOT_VARIABLE, CacheUnavailable, Store, gigabytes

BATCH = 64  # images that are computed at once
WAITING_BYTES, WAITING_SECONDS = 1 << 24, 5.0  # of what is computed and not yet written: no more is lost by a kill

StoredAs = Literal["float16", "float32"]
CLASS_TOKENS_AS: StoredAs = "float32"


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
    patches: bool = True,
    kinds: tuple[View, ...] = ("weak",),
    build: bool = True,
) -> "TokenCache | None":
    """The tokens of a table's images; missing ones are computed first, or None is returned if `build` is false.

    `views`: how many random ones besides the evaluation view. `table` must come from `readable(…, contents=True)`.
    `about`: a few words for `newkinds cache list`. `patches`: False if only the class token is read, which needs little
    space if no block trains. `kinds`: of the random views, in turn.
    """
    if not backbone.has_frozen_part(patches):
        raise NewkindsError(f"{backbone.why_not_cached}: leave out --cache-views.")
    origin = _origin(backbone, seed, precision, patches, kinds)
    store = Store(origin, backbone.sequence_shape(patches), np.dtype(precision), about)
    cache = TokenCache(backbone, table, store, views, seed, device or torch.device("cpu"), workers, patches, kinds)
    if not cache.is_whole():
        if not build:
            return None
        cache.complete()
    return cache


def views_missing(
    backbone: Backbone, table: Table, views: int, *, seed: int = 0, precision: StoredAs = "float16",
    patches: bool = True, kinds: tuple[View, ...] = ("weak",),
) -> int:  # fmt: skip
    """How many views of a table's images `cached_tokens` would have to compute first."""
    origin = _origin(backbone, seed, precision, patches, kinds)
    store = Store(origin, backbone.sequence_shape(patches), np.dtype(precision), "")
    cache = TokenCache(backbone, table, store, views, seed, torch.device("cpu"), 0, patches, kinds)
    try:
        return 0 if cache.is_whole() else cache.views_missing
    except CacheUnavailable:
        return len(table) * (views + 1)


def images_without_class_token(backbone: Backbone, table: Table) -> int:
    """How many images of a table the cache of class tokens lacks, which `cached_class_tokens` would compute."""
    return views_missing(backbone, table, 0, precision=CLASS_TOKENS_AS, patches=False)


def cached_class_tokens(
    backbone: Backbone, table: Table, *, about: str, device: torch.device, workers: int = -1
) -> "TokenCache | None":
    """The class tokens of the evaluation views of all images, which whoever looks at the same images shares.

    None of ready-made vectors, which are what would be cached, and where there is no room for a cache.
    """
    if table.vectors is not None:
        return None
    try:
        return cached_tokens(
            backbone, table, 0, about=about, precision=CLASS_TOKENS_AS, device=device, workers=workers, patches=False
        )
    except CacheUnavailable as error:
        say(f"{error} Nothing is trained without it.")
        return None


def _origin(
    backbone: Backbone, seed: int, precision: StoredAs, patches: bool, kinds: tuple[View, ...]
) -> dict[str, Any]:
    """All that the tokens depend on. A default that changes needs another FORMAT."""
    import timm  # slow to import; whoever has tokens has it already

    # settings at their default are left out: one that is added later leaves old caches valid
    preprocessing = backbone.preprocessing
    settings = {field.name: (getattr(preprocessing, field.name), field.default) for field in fields(preprocessing)}
    alone = backbone.is_fixed and not patches
    settings |= {"view_seed": (seed, 0), "precision": (precision, "float16"), "class_token_alone": (alone, False)}
    settings |= {"kinds_of_views": (list(kinds), ["weak"])}
    settings |= {"computed_in": (str(backbone.dtype), "torch.float32")}
    return {
        "timm": timm.__version__,
        "backbone": backbone.name,
        "network": sha256(repr(backbone.network).encode()).hexdigest(),
        "heads": [getattr(getattr(block, "attn", None), "num_heads", 0) for block in blocks_of(backbone.network)],
        "frozen_weights": backbone.frozen_digest(),
        "train_blocks": backbone.changing_blocks,
        "settings": {name: value for name, (value, default) in settings.items() if value != default},
    }


@dataclass
class TokenCache:
    """The tokens of a table's images, in V random views and the evaluation view, on disk.

    >>> cache = cached_tokens(backbone, table, views=8)
    >>> cache.take(rows, numbers)      # (n, T, D): view numbers[i] of the image in row rows[i]
    """

    backbone: Backbone
    table: Table
    store: Store
    random_views: int
    seed: int
    device: torch.device
    workers: int
    patches: bool = True
    kinds: tuple[View, ...] = ("weak",)

    def __post_init__(self) -> None:
        assert self.table.contents is not None, "readable(table, contents=True)"
        self._contents = sorted(set(self.table.contents))  # copies share tokens, and the table's order does not matter
        self._row = {content: row for row, content in enumerate(self._contents)}

    def is_whole(self) -> bool:
        """Look up what the store has now: whether that is everything."""
        self.store.open()
        self._stored = self.store.rows_of(self._contents, self.random_views + 1)  # (images, views), -1 if missing
        return bool((self._stored >= 0).all())

    @property
    def views_missing(self) -> int:
        """How many views were missing when `is_whole` looked."""
        return int((self._stored < 0).sum())

    def holds(self, table: Table) -> bool:
        """Whether every image of the table is in it, pixel by pixel."""
        return table.contents is not None and all(content in self._row for content in table.contents)

    def rows_of(self, table: Table) -> np.ndarray:
        """Where the images of a table are in it. (n,)"""
        return np.array([self._row[content] for content in table.contents or []], dtype=np.int64)

    def inputs(self, rows: np.ndarray, numbers: np.ndarray) -> CachedTokens:
        """What `take` gives, for an encoder."""
        return CachedTokens(self.take(rows, numbers))

    def take(self, rows: np.ndarray, numbers: np.ndarray) -> Tensor:
        """View `numbers[i]` of the image in row `rows[i]` of the cache: (n, T, D)."""
        tokens, damaged = self.store.take(self._stored[rows, numbers])
        if len(damaged):
            with work_alone():
                warn(f"{len(damaged)} row(s) of the cache {self.store.folder} are damaged: they are computed again.")
                self.complete(damaged)
            return self.take(rows, numbers)
        return torch.from_numpy(tokens)

    def complete(self, damaged: Sequence[int] | np.ndarray = ()) -> None:
        """Add to the store what is missing, and again what is in damaged rows."""
        with self.store.lock():
            before = self._stored
            self.is_whole()  # somebody else may have added it while we waited
            missing = (self._stored < 0) | (np.isin(before, damaged) & (self._stored == before))
            if missing.any():
                self._compute(missing)
            if not self.is_whole():
                raise CacheUnavailable(f"{self.store.folder} was changed meanwhile: rerun the same command.")

    def _compute(self, missing: np.ndarray) -> None:
        """Add the missing views (images, views) to the store."""
        # batches follow the order of the contents: an interrupted cache ends with the same bits as one made at once
        numbers_of = [np.flatnonzero(views).tolist() for views in missing]
        alike: dict[tuple[int, ...], list[int]] = {}  # the views missing → the images
        for image in np.flatnonzero(missing.any(1)).tolist():
            alike.setdefault(tuple(numbers_of[image]), []).append(image)
        batches = [some[start : start + BATCH] for some in alike.values() for start in range(0, len(some), BATCH)]
        self._announce(int(missing.sum()), sum(map(len, batches)))
        compute_tokens(self, batches, numbers_of)

    def tokens_of(self, batches: Sequence[list[int]], numbers_of: list[list[int]]) -> "Iterator[list[ComputedView]]":
        """What is to be stored of each batch of images, in the views `numbers_of` each."""
        row_of = {content: row for row, content in enumerate(self.table.contents or [])}
        rows = [row_of[content] for content in self._contents]
        loader = DataLoader(
            FixedViews(self.table, self.backbone.preprocessing, self.seed, rows, numbers_of, self.kinds),
            batch_sampler=batches,
            num_workers=choose_workers(self.workers, self.device),
            collate_fn=list,
        )
        self.backbone.to(self.device)
        for images, seen in zip(batches, loader, strict=True):
            for image, views in zip(images, seen, strict=True):
                if isinstance(views, str):  # why it cannot be read
                    raise no_longer_readable(Skipped(self.table.paths[rows[image]], views))
            contents = [self._contents[image] for image in images]
            done = []
            for which, number in enumerate(numbers_of[images[0]]):
                pixels = torch.stack([views[which] for views in seen]).to(self.device)  # (n, 3, H, W) uint8
                with torch.inference_mode():
                    normalised = self.backbone.preprocessing.normalise(pixels)
                    tokens = self.backbone.frozen_part(normalised, self.patches)  # (n, T, D)
                done.append(ComputedView(contents, number, self.store.as_stored(tokens.cpu().numpy())))
            yield done

    def _announce(self, views: int, images: int) -> None:
        """Say how much is to be done, and refuse it if there is no room."""
        needed = views * self.store.row_bytes
        free = shutil.disk_usage(self.store.folder).free
        if needed > free:
            raise CacheUnavailable(
                f"the tokens of {images:,} images need {gigabytes(needed)} in {self.store.folder.parent}, where "
                f"{gigabytes(free)} are free: make room (newkinds cache list, newkinds cache clear), name another "
                f"place in the environment variable {ROOT_VARIABLE}, or take fewer views (--cache-views N; 0 for none)."
            )
        say(
            f"caching the tokens of {views:,} views of {images:,} images: {gigabytes(needed)} in {self.store.folder} "
            "(to resume after an interruption, rerun the same command)"
        )


class ComputedView(NamedTuple):
    """One view of a batch of images, to be stored."""

    contents: list[str]
    view: int
    tokens: np.ndarray  # (n, T, D)


class WriteBuffer:
    """Views on their way to the store. Small ones of one kind wait for each other: each writing waits for the disk."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.views: list[ComputedView] = []
        self.since = time.monotonic()

    def add(self, view: ComputedView) -> None:
        if self.views and self.views[0].view != view.view:
            self.write()
        self.views.append(view)
        size = sum(view.tokens.nbytes for view in self.views)
        if size >= WAITING_BYTES or time.monotonic() - self.since >= WAITING_SECONDS:
            self.write()

    def write(self) -> None:
        if self.views:
            contents = [content for view in self.views for content in view.contents]
            tokens = np.concatenate([view.tokens for view in self.views])
            self.store.append(contents, self.views[0].view, tokens)
        self.views = []
        self.since = time.monotonic()


@shared
def compute_tokens(cache: TokenCache, batches: list[list[int]], numbers_of: list[list[int]]) -> None:
    """Compute batches in turns, each whole by one process, and let the first store them in their order: the cache has
    the same bits however many processes there are, and each holds one batch at a time."""
    own = cache.tokens_of(world().turns(batches), numbers_of)
    buffer = WriteBuffer(cache.store)
    rounds = chunks(len(batches), world().size)  # in a round, each process computes one batch
    started = time.perf_counter()
    for number, places in enumerate(track(rounds, "caching tokens", total=len(rounds))):
        with share_errors():
            computed = next(own, [])
        for rank, place in enumerate(places):
            for which in range(len(numbers_of[batches[place][0]])):
                view = broadcast(computed[which] if rank == world().rank else None, rank)
                in_first(buffer.add, view)
        if number == 0 and len(rounds) > 1:
            seconds = (time.perf_counter() - started) * (len(rounds) - 1)
            say(f"about {seconds / 60:.0f} min to go" if seconds > 90 else f"about {seconds:.0f} s to go")
    in_first(buffer.write)
