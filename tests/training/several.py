"""Trainings that `test_distributed.py` runs in one process and, by torchrun, in two: several.py FOLDER [NAME…]."""

import os
import sys
from pathlib import Path
from typing import Any

import newkinds
from newkinds.runs.run import Run
from newkinds.training import loop
from newkinds.training.cache import Share
from newkinds.training.distributed import joined

SMALL = {
    "data": {"categories": 6, "per_category": 12},
    "train": {"epochs": 2, "batch_size": 23, "lr": 0.02, "cache_views": 0},  # 23 images: one process has one more
}
CONTRASTIVE = {"method": {"output_dim": 256, "projection_hidden": 32}}
CASES: dict[str, dict[str, Any]] = {
    # dropout alone makes the two views, of tokens from a cache
    "dropout": {
        "method": "simgcd",
        "organizer": "adapter",
        "settings": [SMALL, {"organizer": {"dropout": 0.5}, "train": {"cache_views": 1}}],
    },
    # clusters the whole set before each epoch, with random numbers
    "hierarchy": {"method": "selex", "organizer": "cpf", "settings": [SMALL, CONTRASTIVE]},
    # an averaged teacher with views of its own
    "teacher": {"method": "mugcd", "start": "none", "settings": [SMALL]},
    # losses of the organizer, which are means over images
    "slots": {"method": "gcd", "organizer": "slots", "settings": [SMALL, CONTRASTIVE]},
    # weights that wait for their turn
    "turns": {"method": "sptnet", "start": "none", "settings": [SMALL, {"tuning": {"alternate": 1}}]},
}


def train_all(folder: Path, names: list[str]) -> None:
    for name in names or CASES:
        newkinds.discover("creatures", folder / name, page=False, **CASES[name])


def note_batches(file: Path) -> None:
    """Write a line for every batch of which this process computes the tokens for a cache."""
    advance = Share.advance

    def advance_and_note(share: Share) -> None:
        advance(share)
        with file.open("a") as lines:
            lines.write(f"{len(share.ready)} views\n")

    Share.advance = advance_and_note  # type: ignore[method-assign]


def stop_after_an_epoch() -> None:
    """What a kill after the first epoch leaves behind."""
    save_state = Run.save_state

    def save_and_stop(run: Run, state: dict[str, Any]) -> None:
        save_state(run, state)
        os._exit(9)

    Run.save_state = save_and_stop  # type: ignore[method-assign]


def die_after_an_epoch() -> None:
    """The first time that this process is to gather the views for the second epoch, it ends without a word."""
    epochs: list[int] = []
    share = loop._share_gathered

    def share_once(model: Any) -> None:
        epochs.append(len(epochs))
        if len(epochs) == 2:
            os._exit(3)
        share(model)

    loop._share_gathered = share_once


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    with joined() as help_them:
        if help_them is not None:
            if os.environ.get("NEWKINDS_TEST_DIES"):
                os._exit(3)
            if os.environ.get("NEWKINDS_TEST_DIES_ONCE") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                die_after_an_epoch()
            note_batches(Path(folder) / "batches of the second")
            help_them()
        else:
            if os.environ.get("NEWKINDS_TEST_STOPS"):
                stop_after_an_epoch()
            train_all(Path(folder), names)
