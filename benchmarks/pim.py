"""PIM on frozen features, with each alpha, on rows as they are and whitened; sizes even or uneven; K is given.

    python benchmarks/pim.py features.npz --classes 49 --uneven 6

The file has `cls` (n, P), a feature of each image, and `truth` (n,), its class. For each seed classes are drawn, half
of them are known, and half of the known classes' images are labelled. `--uneven 6`: the largest class keeps all its
images, the smallest a sixth. All / Old / New of the unlabelled images, by Hungarian matching; processor time.
"""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from newkinds.assigners.pim import PIM
from newkinds.assigners.whitening import apply_whitening, whitening_of
from newkinds.cluster.metrics import clustering_accuracy
from newkinds.text import text_table

SHRINKAGE = 0.5


def draw(truth: np.ndarray, classes: int, uneven: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Rows, their classes 0..K-1, labels (-1: none), and how many of the classes are known."""
    random = np.random.RandomState(seed)
    names = random.permutation(np.unique(truth))[:classes]
    order = random.permutation(len(names))
    kept = []
    for place, name in zip(order, names, strict=True):
        members = np.flatnonzero(truth == name)
        if uneven > 1:
            size = max(2, round(len(members) * uneven ** (-place / (len(names) - 1))))
            members = random.choice(members, size, replace=False)
        kept.append(members)
    rows = np.sort(np.concatenate(kept))
    number = {name: i for i, name in enumerate(names)}
    classes_of_rows = np.array([number[name] for name in truth[rows]])
    known = round(len(names) / 2)
    old = np.flatnonzero(classes_of_rows < known)
    labelled = random.choice(old, len(old) // 2, replace=False)
    labels = np.full(len(rows), -1)
    labels[labelled] = classes_of_rows[labelled]
    return rows, classes_of_rows, labels, known


def measure(embedding: Tensor, truth: np.ndarray, labels: Tensor, known: int, alpha: float, seed: int) -> list[float]:
    """All, Old, New in percent, and seconds."""
    torch.manual_seed(seed)
    began = time.process_time()
    categories = int(truth.max()) + 1
    pim = PIM(embedding.shape[1], known, categories, alpha=alpha)
    pim.fit(embedding, labels)
    found = pim(embedding).argmax(dim=1).numpy()
    seconds = time.process_time() - began
    hidden = labels.numpy() < 0
    accuracy = clustering_accuracy(truth[hidden], found[hidden], range(known))
    return [100 * accuracy.all, 100 * accuracy.old, 100 * accuracy.new, seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features")
    parser.add_argument("--classes", type=int, default=50)
    parser.add_argument("--uneven", type=float, default=1.0)
    parser.add_argument("--alphas", type=float, nargs="+", default=[1.0, 1.5, 2.0, 3.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    torch.set_num_threads(1)
    with np.load(given.features) as stored:
        features, truth = torch.from_numpy(stored["cls"]).float(), stored["truth"]
    found: dict[tuple[str, float], list[list[float]]] = {}
    for seed in given.seeds:
        rows, classes, labels, known = draw(truth, given.classes, given.uneven, seed)
        raw, of_rows = F.normalize(features[rows], dim=1), torch.from_numpy(labels)
        whitened = apply_whitening(raw, *whitening_of(raw, of_rows, SHRINKAGE))
        for space, embedding in (("raw", raw), ("whitened", whitened)):
            for alpha in given.alphas:
                numbers = measure(embedding, classes, of_rows, known, alpha, seed)
                found.setdefault((space, alpha), []).append(numbers)
    lines = []
    for (space, alpha), of_seeds in found.items():
        each = " ".join(f"{of_seed[0]:.1f}" for of_seed in of_seeds)
        lines.append([space, f"{alpha:g}", each, *(f"{mean:.1f}" for mean in np.mean(of_seeds, axis=0))])
    print(text_table(["rows", "alpha", "All of each seed", "All", "Old", "New", "seconds"], lines))


if __name__ == "__main__":
    main()
