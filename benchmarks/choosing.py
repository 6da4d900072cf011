"""How well the way to find categories is chosen: what the search takes, and what each candidate would have given.

Features are an .npz file with `cls` (n, D) and `truth` (n,), such as class tokens of a frozen backbone. A seed draws
the classes, which half of them is known, and which half of their images is labelled; `--uneven 6` draws sizes from 1 to
1/6. Every candidate is judged as `newkinds discover` judges it (rule "task": the task itself with labels hidden), and
those of before as they were judged then (rule "labelled": labelled images alone, split in halves); then it finds the
categories of all images, and the truth says how well. What was left out of the pool is judged beside it, and cannot be
taken. The regret of a rule is what the best of all would have had more than the one that the rule takes. K is given.
Figures are All in percent: by one match, and by name.

    python benchmarks/choosing.py cars=cars-224.npz:49 birds=cub-112.npz:50 --seeds 0 1 2
"""

import argparse
import time
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

from newkinds.assigners import ASSIGNERS
from newkinds.assigners.known_clusters import name_categories
from newkinds.assigners.resplit import resplits
from newkinds.cluster.metrics import accuracy_by_name, clustering_accuracy
from newkinds.runs.records import CandidateScore
from newkinds.search.frozen_features import FROZEN_WAYS, is_first_favoured
from newkinds.search.search import best_frozen, judged
from newkinds.search.ways import Features, Way, judge_of, score_split
from newkinds.text import text_table

BEFORE = tuple(Way(name, whiten) for name in ("balanced", "sskmeans", "ward", "meanshift") for whiten in ("none", 0.5))
LEFT_OUT = (*(Way("em", options=(("shrinkage", s),)) for s in (0.1, 0.5, 1.0)), Way("pim", options=(("alpha", 2.0),)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="NAME=FILE.npz[:CLASSES]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--uneven", type=float, default=1.0)
    given = parser.parse_args()
    regrets = []
    for data in given.data:
        name, _, place = data.partition("=")
        file, _, classes = place.partition(":")
        read = np.load(file, allow_pickle=False)
        for seed in given.seeds:
            rows, truth, labels = draw(read["cls"], read["truth"], int(classes or 0), seed, given.uneven)
            regrets.append((name, seed, *compare(name, rows, truth, labels, seed)))
    columns = ["set", "seed", "K", "rule and pool before: took", "All", "now: took", "All", "best of all"]
    print(text_table(columns, [[str(cell) for cell in row] for row in regrets]))


def draw(
    features: NDArray[np.float32], names: NDArray[np.str_], classes: int, seed: int, uneven: float
) -> tuple[Tensor, NDArray[np.int64], NDArray[np.int64]]:
    """Unit rows, true classes (the known ones first), and labels (-1: none)."""
    random = np.random.RandomState(seed)
    drawn = random.permutation(np.unique(names))[: classes or None]
    sizes = uneven ** (-random.permutation(len(drawn)) / max(len(drawn) - 1, 1))  # of one
    kept = []
    for name, size in zip(drawn, sizes, strict=True):
        own = np.flatnonzero(names == name)
        kept.append(random.choice(own, max(2, round(size * len(own))), replace=False))
    places = np.sort(np.concatenate(kept))
    number = {name: place for place, name in enumerate(drawn)}
    truth = np.array([number[name] for name in names[places]])
    known = np.flatnonzero(truth < len(drawn) // 2)
    labels = np.full(len(truth), -1)
    labelled = random.choice(known, len(known) // 2, replace=False)
    labels[labelled] = truth[labelled]
    return F.normalize(torch.from_numpy(features[places]).float(), dim=1), truth, labels


def compare(
    name: str, rows: Tensor, truth: NDArray[np.int64], labels: NDArray[np.int64], seed: int
) -> tuple[int, str, str, str, str, str]:
    """What each rule takes of its pool, and how well that does."""
    k, known = int(truth.max()) + 1, int(labels.max()) + 1
    halves = resplits(labels, 6, np.random.RandomState(seed))
    task = judge_of(labels, seed, k).splits
    rules = {"labelled": (halves, BEFORE, ()), "task": (task, FROZEN_WAYS, LEFT_OUT)}
    found: dict[Way, tuple[float, ...]] = {}
    taken = {}
    for rule, (splits, ways, others) in rules.items():
        scores = []
        for way in (*ways, *others):
            started = time.process_time()
            accuracies_of = [score_split(way, Features(rows[split.rows]), split) for split in splits]
            scores.append(judged(CandidateScore(str(way)), accuracies_of, 0.0))
            found[way] = accuracies(way, rows, truth, labels, known, k)
            seconds = time.process_time() - started
            figures = " ".join(f"{value:.1f}" for value in (100 * (scores[-1].score or 0), *found[way]))
            print(
                f"{name} {seed} {rule}: {way}: on splits, All, Old, New, by name: {figures} ({seconds:.0f} s)",
                flush=True,
            )
        pool = scores[: len(ways)]
        favoured = is_first_favoured(FROZEN_WAYS, rows, labels, k, seed)
        best = best_frozen(pool, favoured) if rule == "task" else max(pool, key=lambda score: score.score or 0)
        taken[rule] = next(way for way in ways if best is not None and str(way) == best.name)
        order = spearmanr([score.score for score in scores], [found[way][-1] for way in (*ways, *others)])[0]
        print(f"{name} {seed} {rule}: takes {taken[rule]}, rank correlation {order:.2f}", flush=True)
    before, now = taken["labelled"], taken["task"]
    top = max(found, key=lambda way: found[way][0])
    show = partial("{:.1f}".format)
    return k, str(before), show(found[before][0]), str(now), show(found[now][0]), f"{top}: {found[top][0]:.1f}"


def accuracies(
    way: Way, rows: Tensor, truth: NDArray[np.int64], labels: NDArray[np.int64], known: int, k: int
) -> tuple[float, float, float, float]:
    """All, Old and New by one match, and All by name, in percent, of the unlabelled images."""
    torch.manual_seed(0)
    given = torch.from_numpy(labels)
    points = way.whiten_rows(rows, given)
    assigner = ASSIGNERS[way.assigner](points.shape[1], known, k, **dict(way.options))
    with torch.no_grad():
        assigner.fit(points, given)
        cluster = assigner(points).argmax(dim=1).numpy()
    hidden = labels < 0
    named = name_categories(cluster, labels, known, k)
    matched = clustering_accuracy(truth[hidden], cluster[hidden], range(known))
    by_name = accuracy_by_name(truth[hidden], named[hidden], range(known)).all
    return 100 * matched.all, 100 * matched.old, 100 * matched.new, 100 * by_name


if __name__ == "__main__":
    main()
