"""Seconds and memory of `newkinds update` for 100 new images among more and more.

    python benchmarks/update.py                                  # vectors: 1,000, 10,000 and 100,000
    python benchmarks/update.py --sizes 1000 10000 --pictures    # small pictures in a folder, by the bundled backbone

Each size is a run of its own, in which nothing is trained; 100 images come to it, 40 of them of two kinds that were
never seen. The update runs in a process of its own, without the page: its seconds are those of `newkinds.update`, with
torch's import; the memory is the most that the process had (Linux). The exponent is that of a power of the size, by the
first and the last row.
"""

import argparse
import csv
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import newkinds
from newkinds.text import text_table

DIM, KINDS, KNOWN, NEW = 384, 50, 25, 100
STRANGERS = 40
MEASURED = """
import sys, time
import newkinds
from newkinds.runs.changes import UpdateHistory
from newkinds.runs.directory import RunDirectory
started = time.monotonic()
newkinds.update(sys.argv[1], sys.argv[2:], page=False)
last = UpdateHistory.of(RunDirectory(sys.argv[1])).last
seconds = time.monotonic() - started
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
print(f"RESULT {seconds:.2f} {peak:.0f} {len(last.opened)} {last.pool}")
"""


class Kinds:
    """Vectors or pictures of numbered kinds."""

    def __init__(self, pictures: bool) -> None:
        self.random = np.random.default_rng(0)
        self.pictures = pictures
        centres = self.random.normal(size=(KINDS + 2, DIM))
        self.centres = centres / np.linalg.norm(centres, axis=1, keepdims=True)
        self.colours = self.random.integers(0, 256, (KINDS + 2, 2, 2, 3))

    def write(self, folder: Path, of: np.ndarray, name: str, labelled: bool) -> Path:
        """The images of some kinds; where `labelled`, half of those of known kinds have their label."""
        known = (of < KNOWN) & (np.arange(len(of)) // KINDS % 2 == 0) & labelled
        if not self.pictures:
            noise = 0.6 * self.random.normal(size=(len(of), DIM)) / math.sqrt(DIM)
            np.save(folder / f"{name}.npy", (self.centres[of] + noise).astype(np.float32))
            if labelled:
                with open(folder / "labels.csv", "w", newline="") as file:
                    names = ([f"kind {kind}" if told else ""] for kind, told in zip(of, known, strict=True))
                    csv.writer(file).writerows([["label"], *names])
            return folder / f"{name}.npy"
        for number, (kind, told) in enumerate(zip(of, known, strict=True)):
            place = folder / name / (f"kind {kind}" if told else "unlabeled")
            place.mkdir(parents=True, exist_ok=True)
            patch = np.clip(self.colours[kind] + self.random.integers(-25, 25, (2, 2, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(patch).resize((32, 32), Image.Resampling.BICUBIC).save(place / f"{number}.png")
        return folder / name


def measure(size: int, pictures: bool, folder: Path) -> tuple[float, float, int, int]:
    """Seconds, megabytes, categories that were opened and images that wait."""
    kinds = Kinds(pictures)
    data = kinds.write(folder, np.arange(size) % KINDS, "first", labelled=True)
    chosen: dict[str, Any] = {"backbone": "tiny"} if pictures else {"labels": str(folder / "labels.csv")}
    settings = {"train": {"epochs": 0}, "assigner": {"name": "balanced"}}
    newkinds.discover(data, folder / "run", k=KINDS, settings=settings, page=False, **chosen)
    of = np.concatenate([np.arange(NEW - STRANGERS) % KINDS, np.repeat([KINDS, KINDS + 1], STRANGERS // 2)])
    came = kinds.write(folder, of, "more", labelled=False)
    command = [sys.executable, "-c", MEASURED, str(folder / "run"), str(came)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    seconds, megabytes, opened, waiting = line.split()[1:]
    return float(seconds), float(megabytes), int(opened), int(waiting)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[1_000, 10_000, 100_000])
    parser.add_argument("--pictures", action="store_true")
    chosen = parser.parse_args()
    rows, figures = [], []
    for size in chosen.sizes:
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            seconds, megabytes, opened, waiting = measure(size, chosen.pictures, Path(folder))
            whole = time.monotonic() - started
        figures.append((size, seconds))
        rows.append([f"{size:,}", f"{seconds:.1f}", f"{megabytes:,.0f}", str(opened), str(waiting), f"{whole:.0f}"])
        print(rows[-1], file=sys.stderr, flush=True)
    print(text_table(["images there", "seconds", "MB at most", "opened", "waiting", "seconds with discover"], rows))
    if len(figures) > 1:
        (small, quick), (large, slow) = figures[0], figures[-1]
        print(f"exponent {math.log(slow / quick) / math.log(large / small):.2f}")


if __name__ == "__main__":
    main()
