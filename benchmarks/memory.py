"""Peak memory of `newkinds train`, `discover` and `predict` over the number of images: it should hardly grow.

    python benchmarks/memory.py                                     # 500, 2,000, 8,000 images
    python benchmarks/memory.py --images 500 32000

The real commands, each in a process of its own, on a folder of small PNG files (see benchmarks/scale.py), by the
bundled backbone; `--workers 2` reads images in two more processes. The first figure is the peak of the command's own
process as the system counts it, the second the highest sum over that process and those that it started, in which pages
that several of them share count once (PSS, looked at twice a second). Last come the kilobytes that
each image more takes in the command's own process, from the smallest to the largest number of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from scale import CLASSES, write_images
from side_by_side import machine

LOOK_EVERY = 0.5  # seconds


def below(pid: int) -> list[int]:
    """A process and all that it has started."""
    with suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *(other for child in children for other in below(int(child)))]
    return []


def held(pid: int) -> float:
    """Megabytes of a process and those that it started; what they share counts once."""
    total = 0
    for one in below(pid):
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            total += int(next(line.split()[1] for line in lines if line.startswith("Pss:")))
    return total / 1024


def peaks(command: list[str], folder: Path) -> tuple[float, float, float]:
    """Of a command: megabytes of its own process, of that and all it starts, and processor seconds of all."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NEWKINDS_CACHE": str(folder / "cache")}
    log = folder / "log.txt"
    with log.open("w") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", "newkinds", *command], stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        highest = 0.0
        while True:
            done, status, used = os.wait4(started.pid, os.WNOHANG)
            if done:
                break
            highest = max(highest, held(started.pid))
            time.sleep(LOOK_EVERY)
    if status:
        sys.exit(f"error: newkinds {' '.join(command)} failed:\n{log.read_text()[-2000:]}")
    return used.ru_maxrss / 1024, max(highest, used.ru_maxrss / 1024), used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[500, 2000, 8000])
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    print(f"{machine()}; one thread a process, {given.workers} processes that read images", flush=True)
    tiny = ["--backbone", "tiny", "--k", str(CLASSES), "--set", f"train.workers={given.workers}"]
    found: dict[str, dict[int, tuple[float, float, float]]] = {}
    for n in given.images:
        with tempfile.TemporaryDirectory(prefix="newkinds-memory-") as name:
            folder = Path(name)
            images = str(write_images(n, folder / "images"))
            commands = {
                "train": ["train", images, "--out", str(folder / "trained"), "--epochs", "1", *tiny],
                "discover": ["discover", images, "--out", str(folder / "found"), "--time", "1s", *tiny],
                "predict": ["predict", str(folder / "found"), images, "--out", str(folder / "predicted.csv")],
            }
            for verb, command in commands.items():
                found.setdefault(verb, {})[n] = peaks(command, folder)
                own, every, seconds = found[verb][n]
                print(f"{verb:10}{n:8,} images: {own:6.0f} MB, all {every:6.0f} MB, {seconds:6.1f} s", flush=True)
    print(f"\n| MB | {' | '.join(f'{n:,}' for n in given.images)} | kB an image |")
    print("|---" * (len(given.images) + 2) + "|")
    first, last = given.images[0], given.images[-1]
    for verb, of in found.items():
        cells = [f"{of[n][0]:.0f} ({of[n][1]:.0f})" for n in given.images]
        more = f"{1024 * (of[last][0] - of[first][0]) / (last - first):.1f}" if last > first else ""
        print(f"| `{verb}` | {' | '.join(cells)} | {more} |")


if __name__ == "__main__":
    main()
