"""Points to cluster, and whether two clusterings are the same."""

import numpy as np


def blobs(n=300, clusters=5, dim=8, spread=0.3, seed=0):
    """Points around random centres, and the centre of each."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % clusters
    return rng.normal(size=(clusters, dim))[truth] + spread * rng.normal(size=(n, dim)), truth


def same_partition(a, b):
    pairs = len(set(zip(a.tolist(), b.tolist(), strict=True)))
    return pairs == len(set(a.tolist())) == len(set(b.tolist()))
