"""`newkinds discover` by default, against cheap baselines: k-means, Ward and semi-supervised k-means on raw features.

Each data set is a folder with one sub-folder per class, or `creatures`. A seed draws which classes there are, which of
them are known, and which half of the known ones' images is labelled. All rows get the true number of categories; the
estimate is judged apart. Finished cells are not run again.

    python benchmarks/discovery.py --data birds=CUB_200_2011/images:50 cifar100=cifar100/:100:0.8 creatures \\
        --weights vit_small_patch14_dinov2.fp16.safetensors --seeds 0 1 2 --time 10m --out runs/discovery
"""

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import newkinds
from newkinds.assigners import ASSIGNERS
from newkinds.cluster.count import COUNTERS
from newkinds.cluster.metrics import clustering_accuracy
from newkinds.data import load_table, source_of
from newkinds.data.folder import files_below
from newkinds.data.table import Table, readable
from newkinds.encoders.backbones import build_backbone
from newkinds.encoders.encoder import Encoder
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.files import csv_text, write_whole
from newkinds.runs.protocol import earlier_images
from newkinds.runs.run import Run
from newkinds.text import text_table
from newkinds.training.cache import cached_tokens
from newkinds.training.embedding import embed
from newkinds.verbs.count import COUNT_BY

BASELINES = ("kmeans", "ward", "sskmeans")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True, help="NAME=FOLDER[:CLASSES[:KNOWN SHARE]] or creatures")
    parser.add_argument("--weights")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--time", default="10m")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    cells = {}
    for data in given.data:
        for seed in given.seeds:
            name = data.partition("=")[0]
            file = given.out / f"{name}-{seed}.json"
            if not file.is_file():
                write_whole(file, json.dumps(cell(data, seed, given), indent=1))
            cells[name, seed] = json.loads(file.read_text())
            print(f"{name} {seed}: {cells[name, seed]}", flush=True)
    print(table(cells))


def cell(data: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """All figures of one data set and seed."""
    name, _, place = data.partition("=")
    out = given.out / f"{name}-{seed}"
    settings: dict[str, Any] = {}
    source: str | Path = name
    if place:
        source = drawn = given.out / f"{name}-{seed}.csv"
        if not drawn.is_file():
            write_split(drawn, *place.split(":"), seed=seed)
    else:
        settings = {"data": {"seed": seed}}
    wanted = load_table({**source_of(source), **settings.get("data", {})})
    truth = [str(true) for true in wanted.truth or []]
    k = len(set(truth))
    started = time.monotonic()
    weights = {"weights": given.weights} if place else {}
    newkinds.discover(source, out, k=k, time=given.time, settings=settings, seed=seed, **weights)
    minutes = (time.monotonic() - started) / 60
    found = newkinds.evaluate(out)["metrics"]
    plan = Run(out).read_json("plan.json")
    rows = raw_features(out, wanted)
    figures = {name: accuracies(name, rows, wanted, truth, k) for name in BASELINES}
    figures["discover"] = [100 * float(found[f"acc_{part}"] or 0) for part in ("all", "old", "new")]
    counted = COUNTERS[COUNT_BY](rows, wanted.targets)
    first = next(stage["at"] for stage in plan["stages"] if stage["name"] == "first answer")
    embedding = next(stage["seconds"] for stage in plan["stages"] if stage["name"].startswith("embed"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {
        **figures, "chosen": plan["chosen"], "why": plan["why"], "k": k, "count": counted.answer, "minutes": minutes,
        "interval": [getattr(counted, "low", None), getattr(counted, "high", None)], "images": len(wanted),
        "first answer s": first, "embedding s": embedding, "peak GB so far": peak,
    }  # fmt: skip


def write_split(file: Path, folder: str, classes: str = "0", share: str = "0.5", *, seed: int) -> None:
    """A CSV file with path, label and truth of some classes of a folder."""
    random = np.random.RandomState(seed)
    root = Path(folder).resolve()
    names = random.permutation(sorted(entry.name for entry in root.iterdir() if entry.is_dir()))
    names = names[: int(classes) or len(names)]
    known = set(names[: round(float(share) * len(names))])
    images = [(path, name) for name in sorted(names) for path in files_below(root / name, [])]
    old = [row for row, (_, name) in enumerate(images) if name in known]
    labelled = set(random.choice(old, len(old) // 2, replace=False).tolist())
    rows = [(path, name if row in labelled else "", name) for row, (path, name) in enumerate(images)]
    write_whole(file, csv_text(("path", "label", "truth"), rows))


def raw_features(out: Path, wanted: Table) -> torch.Tensor:
    """Unit class tokens (n, D) of the backbone and size that the plan took: they are cached."""
    backbone = build_backbone(**{**Run(out).config().backbone, "train_blocks": 0})
    encoder = Encoder(backbone, ORGANIZERS["none"](backbone.dim))
    images = readable(wanted, contents=True, earlier=earlier_images(Run(out)))
    cache = cached_tokens(backbone, images, 0, precision="float32", patches=False)
    features = embed(encoder, images, torch.device("cpu"), cache=cache).features
    assert len(features) == len(wanted), "an image could not be read"
    return F.normalize(features, dim=1)


def accuracies(name: str, rows: torch.Tensor, wanted: Table, truth: list[str], k: int) -> list[float]:
    """All, Old and New in percent, of the unlabelled images."""
    torch.manual_seed(0)
    assigner = ASSIGNERS[name](rows.shape[1], len(wanted.known), k)
    labels = torch.from_numpy(wanted.targets)
    assigner.fit(rows, labels)
    category = assigner(rows).argmax(1).numpy()
    hidden = wanted.targets < 0
    found = clustering_accuracy(np.array(truth)[hidden], category[hidden], wanted.known)
    return [100 * value for value in found]


def table(cells: dict[tuple[str, int], dict[str, Any]]) -> str:
    """Means over the seeds."""
    lines = []
    for name in dict.fromkeys(name for name, _ in cells):
        of_set = [cell for (other, _), cell in cells.items() if other == name]
        means = {row: np.mean([cell[row] for cell in of_set], axis=0) for row in (*BASELINES, "discover")}
        best = np.max([means[row] for row in BASELINES], axis=0)
        error = np.mean([abs(cell["count"] / cell["k"] - 1) for cell in of_set])
        lines.append([
            f"{name} ({of_set[0]['images']:,} images, {of_set[0]['k']} classes, {len(of_set)} seeds)",
            *(" / ".join(f"{value:.1f}" for value in means[row]) for row in (*BASELINES, "discover")),
            " / ".join(f"{value:+.1f}" for value in means["discover"] - best),
            f"{100 * error:.1f} %", f"{np.mean([cell['minutes'] for cell in of_set]):.1f}",
        ])  # fmt: skip
    columns = ["All / Old / New", *BASELINES, "discover", "against the best of each", "count error", "minutes"]
    return text_table(columns, lines)


if __name__ == "__main__":
    main()
