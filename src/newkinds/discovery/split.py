"""Parting one category into several by its images' embedding, with scipy alone."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import NewkindsError
from ..runs.directory import RunDirectory
from ..text import plural

EMBEDDING = "embedding.safetensors"
MOST_LINKED = 2000  # images from which the parts are found; the others join the nearest part
MOST_PARTS = 10  # that an estimate considers
PRICE_OF_A_PART = 0.01  # of silhouette: noise gains a little with every part


def read_embedding(run: RunDirectory, members: int) -> NDArray[np.float32]:
    """(n, P) unit rows of a run's images, in the order of its `assignments.csv`: what they are compared by."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    file = run.verified(EMBEDDING)
    try:
        rows = load_file(file)["embedding"].astype(np.float32)
    except (OSError, SafetensorError, KeyError) as error:
        raise NewkindsError(f"{file} is missing or damaged ({error}): run newkinds discover again.") from None
    if len(rows) != members:
        raise NewkindsError(f"{file} has {len(rows)} rows, assignments.csv {members}: run newkinds discover again.")
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def nearest_part(rows: NDArray[np.float32], which: Sequence[int], parts: Sequence[Sequence[int]]) -> list[int]:
    """The part whose mean is nearest to each of some unit rows; `which` and `parts` are numbers of `rows` (n, P).

    >>> nearest_part(np.float32([[1, 0], [0, 1], [0.6, 0.8]]), [2], [[0], [1]])
    [1]
    """
    centres = unit_means(rows, parts)  # (parts, P)
    return (rows[list(which)] @ centres.T).argmax(axis=1).tolist()


def unit_means(rows: NDArray[np.float32], parts: Sequence[Sequence[int] | NDArray[np.int64]]) -> NDArray[np.float32]:
    """(parts, P): the mean of the rows of each part, of length 1."""
    means = np.stack([rows[np.asarray(part)].mean(axis=0) for part in parts])
    return means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)


def split_rows(rows: NDArray[np.float32], into: int | None = None) -> list[int]:
    """The part of each of the unit rows (m, P), 0 being the largest; `into`: how many, None: an estimate of at least 2.

    Ward's tree gives the first parts and k-means improves them, so that the same rows always give the same parts. The
    estimate is the number with the largest silhouette, fewer parts if that makes hardly a difference.

    >>> split_rows(np.float32([[1, 0], [1, 0.1], [0, 1]]))
    [0, 0, 1]
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.cluster.vq import kmeans2
    from scipy.spatial.distance import pdist, squareform

    if into is not None and into < 2:
        raise NewkindsError(f"a category cannot be split into {into}: say 2 or more.")
    if len(rows) < (into or 2):
        raise NewkindsError(f"a category of {plural(len(rows), 'image')} cannot be split into {into or 2}.")
    data = rows.astype(np.float64)
    step = -(-len(data) // MOST_LINKED)
    sample = data[::step]
    pairs = pdist(sample)
    tree, distances = linkage(pairs, "ward"), squareform(pairs)
    counts = [into] if into is not None else range(2, min(MOST_PARTS, max(2, len(sample) // 2)) + 1)
    cuts = [fcluster(tree, count, "maxclust") - 1 for count in counts]
    scores = [_silhouette(distances, cut) - PRICE_OF_A_PART * cut.max() for cut in cuts] if into is None else [0.0]
    cut = cuts[int(np.argmax(scores))]
    centres = np.stack([sample[cut == part].mean(axis=0) for part in range(cut.max() + 1)])
    _, part = kmeans2(data, centres, minit="matrix", iter=30, missing="warn")
    values, part, sizes = np.unique(part, return_inverse=True, return_counts=True)
    if len(values) < (into or 2):
        raise NewkindsError(f"these {len(rows)} images are too alike to be split into {into or 2}.")
    order = np.argsort(-sizes, kind="stable")
    return np.argsort(order)[part].tolist()


def _silhouette(distances: NDArray[np.float64], part: NDArray[np.int64]) -> float:
    """Mean over images of (b - a) / max(a, b): their mean distances (m, m) to their own part and to the nearest one."""
    member = np.eye(part.max() + 1)[part]  # (m, parts)
    sums, sizes = distances @ member, member.sum(axis=0)
    here = np.arange(len(part)), part
    own = sums[here] / np.maximum(sizes[part] - 1, 1)
    others = sums / np.maximum(sizes, 1)
    others[:, sizes == 0] = np.inf
    others[here] = np.inf
    nearest = others.min(axis=1)
    width = np.where(sizes[part] > 1, (nearest - own) / np.maximum(np.maximum(nearest, own), 1e-12), 0)
    return float(width.mean())
