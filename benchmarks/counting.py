"""How well categories are counted: many small problems drawn from labelled data, whose true number is known.

    python benchmarks/counting.py creatures                     # bundled data and backbone, a few minutes
    python benchmarks/counting.py cub:odd photos/:odd --data-root datasets/ --backbone vit_small_patch14_dinov2

    python benchmarks/counting.py cars.npz cub.npz --draws 49 --by trees combined

Data are names of data sets, folders with one folder per class, or .npz files with `cls` (n, D) and `truth` (n,);
`:odd` or `:even` takes every second class only. `--draws K` draws K classes, half of them known, half of their images
labelled, with sizes as they are and 1 : 6 (or `--ratio`), instead of problems of all kinds. `trees`: without EM.
A problem is a draw of classes, of known ones among them, of images per class (all alike, or the largest class 10 or 100
times the smallest) and of the labelled ones. Constants of `combined` were chosen by `--tune` on cub:even and
cifar100:even. Features are kept in --cache. Finished problems are kept in --out, and are not counted again.
"""

import argparse
import csv
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from newkinds.cluster.count import COUNTERS, combination
from newkinds.cluster.count.base import check_features
from newkinds.data import load_table
from newkinds.data.table import readable
from newkinds.text import text_table
from newkinds.verbs.choices import Choices, layers_of
from newkinds.verbs.count import backbone_rows
from newkinds.verbs.layers import resolve_layers
from side_by_side import machine

CLASSES = (6, 10, 20, 50, 100, 200)
KNOWN = (0.25, 0.5, 0.8)
LABELLED = (0.04, 0.1, 0.25, 0.5, 0.8)  # of the images of a known class, but one at least
IMAGES = (10, 30, 100, 300)
RATIOS = (1, 1, 10)  # of the largest class to the smallest
GROUPS = (1.5, 4, 10, np.inf)  # labelled images per known class
SEARCHES = ("brent", "binary")
TRIED: dict[str, tuple[Any, ...]] = {
    "SPREAD": (0.5, 0.6, 0.7, 0.8),
    "GAP_WEIGHT": (0, 1, 1.5, 2),
    "OTHER_ERRORS": (0.02, 0.05, 0.1),
    "BIAS": ((-0.1, -0.2, -0.3), (-0.15, -0.3, -0.35), (-0.2, -0.35, -0.4), (0, 0, 0)),
}


@dataclass
class Counted:
    """One problem, counted in one way."""

    data: str
    problem: int
    images: int
    classes: int  # the truth
    known: int
    labelled: int  # images
    ratio: float
    by: str
    answer: int
    low: int | None
    high: int | None
    seconds: float

    @property
    def error(self) -> float:
        return abs(self.answer / self.classes - 1)


Problem = tuple[torch.Tensor, NDArray[np.int64], int, float]  # features (n, D), labels (n,), true number, size ratio


def features_of(source: str, choices: Choices, cache: Path) -> tuple[torch.Tensor, NDArray[np.int64]]:
    """Unit rows (n, D) of the backbone, computed once, and the class of each."""
    if source.endswith(".npz"):
        given = np.load(source)
        rows = torch.nn.functional.normalize(torch.from_numpy(given["cls"]).float(), dim=1)
        return rows, np.unique(given["truth"], return_inverse=True)[1]
    config = resolve_layers(layers_of(source, choices))
    key = hashlib.sha256(repr((config.data, config.backbone)).encode()).hexdigest()[:16]
    file = cache / f"counting-{key}.npz"
    if not file.is_file():
        table = readable(load_table(config.data), contents=True)
        truth = [str(name) for name in table.truth or table.labels]
        features = backbone_rows(config, table)
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(file, features=features.numpy(), classes=np.unique(truth, return_inverse=True)[1])
    arrays = np.load(file)
    return torch.from_numpy(arrays["features"]), arrays["classes"]


def problems(
    features: torch.Tensor, of_class: NDArray[np.int64], count: int, seed: int, new_size: float, ratio: float | None
) -> Iterator[Problem]:
    """Random problems; `new_size`: images of a new class for one of a known class; `ratio`: one instead of RATIOS."""
    classes, available = np.unique(of_class, return_counts=True)
    random = np.random.default_rng(seed)
    for _ in range(count):
        total = int(random.choice([n for n in CLASSES if n <= len(classes)]))
        known = max(2, round(random.choice(KNOWN) * total))
        fraction, images = random.choice(LABELLED), min(random.choice(IMAGES), available.min())
        drawn_ratio = float(random.choice(RATIOS)) if ratio is None else ratio
        sizes = random.permutation(images * drawn_ratio ** (-np.arange(total) / (total - 1)))
        sizes[known:] *= min(new_size, 1)
        sizes[:known] /= max(new_size, 1)
        rows, labels = [], []
        for place, of in enumerate(random.choice(classes, total, replace=False)):
            own = random.permutation(np.flatnonzero(of_class == of))[: max(2, round(sizes[place]))]
            kept = max(1, round(fraction * len(own))) if place < known else 0
            rows.append(own)
            labels.append(np.where(np.arange(len(own)) < kept, place, -1))
        order = random.permutation(sum(map(len, rows)))
        yield features[np.concatenate(rows)[order]], np.concatenate(labels)[order], total, drawn_ratio


def whole(features: torch.Tensor, of_class: NDArray[np.int64], count: int, seed: int) -> Iterator[Problem]:
    """All classes and images: half of the classes are known, half of whose images are labelled."""
    random = np.random.default_rng(seed)
    total = int(of_class.max()) + 1
    for _ in range(count):
        place = random.permutation(total)[of_class]  # (n,)
        labels = np.where((place < total // 2) & (random.random(len(place)) < 0.5), place, -1)
        yield features, labels, total, float(np.bincount(of_class).max() / np.bincount(of_class).min())


def draws(
    features: torch.Tensor, of_class: NDArray[np.int64], total: int, seeds: int, ratio: float, most: int
) -> Iterator[Problem]:
    """Of each seed `total` classes, at most `most` images of each: sizes as they are, then uneven ones."""
    for uneven in (1.0, ratio):
        for seed in range(seeds):
            random = np.random.RandomState(seed)
            names = random.permutation(int(of_class.max()) + 1)[:total]
            order = random.permutation(len(names))
            parts = []
            for place, name in enumerate(names):
                own = np.flatnonzero(of_class == name)[:most]
                if uneven > 1:
                    kept = max(2, round(len(own) * uneven ** (-order[place] / (len(names) - 1))))
                    own = np.sort(random.choice(own, kept, replace=False))
                parts.append(own)
            rows = np.sort(np.concatenate(parts))
            number = np.argsort(names)[np.searchsorted(np.sort(names), of_class[rows])]  # (m,) known classes first
            known = round(len(names) / 2)
            old = np.flatnonzero(number < known)
            labels = np.full(len(rows), -1)
            kept = random.choice(old, len(old) // 2, replace=False)
            labels[kept] = number[kept]
            for name in set(range(known)) - set(labels):
                labels[np.flatnonzero(number == name)[0]] = name
            yield features[rows], labels, len(names), uneven


def count_all(name: str, drawn: Iterator[Problem], by: list[str], starts: int, most_images: int, out: Path) -> None:
    """Count every problem in every way that has not been counted yet, and add it to the file."""
    done = {(row.data, row.problem, row.by) for row in read(out)}
    for number, (features, labels, total, ratio) in enumerate(drawn):
        for way in by:
            if (name, number, way) in done or (way in SEARCHES and len(labels) > most_images):
                continue
            started = time.perf_counter()
            options: dict[str, Any] = {"n_init": starts} if way in SEARCHES else {}
            if way == "trees":
                options["em"] = False
            count = COUNTERS["combined" if way == "trees" else way](features, labels, **options)
            seconds = time.perf_counter() - started
            row = Counted(
                name, number, len(labels), total, count.known, int((labels >= 0).sum()), ratio, way, count.answer,
                count.low, count.high, round(seconds, 2),
            )  # fmt: skip
            new = not out.is_file()
            with out.open("a", newline="", encoding="utf-8") as stream:
                writer = csv.DictWriter(stream, [field.name for field in fields(Counted)])
                if new:
                    writer.writeheader()
                writer.writerow(asdict(row))


def read(out: Path) -> list[Counted]:
    if not out.is_file():
        return []
    as_type: dict[str, type] = {"data": str, "by": str, "ratio": float, "seconds": float}
    with out.open(newline="", encoding="utf-8") as stream:
        rows: list[dict[str, Any]] = [
            {key: as_type.get(key, int)(text) if text else None for key, text in row.items()}
            for row in csv.DictReader(stream)
        ]
    return [Counted(**row) for row in rows]


def table(rows: list[Counted], by: list[str], group: Callable[[Counted], str]) -> str:
    """A line per group: mean error of each way, how often the truth is in the interval, and how wide that is."""
    lines = []
    for name in dict.fromkeys(map(group, rows)):
        inside = [row for row in rows if group(row) == name]
        cells = [name, str(len({(row.data, row.problem) for row in inside}))]
        for way in by:
            errors = [row.error for row in inside if row.by == way]
            partly = f" ({len(errors)})" if 0 < len(errors) < int(cells[1]) else ""
            cells.append(f"{np.mean(errors):.3f}{partly}" if errors else "–")
        spans = [
            (row.low, row.high, row.classes)
            for row in inside
            if row.low is not None and row.high is not None and (row.by == "combined" or "combined" not in by)
        ]
        cells.append(f"{np.mean([low <= true <= high for low, high, true in spans]):.2f}" if spans else "–")
        cells.append(f"{np.exp(np.mean([np.log(high / low) for low, high, _ in spans])):.2f}" if spans else "–")
        lines.append(cells)
    return text_table(["", "problems", *by, "truth in interval", "high / low"], lines)


def tune(drawn: list[Problem]) -> None:
    """Mean error, share of intervals that hold the truth and their width, with other constants of `combined`."""
    gathered = [
        (combination.gather_evidence(*check_features(features, labels)), total) for features, labels, total, _ in drawn
    ]

    def judged() -> str:
        errors, held, width = [], [], []
        for evidence, total in gathered:
            answer, low, high = combination.quantiles(*combination.distribution(evidence))
            errors.append(abs(answer / total - 1))
            held.append(low <= total <= high)
            width.append(np.log(high / low))
        error, inside, factor = np.mean(errors), np.mean(held), np.exp(np.mean(width))
        return f"error {error:.3f}, truth in interval {inside:.2f}, high/low {factor:.2f}"

    print("as it is:", judged())
    for name, values in TRIED.items():
        usual = getattr(combination, name)
        for value in values:
            setattr(combination, name, dict(zip(usual, value, strict=True)) if name == "BIAS" else value)
            print(f"{name} {value}: {judged()}")
        setattr(combination, name, usual)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", metavar="NAME|FOLDER[:odd|:even]")
    parser.add_argument("--data-root")
    parser.add_argument("--backbone", help="for all data but creatures, whose backbone is tiny")
    parser.add_argument("--weights")
    parser.add_argument("--image-size", type=int, default=112)
    parser.add_argument("--cache", type=Path, default=Path("counting-cache"), help="folder for features")
    parser.add_argument("--out", type=Path, default=Path("counting.csv"))
    parser.add_argument("--problems", type=int, default=40, help="of each data set")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--by", nargs="+", default=["combined", "ward", *SEARCHES])
    parser.add_argument("--starts", type=int, default=3, help="of k-means, in brent and binary")
    parser.add_argument(
        "--search-images", type=int, default=1000, help="brent and binary count problems up to this size"
    )
    parser.add_argument("--new-size", type=float, default=1, help="images of a new class for one of a known class")
    parser.add_argument("--ratio", type=float, help="of the largest class to the smallest, instead of 1 or 10")
    parser.add_argument("--whole", action="store_true", help="all classes and images, half of each known or labelled")
    parser.add_argument("--draws", type=int, metavar="K", help="draws of K classes, half of each known or labelled")
    parser.add_argument("--most", type=int, default=40, help="images of a class, in --draws")
    parser.add_argument("--tune", action="store_true", help="compare constants of combined instead")
    given = parser.parse_args()
    drawn: list[Problem] = []
    for named in given.data:
        source, _, half = named.partition(":")
        choices: Choices = {} if Path(source).exists() else {"data_root": given.data_root}
        if source == "creatures":
            choices["data_root"] = None
            choices["settings"] = {"data": {"categories": 40, "per_category": 60}}
        else:
            choices["backbone"], choices["weights"] = given.backbone, given.weights
            choices["settings"] = {"backbone": {"image_size": given.image_size}}
        features, of_class = features_of(source, choices, given.cache)
        if half:
            some = np.flatnonzero(of_class % 2 == ("even", "odd").index(half))
            features, of_class = features[some], of_class[some]
        if given.whole:
            of_data = whole(features, of_class, given.problems, given.seed)
        elif given.draws:
            total = min(given.draws, int(of_class.max()) + 1)
            of_data = draws(features, of_class, total, given.problems, given.ratio or 6, given.most)
        else:
            of_data = problems(features, of_class, given.problems, given.seed, given.new_size, given.ratio)
        if given.tune:
            drawn.extend(of_data)
        else:
            name = Path(source).name + (f", {half} classes" if half else "")
            count_all(name, of_data, given.by, given.starts, given.search_images, given.out)
    if given.tune:
        tune(drawn)
    else:
        rows = read(given.out)
        print(f"Mean |K̂/K - 1| ({machine()}):\n")
        print(table(rows, given.by, lambda row: row.data), end="\n\n")
        print(table(sorted(rows, key=_labels_a_class), given.by, _group), end="\n\n")
        ways: dict[tuple[str, int], set[str]] = {}
        for row in rows:
            ways.setdefault((row.data, row.problem), set()).add(row.by)
        common = [row for row in rows if ways[row.data, row.problem] >= set(given.by)]
        if 0 < len(common) < len(rows):
            print("Of these, the problems that were counted in every way:\n")
            print(table(common, given.by, lambda row: row.data), end="\n\n")
            print(table(sorted(common, key=_labels_a_class), given.by, _group), end="\n\n")


def _labels_a_class(row: Counted) -> float:
    return row.labelled / row.known


def _group(row: Counted) -> str:
    high = next(high for high in GROUPS if _labels_a_class(row) <= high)
    return f"up to {high:g} labelled images a class" if np.isfinite(high) else "more"


if __name__ == "__main__":
    main()
