"""What the checks miss of very many images because they compare each with those in cells nearby, and what that saves.

    python benchmarks/cells.py                                      # 100,000 images: 5 minutes of one core

Vectors lie around 100 directions. Hashes are random ones, the hardest case: a copy, every fifth image, has nothing in
common with any but its original, of which 3 % of the bits are turned. All pairs are looked at for 2,000 rows, whose
time stands for that of all. Processor seconds of one thread.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from clustering import unit_points
from newkinds.checks.cells import nearest_cosines
from newkinds.checks.same import near_copies
from newkinds.cluster.neighbours import most_similar
from newkinds.data.facts import Facts
from side_by_side import machine

ASKED, NEIGHBOURS = 2000, 10


def copies_among(n: int) -> tuple[list[Facts], np.ndarray]:
    """Facts of n pictures, of which every fifth is a copy of the one before; and which these are."""
    random = np.random.default_rng(0)
    bits = random.random((n, 256)) < 0.4
    copies = np.arange(4, n, 5)
    bits[copies] = bits[copies - 1] ^ (random.random((len(copies), 256)) < 0.03)
    return [Facts(50, 50, 9.0, "808080", np.packbits(row).tobytes().hex()) for row in bits], copies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--widths", type=int, nargs="*", default=[64, 384])
    n = (given := parser.parse_args()).images
    torch.set_num_threads(1)
    print(machine())
    for width in given.widths:
        rows = unit_points(n, width, 100)[0]
        start = time.process_time()
        found = nearest_cosines(rows, NEIGHBOURS)[:ASKED]
        in_cells, start = time.process_time() - start, time.process_time()
        near = most_similar(rows[:ASKED], rows, NEIGHBOURS, itself=torch.arange(ASKED))
        of_all = (time.process_time() - start) * n / ASKED
        exact = torch.einsum("nd,nkd->nk", rows[:ASKED], rows[near])
        share = float((found >= exact[:, -1:] - 1e-6).double().mean())  # what is as near as the tenth is among the ten
        further = float((found.arccos().mean(1) / exact.arccos().mean(1)).mean() - 1)
        times = f"{in_cells:.0f} s in cells, about {of_all:.0f} s of all pairs"
        missed = f"{share:.0%} of the nearest are found; their mean angle is {further:.1%} too large"
        print(f"{n:,} vectors of {width}: {times}; {missed}", flush=True)
    facts, copies = copies_among(n)
    start = time.process_time()
    flag = near_copies(facts, np.arange(n)).flag
    seconds, wrong = time.process_time() - start, int(flag.sum() - flag[copies].sum())
    print(f"{n:,} hashes: {seconds:.0f} s in cells; {flag[copies].mean():.1%} of the copies are found, {wrong} wrongly")


if __name__ == "__main__":
    main()
