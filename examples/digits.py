"""Scikit-learn's handwritten digits: 0 to 4 are known, half of their images are labelled; 5 to 9 are to be discovered.

    python examples/digits.py                         compare with clustering, five seeds
    python examples/digits.py --seeds 0 --files out/  and write out/vectors.npy, labels.csv and truth.csv

The files are for the command line:

    newkinds discover out/vectors.npy --labels out/labels.csv --out out/run
    newkinds eval out/run --truth out/truth.csv
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.cluster import AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

import newkinds
from newkinds.cluster import SemiSupervisedKMeans

KNOWN, DIGITS = 5, 10


def partly_labelled(truth: np.ndarray, seed: int) -> np.ndarray:
    """Half of the known digits keep their label, drawn at random; all else is -1."""
    drawn = np.random.RandomState(seed).rand(len(truth)) < 0.5
    return np.where((truth < KNOWN) & drawn, truth, -1)


def answers(X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """A category of each image by several ways, of which the last alone is not told that there are ten."""
    rows = normalize(X)
    estimated = newkinds.CategoryDiscovery(random_state=seed).fit(X, y)
    chosen = newkinds.CategoryDiscovery(DIGITS, random_state=seed).fit(X, y)
    print(f"seed {seed}: {chosen.way_} ({chosen.why_}); estimate: {estimated.n_categories_} categories")
    return {
        "k-means": KMeans(DIGITS, n_init=10, random_state=seed).fit_predict(rows),
        "Ward": AgglomerativeClustering(DIGITS).fit_predict(rows),
        "spectral, 10 neighbours": SpectralClustering(
            DIGITS, affinity="nearest_neighbors", n_neighbors=10, random_state=seed
        ).fit_predict(rows),
        "semi-supervised k-means": SemiSupervisedKMeans(DIGITS, random_state=seed).fit(rows, y).labels_,
        "CategoryDiscovery(10)": chosen.labels_,
        "CategoryDiscovery()": estimated.labels_,
    }


def table(seeds: Sequence[int]) -> str:
    """All, Old and New of the unlabelled images in percent: means over the seeds, and standard errors of All."""
    X, truth = load_digits(return_X_y=True)
    scores: dict[str, list[tuple[float, float, float]]] = {}
    for seed in seeds:
        y = partly_labelled(truth, seed)
        unlabelled = y == -1
        for name, found in answers(X, y, seed).items():
            of_all = newkinds.metrics.clustering_accuracy(truth[unlabelled], found[unlabelled], list(range(KNOWN)))
            scores.setdefault(name, []).append((100 * of_all.all, 100 * of_all.old, 100 * of_all.new))
    lines = ["| way | All | Old | New | All of each seed |", "|---|---|---|---|---|"]
    for name, of_seeds in scores.items():
        every, old, new = np.mean(of_seeds, axis=0)
        error = np.std([one[0] for one in of_seeds], ddof=1) / len(of_seeds) ** 0.5 if len(of_seeds) > 1 else 0.0
        each = ", ".join(f"{one[0]:.1f}" for one in of_seeds)
        lines.append(f"| {name} | {every:.1f} ± {error:.1f} | {old:.1f} | {new:.1f} | {each} |")
    return "\n".join(lines)


def write_files(folder: Path, seed: int) -> None:
    """The same data for the command line."""
    X, truth = load_digits(return_X_y=True)
    y = partly_labelled(truth, seed)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "vectors.npy", X.astype(np.float32))
    labelled = [f"{row},{label}" for row, label in enumerate(y) if label != -1]
    (folder / "labels.csv").write_text("\n".join(["row,label", *labelled, ""]))
    (folder / "truth.csv").write_text("\n".join(["label", *map(str, truth), ""]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--files", type=Path, metavar="FOLDER")
    chosen = parser.parse_args()
    if chosen.files is not None:
        write_files(chosen.files, chosen.seeds[0])
    started = time.perf_counter()
    print(table(chosen.seeds))
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
