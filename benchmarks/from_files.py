"""k-means over features in a file, a block at a time, against the same features in memory: time, memory, result.

    python benchmarks/from_files.py                                 # 10,000 to 1,000,000 features of 384 numbers

Each in a process of its own, of one thread. "From the file" holds nothing but blocks (`rows.HELD` is 0, by default it
is 2 GB); "in memory" is given an array that is there already. Memory is the most that the process had of its own at a
time, above what it had before (RssAnon, looked at 50 times a second): pages of the file that the system keeps for
as long as nobody needs their place are not in it. Both give the same bits, which is checked.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

CLUSTERS, KNOWN, WIDTH, ITERATIONS = 100, 50, 384, 10
WRITTEN_AT_ONCE = 50_000


def write_features(n: int, file: Path) -> None:
    """Unit rows around CLUSTERS directions."""
    random = np.random.default_rng(0)
    directions = random.normal(size=(CLUSTERS, WIDTH)).astype(np.float32)
    rows = np.lib.format.open_memmap(file, "w+", np.float32, (n, WIDTH))
    for start in range(0, n, WRITTEN_AT_ONCE):
        truth = np.arange(start, min(n, start + WRITTEN_AT_ONCE)) % CLUSTERS
        some = directions[truth] + 1.5 * random.standard_normal((len(truth), WIDTH), dtype=np.float32)
        rows[start : start + len(truth)] = some / np.linalg.norm(some, axis=1, keepdims=True)
    rows.flush()


def own_memory() -> float:
    """Megabytes of this process that are in no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("RssAnon"))) / 1024


@contextmanager
def watched(seen: list[float]) -> Iterator[None]:
    """While it is open, `seen` gets the memory of this process."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            seen.append(own_memory())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def clustered(file: Path, labelled: bool, in_memory: bool) -> tuple[float, float, bytes]:
    """Processor seconds, megabytes and the centres."""
    import torch

    from newkinds.cluster import KMeans, SemiSupervisedKMeans, rows

    torch.set_num_threads(1)
    X = np.load(file, mmap_mode=None if in_memory else "r")
    rows.HELD = 2**62 if in_memory else 0
    truth = np.arange(len(X)) % CLUSTERS
    y = np.where((truth < KNOWN) & (np.arange(len(X)) // CLUSTERS % 2 == 0), truth, -1) if labelled else None
    kind = SemiSupervisedKMeans if labelled else KMeans
    model = kind(CLUSTERS, 1, random_state=0, max_iter=ITERATIONS)
    kind(2, 1, random_state=0, max_iter=1).fit(X[:100])  # what is loaded once
    seen = [own_memory()]
    start = time.process_time()
    with watched(seen):
        model.fit(X, y)
    return time.process_time() - start, max(seen) - seen[0], model.cluster_centers_.tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    from side_by_side import processor

    print(f"one thread, {processor()}, {CLUSTERS} clusters, one start of {ITERATIONS} iterations\n")
    print("| features of 384 | file, MB | in memory, s | MB more | from the file, s | MB more | |")
    print("|---|---|---|---|---|---|---|")
    context = multiprocessing.get_context("spawn")
    for n in given.features:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "features.npy"
            write_features(n, file)
            for labelled in (False, True):
                found = []
                for in_memory in (True, False):
                    with context.Pool(1) as pool:
                        found.append(pool.apply(clustered, (file, labelled, in_memory)))
                same = "same bits" if found[0][2] == found[1][2] else "DIFFERENT"
                cells = [f"{seconds:.1f} | {megabytes:.0f}" for seconds, megabytes, _ in found]
                name = f"{n:,}, {'semi-supervised' if labelled else 'k-means'}"
                print(f"| {name} | {file.stat().st_size / 1e6:.0f} | {' | '.join(cells)} | {same} |", flush=True)


if __name__ == "__main__":
    main()
