"""A run of vectors that grows: kinds around random directions, of which some are known, and some come later."""

import csv
from pathlib import Path

import numpy as np

DIM, SPREAD = 24, 0.1


class Kinds:
    """Draws vectors of numbered kinds.

    >>> Kinds(seed=0).draw({3: 20})       # (20, DIM) of kind 3
    """

    def __init__(self, count: int = 14, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        centres = self.random.normal(size=(count, DIM))
        self.centres = centres / np.linalg.norm(centres, axis=1, keepdims=True)

    def draw(self, sizes: dict[int, int]) -> np.ndarray:
        of = np.repeat(list(sizes), list(sizes.values()))
        return (self.centres[of] + SPREAD * self.random.normal(size=(len(of), DIM))).astype(np.float32)


def write_vectors(folder: Path, kinds: Kinds, present: int = 12, known: int = 6, each: int = 12) -> tuple[Path, Path]:
    """`x.npy` with so many kinds, and `labels.csv`: half of the images of known ones are labelled."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "x.npy", kinds.draw(dict.fromkeys(range(present), each)))
    with open(folder / "labels.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["label", "truth"])
        for row in range(present * each):
            name = f"kind {row // each:02d}"
            writer.writerow([name if row // each < known and row % 2 else "", name])
    return folder / "x.npy", folder / "labels.csv"
