"""The verb that begins with data and ends with a trained run, and what the other verbs need of it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from typing_extensions import Unpack

from ..assigners.calibration import HeldOutImages
from ..cluster.count import Count
from ..console import say, show_only_bars, warn
from ..data import load_table
from ..data.loaded import LoadedDataset, named_data
from ..data.table import Table, readable, require_discoverable, require_labels
from ..discovery.assignment_tables import write_skipped
from ..discovery.card import run_card
from ..discovery.categories import Discovery
from ..discovery.described import Described
from ..discovery.finished import LoadedRun
from ..encoders.backbones import build_backbone, require_weights
from ..encoders.organizers import ORGANIZERS
from ..errors import NewkindsError
from ..evaluation.judge import score_unlabelled
from ..methods import METHODS
from ..runs.config import Config
from ..runs.directory import K_AUTO
from ..runs.protocol import describe_protocol, record_protocol
from ..runs.records import read_count, write_count
from ..runs.run import Run
from ..runs.seen_images import earlier_images
from ..training.cache import TokenCache, cached_tokens, views_missing
from ..training.checkpoints import hold_out
from ..training.device import choose_device
from ..training.embedding import Embedded
from ..training.loop import Evaluator, Fitted, Pace, fit
from ..training.model import Model, build_model, load_model
from ..training.optimizers import describe_groups, parameter_groups
from ..training.pace import measure_step, random_views_of
from ..training.start import require_first_stage, start_from
from ..training.store import CacheUnavailable
from ..training.watching import Watcher
from .choices import Choices, layers_of
from .count import backbone_rows, decide_k
from .layers import resolve_layers, set_cache_views
from .stages import describe_cache

AUTO_VIEWS = 8  # of each image, if a cache pays and no number was given


def train(
    data: str | Path | LoadedDataset | None,
    out: str | Path,
    *,
    watchers: Sequence[Watcher] = (),
    **choices: Unpack[Choices],
) -> LoadedRun:
    """Train a method on partly labelled images; to resume an interrupted run, make the same call again.

    `data` is a folder, a CSV file, the name of a data set, or None if a recipe names it; also a data set
    that you have loaded, of torchvision or Hugging Face, whose images are then written to `OUT-images`.
    `watchers` are told of every step and epoch (`newkinds.Watcher`).

    >>> newkinds.train("creatures", "runs/creatures", organizer="cpf", settings={"train": {"epochs": 20}})
    """
    run = Run(out)
    run.refuse_other_contents()
    config = resolve_layers(layers_of(named_data(data, out), choices), run)
    table = load_images(config, run)
    if config.train.epochs:
        require_labels(table)
    config, estimate = with_k(config, table, run)
    return train_on(table, config, run, estimate, watchers=watchers).loaded


def load_images(config: Config, run: Run) -> Table:
    """The images of a run, all of which can be read; files that cannot are skipped.

    Weights that the run needs and that are missing are missed first: to open all images may take an hour.
    """
    run.refuse_other_contents()
    if not run.model_file.is_file():
        require_weights(config.backbone["name"], config.backbone["weights"])
    table = readable(load_table(config.data), contents=True, earlier=earlier_images(run))
    require_discoverable(table)
    return table


def with_k(config: Config, table: Table, run: Run | None) -> tuple[Config, Count | None]:
    """The settings with a number of categories, and the estimate behind it, if it was one; one that `run` has stays."""
    number = decide_k(config.k, table, run, lambda: backbone_rows(config, table))
    return replace(config, k=number.k), number.estimate


class TrainedRun(NamedTuple):
    """A trained run and what is known of its images."""

    loaded: LoadedRun
    cache: TokenCache | None  # of their tokens
    embedded: Embedded | None  # their features; None if the run had been trained before

    def embed(self, table: Table) -> Embedded:
        """The features of the images, which are embedded only if they were not."""
        return self.loaded.embed(table, self.cache) if self.embedded is None else self.embedded

    def show(self, table: Table, page: bool = True, correct: Callable[[Discovery], None] | None = None) -> Discovery:
        """Assign the images, and write all that a run shows; `correct` enters what people decided before."""
        return self.loaded.show(table, self.embed(table), page, correct)


def train_on(
    table: Table, config: Config, run: Run, estimate: Count | None = None, watch: Evaluator | None = None,
    cache: TokenCache | None = None, embedded: Embedded | None = None, model: Model | None = None,
    evidence: Sequence[HeldOutImages] | None = None, watchers: Sequence[Watcher] = (),
    trains_now: bool = True,
) -> TrainedRun:  # fmt: skip
    """Train into a run directory. All is checked before anything long begins.

    `watch` looks at the model every `train.eval_every` epochs; by default it judges by the truth, if that is known.
    `cache`, `embedded`: tokens and features that are there already; the latter are of use if nothing trains. `model`:
    how it is before its first step, if it is not what the settings alone describe. `evidence`: what trials of the same
    training, each on a part of the labels, said about images that they had not seen: by that, confidence is calibrated.
    `watchers` look on. `trains_now`: False if the `model` was trained elsewhere.
    """
    assert isinstance(config.k, int), "with_k"
    run.refuse_other_settings(config)
    device = choose_device(config.train.device)
    model_file = run.verified("model.safetensors")
    trained = model_file.is_file()
    # before the folder is made: what cannot be built must not leave a run that other settings would not fit
    shown, held_out = hold_out(table, config.train.seed) if config.train.keep_best else (table, None)
    if trained:
        model = load_model(config, model_file, device)
    elif model is None:
        model = begin_model(shown, config)
    else:
        model.method.begin(torch.from_numpy(shown.targets))
    if cache is None:
        cache, config = _cached(model, table, config, device, build=not trained)
    with run.claimed():
        run.begin(config)
        if estimate is not None:
            write_count(estimate, run, K_AUTO)
        write_skipped(table.skipped, run)
        if table.skipped:
            _mention_skipped(run.home / "skipped.csv")
        trains = describe_groups(parameter_groups(model, config.train), config.train.lr)
        record_protocol(run, config, table, model.components(), trains, device)
        if config.train.eval_every and table.truth is None and watch is None:
            warn("train.eval_every needs true classes, which are not known here: nothing is evaluated during training.")
        if trained:
            say(f"{run.folder} has been trained already")
            embedded = None
        else:
            look = watch or partial(score_unlabelled, table=table)
            embedded = fit(
                model, shown, config.train if trains_now else replace(config.train, epochs=0), run, look, cache,
                embedded, evidence=evidence, watchers=watchers, judge=None if held_out is None else held_out.judge,
            ).embedded  # fmt: skip
        if not run.path("README.md").is_file():
            run.write("README.md", run_card(run, Described(model.known, describe_protocol(run)), None))
    return TrainedRun(LoadedRun(run, model), cache, embedded)


@cache  # once in a process: each answer of a search has this list
def _mention_skipped(file: Path) -> None:
    say(f"the skipped files are listed in {file}")


def train_in_memory(
    table: Table, config: Config, watch: Evaluator | None = None, cache: TokenCache | None = None,
    pace: Pace | None = None,
) -> Fitted:  # fmt: skip
    """A trained model and the features of its images; nothing is written but cached tokens. For trials."""
    return _fit(table, config, begin_model(table, config), watch, cache, pace)


def uncached_views(table: Table, config: Config) -> int:
    """How many views a training has to send through the frozen part of the backbone before its first step."""
    backbone, train = build_backbone(**config.backbone, tuning=config.tuning), config.train
    assert isinstance(train.cache_views, int), "a training of a plan says how many"
    return views_missing(
        backbone, table, random_views_of(train.cache_views), seed=train.cache_seed,
        precision=train.cache_precision, patches=ORGANIZERS[config.organizer["name"]].reads_patches,
        kinds=METHODS[config.method["name"]].views.kinds,
    )  # fmt: skip


def step_seconds(table: Table, config: Config) -> float:
    """Of a training, measured by a few steps for which nothing has to be computed first."""
    assert isinstance(config.train.cache_views, int), "a training of a plan says how many"
    return measure_step(begin_model(table, config), table, config.train, config.train.cache_views)


def train_further(table: Table, config: Config, model: Model, pace: Pace | None = None) -> Fitted:
    """The same, from a model that has weights already."""
    model.method.begin(torch.from_numpy(table.targets))
    return _fit(table, config, model, None, None, pace)


def _fit(
    table: Table, config: Config, model: Model, watch: Evaluator | None, cache: TokenCache | None, pace: Pace | None
) -> Fitted:
    """A trial: whoever makes one says in a line what is tried; what a training says is for those who study it."""
    if cache is None:
        cache, config = _cached(model, table, config, choose_device(config.train.device), build=True)
    with show_only_bars():
        return fit(model, table, config.train, None, watch, cache, pace=pace)


def begin_model(table: Table, config: Config) -> Model:
    """The model before its first step."""
    assert isinstance(config.k, int), "with_k"
    require_first_stage(config)
    model = build_model(config, table.known, config.k)
    start_from(model, config)
    if config.train.epochs:
        model.method.begin(torch.from_numpy(table.targets))
    return model


def require_same_settings(data: str | Path | None, out: str | Path, **choices: Unpack[Choices]) -> None:
    """Refuse, as `train` does, settings that are not those of the trained run in `out`; no image is read."""
    run = Run(out)
    run.refuse_other_settings(_as_trained(run, resolve_layers(layers_of(data, choices), run)))


def differing_settings(
    data: str | Path | None, out: str | Path, **choices: Unpack[Choices]
) -> dict[str, tuple[Any, Any]]:
    """What `require_same_settings` refuses: name → its value in the trained run, and the one that is asked for."""
    run = Run(out)
    return run.differing_settings(_as_trained(run, resolve_layers(layers_of(data, choices), run)))


def _as_trained(run: Run, config: Config) -> Config:
    """Settings with the number of categories that a trained run has if they leave it open."""
    record = run.protocol()
    k = record.categories if config.k is None else config.k
    if k == "auto" and run.path(f"{K_AUTO}.json").is_file():
        k = max(read_count(run, K_AUTO).answer, record.known_classes)
    return replace(config, k=k)


def views_to_cache(model: Model, table: Table, config: Config, device: torch.device) -> int:
    """Of how many views of each image training reads tokens that were computed before; 0: it begins with the pixels."""
    backbone, train = model.encoder.backbone, config.train
    if table.vectors is not None:  # a step takes each twice, and dropout makes the two differ
        return 1 if train.epochs else 0
    if train.cache_views != "auto":
        return train.cache_views
    # a cache of V costs the frozen part of V + 1 views, an epoch that of 2
    has_part = backbone.has_frozen_part(model.encoder.organizer.reads_patches)
    return AUTO_VIEWS if has_part and device.type == "cpu" and train.epochs > AUTO_VIEWS else 0


def _cached(
    model: Model, table: Table, config: Config, device: torch.device, build: bool
) -> tuple[TokenCache | None, Config]:
    """The tokens that training reads, or none if that does not pay; and the settings, which now say so."""
    backbone, train, patches = model.encoder.backbone, config.train, model.encoder.organizer.reads_patches
    views = views_to_cache(model, table, config, device)
    if views == 0 or table.vectors is not None:
        return None, set_cache_views(config, views)
    # a trained model reads the evaluation view alone, and only if it is there
    needed = random_views_of(views) if build else 0
    try:
        tokens = cached_tokens(
            backbone, table, about=describe_cache(config), views=needed, seed=train.cache_seed,
            precision=train.cache_precision, device=device, workers=train.workers, patches=patches,
            kinds=model.method.views.kinds, build=build,
        )  # fmt: skip
        return tokens, set_cache_views(config, views)
    except NewkindsError as error:
        if not build:
            warn(f"{error} The images are read again instead.")
            return None, config
        if train.cache_views != "auto" or not isinstance(error, CacheUnavailable):
            raise
        warn(f"{error} Training continues without a cache.")
        return None, set_cache_views(config, 0)
