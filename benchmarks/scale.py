"""How discover's stages grow with the number of images: processor time and peak memory, each in a process of its own.

    python benchmarks/scale.py                                      # features: 1,000 to 100,000; images: 1,000, 4,000

Features are unit vectors (n, 64) around 100 directions, half of the first 50 classes labelled, as `discover` gives them
to its counters and assigners. Images of 32 px are made in memory and embedded by a random ViT-Ti. The exponent is that
of time = c · nᵇ, by least squares over the logarithms of all sizes of a stage; memory is what the stage adds to the
peak of the process. A stage whose last size took longer than --patience is not asked for a larger one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from newkinds.assigners import ASSIGNERS
from newkinds.cluster import KMeans, SemiSupervisedKMeans, Ward
from newkinds.encoders.encoder import Encoder
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.training.embedding import embed
from side_by_side import machine
from training import noise_images, random_backbone

DIM, CLASSES, KNOWN = 64, 100, 50
Stage = Callable[[torch.Tensor, torch.Tensor], object]


def assigned(name: str) -> Stage:
    def stage(features: torch.Tensor, labels: torch.Tensor) -> object:
        assigner = ASSIGNERS[name](DIM, KNOWN, CLASSES)
        assigner.fit(features, labels)
        return assigner

    return stage


STAGES: dict[str, Stage] = {
    "k-means, one start": lambda X, y: KMeans(CLASSES, 1, random_state=0).fit(X),
    "semi-supervised k-means, one start": lambda X, y: SemiSupervisedKMeans(CLASSES, 1, random_state=0).fit(X, y),
    "assigner `balanced`": assigned("balanced"),
    "Ward's tree": lambda X, y: Ward().fit(X),
}


def of_features(name: str, n: int) -> Callable[[], object]:
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(n) % CLASSES
    directions = torch.randn(CLASSES, DIM, generator=generator)
    features = F.normalize(directions[truth] + 0.8 * torch.randn(n, DIM, generator=generator), dim=1)
    labels = truth.where((truth < KNOWN) & (torch.arange(n) // CLASSES % 2 == 0), -1)
    return partial(STAGES[name], features, labels)


def of_images(name: str, n: int) -> Callable[[], object]:
    backbone = random_backbone("vit_tiny_patch16_224", 32, train_blocks=0)
    encoder = Encoder(backbone, ORGANIZERS["none"](backbone.dim))
    return partial(embed, encoder, noise_images(n, 32), torch.device("cpu"), workers=0)


def peak() -> float:
    """Megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 2**20)


def cost(prepare: Callable[[str, int], Callable[[], object]], name: str, n: int) -> tuple[float, float]:
    """Processor seconds and megabytes of one stage, in the process that calls it."""
    torch.set_num_threads(1)
    prepare(name, 200)()  # what is loaded once, whatever the size
    stage = prepare(name, n)
    before, start = peak(), time.process_time()
    stage()
    return time.process_time() - start, peak() - before


def exponent(sizes: list[int], seconds: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]) if len(sizes) > 1 else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=int, nargs="+", default=[1000, 10_000, 50_000, 100_000])
    parser.add_argument("--images", type=int, nargs="+", default=[1000, 4000])
    parser.add_argument("--patience", type=float, default=20, help="seconds")
    parser.add_argument("--only", default="", metavar="WORD", help="stages with this in their name")
    given = parser.parse_args()
    print(f"{machine().replace(f'{torch.get_num_threads()} threads', '1 thread')}; load {os.getloadavg()[0]:.1f}\n")
    print(f"{'stage':36}{'n':>10}{'seconds':>10}{'MB':>8}{'exponent':>10}")
    stages = [(of_images, "making and embedding tiny images", given.images)]
    stages += [(of_features, name, given.features) for name in STAGES]
    for prepare, name, sizes in (stage for stage in stages if given.only in stage[1]):
        seconds: list[float] = []
        for n in sizes:
            if seconds and seconds[-1] > given.patience:
                print(f"{name:36}{n:10,}   not asked: the size before took {seconds[-1]:.0f} s")
                break
            with multiprocessing.get_context("fork").Pool(1) as pool:
                took, memory = pool.apply(cost, (prepare, name, n))
            seconds.append(took)
            fitted = f"{exponent(sizes[: len(seconds)], seconds):10.2f}" if n == sizes[-1] else ""
            print(f"{name:36}{n:10,}{took:10.2f}{memory:8.0f}{fitted}", flush=True)


if __name__ == "__main__":
    main()
