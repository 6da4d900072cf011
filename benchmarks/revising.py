"""Whether `em` can revise the number of categories that was counted, on drawn classes.

Features are .npz files as `benchmarks/features.py` writes them; a seed draws classes and labels as in
`benchmarks/choosing.py`. Three ways to revise K̂, the count that `newkinds count` gives:

- `splits`: `em` looks for .7, .85, 1, 1.18 and 1.4 times K̂ categories in the task with labels hidden (`judge_of`);
  where a parabola through what is found again has its top. `half way`: the geometric mean of that and K̂.
- `merge and open`: two new categories of `em` that are as little two as one known class is are merged, and one that is
  as much two as two known classes are is opened: by the share of the variance that two means explain, in the space of
  `em`. The border is the one that best tells known classes from pairs of neighbouring ones.

    python benchmarks/revising.py cars=cars-112.npz:49 cub=cub-112.npz:50 --seeds 30 31
"""

import argparse

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from choosing import draw
from newkinds.assigners.em import EM
from newkinds.assigners.whitening import apply_whitening
from newkinds.cluster.count import COUNTERS
from newkinds.search.ways import Features, Way, judge_of, score_split
from newkinds.text import text_table
from newkinds.verbs.count import COUNT_BY

FACTORS = (0.7, 0.85, 1.0, 1.18, 1.4)  # of the count, that are tried
SPLITS, RESTARTS = 3, 3
COMPARED = 24  # images of a category, or of two together, that two means are fitted to
REPEATS = 3  # of drawing these


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="NAME=FILE.npz[:CLASSES]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    rows, errors = [], []
    for data in given.data:
        name, _, place = data.partition("=")
        file, _, classes = place.partition(":")
        read = np.load(file, allow_pickle=False)
        for seed in given.seeds:
            points, truth, labels = draw(read["cls"], read["truth"], int(classes or 0), seed, 1.0)
            k = int(truth.max()) + 1
            count = COUNTERS[COUNT_BY](points.numpy(), labels).answer
            top = by_splits(points, labels, count, seed)
            found = [count, round(top), round((count * top) ** 0.5), merge_and_open(points, labels, count)]
            rows.append([name, *map(str, (seed, k, *found))])
            errors.append(np.abs(np.array(found) / k - 1))
            print(*rows[-1], flush=True)
    rows.append(["mean |K̂ / K − 1|", "", "", *(f"{error:.3f}" for error in np.mean(errors, axis=0))])
    print(text_table(["set", "seed", "K", "count", "splits", "half way", "merge and open"], rows))


def by_splits(rows: Tensor, labels: NDArray[np.int64], count: int, seed: int) -> float:
    """The number with which most hidden labels are found again, by a parabola over its logarithm."""
    way, known = Way("em", options=(("restarts", RESTARTS),)), int(labels.max()) + 1
    tried = sorted({max(known + 1, round(factor * count)) for factor in FACTORS})
    scores = []
    for k in tried:
        splits = judge_of(labels, seed, k).splits[:SPLITS]
        scores.append(np.mean([score_split(way, Features(rows[split.rows]), split).all for split in splits]))
    at = np.log(tried)
    bend, slope, _ = np.polyfit(at, scores, 2)
    if bend >= 0:
        return float(tried[int(np.argmax(scores))])
    return float(np.exp(np.clip(-slope / bend / 2, at[0], at[-1])))


def merge_and_open(rows: Tensor, labels: NDArray[np.int64], count: int) -> int:
    """How many categories there are after those of `em` were merged and opened."""
    known, given = int(labels.max()) + 1, torch.from_numpy(labels)
    torch.manual_seed(0)
    em = EM(rows.shape[1], known, count)
    with torch.no_grad():
        em.fit(rows, given)
        category = given.where(given >= 0, em(rows).argmax(dim=1)).numpy()
        points = apply_whitening(rows, *em.own_space()).numpy()
    random = np.random.RandomState(0)
    inside = [np.flatnonzero(category == one) for one in range(count)]
    centres = np.stack([points[own].mean(axis=0) if len(own) else np.zeros(points.shape[1]) for own in inside])
    cosine = centres @ centres.T / np.maximum(np.outer(*[np.linalg.norm(centres, axis=1)] * 2), 1e-9)
    np.fill_diagonal(cosine, -1.0)
    neighbour = cosine.argmax(axis=1)
    single = np.array([twoness([points[own]], random) for own in inside])
    pair = np.array([twoness([points[inside[one]], points[inside[neighbour[one]]]], random) for one in range(count)])
    among_known = [one for one in range(known) if neighbour[one] < known]
    borders = np.quantile(np.concatenate([single[:known], pair[among_known]]), np.linspace(0.02, 0.98, 49))
    told = [(single[:known] < border).mean() + (pair[among_known] >= border).mean() for border in borders]
    border = borders[int(np.argmax(told))]
    merged: set[int] = set()
    for one in range(known, count):
        both = {one, int(neighbour[one])}
        if min(both) >= known and pair[one] < border and not both & merged:
            merged |= both
    return count - len(merged) // 2 + int((single[known:] >= border).sum())


def twoness(groups: list[NDArray[np.float32]], random: np.random.RandomState) -> float:
    """The share of the variance that two means explain, of a few rows (n, P) of each group; 0 of too few."""
    each = COMPARED // len(groups)
    found = []
    for _ in range(REPEATS):
        rows = np.concatenate([group[random.permutation(len(group))[:each]] for group in groups])
        found.append(explained_by_two(rows) if len(rows) >= 4 else 0.0)
    return float(np.mean(found))


def explained_by_two(rows: NDArray[np.float32]) -> float:
    """By two-means from the first principal direction."""
    centred = rows - rows.mean(axis=0)
    first = np.linalg.svd(centred, full_matrices=False)[0][:, 0] > 0
    for _ in range(30):
        if first.all() or not first.any():
            return 0.0
        means = np.stack([centred[first].mean(axis=0), centred[~first].mean(axis=0)])
        distance = ((centred[:, None] - means) ** 2).sum(axis=2)
        before, first = first, distance[:, 0] < distance[:, 1]
        if (before == first).all():
            break
    between = first.sum() * (means[0] ** 2).sum() + (~first).sum() * (means[1] ** 2).sum()
    return float(between / (centred**2).sum())


if __name__ == "__main__":
    main()
