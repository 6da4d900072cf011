"""What a training step of each method costs, against SimGCD's, and what it gathers before an epoch; in one run.

    python benchmarks/methods.py                          # heads and memories as published: minutes on 2 cores
    python benchmarks/methods.py --narrow --batch 32 --images 512 --methods simgcd dccl promptcal

A step is newkinds' own: forward, loss, backward, SGD, and the averaged teacher if there is one. Weights, tokens and
pixels are random. The views of a batch are in memory, as the tokens that enter the first block that trains; methods
that change the image or all blocks start from pixels, and so does SimGCD, once more, to compare. Queues are full. All
take turns, so that whatever else the machine does hits all. Steps have length 0, which costs what any other does.
"""

from __future__ import annotations

import argparse
import inspect
import time
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F

from newkinds.data.batch import Batch, CachedTokens, Inputs, Pixels
from newkinds.data.views import Gathered, ViewPlan
from newkinds.experiments.paper import QUICK, narrow_settings
from newkinds.methods import METHODS, Method, Progress
from newkinds.methods.queue import Queue
from newkinds.runs.config import resolve
from newkinds.text import text_table
from newkinds.training.model import Model, build_model
from newkinds.training.optimizers import build_optimizer, parameter_groups
from newkinds.training.steps import step
from newkinds.training.teacher import Teacher
from side_by_side import CATEGORIES, KNOWN, machine, ratio, times_in_turns

BASE, FROM_PIXELS = "simgcd", "simgcd, not cached"
EPOCH, EPOCHS = 20, 200  # what warms up does its work by then
STEPS = (0, 20)  # of 40 in an epoch: what alternates with all else has its turn in the first, and waits in the second
CHUNK = 128  # images that are embedded at once


class Trained:
    """A method on a backbone with random weights, and the batch that it trains on again and again."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        torch.manual_seed(0)
        method = BASE if name == FROM_PIXELS else name
        config = resolve(
            {"data": {"name": "creatures"}, "method": {"name": method}},
            {"backbone": {"name": args.backbone, "image_size": args.size, "train_blocks": 1}},
            {"method": narrow_settings(method), "tuning": QUICK["tuning"]} if args.narrow else {},
        )
        known = [str(number) for number in range(KNOWN)]
        self.model: Model = build_model(config, known, CATEGORIES, load_weights=False).train()
        self.backbone, self.method = self.model.encoder.backbone, self.model.method
        self.patches = self.model.encoder.organizer.reads_patches
        self.from_tokens = self.backbone.has_frozen_part(self.patches) and name != FROM_PIXELS
        self.labels = torch.arange(args.images).where(torch.arange(args.images) % 2 == 0, -1)  # half of the images
        self.labels[::2] = self.labels[::2] // 2 % KNOWN
        self.method.begin(self.labels)
        for queue in (part for part in self.method.modules() if isinstance(part, Queue)):
            rows, classes = torch.randn_like(queue.ring), self.labels[torch.arange(len(queue.ring)) % args.images]
            queue.push(F.normalize(rows, dim=1), classes)
        if self.method.teacher_momentum(Progress(EPOCH, EPOCHS)) is not None:
            self.model.teacher = Teacher(self.model.encoder, self.method)
        self.optimizer = build_optimizer(parameter_groups(self.model, config.train), config.train)
        self.optimizer.set_lr(0.0)
        self.batch = self.drawn(args.batch)

    def drawn(self, images: int) -> Batch:
        plan: ViewPlan = self.method.views
        index = torch.randint(len(self.labels), (images,))
        for_teacher = self.inputs(len(plan.teacher) * images) if plan.teacher else None
        return Batch(self.inputs(len(plan.student) * images), self.labels[index], index, for_teacher)

    def inputs(self, views: int) -> Inputs:
        if self.from_tokens:
            return CachedTokens(torch.randn(views, *self.backbone.sequence_shape(self.patches)).half())
        size = self.backbone.preprocessing.size
        return Pixels(torch.randint(256, (views, 3, size, size), dtype=torch.uint8))

    def gather(self) -> tuple[float, float] | None:
        """Seconds before an epoch: the method's, and those of embedding all images; None if there is nothing to gather.
        The features are made up, and form clusters."""
        if type(self.method).on_epoch_start is Method.on_epoch_start:
            return None
        spent = 0.0

        @torch.no_grad()
        def embed(views: Gathered) -> tuple[torch.Tensor, torch.Tensor]:
            nonlocal spent
            views = 1 if views == "centre" else views
            started, chunk = time.perf_counter(), self.inputs(CHUNK)
            for _ in range(0, views * len(self.labels), CHUNK):
                dim = self.model.encoder(chunk).feature.shape[1]
            spent += time.perf_counter() - started
            kinds = torch.randn(CATEGORIES, dim)
            kind = torch.arange(len(self.labels)) // 2 % CATEGORIES  # labelled images of a class are of one kind
            return kinds[kind] + 0.5 * torch.randn(views, len(kind), dim), self.labels

        self.model.eval()
        started = time.perf_counter()
        self.method.on_epoch_start(EPOCH, embed)
        took = time.perf_counter() - started
        self.model.train()
        return took - spent, spent

    def __call__(self) -> None:
        for number in STEPS:
            step(self.model, self.batch, Progress(EPOCH, EPOCHS, number, steps=40), self.optimizer)


def lines_of(method: Method) -> int:
    """Of the file it is in."""
    return len(Path(inspect.getfile(type(method))).read_text(encoding="utf-8").splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    trained = [name for name in METHODS if METHODS[name].trains]
    parser.add_argument("--methods", nargs="+", default=trained, choices=trained)
    parser.add_argument("--backbone", default="vit_small_patch14_dinov2", help="a vision transformer of timm, or tiny")
    parser.add_argument("--size", type=int, default=112, help="pixels a side")
    parser.add_argument("--batch", type=int, default=128, help="images a step")
    parser.add_argument("--images", type=int, default=4096, help="in the training set")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds")
    parser.add_argument("--narrow", action="store_true", help="heads, memories, prompts as in `newkinds bench all`")
    args = parser.parse_args()

    print(machine())
    sizes = "narrow heads, short memories, prompts in 2 blocks" if args.narrow else "heads and memories as published"
    print(f"{args.backbone} at {args.size} px, last block trained; batch {args.batch}; {args.images:,} images; {sizes}")
    runs = {name: Trained(name, args) for name in dict.fromkeys([BASE, FROM_PIXELS, *args.methods])}
    gathered = {name: run.gather() for name, run in runs.items()}
    times = times_in_turns(runs, args.rounds)
    rows = []
    for name, seconds in times.items():
        found, from_what = gathered[name], "tokens" if runs[name].from_tokens else "pixels"
        before = ["", ""] if found is None else [f"{found[0]:.2f}", f"{found[1]:.1f}"]
        step_time = [f"{1e3 * median(seconds) / len(STEPS):,.0f}", f"{ratio(seconds, times[BASE]):.2f}"]
        rows.append([name, from_what, *step_time, *before, str(lines_of(runs[name].method))])
    header = ["", "from", "step ms", f"times {BASE}", "gathering s", "+ embedding s", "lines"]
    print(f"\n{text_table(header, rows)}")


if __name__ == "__main__":
    main()
