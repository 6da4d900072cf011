"""Trainings that `test_distributed.py` runs in one process and, by torchrun, in several: several.py FOLDER [NAME…]."""

import os
import sys
from pathlib import Path
from typing import Any

import newkinds
from newkinds.training.distributed import joined

SMALL = {
    "data": {"categories": 6, "per_category": 12},
    "train": {"epochs": 2, "batch_size": 22, "lr": 0.02, "start": "none"},
}
HEADS = {"method": {"output_dim": 256, "projection_hidden": 32}}
CASES: dict[str, dict[str, Any]] = {
    # dropout makes the two views, of tokens from a cache
    "dropout": {"method": "simgcd", "organizer": "adapter", "settings": [SMALL, {"organizer": {"dropout": 0.5}, "train": {"cache_views": 1}}]},
    # clusters the whole set before each epoch, with random numbers
    "hierarchy": {"method": "selex", "organizer": "cpf", "settings": [SMALL]},
    # an averaged teacher with views of its own
    "teacher": {"method": "mugcd", "settings": [SMALL]},
    # losses of the organizer, which are means over images
    "slots": {"method": "gcd", "organizer": "slots", "settings": [SMALL]},
    # weights that wait for their turn
    "turns": {"method": "sptnet", "settings": [SMALL, {"tuning": {"alternate": 1}}]},
    # random numbers in the loss
    "queue": {"method": "uno", "settings": [SMALL]},
}  # fmt: skip


def train_all(folder: Path, names: list[str]) -> None:
    for name in names or CASES:
        newkinds.discover("creatures", folder / name, page=False, **CASES[name])


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    with joined() as help_them:
        if help_them is None:
            train_all(Path(folder), names)
        elif os.environ.get("DIES"):
            os._exit(3)
        else:
            help_them()
