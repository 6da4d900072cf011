"""How much of what is planted the data checks find, and how much they flag that was not planted.

    python benchmarks/checks.py cub --data-root datasets/ --others cifar10_10k/ \
        --backbone vit_small_patch14_dinov2 --weights vit_small_patch14_dinov2.safetensors --image-size 112
    python benchmarks/checks.py creatures --others photos/     # the bundled backbone: about a minute

Planted are wrong labels (5 % of the labelled images, a random other class each), copies of unlabelled images (the same
pixels; resized; encoded again; cropped), and images of something else. What is flagged among the untouched images may
be a fault of the data set itself. Last, the time and memory of the checks alone at 10,000 images.
"""

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from newkinds.checks import run_checks
from newkinds.data import load_table, source_of
from newkinds.data.facts import Facts
from newkinds.data.table import ImageRecord, Table, readable
from newkinds.runs.config import resolve
from newkinds.text import text_table
from newkinds.verbs.count import backbone_rows

WRONG = 0.05  # share of the labelled images
COPIES = 100  # of each kind
OUTLIERS = 10  # in each repetition


def encoded_again(image: Image.Image) -> Image.Image:
    file = BytesIO()
    image.save(file, "JPEG", quality=30)
    return Image.open(file).convert("RGB")


def cropped(share: float) -> Callable[[Image.Image], Image.Image]:
    def crop(image: Image.Image) -> Image.Image:
        dx, dy = round(image.width * share / 2), round(image.height * share / 2)
        return image.crop((dx, dy, image.width - dx, image.height - dy))

    return crop


KINDS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "the same pixels": lambda image: image,
    "half the size": lambda image: image.resize((image.width // 2, image.height // 2), Image.Resampling.BICUBIC),
    "JPEG of quality 30": encoded_again,
    "5 % cropped": cropped(0.05),
    "10 % cropped": cropped(0.10),
    "grey": lambda image: image.convert("L").convert("RGB"),
}


def with_plants(table: Table, others: Table, rng: np.random.Generator) -> tuple[Table, np.ndarray]:
    """The table with copies of unlabelled images and with `others`, and what each row is ("" for its own images)."""
    unlabelled = np.flatnonzero(table.targets < 0)
    each = min(COPIES, len(unlabelled) // len(KINDS))
    sources = rng.permutation(unlabelled)[: each * len(KINDS)].reshape(len(KINDS), each)
    openers: list[Callable[[], Image.Image]] = []
    planted: list[str] = []
    for (kind, change), rows in zip(KINDS.items(), sources.tolist(), strict=True):
        openers += [lambda row=row, change=change: change(table.open(row)) for row in rows]  # type: ignore[misc]
        planted += [kind] * each
    openers += [lambda row=row: others.open(row) for row in range(len(others))]  # type: ignore[misc]
    planted += ["something else"] * len(others)
    n = len(table)
    joined = Table(
        [*table.paths, *(f"planted/{place}.png" for place in range(len(planted)))],
        [*table.labels, *[None] * len(planted)],
        lambda row: table.open(row) if row < n else openers[row - n](),
        known_first=table.known,
    )
    return joined, np.array([""] * n + planted)


def relabelled(table: Table, rng: np.random.Generator) -> tuple[Table, np.ndarray]:
    """A share of the labels replaced by a random other class, and which rows these are."""
    labels, known = list(table.labels), table.known
    labelled = np.flatnonzero(table.targets >= 0)
    rows = rng.choice(labelled, round(WRONG * len(labelled)), replace=False)
    for row in rows.tolist():
        labels[row] = known[(known.index(str(labels[row])) + int(rng.integers(1, len(known)))) % len(known)]
    return replace(table, labels=labels), rows


def judged(table: Table, embedding: torch.Tensor, planted: np.ndarray, seed: int) -> dict[tuple[str, str], np.ndarray]:
    """(check, what was planted) → planted, found, flagged among the untouched images, with another seed's plants."""
    rng = np.random.default_rng(seed)
    outliers = rng.permutation(np.flatnonzero(planted == "something else"))[:OUTLIERS]
    keep = np.sort(np.concatenate([np.flatnonzero(planted != "something else"), outliers]))
    table, wrong = relabelled(table.rows(keep.tolist()), rng)
    planted, untouched = planted[keep], planted[keep] == ""
    untouched[wrong] = False
    result: dict[tuple[str, str], np.ndarray] = {}

    def note(check: str, what: str, flag: np.ndarray, rows: np.ndarray) -> None:
        result[check, what] = np.array([len(rows), flag[rows].sum(), (flag & untouched).sum()])

    for name, rows in (("", embedding[keep]), (", pixels only", None)):
        flags = {finding.check: finding.found.flag for finding in run_checks(table, rows)}
        copies = flags["duplicate"] | flags["near-duplicate"]
        for kind in KINDS:
            note(f"duplicate, near-duplicate{name}", kind, copies, np.flatnonzero(planted == kind))
        if rows is not None:
            note("wrong label", f"{WRONG:.0%} of the labels", flags["wrong label"], wrong)
            note("outlier", f"{OUTLIERS} other images", flags["outlier"], np.flatnonzero(planted == "something else"))
    return result


def cost(images: int = 10_000, dim: int = 384) -> str:
    """Seconds and memory of all checks on facts and features that are there already."""
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 256, (images, 32), dtype=np.uint8)
    facts = [Facts(500, 400, 50.0, "808080", row.tobytes().hex()) for row in hashes]
    table = Table(
        [f"{row}.png" for row in range(images)],
        [f"class {row % 100}" if row % 2 else None for row in range(images)],
        lambda row: Image.new("RGB", (1, 1)),
        seen=[ImageRecord("", str(row), fact) for row, fact in enumerate(facts)],
    )
    rows = F.normalize(torch.randn(images, dim, generator=torch.Generator().manual_seed(0)), dim=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for embedding in (None, rows):
        started = time.perf_counter()
        run_checks(table, embedding)
        seconds.append(time.perf_counter() - started)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return (
        f"{images:,} images, facts and {dim} features at hand: {seconds[0]:.1f} s for pixels only, {seconds[1]:.1f} s "
        f"for all, {more:.0f} MB more memory ({torch.get_num_threads()} thread(s))"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="folder, CSV file or data set; leave it out to measure the cost alone")
    parser.add_argument("--others", help="folder of images of something else")
    parser.add_argument("--known", type=float, help="share of known classes, for a folder with all labels")
    parser.add_argument("--images", type=int, help="take so many, at random")
    parser.add_argument("--backbone", default="tiny")
    for name in ("--data-root", "--weights"):
        parser.add_argument(name)
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    print(cost())
    if given.data is None:
        return
    data = source_of(given.data)
    data |= {} if given.data_root is None else {"root": given.data_root}
    data |= {} if given.known is None else {"known": given.known}
    backbone = {"name": given.backbone, "weights": given.weights, "image_size": given.image_size}
    config = resolve({"data": data, "backbone": {name: value for name, value in backbone.items() if value is not None}})
    rng = np.random.default_rng(0)
    own, others = load_table(config.data), load_table(source_of(Path(given.others)))
    if given.images is not None:
        own = own.rows(np.sort(rng.permutation(len(own))[: given.images]).tolist())
    others = others.rows(np.sort(rng.permutation(len(others))[: 10 * OUTLIERS]).tolist())
    table, planted = with_plants(own, others, rng)
    started = time.perf_counter()
    table = readable(table, contents=True)
    read = time.perf_counter() - started
    config = replace(config, train=replace(config.train, workers=0))  # what opens the planted images cannot be sent
    embedding = backbone_rows(config, table)
    print(
        f"{len(table):,} images: {read:.0f} s to read them once, {time.perf_counter() - started - read:.0f} s to embed"
    )
    seeds = [judged(table, embedding, planted, seed) for seed in given.seeds]
    lines = []
    for check, what in seeds[0]:
        plants, found, others_flagged = np.mean([result[check, what] for result in seeds], axis=0)
        lines.append([check, what, f"{plants:.0f}", f"{100 * found / plants:.1f}", f"{others_flagged:.1f}"])
    print(text_table(["check", "planted", "images", "found %", "untouched flagged"], lines))


if __name__ == "__main__":
    main()
