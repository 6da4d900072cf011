"""How the stages of `newkinds discover` grow with the number of images: processor time and peak memory of each.

    python benchmarks/scale.py --images 1000 10000 100000            # PNG files of 32 px in a folder
    python benchmarks/scale.py --vectors 1000 10000 100000 1000000   # ready-made vectors of 64 numbers
    python benchmarks/scale.py --vectors 100000 --width 384

Each size is one real run of `newkinds.discover` in a process of its own, of one thread. Its functions are watched, not
called by themselves: a row is the processor time inside one of them, without that of other rows, and how far the memory
of the process rose above what it had when the function began. Data are around 100 directions (or pictures), half of the
first 50 classes labelled. Images are embedded by the bundled backbone. Trainings are left out (--time 1s): what they
cost does not depend on the number of images. The exponent is that of seconds = c · nᵇ, by least squares over the sizes
from --fit-from on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numpy as np

CLASSES, KNOWN, SIDE = 100, 50, 32
STATUS = Path("/proc/self/status")


# -- data ------------------------------------------------------------------------------------------------------------


def truth_and_labels(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The class of each, and whether that is said: of half of the images of the first KNOWN classes."""
    truth = np.arange(n) % CLASSES
    return truth, (truth < KNOWN) & (np.arange(n) // CLASSES % 2 == 0)


def write_images(n: int, folder: Path) -> Path:
    """Noisy pictures of 100 kinds as PNG files, a folder for each known class."""
    from PIL import Image

    random = np.random.default_rng(0)
    kinds = random.integers(0, 256, (CLASSES, 8, 8, 3))
    truth, labelled = truth_and_labels(n)
    for name in ("unlabeled", *(f"class-{c:03d}" for c in range(KNOWN))):
        (folder / name).mkdir(parents=True)
    for row in range(n):
        coarse = kinds[truth[row]] + random.normal(0, 40, (8, 8, 3))
        pixels = coarse.repeat(SIDE // 8, 0).repeat(SIDE // 8, 1) + random.normal(0, 8, (SIDE, SIDE, 3))
        inside = f"class-{truth[row]:03d}" if labelled[row] else "unlabeled"
        image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        image.save(folder / inside / f"{row:07d}.png", compress_level=1)
    return folder


def write_vectors(n: int, folder: Path, width: int) -> Path:
    """Vectors around 100 directions, float32, and a list of the labelled ones."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    directions = random.standard_normal((CLASSES, width), np.float32)
    truth, labelled = truth_and_labels(n)
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (n, width))
    for start in range(0, n, 10_000):
        some = truth[start : start + 10_000]
        noise = random.standard_normal((len(some), width), np.float32)
        vectors[start : start + 10_000] = directions[some] + 1.5 * noise
    vectors.flush()
    lines = [f"{row},class-{truth[row]:03d}" for row in np.flatnonzero(labelled)]
    (folder / "labels.csv").write_text("\n".join(["row,label", *lines]) + "\n")
    return folder / "vectors.npy"


# -- watching --------------------------------------------------------------------------------------------------------


def memory(which: str) -> float:
    """Megabytes: VmRSS, what the process has now, or VmHWM, the most since that was last reset."""
    return int(next(line.split()[1] for line in STATUS.read_text().splitlines() if line.startswith(which))) / 1024


class Watch:
    """Processor seconds and megabytes of stages, which may lie in each other: the inner one's time counts for it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.added: dict[str, float] = {}
        self.peak = 0.0
        self._open: list[list[float]] = []  # of each stage that has begun: seconds of inner ones, highest memory

    def _note_peak(self) -> None:
        highest = memory("VmHWM")
        self.peak = max(self.peak, highest)
        for stage in self._open:
            stage[1] = max(stage[1], highest)
        Path("/proc/self/clear_refs").write_text("5")  # the highest begins again from what it is now

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._note_peak()
        had, started = memory("VmRSS"), time.process_time()
        self._open.append([0.0, 0.0])
        try:
            yield
        finally:
            self._note_peak()
            inner, highest = self._open.pop()
            took = time.process_time() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + took - inner
            self.added[name] = max(self.added.get(name, 0.0), highest - had)
            for outer in self._open[-1:]:
                outer[0] += took

    def function(self, owner: Any, attribute: str, name: str | Callable[..., str]) -> None:
        """Watch a function, or a method, wherever `owner` calls it."""
        original = getattr(owner, attribute)

        @wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name if isinstance(name, str) else name(*args)):
                return original(*args, **kwargs)

        setattr(owner, attribute, watched)


def watch_discover(watch: Watch) -> None:
    """The functions of a discovery that take time, in the order in which they are called."""
    from newkinds import checks
    from newkinds.assigners.whitening import Whitening
    from newkinds.checks import base as checks_base
    from newkinds.discovery import finished
    from newkinds.discovery.categories import Discovery
    from newkinds.discovery.report import build
    from newkinds.runs import protocol
    from newkinds.search import ways
    from newkinds.training.model import Model
    from newkinds.verbs import count, stages, train

    watch.function(train, "load_table", "list the images")
    watch.function(train, "readable", "open every image")
    watch.function(stages, "cached_class_tokens", "embed, write the cache")
    watch.function(stages, "embed", "read the cache")
    watch.function(checks_base, "nearest_cosines", "check: nearest images")
    watch.function(checks_base, "near_copies", "check: near copies")
    watch.function(checks, "run_checks", "check: the rest")
    watch.function(count, "estimate_number", "count the categories")
    watch.function(ways, "score_split", lambda way, *_: f"judge: {way}")
    watch.function(Whitening, "fit", "whiten")
    watch.function(Model, "find_categories", "the chosen assigner")
    watch.function(Model, "calibrate", "calibrate")
    watch.function(Model, "assign", "assign")
    watch.function(protocol, "_write_images", "write images.csv")
    watch.function(finished, "gather", "write the tables")
    watch.function(Discovery, "write", "write the tables")
    watch.function(build, "write_page", "draw the page")
    watch.function(build, "write_card", "write the card")


def measured(write: Callable[[int, Path], Path], n: int, k: int | None) -> dict[str, Any]:
    """One discovery in the process that calls this."""
    import torch

    torch.set_num_threads(1)
    import newkinds
    from newkinds.process import prepare

    prepare()
    with tempfile.TemporaryDirectory(prefix="newkinds-scale-") as name:
        folder = Path(name)
        os.environ["NEWKINDS_CACHE"] = str(folder / "cache")
        data = write(n, folder / "data")
        settings: dict[str, Any] = {"train": {"workers": 0}}
        vectors = data.suffix == ".npy"
        given: dict[str, Any] = {"labels": str(folder / "data" / "labels.csv")} if vectors else {"backbone": "tiny"}
        if k is not None:
            given["k"] = k
        watch = Watch()
        watch_discover(watch)
        with watch.stage("all else"):
            found = newkinds.discover(data, folder / "run", time="1s", settings=settings, **given)
        plan = json.loads((folder / "run" / "plan.json").read_text())
        size = sum(file.stat().st_size for file in (folder / "run").rglob("*") if file.is_file())
    return {
        "n": n, "seconds": watch.seconds, "added": watch.added, "peak": watch.peak, "chosen": plan["chosen"],
        "found": len(found.categories), "run": size,
        "candidates": {c["name"]: c["state"] for c in plan["candidates"]},
    }  # fmt: skip


# -- the table -------------------------------------------------------------------------------------------------------


def exponent(sizes: list[int], seconds: list[float]) -> str:
    """Of the sizes that took long enough to tell."""
    long = [(n, s) for n, s in zip(sizes, seconds, strict=True) if s >= 0.05]
    logs = np.log(np.array(long)).reshape(-1, 2)
    return f"{np.polyfit(logs[:, 0], logs[:, 1], 1)[0]:.2f}" if len(long) > 1 else ""


def print_table(title: str, runs: list[dict[str, Any]], fit_from: int) -> None:
    sizes, last = [run["n"] for run in runs], runs[-1]

    def line(name: str, cells: list[str], added: str = "", slope: str = "") -> None:
        print(f"| {' | '.join([name, *cells, added, slope])} |", flush=True)

    def figures(name: str, seconds: list[float], added: str = "") -> None:
        large = [(n, s) for n, s in zip(sizes, seconds, strict=True) if n >= fit_from]
        cells = [f"{s:.2f}" if s < 100 else f"{s:.0f}" for s in seconds]
        line(name, cells, added, exponent([n for n, _ in large], [s for _, s in large]))

    print()
    line(f"processor seconds, {title}", [f"{n:,}" for n in sizes], f"MB at {last['n']:,}", "exponent")
    print("|---" * (len(runs) + 3) + "|")
    names = dict.fromkeys(name for run in runs for name in run["seconds"])
    for name in sorted(names, key=lambda name: name == "all else"):
        figures(name, [run["seconds"].get(name, 0.0) for run in runs], f"{last['added'].get(name, 0):.0f}")
    figures("**all**", [sum(run["seconds"].values()) for run in runs])
    line("peak memory, MB", [f"{run['peak']:.0f}" for run in runs])
    line("the run on the disk, MB", [f"{run['run'] / 1e6:.1f}" for run in runs])
    line("chosen", [run["chosen"].split(", ", 1)[1] for run in runs])
    line("categories (100 are there)", [str(run["found"]) for run in runs])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="*", default=[])
    parser.add_argument("--vectors", type=int, nargs="*", default=[])
    parser.add_argument("--width", type=int, default=64, help="numbers of a vector")
    parser.add_argument("--k", type=int, help="categories, which are then not counted")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="add the runs to this file, and show all of them")
    parser.add_argument("--fit-from", type=int, default=10_000, help="sizes that the exponents are fitted to")
    given = parser.parse_args()
    if not STATUS.is_file():
        sys.exit("error: memory is measured by /proc, which this system does not have.")
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that are measured
    from side_by_side import processor

    print(f"one thread, {processor()}, load {os.getloadavg()[0]:.1f}", flush=True)
    runs = [json.loads(line) for line in given.keep.open()] if given.keep and given.keep.is_file() else []
    for title, sizes, write in (
        ("images", given.images, write_images),
        (f"vectors of {given.width}", given.vectors, partial(write_vectors, width=given.width)),
    ):
        for n in sizes:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                runs.append({"of": title, **pool.apply(measured, (write, n, given.k))})
            print(f"{n:,} {title}: {sum(runs[-1]['seconds'].values()):.0f} s", file=sys.stderr, flush=True)
            if given.keep is not None:
                with given.keep.open("a") as file:
                    file.write(json.dumps(runs[-1]) + "\n")
    for title in dict.fromkeys(run["of"] for run in runs):
        latest = {run["n"]: run for run in runs if run["of"] == title}
        print_table(title, [latest[n] for n in sorted(latest)], given.fit_from)


if __name__ == "__main__":
    main()
