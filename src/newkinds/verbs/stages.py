"""What `discover`, `tune` and `check` do before anything is compared: look at the images, embed each once, check them.

Each stage takes a value and returns a value; none of them writes anything but the cache of class tokens."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import checks
from ..console import say
from ..data.table import Table
from ..encoders.backbone import Backbone
from ..encoders.backbones import TINY, VECTORS, build_backbone, native_size
from ..encoders.encoder import frozen_encoder
from ..errors import NewkindsError
from ..runs.config import Config, resolve
from ..text import duration
from ..training.cache import TokenCache, cached_class_tokens, images_without_class_token
from ..training.device import choose_device
from ..training.embedding import Embedded, embed
from .layers import Layers

HOUR = 3600.0  # how long a search may take if nobody says
SIZES = (112, 168, 224, 336)  # px, of an image's side, that are considered
SHARE_OF_PASS = 0.15  # of the time, for the pass behind the first answer, which is to come soon
SHARE_OF_LOOK = 0.75  # of the time that is left, for a pass at a larger size; for the first, if nothing can be judged
ENLARGED = 4  # an image is not shown to the backbone more than so many times larger than it is
MEASURED = 8  # images, by which the time of a pass is measured


@dataclass(frozen=True)
class ImageSize:
    """A size at which images can be embedded, and what a pass over them costs."""

    pixels: int | None  # along one side; None: the backbone's own
    image_seconds: float  # of a pass over one image
    uncached: int  # images that no earlier command has embedded at this size

    @property
    def seconds(self) -> float:
        """Of a pass over all images."""
        return self.image_seconds * self.uncached

    def __str__(self) -> str:
        return f" at {self.pixels} px" if self.pixels else ""


@dataclass(frozen=True)
class Looked:
    """The images, and how they will be embedded."""

    table: Table
    layers: Layers  # what the user named
    size: ImageSize  # of the images, as they are embedded
    sizes: Sequence[ImageSize]  # that could be taken, ascending
    base: Mapping[str, Any]  # the backbone that was chosen, and its image size
    config: Config  # of the backbone alone
    device: torch.device

    def config_of(self, settings: Mapping[str, Any], k: int | None = None) -> Config:
        """The settings of a candidate; what the user named wins."""
        config = resolve(self.base, settings, *self.layers)
        return config if k is None else replace(config, k=k)

    def at(self, size: ImageSize) -> "Looked":
        """The same images, to be embedded at another size."""
        base = {"backbone": {**self.base["backbone"], "image_size": size.pixels}}
        return replace(self, size=size, base=base, config=resolve(base, *self.layers))


@dataclass(frozen=True)
class EmbeddedImages:
    """Every image once, by the backbone alone."""

    looked: Looked
    backbone: Backbone
    cache: TokenCache | None  # of class tokens; None of vectors, and where there is no room for it
    embedded: Embedded
    rows: Tensor  # (n, D) unit rows


def require_time(looked: Looked, seconds: float) -> None:
    """Refuse a time in which not even one pass over the images could be made."""
    needs = looked.size.seconds
    if needs > 0.9 * seconds:
        raise NewkindsError(
            f"one pass over {looked.size.uncached:,} images takes about {duration(needs)} on this machine, and --time "
            f"{duration(seconds)} is too little for it: give at least --time {duration(1.5 * needs)}, or a smaller "
            "backbone."
        )


def look(table: Table, config: Config, layers: Layers, seconds: float, judged: bool = True) -> Looked:
    """Choose the image size by the time that there is for it, and measure what a pass costs.

    `judged`: whether labelled images can tell if a larger size pays. If not, the largest that fits is taken at once.
    """
    device = choose_device(config.train.device)
    sizes = _measure(config, table, device)
    share = SHARE_OF_PASS if judged else SHARE_OF_LOOK
    size = next((one for one in reversed(sizes) if one.seconds <= share * seconds), sizes[0])
    chosen = {name: config.backbone[name] for name in ("name", "width") if config.backbone[name] is not None}
    base = {"backbone": {**chosen, "image_size": size.pixels}}
    return Looked(table, layers, size, sizes, base, resolve(base, *layers), device)


def embed_once(looked: Looked) -> EmbeddedImages:
    """The features of all images, kept in the cache that the commands share."""
    config = looked.config
    encoder = frozen_encoder(**config.backbone)
    about = describe_cache(config)
    workers = config.train.workers
    cache = cached_class_tokens(encoder.backbone, looked.table, about=about, device=looked.device, workers=workers)
    embedded = embed(encoder, looked.table, looked.device, workers=workers, cache=cache)
    if embedded.skipped:
        raise NewkindsError(f"{embedded.skipped[0].path} can no longer be read: rerun the same command.")
    return EmbeddedImages(looked, encoder.backbone, cache, embedded, F.normalize(embedded.features, dim=1))


def check_images(images: EmbeddedImages) -> list[checks.CheckResult]:
    """What may be wrong with the data, which is said."""
    findings = checks.run_checks(images.looked.table, images.rows)
    for finding in findings:
        if finding.found.sentence:
            say(f"{finding.check}: {finding.found.sentence}")
    return findings


def describe_cache(config: Config) -> str:
    """What a cache holds, for `newkinds cache list`."""
    return f"{config.data.get('path') or config.data['name']}, {config.backbone['name']}"


# -- image size and time ---------------------------------------------------------------------------------------------


def _measure(config: Config, table: Table, device: torch.device) -> list[ImageSize]:
    """The image sizes that may be taken, ascending: one if the user has named it, or the backbone has but one."""
    asked = config.backbone["image_size"]
    if config.backbone["name"] == VECTORS:
        return [ImageSize(asked, 0.0, 0)]
    build = partial(build_backbone, **{**config.backbone, "train_blocks": 0})
    backbone = build()
    per_image = seconds_per_image(backbone, device)
    if asked or config.backbone["name"] == TINY:
        return [ImageSize(asked, per_image, images_without_class_token(backbone, table))]
    measured = backbone.preprocessing.size
    return [
        ImageSize(size, per_image * _times(size / measured), images_without_class_token(build(image_size=size), table))
        for size in _useful_sizes(backbone, table)
    ]


def _times(longer: float) -> float:
    """How many times as long a pass takes if an image's side is so many times as long: attention compares all patches,
    so it grows faster than their number (from 112 to 224 px 4.8 times in float32, 7.4 times in bfloat16; 2.8 times
    from 224 to 336 px)."""
    return longer**2.5


def _useful_sizes(backbone: Backbone, table: Table) -> list[int]:
    """The image sizes that are considered, ascending: none much larger than the images are, nor larger than those that
    the backbone was finished with."""
    usual = backbone.preprocessing.size
    if not backbone.is_plain_vit:
        return [usual]
    largest = max(usual, native_size(backbone.name))
    patch = getattr(getattr(backbone.network, "patch_embed", None), "patch_size", (1,))[0]
    facts = [seen.facts for seen in table.seen or [] if seen.facts is not None]
    sides = [min(fact.width, fact.height) for fact in facts] or [largest]
    useful = max(SIZES[0], ENLARGED * float(np.median(sides)))
    return [size - size % patch for size in SIZES if size <= min(largest, useful)] or [usual]


def seconds_per_image(backbone: Backbone, device: torch.device) -> float:
    """Of one pass, measured by a few images of noise: the fastest of three, since other work comes and goes."""
    size = backbone.preprocessing.size
    images = torch.randn(MEASURED, 3, size, size, device=device, generator=torch.Generator(device).manual_seed(0))
    backbone.to(device)
    with torch.inference_mode():
        backbone(images, patches=False)  # the first time memory is allotted
        times = []
        for _ in range(3):
            started = time.perf_counter()
            backbone(images, patches=False).cls.cpu()
            times.append(time.perf_counter() - started)
    return min(times) / MEASURED
