"""What can be promised with few labels, few images, or very uneven kinds: semi-supervised k-means on frozen features.

    python benchmarks/scarce.py cifar100_10k/ --backbone vit_small_patch14_dinov2 \
        --weights vit_small_patch14_dinov2.safetensors --image-size 112
    python benchmarks/scarce.py creatures        # the bundled backbone: a few seconds

A folder with one sub-folder per class, of which 40 are drawn (or all, if there are fewer). In each repetition another
half of them is known, and as many images and labels are kept as the line says. The number of categories is given.
Accuracy is that of a fifth of each class's images, which were held out and go to the nearest centre: the same images in
every line.
"""

import argparse
from collections.abc import Callable

import numpy as np
import torch

from newkinds.cluster import SemiSupervisedKMeans
from newkinds.cluster.metrics import clustering_accuracy
from newkinds.data import load_table, source_of
from newkinds.data.table import readable
from newkinds.runs.config import resolve
from newkinds.text import percent, text_table
from newkinds.verbs.count import backbone_rows

CLASSES = 40
Sizes = Callable[[int, int], int]  # place of a class among the known or new ones, how many there are → how many images


def tail(largest: int, ratio: int) -> Sizes:
    """A long tail: the first class has `largest`, the last has 1 for `ratio` of these."""
    return lambda place, classes: max(1, round(largest / ratio ** (place / max(classes - 1, 1))))


def accuracy(features: torch.Tensor, truth: np.ndarray, images: Sizes, labels: Sizes, seed: int) -> tuple[float, ...]:
    """All, old, new of one repetition."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(np.unique(truth))
    half = len(names) // 2
    rows: list[int] = []
    given: list[int] = []
    asked: list[int] = []
    for number, name in enumerate(names):
        every, place = rng.permutation(np.flatnonzero(truth == name)), number % half
        held_out, others = np.split(every, [len(every) // 5])
        kept = others[: images(place, half)]
        labelled = min(labels(place, half), len(kept)) if number < half else 0
        asked += held_out.tolist()
        rows += kept.tolist()
        given += [number] * labelled + [-1] * (len(kept) - labelled)
    clusters = SemiSupervisedKMeans(n_clusters=len(names), random_state=seed).fit(features[rows], np.array(given))
    true = np.array([names.tolist().index(name) for name in truth[asked]])
    return tuple(clustering_accuracy(true, clusters.predict(features[asked]), list(range(half))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--backbone", default="tiny")
    parser.add_argument("--weights")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    given = parser.parse_args()
    backbone = {"name": given.backbone, "weights": given.weights, "image_size": given.image_size}
    config = resolve(
        {
            "data": source_of(given.data),
            "backbone": {name: value for name, value in backbone.items() if value is not None},
        }
    )
    table = load_table(config.data)
    names = np.array(table.truth or table.labels)  # true classes
    drawn = np.random.default_rng(0).permutation(np.unique(names))[:CLASSES]
    some = readable(table.rows(np.flatnonzero(np.isin(names, drawn)).tolist()), contents=True)
    features = backbone_rows(config, some)
    truth = np.array(some.truth or some.labels)
    most = int(np.median(np.unique(truth, return_counts=True)[1]) * 4 / 5)
    half = most // 2
    conditions: dict[str, tuple[Sizes, Sizes]] = {}
    for count in (1, 2, 5, 10, half):
        conditions[f"{count} label(s) per class, {most} images"] = (tail(most, 1), tail(count, 1))
    for count in (5, 10, 20, 40, most):
        conditions[f"{count} images per category, half labelled"] = (tail(count, 1), tail(count // 2, 1))
    for ratio in (1, 10, 100):
        conditions[f"1:{ratio} in images and labels"] = (tail(most, ratio), tail(half, ratio))
    lines = []
    for name, (images, labels) in conditions.items():
        runs = np.array([accuracy(features, truth, images, labels, seed) for seed in given.seeds])
        lines.append([name, *map(percent, runs.mean(0).tolist()), percent(float(runs[:, 0].std(ddof=1)))])
    print(text_table(["", "All", "Old", "New", "± (All)"], lines))


if __name__ == "__main__":
    main()
