"""Trainings and troubles that tests run in one process and, by torchrun, in two: several.py FOLDER [NAME…]."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import save_file

import newkinds
from newkinds.data import load_table
from newkinds.data.table import Table, readable
from newkinds.encoders.encoder import frozen_encoder
from newkinds.errors import NewkindsError, RunEnded
from newkinds.methods import METHODS
from newkinds.runs.run import Run
from newkinds.training import cache, loop
from newkinds.training.cache import TokenCache
from newkinds.training.distributed import all_gather, in_first, join_others, share_errors, shared, world
from newkinds.training.embedding import embed
from newkinds.verbs import plan

RANK = os.environ.get("RANK", "0")
SMALL = {
    "data": {"categories": 6, "per_category": 12},
    "train": {"epochs": 2, "batch_size": 23, "lr": 0.02, "cache_views": 0},  # 23 images: one process has one more
}
SMALL_HEAD = {"method": {"projection_hidden": 32}}
CONTRASTIVE = {"method": {"output_dim": 256, "projection_hidden": 32}}
CASES: dict[str, dict[str, Any]] = {
    # dropout alone makes the two views, of tokens from a cache
    "dropout": {
        "method": "simgcd",
        "organizer": "adapter",
        "settings": [SMALL, SMALL_HEAD, {"organizer": {"dropout": 0.5}, "train": {"cache_views": 1}}],
    },
    # clusters the whole set before each epoch, with random numbers
    "hierarchy": {"method": "selex", "organizer": "cpf", "settings": [SMALL, CONTRASTIVE]},
    # an averaged teacher with views of its own
    "teacher": {"method": "mugcd", "start": "none", "settings": [SMALL]},
    # losses of the organizer, which are means over images
    "slots": {"method": "gcd", "organizer": "slots", "settings": [SMALL, CONTRASTIVE]},
    # weights that wait for their turn
    "turns": {"method": "sptnet", "start": "none", "settings": [SMALL, SMALL_HEAD, {"tuning": {"alternate": 1}}]},
    # a bank of earlier features, and what the teacher says of prompts
    "bank": {
        "method": "promptcal",
        "start": "none",
        "settings": [
            SMALL,
            CONTRASTIVE,
            {"method": {"bank": 64, "affinity_warmup_epochs": 0, "neighbours": 5}, "train": {"lr": 0.01}},
        ],
    },
    # the mean shift of features among those of the whole set
    "shift": {"method": "cms", "settings": [SMALL, CONTRASTIVE, {"train": {"lr": 0.002}}]},
}
IN_CASES = {case["method"] for case in CASES.values()}
SIZES = {"projection_hidden": 32, "output_dim": 64, "bank": 64, "warmup_epochs": 0}
# the other methods, for the long version
OTHERS: dict[str, dict[str, Any]] = {
    name: {
        "method": name,
        "start": "none",
        "settings": [SMALL, {"method": {s: v for s, v in SIZES.items() if s in vars(METHODS[name].Config())}}],
    }
    for name in METHODS
    if name not in IN_CASES and name != "frozen"
}


def torchrun_words(*words: object, processes: int = 2) -> list[str]:
    start = ["--standalone", "--nproc-per-node", processes]
    return [sys.executable, "-m", "torch.distributed.run", *map(str, [*start, *words])]


def torchrun(*words: object, processes: int = 2, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run something in several processes, to its end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    command = torchrun_words(*words, processes=processes)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def train_all(folder: Path, names: list[str]) -> None:
    for name in names or CASES:
        with noting_gradients(folder / name):
            newkinds.discover("creatures", folder / name, page=False, **{**CASES, **OTHERS}[name])


def discover_by_plan(folder: Path) -> None:
    """A whole plan, with trainings that are short."""
    plan.RECIPES = tuple(replace(recipe, steps=24) for recipe in plan.RECIPES)
    newkinds.discover(
        "creatures", folder / "planned", time="5h", settings={"data": {"categories": 16, "per_category": 10}}
    )


class noting_gradients:
    """Writes the gradients of the first and the last step of a training beside the run."""

    def __init__(self, run: Path) -> None:
        self.run, self.step = run, loop.step

    def __enter__(self) -> None:
        loop.step = self._step_and_note

    def __exit__(self, *_: object) -> None:
        loop.step = self.step

    def _step_and_note(self, model: Any, batch: Any, progress: Any, *rest: Any) -> Any:
        losses = self.step(model, batch, progress, *rest)
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        which = "first" if (progress.epoch, progress.step) == (0, 0) else "last"
        save_file(gradients, self.run / f"{which}.gradients")
        return losses


def note_batches(file: Path) -> None:
    """Write a line for every batch of which this process computes the tokens for a cache."""
    tokens_of = TokenCache.tokens_of

    def note_and_pass_on(*given: Any) -> Any:
        for views in tokens_of(*given):
            with file.open("a") as lines:
                lines.write(f"{len(views)} views\n")
            yield views

    TokenCache.tokens_of = note_and_pass_on  # type: ignore[method-assign]


def note_solitude(file: Path) -> None:
    """Write which process has met something by itself."""
    work_alone = cache.work_alone

    def noted() -> Any:
        with file.open("a") as lines:
            lines.write(f"process {RANK}\n")
        return work_alone()

    cache.work_alone = noted


def die_after_an_epoch() -> None:
    """The first time that this process is to gather the views for the second epoch, it ends without a word."""
    epochs: list[int] = []
    share = loop._share_method

    def share_once(model: Any) -> None:
        epochs.append(len(epochs))
        if len(epochs) == 2:
            os._exit(3)
        share(model)

    loop._share_method = share_once


# -- troubles ------------------------------------------------------------------------------------------------


@shared
def sum_of_ranks() -> int:
    """Needs all processes, in step."""
    return int(all_gather(world().rank) == list(range(world().size))) * world().size


@shared
def fails(who: str) -> None:
    if who == "all":
        raise ValueError("all of them")
    if who == "first":
        in_first({}.__getitem__, "only the first")
    if who == "second":
        with share_errors():
            if not world().first:
                raise OSError("only the second")
    if who == "nested":
        fails("second")
    raise AssertionError("it had to fail before")


def met(trouble: Callable[[], object]) -> str:
    """The trouble in words; after it, all processes are still in step."""
    try:
        trouble()
    except Exception as error:
        assert sum_of_ranks() == int(os.environ.get("WORLD_SIZE", "1"))
        return f"{type(error).__name__}: {error}"
    raise AssertionError("there was no trouble")


def predict_little(folder: Path) -> None:
    """Fewer images than processes, and one of two that cannot be read."""
    pixels = torch.arange(3 * 40 * 40).reshape(40, 40, 3) % 251
    (folder / "new").mkdir()
    Image.fromarray(pixels.numpy().astype("uint8")).save(folder / "new" / "whole.png")
    loaded = newkinds.load(folder / "teacher")
    few = loaded.predict_or_skip([folder / "new"])[0]
    (folder / "new" / "torn.png").write_bytes(b"no image")
    some, skipped = loaded.predict_or_skip([folder / "new"])
    said = [[p.category, p.is_new, round(p.confidence, 3)] for p in (*few, *some)]
    (folder / "predicted.json").write_text(json.dumps([said, [Path(s.path).name for s in skipped]]))


def damage_what_the_second_reads(table: Table, tokens: cache.TokenCache) -> None:
    """Flip a bit in the row of the last image, which is in the second batch of an embedding."""
    row = int(tokens._stored[tokens.rows_of(table)[-1], 0])
    file = tokens.store.folder / "rows.tokens"
    with file.open("r+b") as stored:
        stored.seek(row * tokens.store.row_bytes)
        byte = stored.read(1)
        stored.seek(row * tokens.store.row_bytes)
        stored.write(bytes([byte[0] ^ 1]))


def embed_from_cache(file: Path, damage: bool) -> None:
    """Features of frozen tokens in a cache, which is damaged after it was filled."""
    table = readable(load_table({"name": "creatures", **SMALL["data"]}), contents=True)
    encoder = frozen_encoder(name="tiny")
    tokens = cache.cached_tokens(encoder.backbone, table, 0, patches=False)
    assert tokens is not None
    if damage:
        damage_what_the_second_reads(table, tokens)
    found = embed(encoder, table, torch.device("cpu"), cache=tokens)
    assert found.rows == list(range(len(table)))
    save_file({"features": found.features}, file)


def all_troubles(folder: Path) -> dict[str, str]:
    def diverge() -> None:
        settings = [SMALL, {"train": {"lr": 1e30}}]
        newkinds.train("creatures", folder / "diverged", method="simgcd", settings=settings)

    def look_away(model: Any, features: torch.Tensor) -> dict[str, float | None]:
        table = readable(load_table({"name": "creatures", **SMALL["data"]}))
        torch.testing.assert_close(embed(model.encoder, table, model.device).features, features)  # by itself
        raise NewkindsError("seen enough")

    def stop_by_watching() -> None:
        from newkinds.verbs import train

        run = Run(folder / "watched")
        config = train.resolve_layers(
            train.layers_of("creatures", {"settings": [SMALL, {"train": {"eval_every": 1}}]}), run
        )
        table = train.load_images(config, run)
        train.train_on(table, train.with_k(config, table, run)[0], run, watch=look_away)

    def share_too_little() -> None:
        newkinds.train("creatures", folder / "little", settings=[SMALL, {"train": {"batch_size": 1}}])

    troubles = {who: partial(fails, who) for who in ("all", "first", "second", "nested")}
    troubles |= {"diverged": diverge, "watched": stop_by_watching, "little": share_too_little}
    return {name: met(trouble) for name, trouble in troubles.items()}


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    torch.set_num_threads(1)
    Path(folder).mkdir(exist_ok=True)
    try:
        with join_others() as help_first:
            note_solitude(Path(folder) / "alone")
            if help_first is not None:
                if os.environ.get("NEWKINDS_TEST_DIES"):
                    os._exit(3)
                if os.environ.get("NEWKINDS_TEST_DIES_ONCE") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                    die_after_an_epoch()
                note_batches(Path(folder) / "batches of the second")
                help_first()
            else:
                if names == ["planned"]:
                    discover_by_plan(Path(folder))
                else:
                    train_all(Path(folder), names)
                if not names:
                    (Path(folder) / "troubles.json").write_text(json.dumps(all_troubles(Path(folder))))
                    predict_little(Path(folder))
                    embed_from_cache(Path(folder) / "embedded", damage=True)
    except RunEnded as ended:
        sys.exit(str(ended) or 1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # at once, as the command line does: threads of torch may abort a process that is taken down
