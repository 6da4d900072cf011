"""Organizers on frozen features, host by host, with enough seeds to tell: does CPF help, and beyond which controls?

The backbone does not train, so every view is computed once and kept in memory; a run then takes seconds. Each data set
is a folder with one sub-folder per class; the first classes are known, half of their images labelled. With `--draws`
each seed also draws its own classes and labels. With `--tune` only the labelled images are taken and split again:
settings are chosen there, and no test label is seen. Finished runs are not run again. Differences are paired by seed,
with 95 % intervals (Student's t).

    python benchmarks/organizers.py --data cub=CUB_200_2011/images:50:25 cifar100=cifar100/:100:80:50 --size 112 \\
        --weights vit_small_patch14_dinov2.fp16.safetensors --hosts simgcd cms --rows none adapter grid cpf-parts \\
        --seeds 0 1 2 3 4 --out runs/organizers
"""

import argparse
import copy
import itertools
import json
import math
import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression

from newkinds.assigners import ASSIGNERS
from newkinds.assigners.em import EM
from newkinds.assigners.whitening import apply_whitening, whitening_of
from newkinds.cluster.count import COUNTERS
from newkinds.cluster.metrics import Accuracy, clustering_accuracy
from newkinds.comparison import OverSeeds
from newkinds.data import load_table
from newkinds.data.batch import CachedTokens
from newkinds.data.folder import files_below
from newkinds.data.loader import FixedViews, StoredBatches, seed_for
from newkinds.data.splits import for_tuning
from newkinds.data.table import Table, readable
from newkinds.data.views import TWO_CROPS
from newkinds.encoders.backbone import Backbone
from newkinds.encoders.backbones import build_backbone, width_of
from newkinds.encoders.organizers.attention_pooling import CPFAttention
from newkinds.encoders.organizers.cpf_parts import CPFParts
from newkinds.encoders.organizers.grid_cells import Grid
from newkinds.encoders.tokens import Tokens
from newkinds.files import csv_text, write_whole
from newkinds.methods import METHODS
from newkinds.methods.base import Progress
from newkinds.methods.schedules import cosine_lr
from newkinds.runs.config import Config, resolve
from newkinds.training.device import MixedPrecision
from newkinds.training.loop import gatherer
from newkinds.training.model import Model, build_model
from newkinds.training.optimizers import build_optimizer, parameter_groups
from newkinds.training.slots import SlotStore
from newkinds.training.steps import step

ROWS: dict[str, dict[str, Any]] = {
    "none": {"name": "none"},
    "patches": {"name": "patches"},
    "adapter": {"name": "adapter"},
    "grid": {"name": "grid"},
    "attention-pooling": {"name": "attention-pooling"},
    "attention-pooling-tokens": {"name": "attention-pooling", "start": "tokens"},
    "cpf": {"name": "cpf", "readout": "literal"},
    "cpf-gated": {"name": "cpf", "readout": "gated"},
    "cpf-parts": {"name": "cpf-parts"},
    "cpf-parts-trained": {"name": "cpf-parts", "train_field": True},
    "cpf-random-parts": {"name": "cpf-parts", "start": "random"},
    "cpf-attention": {"name": "cpf-attention"},
    "cpf-attention-without-field": {"name": "cpf-attention", "field": False},
    "cpf-attention-without-codebook": {"name": "cpf-attention", "codebook": False},
}
# chosen on labelled images (--tune), the same for all rows: see results/cpf.md
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
COLUMNS = ("all", "old", "new", "em_all", "em_new")
CONTROLS = ("none", "adapter", "grid", "attention-pooling")
EM_RESTARTS = 3  # of the assigner that is the same for all rows, beside the host's own


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
    parser.add_argument("--draws", action="store_true", help="each seed draws its own classes and labels")
    parser.add_argument("--blocks", type=int, default=0, help="last blocks of the backbone that train (default: none)")
    parser.add_argument("--backbone-ratio", type=float, default=0.01, help="their learning rate over the head's")
    parser.add_argument("--precision", default="float32", help="of the blocks and organizers that train")
    parser.add_argument("--tune", action="store_true", help="labelled images alone, split again")
    parser.add_argument("--information", action="store_true", help="train nothing: baselines, what patches know")
    parser.add_argument("--collect", action="store_true", help="run nothing: print what is finished")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--json", type=Path, help="also write the table to this file, for RESULTS.md")
    parser.add_argument("--machine", default="2 CPU cores (AMD EPYC), busy with other work", help="said in the JSON")
    parser.add_argument("--notebook", default="", help="page and anchor in results/, said in the JSON")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for data in () if given.collect else given.data:
        name = data.partition("=")[0]
        trained = f"-blocks{given.blocks}" if given.blocks else ""
        trained += f"-{given.precision}" if given.precision != "float32" else ""
        kind = f"{name}-{given.size}{trained}" + ("-tune" if given.tune else "")
        drawn: tuple[Table, torch.Tensor] | None = None
        for seed in given.seeds:
            cells = [(host, row, seed) for host in given.hosts for row in given.rows]
            files = {cell: given.out / f"{kind}-{tag(cell, given)}.json" for cell in cells}
            missing = {cell: file for cell, file in files.items() if not file.is_file()}
            if not missing and not given.information:
                continue
            backbone = backbone_of(given)
            if drawn is None or given.draws:
                drawn = embedded(data, given, backbone, seed if given.draws else 0)
            if given.information:
                information(f"{kind}, draw {seed}", *drawn, backbone)
                if not given.draws:
                    break
                continue
            for (host, row, _), file in missing.items():
                found = run(*drawn, backbone, host, row, seed, given)
                write_whole(file, json.dumps({"data": kind, "host": host, "row": row, "seed": seed, **found}))
                print(file.stem, found, flush=True)
    if not given.information:
        report(given.out)
    if given.json:
        write_table(given.json, given)


def tag(cell: tuple[str, str, int], given: argparse.Namespace) -> str:
    host, row, seed = cell
    rates = "".join(f"-{name}{value:g}" for name, value in (("lr", given.lr), ("ratio", given.ratio)) if value)
    return f"{host}-{row}{rates}-{seed}"


def backbone_of(given: argparse.Namespace) -> Backbone:
    return build_backbone(given.backbone, weights=given.weights, image_size=given.size, train_blocks=given.blocks)


def embedded(data: str, given: argparse.Namespace, backbone: Backbone, draw: int) -> tuple[Table, torch.Tensor]:
    """The table of a draw, and its tokens (views, n, T, D), which are kept in `out`."""
    name, _, place = data.partition("=")
    folder, classes, known, *images = place.split(":")
    drawn = given.out / f"{name}-draw{draw}.csv"
    if not drawn.is_file():
        given.out.mkdir(parents=True, exist_ok=True)
        write_split(drawn, folder, int(classes), int(known), int(images[0]) if images else None, draw)
    table = readable(load_table({"name": "csv", "path": str(drawn)}), contents=True)
    kept = given.out / f"{drawn.stem}-{given.size}-blocks{given.blocks}.safetensors"
    if not kept.is_file():
        save_file({"tokens": tokens_of(table, backbone, given.views)}, kept)
    tokens = load_file(kept)["tokens"]
    if given.tune:
        labelled = [row for row, label in enumerate(table.labels) if label is not None]
        table, tokens = for_tuning(table), tokens[:, labelled]
    return table, tokens


def write_split(file: Path, folder: str, classes: int, known: int, images: int | None = None, seed: int = 0) -> None:
    """A CSV file with path, label and truth: classes drawn (all: in order), the first are known, half labelled."""
    draw, root = random.Random(seed), Path(folder).resolve()
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
    model.encoder.backbone = copy.deepcopy(backbone) if given.blocks else backbone  # each run trains its own blocks
    model.precision = MixedPrecision(given.precision, torch.device("cpu"))
    backbone = model.encoder.backbone
    whole = InMemory(tokens)
    store: InMemory | SlotStore = whole
    if model.encoder.organizer.starts_from_tokens:
        torch.manual_seed(seed_for("start of the organizer", seed))
        sample = torch.randperm(len(table))[:512]
        with torch.inference_mode():
            sampled = model.encoder.tokens(CachedTokens(tokens[0, sample]))
        model.encoder.organizer.start(sampled)
    if not model.encoder.organizer.reads_patches and backbone.is_fixed:
        store = InMemory(class_tokens(tokens, backbone))
    elif model.encoder.organizer.fixed_slots and backbone.is_fixed:
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
    organizer = dict(ROWS[row])
    if organizer["name"] in ("cpf", "cpf-parts"):
        organizer["heads"] = heads_of(width_of(given.backbone))
    return resolve({
        "data": {"name": "creatures"},  # not read: the tokens are given
        "backbone": {"name": given.backbone, "image_size": given.size, "train_blocks": given.blocks},
        "method": {"name": host, **narrow}, "organizer": organizer,
        "train": {
            "seed": seed, "lr": lr, "organizer_lr_ratio": ratio, "backbone_lr_ratio": given.backbone_ratio,
        },
    })  # fmt: skip


def heads_of(dim: int) -> int:
    """12, as in the paper, or the next fewer that divide the width of the backbone."""
    return max(heads for heads in range(1, 13) if dim % heads == 0)


@torch.inference_mode()
def information(kind: str, table: Table, tokens: torch.Tensor, backbone: Backbone) -> None:
    """1-NN over all images, and a linear probe trained on half of them: class tokens, and with slots beside them."""
    found = [backbone.trained_part(some.float()) for some in tokens[0].split(256)]
    cls_of_all, patches = torch.cat([part.cls for part in found]), torch.cat([part.patches for part in found])
    sample = Tokens(cls_of_all, patches, found[0].grid)
    torch.manual_seed(0)
    cpf = CPFParts(backbone.dim, heads=heads_of(backbone.dim))
    cpf.start(Tokens(sample.cls[:512], sample.patches[:512], sample.grid))
    cls = centred(sample.cls[:, None])  # (n, 1, D)
    pooling = CPFAttention(backbone.dim)
    pooling.start(Tokens(sample.cls[:512], sample.patches[:512], sample.grid))
    beside = {
        "mean patch": sample.patches.mean(dim=1, keepdim=True), "parts (CPF)": cpf.slots(sample),
        "parts (CPF by attention)": pooling.slots(sample),
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
    for name in ("kmeans", "sskmeans", "ward", "balanced", "em"):
        for shrinkage in (None,) if name == "em" else (None, 0.5):  # it whitens by itself
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
    """Accuracies of unlabelled images, by the host's own assigner and by `em`; 1-NN of images of new classes; and the
    number of categories that CMS's way of counting finds."""
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
    torch.manual_seed(seed)
    categories = len(set(table.truth or []))
    em = EM(unit.shape[1], len(table.known), categories, restarts=EM_RESTARTS)
    em.fit(unit, torch.from_numpy(table.targets))
    by_em = accuracy(table, em(unit).argmax(1).numpy())
    figures = {**score._asdict(), **{f"em_{name}": value for name, value in by_em._asdict().items()}}
    count = COUNTERS["ward"](unit.numpy(), table.targets).answer
    return {
        **{name: 100 * float(value) for name, value in (*figures.items(), ("neighbours", neighbours))},
        "count": count,
        "count_error": 100 * abs(count - categories) / categories,
    }


Found = dict[tuple[str, str], dict[str, dict[int, dict[str, float]]]]  # (data, host) → row → seed → figures


def read_cells(out: Path) -> Found:
    """All finished runs; those at other rates than a host's own are left out."""
    found: Found = defaultdict(lambda: defaultdict(dict))
    for file in sorted(out.glob("*.json")):
        cell = json.loads(file.read_text())
        if file.stem.endswith(f"{cell['host']}-{cell['row']}-{cell['seed']}"):
            found[cell["data"], cell["host"]][cell["row"]][cell["seed"]] = cell
    return found


def report(out: Path) -> None:
    """Every row with its seeds, and its difference from each of CONTROLS, seed by seed."""
    found = read_cells(out)
    heads = ("data", "host", "row", "seeds", "All", "Old", "New", "All by em", "New by em", "1-NN new")
    print(f"| {' | '.join((*heads, *(f'New − {base}' for base in CONTROLS)))} |")
    print("|---|---|---|" + "--:|" * (len(heads) - 3 + len(CONTROLS)))
    for (data, host), rows in sorted(found.items()):
        for row in sorted(rows, key=list(ROWS).index):
            cells = rows[row].values()
            means = [f"{np.mean([cell[name] for cell in cells]):.1f}" for name in (*COLUMNS, "neighbours")]
            differences = [said(gain_of(rows, row, base)) for base in CONTROLS]
            print(f"| {data} | {host} | {row} | {len(cells)} | {' | '.join((*means, *differences))} |")
    for figure in ("new", "em_new"):
        for row, base in itertools.product(ROWS, CONTROLS):
            every = gain_over_hosts(found, row, base, figure)
            if every is not None:
                print(f"{figure}, {row} − {base}: {said(every)} over {every.runs} draws")


def gain_of(rows: dict[str, dict[int, dict[str, float]]], row: str, base: str, figure: str = "new") -> OverSeeds | None:
    """What a row has more than a control, with the same host, seed by seed; None if it is that control."""
    if row == base or row not in rows or base not in rows:
        return None
    of_row, of_base = (OverSeeds({seed: cell[figure] for seed, cell in rows[name].items()}) for name in (row, base))
    return of_row.minus(of_base)


def gain_over_hosts(found: Found, row: str, base: str, figure: str = "new") -> OverSeeds | None:
    """The same over all hosts and data sets. Hosts of one draw share its images, so their pairs are not independent: a
    draw counts once, by the mean over its hosts."""
    of_draw: dict[tuple[str, int], list[float]] = defaultdict(list)
    for (data, _), rows in found.items():
        gain = None if data.endswith("-tune") else gain_of(rows, row, base, figure)
        for seed, value in {} if gain is None else gain.of_seed.items():
            of_draw[data, seed].append(value)
    means = [float(np.mean(values)) for values in of_draw.values()]
    return OverSeeds(dict(enumerate(means))) if means else None


def write_table(file: Path, given: argparse.Namespace) -> None:
    """All rows as a table for RESULTS.md (scripts/build_results.py): figures by host, differences over all hosts."""
    found = read_cells(given.out)
    data = [f"{name}={Path(rest).name}" for name, _, rest in (place.partition("=") for place in given.data)]
    rows: list[list[Any]] = []
    for (_, host), by_row in sorted(found.items()):
        for row in sorted(by_row, key=list(ROWS).index):
            cells = by_row[row].values()
            means = [round(float(np.mean([cell[name] for cell in cells])), 2) for name in COLUMNS]
            differences = [as_cell(gain_of(by_row, row, base)) for base in CONTROLS]
            rows.append([f"{METHODS[host].__name__}, {row}", len(cells), means[:3], means[3:], *differences])
    for row in ROWS:
        gains = [gain_over_hosts(found, row, base) for base in CONTROLS]
        draws = max((gain.runs for gain in gains if gain is not None), default=0)
        if draws:
            rows.append([f"**all hosts**, {row}", draws, None, None, *(as_cell(gain) for gain in gains)])
    table = {
        "command": [
            f"python benchmarks/organizers.py --data {' '.join(data)} --size {given.size} --backbone {given.backbone} "
            f"--weights {Path(given.weights).name} --hosts {' '.join(given.hosts)} --rows {' '.join(given.rows)} "
            f"--seeds {' '.join(map(str, given.seeds))}{' --draws' if given.draws else ''} --out runs/organizers"
        ],
        "date": time.strftime("%Y-%m-%d"),
        "machine": given.machine,
        "seeds": " ".join(map(str, given.seeds)),
        "notebook": given.notebook,
        "columns": [
            "host, organizer", "draws", "All / Old / New", "All / New by em", *(f"New − {base}" for base in CONTROLS),
        ],
        "rows": rows,
    }  # fmt: skip
    write_whole(file, json.dumps(table, ensure_ascii=False, indent=1) + "\n")


def as_cell(gain: OverSeeds | None) -> dict[str, float] | float | None:
    if gain is None:
        return None
    if gain.interval is None:
        return round(gain.mean, 2)
    low, high = gain.interval
    return {"difference": round(gain.mean, 2), "low": round(low, 2), "high": round(high, 2)}


def said(gain: OverSeeds | None) -> str:
    if gain is None:
        return ""
    interval = gain.interval
    return f"{gain.mean:+.1f}" + (f" [{interval[0]:+.1f}, {interval[1]:+.1f}]" if interval else "")


if __name__ == "__main__":
    main()
