"""What a second process brings: two of one thread each against one of one thread, in turns, in one run.

    python benchmarks/scaling.py                                    # about a minute on 2 idle cores

A training step is SimGCD's on the whole batch, with the last block trained; embedding is that of `discover`. Views are
in memory as pixels, weights are random. Both processes stay up, and the second sleeps while the first works alone.
On a machine with other work the clock says little. So the processor seconds that a process needs stand beside it:
alone, over the most that one of the two needs, is what two idle cores would give if nobody had to wait.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median

import torch

from newkinds.data.loader import StoredBatches
from newkinds.data.world import World
from newkinds.encoders.encoder import Encoder
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.methods.base import Progress
from newkinds.process import keep_freed_memory
from newkinds.runs.config import TrainConfig
from newkinds.training.distributed import all_gather, join_others, shared, work_alone, world
from newkinds.training.embedding import embed
from newkinds.training.model import Model
from newkinds.training.optimizers import build_optimizer, parameter_groups
from newkinds.training.steps import replicate, step
from side_by_side import CATEGORIES, KNOWN, machine, simgcd_head
from training import PixelsInMemory, noise_images, random_backbone

BACKBONE = "vit_small_patch14_dinov2"
Work = Callable[[], object]


def work(image_size: int, images: int, batch: int) -> dict[str, tuple[Work, Work]]:
    """Each kind of work, as one process does it and as all do it together."""
    backbone = random_backbone(BACKBONE, image_size, train_blocks=1)
    table = noise_images(images, image_size)
    encoder, store = Encoder(backbone, ORGANIZERS["none"](backbone.dim)), PixelsInMemory(table, backbone)
    model = Model(encoder, simgcd_head(encoder.dim), [str(number) for number in range(KNOWN)], CATEGORIES)
    optimizer = build_optimizer(parameter_groups(model, TrainConfig()), TrainConfig())
    optimizer.set_lr(0.0)  # costs what any other does
    replica = replicate(model)

    def stepping(of: World, through: torch.nn.Module) -> Work:
        every = iter(StoredBatches(table, store, batch, 0, world=of)(0))
        return lambda: step(model.train(), next(every), Progress(0, 1), optimizer, through)

    def embedding() -> object:
        return embed(encoder, table, torch.device("cpu"), batch, 0, store)

    return {
        "training step": (stepping(World(), model), stepping(world(), replica)),
        "embedding": (embedding, embedding),
    }


def spent(run: Work) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - processor


@shared
def measure(image_size: int, images: int, batch: int, rounds: int) -> None:
    """Both ways in turns, and a table of the medians."""
    seconds = defaultdict(list)
    for name, (alone, together) in work(image_size, images, batch).items():
        for number in range(rounds + 1):
            one = (0.0, 0.0)
            if world().first:
                with work_alone():
                    one = spent(alone)
            all_gather(None)  # the others have waited for this
            every = all_gather(spent(together))
            if number:  # the first round warms up
                seconds[name].append((*one, max(clock for clock, _ in every), max(busy for _, busy in every)))
    if world().first:
        titles = ("one: clock", "processor", "two: clock", "processor", "ratio", "processor")
        print(f"{'':16}{''.join(f'{title:>12}' for title in titles)}")
        for name, rows in seconds.items():
            medians = [median(column) for column in zip(*rows, strict=True)]
            ratios = [median(row[place] / row[place + 2] for row in rows) for place in (0, 1)]
            print(f"{name:16}{''.join(f'{value:12.3f}' for value in medians)}{ratios[0]:12.2f}{ratios[1]:12.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image-size", type=int, default=112)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if "RANK" not in os.environ:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *sys.argv]
        sys.exit(subprocess.run(torchrun, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False).returncode)
    keep_freed_memory()
    with join_others() as help_first:
        if help_first is not None:
            help_first()
            return
        print(f"{machine()}, other work on the machine: {os.getloadavg()[0]:.1f} processes")
        print(f"{BACKBONE} at {given.image_size} px, batch {given.batch}, {given.images} images, two processes\n")
        measure(given.image_size, given.images, given.batch, given.rounds)


if __name__ == "__main__":
    main()
