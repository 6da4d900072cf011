"""What a SimGCD training step costs: as published, with CPF, and from cached tokens, side by side in one run.

    python benchmarks/training.py                # ViT-S/14 and ViT-B/16 at 224 px: about 10 minutes on 2 cores
    python benchmarks/training.py --backbones vit_small_patch14_dinov2 --image-size 112 --batch 32

A step is newkinds' own: two views an image, forward, loss, backward, SGD; the last block trains, weights are random.
All variants see the same images and views in the same random order. The uncached ones take them as uint8 pixels from
memory (decoding and cropping would make them slower still), the cached ones from a float16 token cache on the disk,
just written, so that the system may keep it in memory. Before anything is timed, losses and gradients of all variants
are compared, with a float32 cache: a difference beyond rounding is an error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from timm.layers import LayerScale

from newkinds.data.batch import Batch, Pixels
from newkinds.data.loader import FixedViews, StoredBatches, ViewStore
from newkinds.data.table import Table, readable
from newkinds.data.views import TWO_CROPS
from newkinds.encoders.backbone import Backbone
from newkinds.encoders.backbones import build_backbone
from newkinds.encoders.encoder import Encoder
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.encoders.organizers.cpf import CPF
from newkinds.training.cache import StoredAs, TokenCache, cached_tokens
from newkinds.training.store import ROOT_VARIABLE
from plain_cpf import PlainCPF
from side_by_side import (
    KNOWN,
    AsPublished,
    TrainingStep,
    forward_and_backward,
    machine,
    ratio,
    simgcd_head,
    times_in_turns,
)

VARIANTS = {
    "a": "images, host as published",
    "a'": "images, host, class token only in the last block",
    "b": "images, host + CPF in plain order",
    "c": "images, host + CPF on the fast path",
    "d": "cached, host",
    "e": "cached, host + CPF",
    "f": "cached, all blocks frozen, host + CPF",
}
SAME = {"a": ("a'", "d"), "b": ("c", "e", "f")}  # one function, computed in other ways
CPF_ALONE = "CPF by itself, fast path"
RANDOM_VIEWS = 2
COMPARED_IMAGES = 4
ROUNDING = 1e-5  # relative; 1e-7 to 1e-6 in all that was tried


@dataclass(frozen=True)
class Networks:
    """What the variants share, so that they compute the same."""

    training: Backbone  # its last block trains
    frozen: Backbone  # the same weights, none of which trains
    plain: PlainCPF
    fast: CPF  # the same weights

    @classmethod
    def build(cls, name: str, image_size: int) -> Networks:
        training, frozen = (random_backbone(name, image_size, train_blocks) for train_blocks in (1, 0))
        plain, fast = PlainCPF(training.dim), CPF(training.dim)
        fast.load_state_dict(plain.state_dict())
        return cls(training, frozen, plain, fast)


def random_backbone(name: str, image_size: int, train_blocks: int) -> Backbone:
    torch.manual_seed(0)
    backbone = build_backbone(name, train_blocks=train_blocks, image_size=image_size, load_weights=False)
    for module in backbone.modules():
        if isinstance(module, LayerScale):  # starts near 0, where it would hide what a block computes
            torch.nn.init.ones_(module.gamma)
    return backbone


def noise_images(images: int, side: int) -> Table:
    """Images of noise, every other one labelled."""

    def paint(row: int) -> Image.Image:
        return Image.fromarray(np.random.default_rng(row).integers(0, 256, (side, side, 3), dtype=np.uint8))

    labels = [None if row % 2 else f"{row // 2 % KNOWN:03d}" for row in range(images)]
    return readable(Table([f"{row}.png" for row in range(images)], labels, paint), contents=True)


class PixelsInMemory:
    """The views a token cache is made of, as pixels: a store for `StoredBatches` like the cache."""

    random_views, kinds = RANDOM_VIEWS, TWO_CROPS.kinds

    def __init__(self, table: Table, backbone: Backbone) -> None:
        numbers = range(RANDOM_VIEWS + 1)
        views = FixedViews(table, backbone.preprocessing, 0, range(len(table)), [numbers] * len(table))
        self.views = torch.stack([torch.as_tensor(views[row]) for row in range(len(table))])  # (n, V + 1, 3, H, W)

    def holds(self, table: Table) -> bool:
        return len(table) == len(self.views)

    def rows_of(self, table: Table) -> np.ndarray:
        return np.arange(len(table))

    def inputs(self, rows: np.ndarray, numbers: np.ndarray) -> Pixels:
        return Pixels(self.views[rows, numbers])


def token_cache(backbone: Backbone, table: Table, precision: StoredAs) -> TokenCache:
    cache = cached_tokens(backbone, table, RANDOM_VIEWS, precision=precision, workers=0)
    assert cache is not None, "it is built where it is missing"
    return cache


def endless(table: Table, store: ViewStore, batch: int) -> Iterator[Batch]:
    batches = StoredBatches(table, store, batch, seed=0)
    for epoch in count():
        yield from batches(epoch)


def training_steps(networks: Networks, table: Table, batch: int, precision: StoredAs) -> dict[str, TrainingStep]:
    """The step of each variant; the caches are made now."""
    pixels = PixelsInMemory(table, networks.training)
    tokens = token_cache(networks.training, table, precision)
    last_tokens = token_cache(networks.frozen, table, precision)
    torch.manual_seed(0)
    head, host = simgcd_head(networks.training.dim), ORGANIZERS["none"](networks.training.dim)
    published = partial(Encoder, AsPublished.of(networks.training))
    training = partial(Encoder, networks.training)
    encoders: dict[str, tuple[Encoder, ViewStore]] = {
        "a": (published(host), pixels),
        "a'": (training(host), pixels),
        "b": (published(networks.plain), pixels),
        "c": (training(networks.fast), pixels),
        "d": (training(host), tokens),
        "e": (training(networks.fast), tokens),
        "f": (Encoder(networks.frozen, networks.fast), last_tokens),
    }
    return {
        name: TrainingStep(encoder, head, endless(table, store, batch)) for name, (encoder, store) in encoders.items()
    }


def check_same(steps: dict[str, TrainingStep]) -> None:
    """Stop unless the first step of variants that are one function gives one loss and one gradient."""
    losses, gradients = {}, {}
    for name, run in steps.items():
        losses[name] = run().item()
        gradients[name] = {n: p.grad.clone() for n, p in run.model.named_parameters() if p.grad is not None}
    for first, others in SAME.items():
        for other in others:
            both = gradients[first].keys() & gradients[other].keys()  # no block of (f) has a gradient
            of_first, of_other = (torch.cat([gradients[name][n].flatten() for n in both]) for name in (first, other))
            apart = float((of_first - of_other).norm() / of_first.norm())
            loss_apart = abs(losses[first] - losses[other]) / abs(losses[first])
            print(f"({other}) computes what ({first}) does: loss apart by {loss_apart:.0e}, gradient by {apart:.0e}")
            if not max(apart, loss_apart) <= ROUNDING:
                sys.exit(f"error: ({first}) and ({other}) do not compute the same; nothing is timed.")


def print_table(times: dict[str, list[float]], batch: int) -> None:
    print(f"\n{'':59}ms a step   images/s   times (a)   times (b)")
    for name, about in VARIANTS.items():
        seconds = times[name]
        against_a = f"{ratio(times['a'], seconds):.2f}"
        against_b = f"{ratio(times['b'], seconds):.2f}" if name in ("b", *SAME["b"]) else ""
        rate = f"{1e3 * median(seconds):9,.1f}{batch / median(seconds):11,.2f}"
        print(f"{f'({name})':5}{about:54}{rate}{against_a:>12}{against_b:>12}")
    print(f"{'':5}{CPF_ALONE:54}{1e3 * median(times[CPF_ALONE]):9,.1f}")


def print_targets(times: dict[str, list[float]]) -> None:
    cached = {name: ratio(times[other], times[name]) for name, other in (("d", "a"), ("e", "b"))}
    shares = {
        "(c) over (a)": ratio(times["c"], times["a"]) - 1,
        "CPF by itself over (a)": ratio(times[CPF_ALONE], times["a"]),
    }
    targets = [
        ("(d) at least 6 times as fast as (a)", f"{cached['d']:.2f}", cached["d"] >= 6),
        ("(e) at least 4 times as fast as (b)", f"{cached['e']:.2f}", cached["e"] >= 4),
        *((f"CPF at most 4 % of the step: {name}", f"{share:.1%}", share <= 0.04) for name, share in shares.items()),
    ]
    print("\ntargets")
    for target, measured, is_met in targets:
        print(f"     {target:54}{measured:>9}   {'met' if is_met else 'missed'}")


def measure(name: str, image_size: int, images: int, batch: int, rounds: int) -> None:
    networks = Networks.build(name, image_size)
    size = networks.training.preprocessing.size
    print(f"\n{name} at {size} px, batch {batch}, {images} images, median of {rounds} rounds", flush=True)
    table = noise_images(images, side=int(size / networks.training.preprocessing.crop_ratio))
    compared = min(COMPARED_IMAGES, batch)
    check_same(training_steps(networks, table.rows(range(compared)), compared, "float32"))

    steps = training_steps(networks, table, batch, "float16")
    views = next(steps["c"].batches).inputs.values
    with torch.no_grad():
        tokens = networks.training(networks.training.preprocessing.normalise(views))
    times = times_in_turns({**steps, CPF_ALONE: forward_and_backward(networks.fast, tokens)}, rounds)
    print_table(times, batch)
    print_targets(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = ["vit_small_patch14_dinov2", "vit_base_patch16_224.dino"]
    parser.add_argument("--backbones", nargs="+", default=default, help="timm vision transformers")
    parser.add_argument("--image-size", type=int, default=224, help="pixels a side")
    parser.add_argument("--images", type=int, default=160, help="images in the cache")
    parser.add_argument("--batch", type=int, default=8, help="images a step; two views of each")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds")
    args = parser.parse_args()

    print(machine())
    for name in args.backbones:
        with TemporaryDirectory(prefix="newkinds-") as folder:
            os.environ[ROOT_VARIABLE] = folder
            measure(name, args.image_size, args.images, args.batch, args.rounds)


if __name__ == "__main__":
    main()
