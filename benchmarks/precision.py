"""Frozen features in float32 and in bfloat16: images a second, how much they differ, and 1-NN accuracy of both.

The folder has one sub-folder per class; every so many-th image of it is taken.

    python benchmarks/precision.py cars_147/ --weights vit_small_patch14_dinov2.fp16.safetensors --images 200
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from newkinds.data import load_table, source_of
from newkinds.encoders.backbone import Backbone
from newkinds.encoders.backbones import build_backbone
from newkinds.encoders.frozen_precision import FrozenPrecision, multiplies_bfloat16
from newkinds.text import text_table

PRECISIONS: tuple[FrozenPrecision, ...] = ("float32", "bfloat16")
BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backbone", default="vit_small_patch14_dinov2")
    parser.add_argument("--weights")
    parser.add_argument("--sizes", type=int, nargs="+", default=[112, 224, 336])
    parser.add_argument("--images", type=int, default=200)
    given = parser.parse_args()
    table = load_table(source_of(given.folder))
    rows = np.linspace(0, len(table) - 1, min(given.images, len(table)), dtype=int).tolist()
    classes = np.array([Path(table.paths[row]).parent.name for row in rows])
    print(f"{torch.get_num_threads()} threads; the processor multiplies bfloat16: {multiplies_bfloat16()}")
    lines = []
    for size in given.sizes:
        backbones = [build_backbone(given.backbone, given.weights, 0, size, precision=one) for one in PRECISIONS]
        views = backbones[0].preprocessing
        images = torch.stack([views.centre_view(views.resize(table.open(row))) for row in rows])  # (n, 3, H, W)
        (exact, slow), (rounded, fast) = (class_tokens(backbone, images) for backbone in backbones)
        cosine = F.cosine_similarity(exact, rounded)  # (n,)
        speed = [f"{len(rows) / seconds:.1f}" for seconds in (slow, fast)]
        right = [f"{100 * neighbour_accuracy(tokens, classes):.1f}" for tokens in (exact, rounded)]
        similar = f"{cosine.mean():.5f} ({cosine.min():.5f})"
        lines.append([str(size), *speed, f"{slow / fast:.2f}", similar, *right])
    headings = ["px", "images/s float32", "bfloat16", "times", "cosine (least)", "1-NN float32, %", "bfloat16"]
    print(text_table(headings, lines))


@torch.inference_mode()
def class_tokens(backbone: Backbone, images: Tensor) -> tuple[Tensor, float]:
    """(n, D) of uint8 views (n, 3, H, W), and the seconds that it took after a first batch."""
    normalise = backbone.preprocessing.normalise
    backbone(normalise(images[:BATCH]), patches=False)
    started = time.perf_counter()
    tokens = torch.cat([backbone(normalise(some), patches=False).cls for some in images.split(BATCH)])
    return tokens, time.perf_counter() - started


def neighbour_accuracy(tokens: Tensor, classes: np.ndarray) -> float:
    """How many of the rows (n, D) have a nearest other row of their class (n,)."""
    unit = F.normalize(tokens, dim=1)
    similarity = (unit @ unit.T).fill_diagonal_(-1.0)
    return float((classes == classes[similarity.argmax(dim=1).numpy()]).mean())


if __name__ == "__main__":
    main()
