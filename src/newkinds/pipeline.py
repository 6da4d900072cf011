"""The verbs that begin with data: train, discover, count_categories."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from typing_extensions import Unpack

from .backbones import build_backbone
from .cache import TokenCache, cached_tokens
from .cache_files import CacheUnavailable
from .cluster.points import UNLABELLED
from .config import Config, find_recipe, read_recipe, resolve
from .console import say, warn
from .count import COUNTERS, Count, plot
from .data import load_table, source_of
from .data.table import Table, readable, require_discoverable
from .device import choose_device
from .discovery import Discovery, write_skipped
from .encoder import Encoder
from .errors import NewkindsError, nearest
from .evaluation import all_true, assignments, score_unlabelled, table_with_truth
from .files import write_whole
from .loaded import LoadedRun
from .model import Model, build_model, embed, load_model
from .organizers import ORGANIZERS
from .protocol import K_AUTO, record_protocol, run_card
from .run import Run
from .training import fit

COUNT_BY = "ward"
AUTO_VIEWS = 8  # of each image, where a cache pays and nobody said how many


class Choices(TypedDict, total=False):
    """What `train` and `discover` may be told beside data and out; each has the command-line option's name."""

    k: int | Literal["auto"] | None  # categories in all, known and new
    method: str | None
    organizer: str | None
    backbone: str | None
    weights: str | Path | None  # weight file of the backbone
    data_root: str | Path | None  # where the data sets are, if not in $NEWKINDS_DATA
    recipe: str | Path | None  # YAML file with settings, or the name of one that comes with newkinds
    settings: Mapping[str, Any] | Sequence[Mapping[str, Any]]  # {"train": {"epochs": 20}}, later ones win


def train(data: str | Path | None, out: str | Path, **choices: Unpack[Choices]) -> LoadedRun:
    """Train a method on partly labelled images; the same call goes on with a run that was interrupted.

    `data` is a folder, a CSV file, the name of a data set, or None where a recipe names it.

    >>> newkinds.train("creatures", "runs/creatures", organizer="cpf", settings={"train": {"epochs": 20}})
    """
    run, table, config, counted = _prepare(data, out, choices)
    return LoadedRun(run, _train(run, table, config, counted))


def discover(data: str | Path | None, out: str | Path, **choices: Unpack[Choices]) -> Discovery:
    """Train (or go on), then assign every image to a known or new category and write tables and a page.

    >>> found = newkinds.discover("photos/", "runs/photos", k=40, organizer="cpf")
    >>> len(found.new)
    """
    run, table, config, counted = _prepare(data, out, choices)
    return LoadedRun(run, _train(run, table, config, counted)).discover(table)


def count_categories(
    source: str | Path,
    by: str = COUNT_BY,
    *,
    largest: int | None = None,
    published: bool = False,
    truth: str | Path | None = None,
    **choices: Unpack[Choices],
) -> Count:
    """How many categories there are, and the curve that says so.

    `source` is a finished run, whose trained features are counted (and `count.json` and `count.png` written
    beside them), or data as in `train`, seen by the backbone alone. Only labelled images judge.
    `by`: "ward", "brent" or "binary" (`newkinds.count`); `largest`: the most categories a search tries.
    `published=True` scores "ward" as the published CMS code does, which needs the true classes of all images.

    >>> newkinds.count_categories("photos/", backbone="vit_small_patch14_dinov2").answer
    >>> newkinds.count_categories("runs/photos").answer
    """
    if not isinstance(source, (str, Path)):
        raise NewkindsError("images or a run are counted here; features of your own by newkinds.count.COUNTERS[name].")
    if truth is not None and not published:
        raise NewkindsError("the truth is looked at by the published score only: add --published, or leave it out.")
    counter = COUNTERS[by]
    takes = inspect.signature(counter).parameters
    for option, asked in (("largest", largest is not None), ("published_truth", published)):
        if asked and option not in takes:
            name = option.removesuffix("_truth")
            raise NewkindsError(f"counting by {by} has no option {name}: leave it out, or count in another way.")
    options: dict[str, Any] = {} if largest is None else {"largest": largest}
    run = Run(source) if Run(source).path("config.yaml").is_file() else None
    if run is not None:
        _refuse_choices(run, choices)
    config = resolve(*layers_of(source, choices)) if run is None else run.config()
    with_truth = table_with_truth(config, truth) if published else None  # what is missing is said before the work
    if run is not None:
        features, paths, labels, known = _run_features(run)
    else:
        table = readable(load_table(config.data))
        require_discoverable(table)
        features, rows = backbone_features(config, table)
        paths, labels = [table.paths[row] for row in rows], [table.labels[row] for row in rows]
        known = table.known
    if with_truth is not None:
        options["published_truth"] = all_true(paths, labels, with_truth)
    number = {name: i for i, name in enumerate(known)}
    y = np.array([UNLABELLED if label is None else number[label] for label in labels])
    counted = counter(features, y, **options)
    if run is not None:
        _write_count(counted, run, "count_published" if published else "count")
    return counted


def _refuse_choices(run: Run, choices: Choices) -> None:
    """A run has its features; other settings than its own would not be what is counted."""
    settings = choices.get("settings", {})
    layers = [settings] if isinstance(settings, Mapping) else settings
    given = [name for name, value in choices.items() if name != "settings" and value is not None]
    given += [
        f"{section}.{name}"
        for layer in layers
        for section, values in layer.items()
        for name in (values if isinstance(values, Mapping) else [section])
        if name != "device"
    ]
    if given:
        raise NewkindsError(
            f"{run.folder} is a run, which is counted as it was trained: leave out {', '.join(map(str, given))}, "
            "or name the images instead."
        )


def backbone_features(config: Config, table: Table) -> tuple[torch.Tensor, list[int]]:
    """Unit rows (n, D) of the backbone alone, untrained, and the rows of the table they are of."""
    backbone = build_backbone(**config.backbone)
    encoder = Encoder(backbone, ORGANIZERS["none"](backbone.dim))
    embedded = embed(encoder, table, choose_device(config.train.device), workers=config.train.workers)
    return F.normalize(embedded.features, dim=1), embedded.rows


def _run_features(run: Run) -> tuple[torch.Tensor, list[str], list[str | None], list[str]]:
    """What a run's method compares images by (n, P), the images' paths and labels, and the known classes."""
    rows = assignments(run)
    file = run.path("features.safetensors")
    try:
        features = load_file(file)["features"]
        model = load_model(run.config(), run.model_file, torch.device("cpu"))
        with torch.inference_mode():
            embedding = model.method.embedding(features)
    except (OSError, SafetensorError, KeyError, RuntimeError) as error:
        raise NewkindsError(f"{file} is damaged ({error}): run newkinds discover again.") from None
    if len(features) != len(rows):
        raise NewkindsError(
            f"{file} has {len(features)} rows, assignments.csv {len(rows)}: run newkinds discover again."
        )
    return embedding, [row["path"] for row in rows], [row["given_label"] or None for row in rows], model.known


def _prepare(
    data: str | Path | None, out: str | Path, choices: Choices
) -> tuple[Run, Table, Config, Count | None]:
    """Settings, images and run directory, all checked before anything long begins; and what `--k auto` found."""
    run = Run(out)
    config = _as_begun(resolve(*layers_of(data, choices)), run)
    run.refuse_other_contents()
    may_cache = _cache_views(config, choose_device(config.train.device)) > 0
    table = readable(load_table(config.data), contents=may_cache)
    require_discoverable(table)
    counted = _counted_before_training(run, table, config) if config.k == "auto" else None
    k = config.k if counted is None else _at_least_known(counted, len(table.known))
    config = replace(config, k=_category_count(k, table))
    run.refuse_other_settings(config)
    return run, table, config, counted


def require_same_settings(data: str | Path | None, out: str | Path, **choices: Unpack[Choices]) -> None:
    """Refuse, as `train` does, settings that are not those of the trained run in `out`; no image is looked at."""
    run, config = Run(out), resolve(*layers_of(data, choices))
    record = run.read_json("protocol.json")
    k = record["categories"] if config.k is None else config.k
    if k == "auto" and run.path(f"{K_AUTO}.json").is_file():
        k = _at_least_known(read_count(run, K_AUTO), record["known_classes"])
    run.refuse_other_settings(_as_begun(replace(config, k=k), run))


def layers_of(data: str | Path | None, choices: Choices) -> list[Mapping[str, Any]]:
    """What the user chose as layers of settings, later ones win."""
    for argument in choices:  # the types are not there when a program runs
        if argument not in Choices.__annotations__:
            raise NewkindsError(
                f"there is no argument '{argument}'.{nearest(argument, Choices.__annotations__)} "
                f"There are: {', '.join(Choices.__annotations__)}."
            )
    layers: list[Mapping[str, Any]] = []
    if (recipe := choices.get("recipe")) is not None:
        layers.append(read_recipe(find_recipe(recipe)))
    if data is not None:
        layers.append({"data": source_of(data)})
    if (root := choices.get("data_root")) is not None:
        layers.append({"data": {"root": str(root)}})
    for section in ("method", "organizer", "backbone"):
        if (name := choices.get(section)) is not None:
            layers.append({section: {"name": name}})
    if (weights := choices.get("weights")) is not None:
        layers.append({"backbone": {"weights": str(weights)}})
    if (k := choices.get("k")) is not None:
        layers.append({"k": k})
    settings = choices.get("settings", {})
    return [*layers, settings] if isinstance(settings, Mapping) else [*layers, *settings]


def _counted_before_training(run: Run, table: Table, config: Config) -> Count:
    """`--k auto`: an estimate from the backbone's features as they are, made once for a run and then kept."""
    if run.path(f"{K_AUTO}.json").is_file():
        return read_count(run, K_AUTO)
    say("counting categories in the features of the backbone (--k auto)")
    features, rows = backbone_features(config, table)
    counted = COUNTERS[COUNT_BY](features, table.targets[rows])
    say(f"{counted.answer} categories, {counted.new} of them new (curve in {run.path(K_AUTO)}.png)")
    return counted


def _at_least_known(counted: Count, known: int) -> int:
    """A known class may have no labelled image: it is not counted, but it is one."""
    return max(counted.answer, known)


def _category_count(k: int | str | None, table: Table) -> int:
    known = len(table.known)
    if k is None:
        if table.categories is None:
            raise NewkindsError(
                f"say how many categories you expect in all, the {known} known ones included: --k N, or --k auto "
                "for an estimate. A generous guess is better than a tight one; superfluous categories stay empty."
            )
        k = table.categories
    assert isinstance(k, int)  # "auto" has been counted
    if k < known:
        raise NewkindsError(f"{k} categories were asked for, but {known} are known already: --k counts those too.")
    unlabelled = sum(label is None for label in table.labels)
    most = len(set(table.labels) - {None}) + unlabelled
    if k > most:  # k-means would say so too, but after the training
        raise NewkindsError(
            f"{k} categories were asked for, but {unlabelled} unlabelled images beside the labelled classes "
            f"can show no more than {most}: lower --k."
        )
    if k == known:
        warn(f"--k {k} leaves no room for new categories: every image will get one of the {known} known classes.")
    return k


def _train(run: Run, table: Table, config: Config, counted: Count | None) -> Model:
    device = choose_device(config.train.device)
    trained = run.model_file.is_file()
    assert isinstance(config.k, int)
    # before the folder is made: what cannot be built must not leave a run that other settings would not fit
    model = load_model(config, run.model_file, device) if trained else build_model(config, table.known, config.k)
    model.cache, config = _cached(model, table, config, device, build=not trained)
    with run.claimed():
        run.begin(config)
        if counted is not None:
            _write_count(counted, run, K_AUTO)
        write_skipped(table.skipped, run)
        if table.skipped:
            say(f"the files passed over are listed in {run.path('skipped.csv')}")
        record_protocol(run, config, table, model, device)
        if trained:
            say(f"{run.folder} has been trained already")
        else:
            fit(model, table, config.train, run, partial(score_unlabelled, table=table))
        if not run.path("README.md").is_file():
            write_whole(run.path("README.md"), run_card(run, model, None))
    return model


def _cached(
    model: Model, table: Table, config: Config, device: torch.device, build: bool
) -> tuple[TokenCache | None, Config]:
    """The tokens that training reads, or none where that does not pay; and the settings, which now say so."""
    backbone, train = model.encoder.backbone, config.train
    views = _cache_views(config, device) if train.cache_views != "auto" or backbone.divides else 0
    if views == 0:
        return None, _with_cache_views(config, 0)
    about = f"{config.data.get('path') or config.data['name']}, {config.backbone['name']}"
    make = partial(
        cached_tokens, backbone, table, about=about, seed=train.cache_seed, precision=train.cache_precision,
        device=device, workers=train.workers, build=build,
    )  # fmt: skip
    if not build:  # the evaluation view is all that a trained model reads, and only if it is there
        try:
            return make(views=0), config
        except NewkindsError as error:
            warn(f"{error} The images are looked at again instead.")
            return None, config
    try:
        return make(views=views), _with_cache_views(config, views)
    except CacheUnavailable as error:
        if train.cache_views != "auto":
            raise
        warn(f"{error} Training goes on without a cache.")
        return None, _with_cache_views(config, 0)


def _cache_views(config: Config, device: torch.device) -> int:
    """How many views of an image to cache; a cache of V costs the frozen part of V + 1 views, an epoch that of 2."""
    if config.train.cache_views == "auto":
        return AUTO_VIEWS if device.type == "cpu" and config.train.epochs > AUTO_VIEWS else 0
    return config.train.cache_views


def _as_begun(config: Config, run: Run) -> Config:
    """`--cache-views auto`, where a run goes on, is what it was begun with."""
    if config.train.cache_views == "auto" and run.path("config.yaml").is_file():
        return _with_cache_views(config, run.config().train.cache_views)
    return config


def _with_cache_views(config: Config, views: int | Literal["auto"]) -> Config:
    return replace(config, train=replace(config.train, cache_views=views))


def _write_count(counted: Count, run: Run, name: str) -> None:
    plot(counted, run.path(f"{name}.png"))
    run.write_json(f"{name}.json", asdict(counted))


def read_count(run: Run, name: str = "count") -> Count:
    """What `count_categories` (or `--k auto`) wrote into a run."""
    record = run.read_json(f"{name}.json")
    try:
        curve = [(int(k), float(score)) for k, score in record["curve"]]
        return Count(int(record["answer"]), curve, str(record["method"]), int(record["known"]), str(record["score_is"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise NewkindsError(f"{run.path(name)}.json is damaged: delete it to count again.") from None
