"""What clustering costs: each algorithm against the usual way to compute it, on the same points in one run.

    python benchmarks/clustering.py                                 # everything: about 10 minutes on 2 cores
    python benchmarks/clustering.py --ward 5000 10000 --points 5000
    python benchmarks/clustering.py --grains                        # Ward by way of grains against the exact tree

Points are unit vectors around random directions, as features of a trained encoder would be. Each Ward run has
a process of its own, whose peak memory (with Python, torch and the points in it) is what is printed.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy
import sklearn
import torch
import torch.nn.functional as F
from scipy.cluster.hierarchy import linkage
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from newkinds.cluster import KMeans, SemiSupervisedKMeans, Ward, mean_shift_step, ward
from newkinds.cluster.neighbours import nearest_centre
from plain_kmeans import plain_kmeans
from side_by_side import processor

MAX_SCIPY_POINTS = 20_000  # 1.6 GB of distances; 50,000 points take 10 GB


def unit_points(n: int, dim: int, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Unit vectors (n, dim) in float32 around `classes` directions, their classes (n,) and a half of each class."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(n, generator=generator)
    truth, half = order % classes, (order // classes) % 2 == 0
    direction = torch.randn(classes, dim, generator=generator)
    noise = torch.randn(n, dim, generator=generator)
    return F.normalize(direction[truth] + 1.5 * noise, dim=1), truth, half


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def alternating(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Least CPU seconds of each, taken in turns: other work on the machine then hits all alike."""
    seconds = dict.fromkeys(runs, math.inf)
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time()
            run()
            seconds[name] = min(seconds[name], time.process_time() - start)
    return seconds


def compare_semi_supervised(n: int, dim: int, clusters: int, iterations: int) -> None:
    """Half of the classes are known, and half of their points labelled."""
    X, truth, half = unit_points(n, dim, clusters)
    y = torch.where((truth < clusters // 2) & half, truth, -1)
    free = y < 0
    print(f"\nsemi-supervised k-means   n = {n:,}, d = {dim}, K = {clusters}, {iterations} iterations, same start")
    print(f"  {'':34}{'seconds':>10}{'inertia':>20}")
    labels = {}
    for dtype in (torch.float32, torch.float64):
        points = X.to(dtype)
        start = points[free][: clusters - clusters // 2]
        plainly = partial(plain_kmeans, points[free], points[~free], y[~free], start, iterations, tol=0.0)
        plain_seconds, plain = timed(plainly)
        model = SemiSupervisedKMeans(clusters, init=start, max_iter=iterations, tol=0.0)
        seconds, _ = timed(partial(model.fit, points, y))
        name = str(dtype).removeprefix("torch.")
        labels[name] = model.labels_
        same = np.mean(model.labels_[free.numpy()] == plain.labels.numpy())
        print(f"  {'a loop over clusters, ' + name:34}{plain_seconds:10.2f}{plain.inertia:20.10f}")
        print(f"  {'newkinds, ' + name:34}{seconds:10.2f}{model.inertia_:20.10f}")
        print(f"    {plain_seconds / seconds:.0f} times as fast; {same:.3%} of the labels are the same")
    same = np.mean(labels["float32"] == labels["float64"])
    print(f"  newkinds gives {same:.3%} of the labels alike in float32 and in float64")


def compare_kmeans(n: int, dim: int, clusters: int, iterations: int) -> None:
    """Until no label changes: first from the same centres, then each from its own."""
    X = unit_points(n, dim, clusters)[0]
    start = X[:clusters].numpy()

    def inertia(model: Any) -> float:
        return float(nearest_centre(X, torch.from_numpy(model.cluster_centers_))[1].sum(dtype=torch.float64))

    same_start = {
        "scikit-learn": SklearnKMeans(clusters, init=start, n_init=1, max_iter=iterations, tol=0.0),
        "newkinds": KMeans(clusters, init=start, max_iter=iterations, tol=0.0),
    }
    own_start = {
        "scikit-learn": SklearnKMeans(clusters, n_init=1, max_iter=iterations, tol=0.0, random_state=0),
        "newkinds": KMeans(clusters, n_init=1, max_iter=iterations, tol=0.0, random_state=0),
    }
    for title, models, rounds in (
        ("same start, best CPU time of 5 in turns", same_start, 5),
        ("own k-means++ (scikit-learn draws several candidates for each centre)", own_start, 1),
    ):
        print(f"\nk-means   n = {n:,}, d = {dim}, K = {clusters}, {title}")
        print(f"  {'':34}{'seconds':>10}{'ratio':>8}{'inertia':>14}{'iterations':>12}")
        seconds = alternating({name: partial(model.fit, X.numpy()) for name, model in models.items()}, rounds)
        for name, model in models.items():
            ratio = seconds[name] / seconds["scikit-learn"]
            print(f"  {name:34}{seconds[name]:10.2f}{ratio:8.2f}{inertia(model):14.4f}{model.n_iter_:12d}")


def plain_mean_shift(X: Tensor, k: int = 8, alpha: float = 0.5) -> Tensor:
    """One round of `mean_shift_step` with all similarities at once."""
    neighbours = (X @ X.T).topk(k + 1, dim=1).indices[:, 1:]
    return F.normalize(torch.lerp(X, X[neighbours].mean(dim=1), alpha), dim=1)


def compare_few_points(sizes: list[int], dim: int) -> None:
    print(f"\nfew points   d = {dim}, best CPU time of 5 in turns, in milliseconds")
    titles = f"{'points':>8}{'SciPy Ward':>14}{'newkinds':>10}{'ratio':>8}{'plain shift':>14}{'newkinds':>10}"
    print(f"  {titles}{'ratio':>8}")
    for n in sizes:
        X = unit_points(n, dim, 50)[0]
        runs: dict[str, Callable[[], Any]] = {
            "scipy": partial(linkage, X.numpy(), "ward"),
            "ward": partial(Ward().fit, X),
            "plain": partial(plain_mean_shift, X),
            "shift": partial(mean_shift_step, X),
        }
        scipy_ward, ward, plain, shift = (1000 * s for s in alternating(runs, 5).values())
        line = f"{n:8,}{scipy_ward:14.1f}{ward:10.1f}{ward / scipy_ward:8.2f}{plain:14.1f}{shift:10.1f}"
        print(f"  {line}{shift / plain:8.2f}", flush=True)


def build_tree(who: str, n: int, dim: int, clusters: int) -> tuple[float, float, float]:
    """Seconds, peak memory of this process in GB, and the height of the tree."""
    X = unit_points(n, dim, clusters)[0]
    seconds, tree = timed(lambda: Ward().fit(X).linkage_ if who == "newkinds" else linkage(X.numpy(), "ward"))
    return seconds, peak_memory(), float(tree[-1, 2])


def peak_memory() -> float:
    """Of this process, in GB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent used before this process was started
        peak = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)


def compare_ward(sizes: list[int], dim: int, clusters: int) -> None:
    print(f"\nWard   d = {dim}")
    print(f"  {'':14}{'points':>10}{'seconds':>10}{'peak GB':>10}{'height':>12}   growth")
    context = multiprocessing.get_context("spawn")
    for who in ("scipy", "newkinds"):
        before: tuple[int, float] | None = None
        for n in sizes:
            if who == "scipy" and n > MAX_SCIPY_POINTS:
                print(f"  {who:14}{n:10,}   left out: its distances alone take {n * (n - 1) * 4 / 2**30:.1f} GB")
                continue
            with context.Pool(1) as pool:
                seconds, peak, height = pool.apply(build_tree, (who, n, dim, clusters))
            growth = f"n^{math.log(seconds / before[1]) / math.log(n / before[0]):.2f}" if before else ""
            print(f"  {who:14}{n:10,}{seconds:10.1f}{peak:10.2f}{height:12.6f}   {growth}", flush=True)
            before = (n, seconds)


def compare_grains(n: int = 8000, classes: int = 40, dim: int = 32, grains: int = 500, seeds: int = 3) -> None:
    """Clusters that overlap more and more, cut by the exact tree and by that of grains."""
    print(f"Ward of {n:,} points of {classes} classes, d = {dim}: adjusted Rand index, mean (least) of {seeds} seeds\n")
    print(f"| noise | exact and truth | {grains} grains and truth | {grains} grains and exact |")
    print("|---|---|---|---|")
    for noise in (0.3, 0.8, 1.0, 1.2):
        scores = []
        for seed in range(seeds):
            random = np.random.default_rng(seed)
            truth = np.arange(n) % classes
            rows = random.normal(size=(classes, dim))[truth] + noise * random.normal(size=(n, dim))
            X = F.normalize(torch.from_numpy(rows).float(), dim=1)
            exact = Ward().fit(X).labels_at(classes)
            with mock.patch.multiple(ward, EXACT=0, GRAINS=grains):
                coarse = Ward().fit(X).labels_at(classes)
            pairs = ((truth, exact), (truth, coarse), (exact, coarse))
            scores.append([adjusted_rand_score(*pair) for pair in pairs])
        cells = [f"{mean:.3f} ({least:.3f})" for mean, least in zip(np.mean(scores, 0), np.min(scores, 0), strict=True)]
        print(f"| {' | '.join([str(noise), *cells])} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20_000, help="for the k-means comparisons")
    parser.add_argument("--iterations", type=int, default=5, help="of a loop over clusters, which is slow")
    parser.add_argument("--ward", type=int, nargs="*", default=[5_000, 10_000, 20_000, 50_000], help="points")
    parser.add_argument("--grains", action="store_true", help="only Ward by way of grains, see docs/scale.md")
    args = parser.parse_args()
    versions = f"torch {torch.__version__}, scikit-learn {sklearn.__version__}, scipy {scipy.__version__}"
    print(f"{versions}, {torch.get_num_threads()} threads of {os.cpu_count()} cores, {processor()}, {date.today()}")
    if args.grains:
        compare_grains()
        return
    compare_semi_supervised(args.points, 384, 200, args.iterations)
    compare_kmeans(args.points, 384, 200, iterations=100)
    compare_few_points([200, 500, 1_000, 1_500, 2_000, 3_000], 384)
    compare_ward(args.ward, 768, 200)


if __name__ == "__main__":
    main()
