"""A year with a collection that grows: every month images come, a tenth of the new kinds among them for the first time.

Features are an .npz file with `cls` (n, D) and `truth` (n,) (`features.py` makes them). A seed draws the kinds. Half of
them are known: half of their images are there at the start, and half of those are labelled. The other half are new: a
tenth of them is there at the start, a tenth appears in each of the months 1 to 9, with half of its images; the rest of
all images comes in equal parts in the months that are left, so that the last three months bring no new kind. Every
month a person, who knows the truth, answers the first five questions of `newkinds next` (`asking.py` says how).

    update    `newkinds update` with the images of the month
    learning  the same with --time 10s: the model learns what was decided until then
    scratch   `newkinds discover` again with all images until then, into the same run: decisions are carried over
    predict   `newkinds predict` by the first run; nothing is named after the start, for nothing new is found

Judged are all unlabelled images until then. All, Old and New: matched one to one; what is in no category is wrong.
named: the share in a category with the name of its kind. false: categories, of those opened this month, whose commonest
kind had a category before. missed: kinds with at least five images that are the commonest kind of no category. moved:
images that were there before and have another category id after the month's step, in percent: those that people had
decided about (touched), and others. Categories are found by `em`, and counted, not told. A way takes minutes, and what
is in --out is not computed again.

    python benchmarks/year.py cars-224.npz --kinds 60 --out runs/year
"""

import argparse
import csv
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import newkinds
from asking import answer
from newkinds.cluster.metrics import score_clustering
from newkinds.discovery.categories import Discovery
from newkinds.discovery.questions import next_questions
from newkinds.files import write_whole
from newkinds.text import text_table
from side_by_side import machine

MONTHS = 12
TENTHS = 10
NAMES = 5  # questions that the person answers each month
LEARN = "10s"  # for a better model
FEWEST = 5  # images from which on a kind counts as missed


class Year:
    """Which rows come when, and what they are."""

    def __init__(self, file: Path, kinds: int, seed: int) -> None:
        read = np.load(file, allow_pickle=False)
        random = np.random.default_rng(seed)
        drawn = random.permutation(np.unique(read["truth"]))[:kinds]
        known = len(drawn) // 2
        self.known = {f"kind {number}" for number in range(known)}
        every = np.flatnonzero(np.isin(read["truth"], drawn))
        alone = every[np.unique(read["cls"][every], axis=0, return_index=True)[1]]  # `update` adds no image twice
        rows, kind, month, labelled = [], [], [], []
        for number, name in enumerate(drawn):
            own = random.permutation(np.flatnonzero(read["truth"] == name))
            own = own[np.isin(own, alone)]
            first = 0 if number < known else (number - known) * TENTHS // (len(drawn) - known)
            half = len(own) // 2
            later = [first + 1 + place % (MONTHS - first) for place in range(len(own) - half)]
            rows += own.tolist()
            kind += [f"kind {number}"] * len(own)
            month += [first] * half + later
            labelled += [number < known and place < half // 2 for place in range(len(own))]
        vectors = read["cls"][rows].astype(np.float32)
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        self.kind, self.month, self.labelled = np.array(kind), np.array(month), np.array(labelled)

    def rows_of(self, month: int) -> NDArray[np.int64]:
        return np.flatnonzero(self.month == month)

    def until(self, month: int) -> NDArray[np.int64]:
        """All rows until a month, in the order in which they came."""
        return np.concatenate([self.rows_of(one) for one in range(month + 1)])

    def write(self, folder: Path, rows: NDArray[np.int64]) -> Path:
        """Vectors and labels as files."""
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "vectors.npy", self.vectors[rows])
        with (folder / "labels.csv").open("w", newline="") as out:
            lines = [[place, self.kind[row]] for place, row in enumerate(rows) if self.labelled[row]]
            csv.writer(out).writerows([["row", "label"], *lines])
        return folder / "vectors.npy"


Places = list[tuple[str, int, str, str]]  # of each image until now: its name, category id, category, status


def discovered(year: Year, folder: Path, month: int) -> Discovery:
    file = year.write(folder, year.until(month))
    labels = str(folder / "labels.csv")
    return newkinds.discover(file, folder / "run", labels=labels, method="frozen", assigner="em", page=False)


def by_update(year: Year, folder: Path, month: int, allowed: str | None = None) -> Places:
    if month == 0:
        return places_of(discovered(year, folder, 0))
    more = folder / f"month-{month:02d}.npy"
    np.save(more, year.vectors[year.rows_of(month)])
    return places_of(newkinds.update(folder / "run", [more], time=allowed, page=False))


def by_scratch(year: Year, folder: Path, month: int) -> Places:
    return places_of(discovered(year, folder, month))


def by_predict(year: Year, folder: Path, month: int) -> Places:
    if month == 0:
        return places_of(discovered(year, folder, 0))
    more = folder / "more.npy"
    rows = np.concatenate([year.rows_of(one) for one in range(1, month + 1)])
    np.save(more, year.vectors[rows])
    predicted = newkinds.predict(folder / "run", [more])
    return places_of(Discovery.read(folder / "run")) + [(p.path, p.category_id, p.category, "") for p in predicted]


def places_of(found: Discovery) -> Places:
    return [(m.path, m.category_id, m.category, m.status) for m in found.members]


WAYS: dict[str, Callable[[Year, Path, int], Places]] = {
    "update": by_update, "learning": partial(by_update, allowed=LEARN), "scratch": by_scratch, "predict": by_predict,
}  # fmt: skip


def live(year: Year, folder: Path, way: str) -> list[dict]:
    """The figures of each month."""
    figures = []
    before: Places = []
    for month in range(MONTHS + 1):
        started = time.monotonic()
        after = WAYS[way](year, folder, month)
        seconds = time.monotonic() - started
        rows = year.until(month)
        assert len(after) == len(rows), f"{len(after)} images instead of {len(rows)}"
        truth = {path: str(kind) for (path, *_), kind in zip(after, year.kind[rows], strict=True)}
        step = {"seconds": seconds, "categories": len({number for _, number, *_ in after if number >= 0})}
        step |= changes(before, after) | openings(before, after, list(truth.values()))
        if way != "predict" or month == 0:
            found = Discovery.read(folder / "run")
            for question in next_questions(found, number=NAMES):
                answer(found, question.paths, truth)
            after = places_of(found)
        figures.append({"month": month, "images": len(after), **step, **judge(year, rows, after)})
        before = after
    return figures


def judge(year: Year, rows: NDArray[np.int64], places: Places) -> dict[str, float]:
    """Accuracies in percent after the month's answers."""
    judged = [
        (str(year.kind[row]), number, name)
        for row, (_, number, name, _) in zip(rows, places, strict=True)
        if not year.labelled[row]
    ]
    truth, numbers, names = (list(column) for column in zip(*judged, strict=True))
    placed = np.array(numbers) >= 0
    scores = score_clustering(truth, numbers, year.known, placed)
    inside: dict[int, Counter[str]] = {}
    for row, (_, number, *_) in zip(rows, places, strict=True):
        inside.setdefault(number, Counter())[str(year.kind[row])] += 1
    held = {kinds.most_common(1)[0][0] for number, kinds in inside.items() if number >= 0}
    there = Counter(str(kind) for kind in year.kind[rows])
    return {
        "all": 100 * scores["acc_all"], "old": 100 * scores["acc_old"], "new": 100 * scores["acc_new"],
        "named": 100 * float(np.mean([kind == name for kind, name in zip(truth, names, strict=True)])),
        "not placed": 100 * float(np.mean(~placed)),
        "missed": sum(images >= FEWEST and kind not in held for kind, images in there.items()),
    }  # fmt: skip


def changes(before: Places, after: Places) -> dict[str, float]:
    """Shares, in percent, of the images that were there whose category id is another one now."""
    touched = [a[1] != b[1] for b, a in zip(before, after, strict=False) if b[3]]
    others = [a[1] != b[1] for b, a in zip(before, after, strict=False) if not b[3]]
    return {
        "moved, touched": 100 * float(np.mean(touched)) if touched else 0.0,
        "moved, others": 100 * float(np.mean(others)) if others else 0.0,
    }


def openings(before: Places, after: Places, kinds: Sequence[str]) -> dict[str, int]:
    """Categories that are new this month, and how many of these are of a kind that had one."""
    had: dict[int, Counter[str]] = {}
    has: dict[int, Counter[str]] = {}
    for inside, places in ((had, before), (has, after)):
        for (_, number, *_), kind in zip(places, kinds, strict=False):
            if number >= 0:
                inside.setdefault(number, Counter())[kind] += 1
    earlier = {counts.most_common(1)[0][0] for counts in had.values()}
    opened = [number for number in has if number not in had] if before else []
    false = sum(has[number].most_common(1)[0][0] in earlier for number in opened)
    return {"opened": len(opened), "false": false}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="features, .npz")
    parser.add_argument("--kinds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    print(machine())
    year = Year(args.file, args.kinds, args.seed)
    for way in args.ways:
        kept = args.out / f"{args.file.stem}-{args.kinds}-{args.seed}-{way}.json"
        if not kept.is_file():
            figures = live(year, args.out / f"{args.file.stem}-{args.kinds}-{args.seed}-{way}", way)
            write_whole(kept, json.dumps(figures, indent=1))
        show(way, json.loads(kept.read_text()))


def show(way: str, figures: list[dict]) -> None:
    columns = ["month", "images", "categories", "opened", "false", "missed", "all", "old", "new", "named", "not placed",
               "moved, touched", "moved, others", "seconds"]  # fmt: skip
    rows = [[f"{row[c]:.1f}" if isinstance(row[c], float) else str(row[c]) for c in columns] for row in figures]
    print(f"\n{way}\n{text_table(columns, rows)}", flush=True)


if __name__ == "__main__":
    main()
