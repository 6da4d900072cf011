"""`newkinds discover` by default, against cheap baselines, `em` alone, and what it took before, on the same images.

Each data set is a folder with one sub-folder per class, or `creatures`. A seed draws which classes there are, which of
them are known, which half of the known ones' images is labelled and, of an uneven set, how many images a class has:
from all of them down to a share of 1/UNEVEN. Cells are JSON files, and finished ones are not run again:

- `frozen`: k-means, Ward, semi-supervised k-means on the class tokens of one size, and what the rule and the pool of
  before take there (eight ways, judged by labelled images alone). All know the true number of categories.
- `baselines`: the first three of these alone, which takes seconds.
- `chosen`: each candidate of today there, and which of them the rule takes; with `--unknown` also with the number of
  categories that is counted.
- `discover`: the command itself, within each of `--times`, with the true number of categories; with `--unknown` also
  without it. Each run has a cache of its own: draws of one data set share images.
- `table`: what is there, printed; `json`: as a table for RESULTS.md, `--of` what begins with class tokens, the
  command's runs one by one, their means beside clustering (`default`, which needs the cells of `baselines`), or how
  honest their confidence is.

    python benchmarks/discovery.py frozen --data cars=cars_147:49 uneven=cars_147:49:0.5:6 creatures --sizes 112 224 \\
        --weights vit_small_patch14_dinov2.fp16.safetensors --out runs/discovery
    python benchmarks/discovery.py discover --data cars=cars_147:49 --times 5m 20m --unknown \\
        --weights vit_small_patch14_dinov2.fp16.safetensors --out runs/discovery
    python benchmarks/discovery.py table --data cars=cars_147:49 --out runs/discovery
    python benchmarks/discovery.py json --data cars=cars_147:49 --of chosen --machine "2 cores, busy" \\
        --out runs/discovery > results/tables/discover-vectors.json
"""

import argparse
import json
import os
import re
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

import newkinds
from calibration import expected_calibration_error
from choosing import BEFORE, accuracies
from newkinds.assigners.resplit import resplits
from newkinds.cluster.count import COUNTERS
from newkinds.cluster.metrics import is_correct
from newkinds.data import load_table, source_of
from newkinds.data.folder import files_below
from newkinds.data.table import Table, readable
from newkinds.discovery.categories import Discovery
from newkinds.encoders.encoder import frozen_encoder
from newkinds.evaluation.judge import true_classes
from newkinds.files import csv_text, write_whole
from newkinds.runs.config import resolve
from newkinds.runs.records import PlanRecord
from newkinds.runs.run import Run
from newkinds.search.clock import Clock
from newkinds.search.frozen_features import FROZEN_WAYS, FrozenFeatures, is_first_favoured
from newkinds.search.search import Search
from newkinds.search.ways import Features, Way, judge_of, score_split
from newkinds.text import text_table
from newkinds.training.cache import cached_class_tokens
from newkinds.training.embedding import embed
from newkinds.training.store import ROOT_VARIABLE
from newkinds.verbs.count import COUNT_BY
from newkinds.verbs.stages import HOUR

BACKBONE = "vit_small_patch14_dinov2"
BASELINES = {"k-means": Way("kmeans"), "Ward": Way("ward"), "semi-supervised k-means": Way("sskmeans")}
FIGURES = ("All", "Old", "New", "by name")  # of a row, in percent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*TOKEN_CELLS, "discover", "table", "json"])
    parser.add_argument(
        "--data", nargs="+", required=True, help="NAME=FOLDER[:CLASSES[:KNOWN SHARE[:UNEVEN]]] or creatures"
    )
    parser.add_argument("--weights")
    parser.add_argument("--sizes", type=int, nargs="+", default=[112], help="frozen: pixels along one side")
    parser.add_argument("--times", nargs="+", default=["5m"], help="discover: how long it may take")
    parser.add_argument("--unknown", action="store_true", help="discover: also without the number of categories")
    parser.add_argument("--of", choices=list(TABLES), default="chosen", help="json: which cells")
    parser.add_argument("--machine", default="2 CPU cores", help="json: what it ran on, in words")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.what == "table":
        for data in given.data:
            print(table(data.partition("=")[0], given.out))
        return
    if given.what == "json":
        print(as_json(given))
        return
    for seed in given.seeds:  # all sets with one seed come first: what is interrupted is then complete
        for data in given.data:
            draw = Draw(data, seed, given.out)
            if given.what in TOKEN_CELLS:
                for size in given.sizes if draw.folder else [None]:
                    for name, compute in TOKEN_CELLS[given.what].items():
                        if given.unknown or not name.endswith("unknown"):
                            how = partial(compute, draw, size, given.weights)
                            cell(draw, name.format(size or ""), how)
                continue
            for limit in given.times:
                cell(draw, limit, lambda draw=draw, limit=limit: discovered(draw, limit, True, given.weights))
                if given.unknown:
                    unknown = f"{limit}-unknown"
                    cell(draw, unknown, lambda draw=draw, limit=limit: discovered(draw, limit, False, given.weights))


def cell(draw: "Draw", what: str, compute: Any) -> None:
    """Compute a cell and write it down, unless that is done."""
    file = draw.out / f"{draw.name}-{draw.seed}-{what}.json"
    if not file.is_file():
        started = time.process_time()
        figures = compute()
        figures["processor seconds"] = round(time.process_time() - started, 1)
        write_whole(file, json.dumps(figures, indent=1))
    print(f"{file.name}: {file.read_text()}", flush=True)


class Draw:
    """A data set as a seed draws it."""

    def __init__(self, data: str, seed: int, out: Path) -> None:
        self.name, _, place = data.partition("=")
        self.folder, *how = place.split(":")
        self.seed, self.out = seed, out
        self.source: str | Path = self.name
        self.settings: dict[str, Any] = {"data": {"seed": seed}}
        if self.folder:
            self.settings = {}
            self.source = out / f"{self.name}-{seed}.csv"
            if not self.source.is_file():
                write_split(self.source, self.folder, *how, seed=seed)

    def table(self) -> Table:
        return load_table({**source_of(self.source), **self.settings.get("data", {})})


def write_split(
    file: Path, folder: str, classes: str = "0", share: str = "0.5", uneven: str = "1", *, seed: int
) -> None:
    """A CSV file with path, label and truth of some classes of a folder."""
    random = np.random.RandomState(seed)
    root = Path(folder).resolve()
    names = random.permutation(sorted(entry.name for entry in root.iterdir() if entry.is_dir()))
    names = names[: int(classes) or len(names)]
    known = set(names[: round(float(share) * len(names))])
    sizes = dict.fromkeys(names, 1.0)
    if float(uneven) != 1.0:
        parts = float(uneven) ** (-random.permutation(len(names)) / max(len(names) - 1, 1))
        sizes = dict(zip(names, parts, strict=True))
    images = []
    for name in sorted(names):
        inside = sorted(files_below(root / name, []))
        if sizes[name] < 1.0:
            kept = random.choice(len(inside), max(2, round(sizes[name] * len(inside))), replace=False)
            inside = [inside[place] for place in sorted(kept)]
        images += [(path, name) for path in inside]
    old = [row for row, (_, name) in enumerate(images) if name in known]
    labelled = set(random.choice(old, len(old) // 2, replace=False).tolist())
    rows = [(path, name if row in labelled else "", name) for row, (path, name) in enumerate(images)]
    write_whole(file, csv_text(("path", "label", "truth"), rows))


# -- what frozen features give -----------------------------------------------------------------------------------------


def baselines(draw: Draw, size: int | None, weights: str | None) -> dict[str, Any]:
    """Clustering of the class tokens of one size."""
    task = Task.of(draw, size, weights)
    return {"rows": task.baselines(), "k": task.k, "images": len(task.labels)}


def frozen(draw: Draw, size: int | None, weights: str | None) -> dict[str, Any]:
    """Baselines, and what was taken before, on the class tokens of one size."""
    task = Task.of(draw, size, weights)
    found = task.baselines()
    labels = task.labels
    halves = resplits(labels, 3 if int((labels >= 0).sum()) > 1000 else 6, np.random.RandomState(draw.seed))
    scores = {
        way: np.mean([score_split(way, Features(task.rows[split.rows]), split).all for split in halves])
        for way in BEFORE
    }
    before = max(BEFORE, key=lambda way: scores[way])
    found["before"] = task.accuracies(before)
    return {"rows": found, "before took": str(before), "k": task.k, "images": len(labels)}


def chosen(draw: Draw, size: int | None, weights: str | None) -> dict[str, Any]:
    """Each candidate, and the one that the rule takes, if the number of categories is known."""
    task = Task.of(draw, size, weights)
    found = {way: task.accuracies(way) for way in FROZEN_WAYS}
    taken = task.choose(draw.seed, task.k)
    regret = max(figures[0] for figures in found.values()) - found[taken][0]
    rows = {str(way): figures for way, figures in found.items()}
    return {
        "rows": {**rows, "chosen": found[taken]}, "took": str(taken), "regret": round(regret, 2), "k": task.k,
        "images": len(task.labels),
    }  # fmt: skip


def counted(draw: Draw, size: int | None, weights: str | None) -> dict[str, Any]:
    """What the rule takes if the number of categories is counted."""
    task = Task.of(draw, size, weights)
    count = COUNTERS[COUNT_BY](task.rows.numpy(), task.labels)
    taken = task.choose(draw.seed, count.answer)
    return {
        "rows": {"chosen": task.accuracies(taken, count.answer)}, "took": str(taken), "k": task.k,
        "found": count.answer, "low": count.low, "high": count.high,
    }  # fmt: skip


class Task(NamedTuple):
    """Class tokens of one size, and what is known of them."""

    rows: Tensor  # (n, D) unit rows
    truth: NDArray[np.int64]  # (n,) the known classes come first
    labels: NDArray[np.int64]  # (n,), -1: none
    known: int
    k: int

    @classmethod
    def of(cls, draw: Draw, size: int | None, weights: str | None) -> "Task":
        images = readable(draw.table(), contents=True)
        truth = numbers(images)
        return cls(tokens(draw, images, size, weights), truth, images.targets, len(images.known), int(truth.max()) + 1)

    def accuracies(self, way: Way, k: int | None = None) -> tuple[float, float, float, float]:
        return accuracies(way, self.rows, self.truth, self.labels, self.known, k or self.k)

    def baselines(self) -> dict[str, tuple[float, float, float, float]]:
        return {name: self.accuracies(way) for name, way in BASELINES.items()}

    def choose(self, seed: int, k: int) -> Way:
        """What the rule of `discover` takes, if it looks for k categories."""
        search = Search(judge_of(self.labels, seed, k), Clock(HOUR))
        search.favours_first = is_first_favoured(FROZEN_WAYS, self.rows, self.labels, k, seed)
        search.compare(FrozenFeatures(self.rows), FROZEN_WAYS)
        return Way.of(search.choose().candidate.settings)


def tokens(draw: Draw, images: Table, size: int | None, weights: str | None) -> Tensor:
    """(n, D) unit class tokens of the backbone, from the cache if they are there."""
    named: dict[str, Any] = {"name": "tiny"}
    if size is not None:
        named = {"name": BACKBONE, "weights": weights, "image_size": size}
    config = resolve({"data": source_of(draw.source), "backbone": named})
    encoder, device = frozen_encoder(**config.backbone), torch.device("cpu")
    cache = cached_class_tokens(encoder.backbone, images, about=draw.name, device=device)
    return F.normalize(embed(encoder, images, device, cache=cache).features, dim=1)


def numbers(images: Table) -> NDArray[np.int64]:
    """(n,) true classes as numbers, those of known classes as labels have them."""
    names = [*images.known, *sorted({str(true) for true in images.truth or []} - set(images.known))]
    number = {name: place for place, name in enumerate(names)}
    return np.array([number[str(true)] for true in images.truth or []])


TOKEN_CELLS = {
    "baselines": {"baselines{}": baselines},
    "frozen": {"frozen{}": frozen},
    "chosen": {"chosen{}": chosen, "chosen{}-unknown": counted},
}


# -- the command itself ------------------------------------------------------------------------------------------------


def discovered(draw: Draw, limit: str, tell_k: bool, weights: str | None) -> dict[str, Any]:
    """What `newkinds discover` finds within a time, if nothing is cached."""
    truth = set(map(str, draw.table().truth or []))
    out = draw.out / f"{draw.name}-{draw.seed}-{limit}{'' if tell_k else '-unknown'}"
    how: dict[str, Any] = {"weights": weights, "backbone": BACKBONE} if draw.folder else {}
    k: Any = len(truth) if tell_k else "auto"
    with TemporaryDirectory() as cache, patch.dict(os.environ, {ROOT_VARIABLE: cache}):
        started = time.monotonic()
        newkinds.discover(draw.source, out, k=k, time=limit, settings=draw.settings, seed=draw.seed, **how)
        minutes = (time.monotonic() - started) / 60
    judged, plan = newkinds.evaluate(out)["metrics"], PlanRecord.read(Run(out))
    names = ("acc_all", "acc_old", "acc_new", "by_name_all")
    return {
        "rows": {f"discover {limit}": [round(100 * float(judged[name] or 0), 2) for name in names]},
        "chosen": plan.chosen, "why": plan.why, "k": len(truth), "found": Run(out).config().k, "minutes": minutes,
        "size": Run(out).config().backbone["image_size"],
        "stages": [[stage.name, stage.seconds, stage.at] for stage in plan.stages],
        "candidates": {score.name: score.score for score in plan.candidates},
    }  # fmt: skip


# -- tables ------------------------------------------------------------------------------------------------------------


def table(name: str, out: Path) -> str:
    """Means over the seeds of a data set, one line per row; with which seeds it was run."""
    rows: dict[str, dict[int, list[float]]] = {}
    about: dict[str, dict[int, str]] = {}
    for file in sorted(out.glob(f"{name}-[0-9]-*.json")):
        seed, what = file.stem[len(name) + 1 :].split("-", 1)
        found = json.loads(file.read_text())
        for row, figures in found["rows"].items():
            sized = re.fullmatch(r"(?:frozen|chosen)(\d+)(?:-unknown)?", what)
            of_size = f" at {sized[1]} px" if sized else ""
            unknown = ", K unknown" if what.endswith("-unknown") else ""
            rows.setdefault(f"{row}{of_size}{unknown}", {})[int(seed)] = figures
            about.setdefault(f"{row}{of_size}{unknown}", {})[int(seed)] = describe(row, found)
    lines = [
        [
            row,
            " ".join(map(str, sorted(figures))),
            " / ".join(f"{value:.1f}" for value in np.mean(list(figures.values()), axis=0)),
            "; ".join(filter(None, (about[row][seed] for seed in sorted(figures)))),
        ]
        for row, figures in rows.items()
    ]
    return f"{name}\n{text_table(['row', 'seeds', ' / '.join(FIGURES), 'about each seed'], lines)}\n"


def as_json(given: argparse.Namespace) -> str:
    """A table for RESULTS.md (scripts/build_results.py): means over the seeds of frozen cells, or one row per run."""
    sets = [data.partition("=")[0] for data in given.data]
    columns, rows_of = TABLES[given.of]
    rows = [row for name in sets for row in rows_of(name, given)]
    data = [f"{name}={Path(rest).name}" if rest else name for name, _, rest in (d.partition("=") for d in given.data)]
    options = f"--sizes {' '.join(map(str, given.sizes))}"
    if given.of != "chosen":
        options = f"--times {' '.join(given.times)}"
    if given.unknown:
        options += " --unknown"
    seeds = " ".join(map(str, given.seeds))
    table = {
        "command": [
            f"python benchmarks/discovery.py {'chosen' if given.of == 'chosen' else 'discover'} "
            f"--data {' '.join(data)} {options} --seeds {seeds} "
            "--weights vit_small_patch14_dinov2.fp16.safetensors --out runs/discovery"
        ],
        "date": time.strftime("%Y-%m-%d"),
        "machine": given.machine,
        "seeds": seeds,
        "notebook": "discover.md",
        "columns": list(columns),
        "rows": rows,
    }
    lines = [f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in table.items()]
    lines[-1] = ' "rows": [\n' + ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows) + "\n ]"
    return "{\n" + ",\n".join(lines) + "\n}"


def cells_of(name: str, what: str, given: argparse.Namespace) -> dict[int, dict[str, Any]]:
    """The finished cells of a data set, by seed."""
    files = {seed: given.out / f"{name}-{seed}-{what}.json" for seed in given.seeds}
    return {seed: json.loads(file.read_text()) for seed, file in files.items() if file.is_file()}


TOKEN_COLUMNS = (
    "data", "K", "seeds", *BASELINES, "before", *(f"`{way}`" for way in FROZEN_WAYS), "chosen", "by name",
    "largest regret", "K\u0302", "chosen, K unknown", "chosen, K given, of these seeds",
)  # fmt: skip


def token_rows(name: str, given: argparse.Namespace) -> list[list[Any]]:
    """Of every image size: means over the seeds, All / Old / New."""
    rows = []
    for size in ["", *given.sizes]:
        frozen, chosen, counted = (
            cells_of(name, what.format(size), given) for what in ("frozen{}", "chosen{}", "chosen{}-unknown")
        )
        if not chosen:
            continue
        figures = [mean_of(frozen, row) for row in (*BASELINES, "before")]
        figures += [mean_of(chosen, row) for row in (*map(str, FROZEN_WAYS), "chosen")]
        by_name = round(float(np.mean([cell["rows"]["chosen"][3] for cell in chosen.values()])), 1)
        regret = max(cell["regret"] for cell in chosen.values())
        counts = ", ".join(str(cell["found"]) for cell in counted.values())
        about = [f"{name}, {size} px" if size else name, next(iter(chosen.values()))["k"], " ".join(map(str, chosen))]
        unknown = [counts, mean_of(counted, "chosen"), mean_of(chosen, "chosen", seeds=set(counted))]
        rows.append([*about, *figures, by_name, regret, *unknown])
    return rows


def mean_of(
    cells: Mapping[int, Mapping[str, Any]], row: str, part: slice = slice(0, 3), seeds: set[int] | None = None
) -> list[float] | None:
    """The mean of a row over the seeds; None if there are none."""
    found = [cell["rows"][row][part] for seed, cell in cells.items() if seeds is None or seed in seeds]
    return np.mean(found, axis=0).round(1).tolist() if found else None


RUN_COLUMNS = ("data", "time", "seed", "K", "K\u0302", "All / Old / New", "by name", "took", "px", "minutes")


def run_rows(name: str, given: argparse.Namespace) -> list[list[Any]]:
    """One row per run of the command."""
    rows = []
    for limit in given.times:
        for what in (limit, f"{limit}-unknown"):
            for seed, cell in cells_of(name, what, given).items():
                [figures] = cell["rows"].values()
                counted = cell["found"] if what.endswith("unknown") else "given"
                took = [cell["chosen"], cell["size"], round(cell["minutes"], 1)]
                rows.append([name, limit, seed, cell["k"], counted, figures[:3], figures[3], *took])
    return rows


DEFAULT_COLUMNS = ("data", "K", "seeds", "px taken", *BASELINES, "`discover`", "by name", "minutes")


def default_rows(name: str, given: argparse.Namespace) -> list[list[Any]]:
    """Means over the seeds of the command, beside clustering of the class tokens of the image size that it took."""
    rows = []
    for limit in given.times:
        cells = cells_of(name, limit, given)
        if not cells:
            continue
        beside = {
            seed: json.loads((given.out / f"{name}-{seed}-baselines{cell['size'] or ''}.json").read_text())
            for seed, cell in cells.items()
        }
        sizes = dict.fromkeys(cell["size"] for cell in cells.values())
        about = [f"{name}, {limit}", next(iter(cells.values()))["k"], " ".join(map(str, cells))]
        found = mean_of(cells, f"discover {limit}", slice(0, 4)) or []
        minutes = round(float(np.mean([cell["minutes"] for cell in cells.values()])), 1)
        clustered = [mean_of(beside, row) for row in BASELINES]
        rows.append([*about, ", ".join(str(size or "–") for size in sizes), *clustered, found[:3], found[3], minutes])
    return rows


CONFIDENCE_COLUMNS = (
    "data", "time", "seed", "K̂ of K", "hidden labels found again", "by name", "right", "mean confidence",
    "calibration error", "below 10 % sure (right)", "above 90 % sure (right)",
)  # fmt: skip


def confidence_rows(name: str, given: argparse.Namespace) -> list[list[Any]]:
    """One row per run of the command: what it said about itself, and how right its unlabelled images are."""
    rows = []
    for limit in given.times:
        for what in (limit, f"{limit}-unknown"):
            for seed, cell in cells_of(name, what, given).items():
                out = given.out / f"{name}-{seed}-{what}"
                members = [member for member in Discovery.read(out).found_members if member.given_label is None]
                truth = true_classes([member.path for member in members], load_table(Run(out).config().data))
                true = np.unique([truth[member.path] for member in members], return_inverse=True)[1]
                correct = is_correct(true, np.array([member.category_id for member in members]))
                sure = np.array([member.confidence for member in members], dtype=np.float64)
                error = expected_calibration_error(sure, correct)
                promised = 100 * (cell["candidates"][cell["chosen"]] or 0)
                [figures] = cell["rows"].values()
                about = [name, what.replace("-", ", K "), seed, f"{cell['found']} of {cell['k']}"]
                shares = [round(100 * float(part), 1) for part in (correct.mean(), sure.mean(), error)]
                ends = [share_right(correct, sure < 0.1), share_right(correct, sure > 0.9)]
                rows.append([*about, round(promised, 1), figures[3], *shares, *ends])
    return rows


def share_right(correct: NDArray[np.bool_], some: NDArray[np.bool_]) -> str:
    return f"{some.sum():,} ({100 * correct[some].mean():.0f})" if some.any() else "0"


TABLES = {
    "chosen": (TOKEN_COLUMNS, token_rows),
    "default": (DEFAULT_COLUMNS, default_rows),
    "discover": (RUN_COLUMNS, run_rows),
    "confidence": (CONFIDENCE_COLUMNS, confidence_rows),
}


def describe(row: str, found: Mapping[str, Any]) -> str:
    """What a row took, in a few words."""
    if row == "before":
        return str(found["before took"])
    if row == "chosen":
        return f"{found['took']} (K {found.get('found', found['k'])} of {found['k']})"
    if "chosen" not in found:
        return ""
    return f"{found['chosen']} (K {found['found']} of {found['k']}, {found['minutes']:.1f} min)"


if __name__ == "__main__":
    main()
