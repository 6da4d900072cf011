"""Faiss against ours, both exact and of one thread: k-means from the same start, and the nearest of all rows.

    pip install faiss-cpu
    python benchmarks/beside_faiss.py                               # 10,000 and 100,000 points of 384 numbers
    python benchmarks/beside_faiss.py --points 10000 --rounds 1

Processor seconds, the least of some rounds in turns. Both k-means take all points and as many iterations; of
neighbours, 2,000 rows look for their 10 nearest among all. What both find is compared first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from clustering import alternating, unit_points
from newkinds.cluster import KMeans, most_similar
from newkinds.cluster.neighbours import nearest_centre
from side_by_side import machine

try:
    import faiss
except ImportError:
    raise SystemExit("error: pip install faiss-cpu first; newkinds itself does not need it.") from None

DIM, QUERIES, NEIGHBOURS = 384, 2000, 10


def faiss_kmeans(X: np.ndarray, start: np.ndarray, iterations: int) -> np.ndarray:
    """Centres (K, D)."""
    many = len(X)  # else it takes a sample of the points
    found = faiss.Kmeans(
        X.shape[1], len(start), niter=iterations, nredo=1, max_points_per_centroid=many, min_points_per_centroid=1
    )
    found.train(X, init_centroids=start)
    return np.asarray(found.centroids)


def own_kmeans(X: np.ndarray, start: np.ndarray, iterations: int) -> np.ndarray:
    return KMeans(len(start), init=start, max_iter=iterations, tol=0.0).fit(X).cluster_centers_


def inertia(X: np.ndarray, centres: np.ndarray) -> float:
    squared = nearest_centre(torch.from_numpy(X), torch.from_numpy(np.asarray(centres, np.float32)))[1]
    return float(squared.sum(dtype=torch.float64))


def faiss_nearest(X: np.ndarray) -> np.ndarray:
    index = faiss.IndexFlatIP(X.shape[1])
    index.add(X)
    return index.search(X[:QUERIES], NEIGHBOURS)[1]


def own_nearest(X: np.ndarray) -> np.ndarray:
    rows = torch.from_numpy(X)
    return most_similar(rows[:QUERIES], rows, NEIGHBOURS).numpy()


def compare(name: str, runs: dict[str, Callable[[], Any]], rounds: int, agree: str) -> None:
    seconds = alternating(runs, rounds)
    ratio = seconds["newkinds"] / seconds["faiss"]
    print(f"| {name} | {seconds['faiss']:.2f} | {seconds['newkinds']:.2f} | {ratio:.2f} | {agree} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--clusters", type=int, default=200)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    print(f"faiss {faiss.__version__}, {machine()}\n")
    print("| exact, one thread | faiss, s | newkinds, s | newkinds / faiss | both find |")
    print("|---|---|---|---|---|")
    for n in given.points:
        X = unit_points(n, DIM, given.clusters)[0].numpy()
        start = X[: given.clusters].copy()
        sums = [inertia(X, way(X, start, given.iterations)) for way in (faiss_kmeans, own_kmeans)]
        runs: dict[str, Callable[[], Any]] = {
            "faiss": partial(faiss_kmeans, X, start, given.iterations),
            "newkinds": partial(own_kmeans, X, start, given.iterations),
        }
        name = f"k-means, {n:,} points, {given.clusters} clusters, {given.iterations} iterations"
        compare(name, runs, given.rounds, f"inertia {sums[0]:.1f} and {sums[1]:.1f}")
        same = np.mean([len(np.intersect1d(a, b)) for a, b in zip(faiss_nearest(X), own_nearest(X), strict=True)])
        runs = {"faiss": partial(faiss_nearest, X), "newkinds": partial(own_nearest, X)}
        name = f"{NEIGHBOURS} nearest of {QUERIES:,} among {n:,}"
        compare(name, runs, given.rounds, f"{100 * same / NEIGHBOURS:.2f} % the same")


if __name__ == "__main__":
    main()
