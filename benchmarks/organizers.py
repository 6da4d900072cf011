"""Organizers on frozen features, host by host, with enough seeds to tell: does CPF help, and beyond which controls?

The backbone does not train, so every view is computed once and kept in memory; a run then takes seconds. Each data set
is a folder with one sub-folder per class; the first classes are known, and half of their images labelled. With `--tune`
only the labelled images are taken and split again: settings are chosen there, and no test label is seen. Finished runs
are not run again. Differences are paired by seed, with 95 % intervals (Student's t).

    python benchmarks/organizers.py --data cub=CUB_200_2011/images:50:25 cifar100=cifar100/:100:80:50 --size 112 \\
        --weights vit_small_patch14_dinov2.fp16.safetensors --hosts simgcd cms --rows none adapter grid cpf-parts \\
        --seeds 0 1 2 3 4 --out runs/organizers
"""

import argparse
import json
import math
import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from newkinds.assigners import ASSIGNERS
from newkinds.assigners.whitening import apply_whitening, whitening_of
from newkinds.cluster.metrics import Accuracy, clustering_accuracy
from newkinds.comparison import OverSeeds
from newkinds.data import load_table
from newkinds.data.batch import CachedTokens
from newkinds.data.folder import files_below
from newkinds.data.loader import FixedViews, StoredBatches, seed_for
from newkinds.data.splits import for_tuning
from newkinds.data.table import Table, readable
from newkinds.data.views import TWO_CROPS
from newkinds.encoders.backbones import Backbone, build_backbone
from newkinds.encoders.organizers.cpf_parts import CPFParts
from newkinds.encoders.organizers.grid_cells import Grid
from newkinds.encoders.tokens import Tokens
from newkinds.files import csv_text, write_whole
from newkinds.methods import METHODS
from newkinds.methods.base import Progress
from newkinds.methods.schedules import cosine_lr
from newkinds.runs.config import Config, resolve
from newkinds.training.loop import gatherer, step
from newkinds.training.model import Model, build_model
from newkinds.training.optimizers import build_optimizer, parameter_groups
from newkinds.training.slots import SlotStore

ROWS: dict[str, dict[str, Any]] = {
    "none": {"name": "none"},
    "patches": {"name": "patches"},
    "adapter": {"name": "adapter"},
    "grid": {"name": "grid"},
    "cpf": {"name": "cpf", "readout": "literal"},
    "cpf-gated": {"name": "cpf", "readout": "gated"},
    "cpf-parts": {"name": "cpf-parts"},
    "cpf-parts-trained": {"name": "cpf-parts", "train_field": True},
    "cpf-random-parts": {"name": "cpf-parts", "start": "random"},
}
# chosen on labelled images (--tune), the same for all rows: see RESULTS.md
RATES = {
    "simgcd": (1.0, 0.1),
    "legogcd": (1.0, 0.1),
    "cms": (0.1, 1.0),
    "selex": (0.1, 1.0),
}  # head's lr, organizer's ratio

HEADS = {
    "projection_hidden": 512,
    "output_dim": 2048,
}  # narrower than published, for all rows: heads are most of the cost
COLUMNS = ("all", "old", "new")


class InMemory:
    """Tokens of all views of a table's images, (views, n, T, D): a store for `StoredBatches`."""

    kinds = TWO_CROPS.kinds

    def __init__(self, tokens: torch.Tensor) -> None:
        self.tokens, self.random_views = tokens, len(tokens) - 1

    def holds(self, table: Table) -> bool:
        return len(table) == self.tokens.shape[1]

    def rows_of(self, table: Table) -> np.ndarray:
        return np.arange(len(table))

    def inputs(self, rows: np.ndarray, numbers: np.ndarray) -> CachedTokens:
        return CachedTokens(self.tokens[torch.as_tensor(numbers), torch.as_tensor(rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True, help="NAME=FOLDER:CLASSES:KNOWN[:IMAGES PER CLASS]")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--backbone", default="vit_small_patch14_dinov2")
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--views", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--hosts", nargs="+", default=list(RATES), choices=list(RATES))
    parser.add_argument("--rows", nargs="+", default=["none", "adapter", "grid", "cpf-parts"], choices=list(ROWS))
    parser.add_argument("--lr", type=float, help="of the head (default: the host's, see RATES)")
    parser.add_argument("--ratio", type=float, help="organizer's learning rate over the head's")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--tune", action="store_true", help="labelled images alone, split again")
    parser.add_argument("--information", action="store_true", help="train nothing: baselines, what patches know")
    parser.add_argument("--collect", action="store_true", help="run nothing: print what is finished")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for data in () if given.collect else given.data:
        name = data.partition("=")[0]
        kind = f"{name}-{given.size}" + ("-tune" if given.tune else "")
        wanted = [(host, row, seed) for seed in given.seeds for host in given.hosts for row in given.rows]
        if given.information:
            information(kind, *embedded(data, given))
            continue
        files = {cell: given.out / f"{kind}-{tag(cell, given)}.json" for cell in wanted}
        if all(file.is_file() for file in files.values()):
            continue
        table, tokens, backbone = embedded(data, given)
        for (host, row, seed), file in files.items():
            if not file.is_file():
                found = run(table, tokens, backbone, host, row, seed, given)
                write_whole(file, json.dumps({"data": kind, "host": host, "row": row, "seed": seed, **found}))
                print(file.stem, found, flush=True)
    if not given.information:
        report(given.out)


def tag(cell: tuple[str, str, int], given: argparse.Namespace) -> str:
    host, row, seed = cell
    rates = "".join(f"-{name}{value:g}" for name, value in (("lr", given.lr), ("ratio", given.ratio)) if value)
    return f"{host}-{row}{rates}-{seed}"


def embedded(data: str, given: argparse.Namespace) -> tuple[Table, torch.Tensor, Backbone]:
    """The table, its tokens (views, n, T, D) and the backbone; tokens are kept in `out`."""
    name, _, place = data.partition("=")
    folder, classes, known, *images = place.split(":")
    file = given.out / f"{name}.csv"
    if not file.is_file():
        given.out.mkdir(parents=True, exist_ok=True)
        write_split(file, folder, int(classes), int(known), int(images[0]) if images else None)
    table = readable(load_table({"name": "csv", "path": str(file)}), contents=True)
    backbone = build_backbone(given.backbone, weights=given.weights, image_size=given.size, train_blocks=0)
    kept = given.out / f"{name}-{given.size}.pt"
    if not kept.is_file():
        torch.save(tokens_of(table, backbone, given.views), kept)
    tokens = torch.load(kept, weights_only=True)
    if given.tune:
        labelled = [row for row, label in enumerate(table.labels) if label is not None]
        table, tokens = for_tuning(table), tokens[:, labelled]
    return table, tokens, backbone


def write_split(file: Path, folder: str, classes: int, known: int, images: int | None) -> None:
    """A CSV file with path, label and truth: classes drawn (all: in order), the first are known, half labelled."""
    draw, root = random.Random(0), Path(folder).resolve()
    names = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    if classes < len(names):
        names = draw.sample(names, classes)
    rows = []
    for place, name in enumerate(names):
        paths = sorted(files_below(root / name, []))
        paths = sorted(draw.sample(paths, min(images or len(paths), len(paths))))
        labelled = set(draw.sample(paths, len(paths) // 2)) if place < known else set()
        rows += [(path, name if path in labelled else "", name) for path in paths]
    write_whole(file, csv_text(("path", "label", "truth"), rows))


@torch.inference_mode()
def tokens_of(table: Table, backbone: Backbone, views: int) -> torch.Tensor:
    """(views + 1, n, T, D) float16; computed in bfloat16, which keeps a cosine of 0.999."""
    numbers = [range(views + 1)] * len(table)
    dataset = FixedViews(table, backbone.preprocessing, 0, range(len(table)), numbers)
    parts, started = [], time.monotonic()
    for begin in range(0, len(table), 32):
        rows = range(begin, min(begin + 32, len(table)))
        pixels = torch.stack([torch.as_tensor(dataset[row]) for row in rows]).transpose(0, 1)  # (V, b, 3, H, W)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            normalised = backbone.preprocessing.normalise(pixels.flatten(0, 1))
            parts.append(backbone.frozen_part(normalised, True).half().unflatten(0, pixels.shape[:2]))
        if begin % 640 == 0:
            print(f"tokens: {rows.stop} of {len(table)} images, {time.monotonic() - started:.0f} s", flush=True)
    return torch.cat(parts, dim=1)


@torch.inference_mode()
def class_tokens(tokens: torch.Tensor, backbone: Backbone) -> torch.Tensor:
    """(views, n, 1, D), after the final norm, as the cache of a backbone whose patches nobody reads has them."""
    views = [[backbone.trained_part(some.float(), False).cls for some in view.split(512)] for view in tokens]
    return torch.stack([torch.cat(parts)[:, None] for parts in views])


def run(
    table: Table, tokens: torch.Tensor, backbone: Backbone, host: str, row: str, seed: int, given: argparse.Namespace
) -> dict[str, Any]:
    """Train one cell, and judge it on the unlabelled images."""
    started = time.monotonic()
    config = config_of(host, row, seed, given)
    model = build_model(config, table.known, len(set(table.truth or [])), load_weights=False)
    model.encoder.backbone = backbone
    whole = InMemory(tokens)
    store: InMemory | SlotStore = whole
    if model.encoder.organizer.starts_from_tokens:
        torch.manual_seed(seed_for("start of the organizer", seed))
        sample = torch.randperm(len(table))[:512]
        with torch.inference_mode():
            sampled = model.encoder.tokens(CachedTokens(tokens[0, sample]))
        model.encoder.organizer.start(sampled)
    if not model.encoder.organizer.reads_patches:
        store = InMemory(class_tokens(tokens, backbone))
    elif model.encoder.organizer.fixed_slots:
        store = SlotStore(model.encoder, whole, table)
    optimizer = build_optimizer(parameter_groups(model, config.train), config.train)
    batches = StoredBatches(table, store, config.train.batch_size, seed, config.train.draw)
    epochs = max(2, round(given.steps / len(batches)))
    for epoch in range(epochs):
        torch.manual_seed(seed_for("training", seed, epoch))
        lr = cosine_lr(epoch, epochs, config.train.lr, config.train.min_lr_ratio)
        optimizer.set_lr(lr)
        model.method.on_epoch_start(epoch, gatherer(model, table, batches, epoch))
        model.train()
        for batch in batches(epoch):
            step(model, batch, Progress(epoch, epochs), optimizer)
    return {**judged(model, table, store, seed), "seconds": round(time.monotonic() - started, 1)}


def config_of(host: str, row: str, seed: int, given: argparse.Namespace) -> Config:
    lr, ratio = given.lr or RATES[host][0], given.ratio or RATES[host][1]
    narrow = {name: value for name, value in HEADS.items() if name in METHODS[host].Config.__dataclass_fields__}
    if host == "cms":
        del narrow["output_dim"]  # 768, as published
    return resolve({
        "data": {"name": "creatures"},  # not read: the tokens are given
        "backbone": {"name": given.backbone, "image_size": given.size, "train_blocks": 0},
        "method": {"name": host, **narrow}, "organizer": ROWS[row],
        "train": {"seed": seed, "lr": lr, "organizer_lr_ratio": ratio},
    })  # fmt: skip


@torch.inference_mode()
def information(kind: str, table: Table, tokens: torch.Tensor, backbone: Backbone) -> None:
    """1-NN over all images, and a linear probe trained on half of them: class tokens, and with slots beside them."""
    found = [backbone.trained_part(some.float()) for some in tokens[0].split(256)]
    cls_of_all, patches = torch.cat([part.cls for part in found]), torch.cat([part.patches for part in found])
    sample = Tokens(cls_of_all, patches, found[0].grid)
    torch.manual_seed(0)
    cpf = CPFParts(backbone.dim)
    cpf.start(Tokens(sample.cls[:512], sample.patches[:512], sample.grid))
    cls = centred(sample.cls[:, None])  # (n, 1, D)
    beside = {
        "mean patch": sample.patches.mean(dim=1, keepdim=True), "parts (CPF)": cpf.slots(sample),
        "cells (grid)": Grid(backbone.dim).slots(sample),
    }  # fmt: skip
    rows = {"class token": cls, **{f"class token, {name}": _beside(cls, slots) for name, slots in beside.items()}}
    rows["parts (CPF) alone"] = centred(beside["parts (CPF)"])
    classes = np.array(table.truth)
    half = np.random.RandomState(0).permutation(len(table)) < len(table) // 2
    print(f"{kind}: {len(table)} images\n| | 1-NN | linear probe |\n|---|--:|--:|")
    for name, slots in rows.items():
        unit = torch.nn.functional.normalize(slots.flatten(1), dim=1)
        nearest = (unit @ unit.T).fill_diagonal_(-math.inf).argmax(1).numpy()
        scaled = (unit / unit[half].std()).numpy()
        probe = LogisticRegression(max_iter=200).fit(scaled[half], classes[half]).score(scaled[~half], classes[~half])
        print(f"| {name} | {100 * (classes[nearest] == classes).mean():.1f} | {100 * probe:.1f} |", flush=True)

    print("| without training | All | Old | New |\n|---|--:|--:|--:|")
    raw = torch.nn.functional.normalize(sample.cls, dim=1)
    labels = torch.from_numpy(table.targets)
    for name in ("kmeans", "sskmeans", "ward", "balanced"):
        for shrinkage in (None, 0.5):
            embedding = raw
            if shrinkage:
                embedding = apply_whitening(raw, *whitening_of(raw, labels, shrinkage))
            assigner = ASSIGNERS[name](backbone.dim, len(table.known), len(set(classes)))
            torch.manual_seed(0)
            assigner.fit(embedding, labels)
            score = accuracy(table, assigner(embedding).argmax(1).numpy())
            print(
                f"| {name}{', whitened' if shrinkage else ''} | {' | '.join(f'{100 * x:.1f}' for x in score)} |",
                flush=True,
            )


def accuracy(table: Table, found: np.ndarray) -> Accuracy:
    """All, Old and New of the unlabelled images."""
    truth, unlabelled = truth_of(table), table.targets < 0
    return clustering_accuracy(truth[unlabelled], found[unlabelled], range(len(table.known)))


def truth_of(table: Table) -> np.ndarray:
    """Class numbers (n,), known ones first."""
    classes = [*table.known, *sorted({str(name) for name in table.truth or []} - set(table.known))]
    return np.array([classes.index(str(name)) for name in table.truth or []])


def centred(slots: torch.Tensor) -> torch.Tensor:
    """Layer-normalised slots (n, S, D) without their mean over images, of unit length all together."""
    normed = torch.nn.functional.layer_norm(slots, slots.shape[2:])
    normed = normed - normed.mean(dim=0)
    return normed / normed.flatten(1).norm(dim=1)[:, None, None]


def _beside(cls: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    return torch.cat([cls, 0.5 * centred(slots)], dim=1)


@torch.inference_mode()
def judged(model: Model, table: Table, store: InMemory | SlotStore, seed: int) -> dict[str, float]:
    """Accuracies of unlabelled images; by the host's own assigner, and 1-NN of images of new classes."""
    model.eval()
    every = np.arange(len(table))
    chunks = [every[begin : begin + 256] for begin in range(0, len(every), 256)]
    features = torch.cat([model.encoder(store.inputs(some, np.zeros_like(some))).feature for some in chunks])
    model.find_categories(features, torch.from_numpy(table.targets), seed)
    found = model.assign(features).category.numpy()
    score, truth = accuracy(table, found), truth_of(table)
    new = truth >= len(table.known)
    unit = torch.nn.functional.normalize(features, dim=1)
    nearest = (unit @ unit.T).fill_diagonal_(-math.inf).argmax(1).numpy()
    neighbours = (truth[nearest] == truth)[new].mean()
    return {name: 100 * float(value) for name, value in (*score._asdict().items(), ("neighbours", neighbours))}


def report(out: Path) -> None:
    """Every row with its seeds, and its difference from `none`, `adapter` and `grid`, seed by seed."""
    found: dict[tuple[str, str], dict[str, dict[int, dict[str, float]]]] = defaultdict(lambda: defaultdict(dict))
    for file in sorted(out.glob("*.json")):
        cell = json.loads(file.read_text())
        if file.stem.endswith(f"{cell['host']}-{cell['row']}-{cell['seed']}"):
            found[cell["data"], cell["host"]][cell["row"]][cell["seed"]] = cell
    print("| data | host | row | seeds | All | Old | New | 1-NN new | New − none | New − adapter | New − grid |")
    print("|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    gains: dict[tuple[str, str], list[OverSeeds]] = defaultdict(list)
    for (data, host), rows in sorted(found.items()):
        for row, cells in sorted(rows.items(), key=lambda item: list(ROWS).index(item[0])):
            means = [f"{np.mean([cell[name] for cell in cells.values()]):.1f}" for name in (*COLUMNS, "neighbours")]
            differences = []
            for base in ("none", "adapter", "grid"):
                of_base = OverSeeds({seed: cell["new"] for seed, cell in rows.get(base, {}).items()})
                gain = OverSeeds({seed: cell["new"] for seed, cell in cells.items()}).minus(of_base)
                if gain is not None and row != base and not data.endswith("-tune"):
                    gains[row, base].append(gain)
                differences.append("" if gain is None or row == base else said(gain))
            print(f"| {data} | {host} | {row} | {len(cells)} | {' | '.join((*means, *differences))} |")
    for (row, base), some in gains.items():
        every = OverSeeds(dict(enumerate(value for gain in some for value in gain.of_seed.values())))
        of_cells = OverSeeds(dict(enumerate(gain.mean for gain in some)))
        print(
            f"New, {row} − {base}: {said(every)} over {every.runs} pairs; {said(of_cells)} over {of_cells.runs} cells"
        )


def said(gain: OverSeeds) -> str:
    interval = gain.interval
    return f"{gain.mean:+.1f}" + (f" [{interval[0]:+.1f}, {interval[1]:+.1f}]" if interval else "")


if __name__ == "__main__":
    main()
