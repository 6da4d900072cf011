"""The verbs as Python functions: train, discover, evaluate, predict, load."""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import torch
from PIL import Image
from safetensors.torch import save
from typing_extensions import Unpack

from . import discovery as found
from . import metrics
from .config import Config, read_recipe, resolve
from .console import say, warn
from .data import load_table, source_of
from .data.folder import read_folder
from .data.images import open_image
from .data.table import Skipped, Table, readable, require_discoverable
from .device import choose_device
from .discovery import Discovery
from .errors import NewkindsError
from .files import write_whole
from .methods import Assignment
from .model import Embedded, Model, build_model, load_model
from .protocol import describe_protocol, record_protocol, run_card
from .run import Run
from .training import fit


class Choices(TypedDict, total=False):
    """What `train` and `discover` may be told beside data and out; each has the command-line option's name."""

    k: int | None  # categories in all, known and new
    method: str | None
    organizer: str | None
    backbone: str | None
    weights: str | Path | None  # weight file of the backbone
    recipe: str | Path | None  # YAML file with settings
    settings: Mapping[str, Any] | Sequence[Mapping[str, Any]]  # {"train": {"epochs": 20}}, later ones win


@dataclass(frozen=True)
class Prediction:
    """The category of one image that may never have been seen before."""

    path: str
    category: str
    is_new: bool
    confidence: float


class LoadedRun:
    """A finished run, ready to be used on other images.

    >>> model = newkinds.load("runs/photos")
    >>> model.predict(["holiday.jpg"])[0].category
    """

    def __init__(self, folder: str | Path, device: str = "auto") -> None:
        self.run = Run(folder)
        self.config = self.run.config()
        self.model = load_model(self.config, self.run.model_file, choose_device(device))
        self.names = found.read_names(self.run, self.model.known, self.model.k)

    def predict(self, images: str | Path | Iterable[str | Path]) -> list[Prediction]:
        """A category for each readable image; files and folders may be mixed. Unreadable ones are warned of."""
        return self.predict_or_skip(images)[0]

    def predict_or_skip(
        self, images: str | Path | Iterable[str | Path]
    ) -> tuple[list[Prediction], list[Skipped]]:
        """Predictions, and the images that could not be read with the reason."""
        paths = _image_files([images] if isinstance(images, (str, Path)) else images)
        table = Table(paths=paths, labels=[None] * len(paths), open=partial(_open_path, paths))
        embedded = self.model.embed(table)
        for skipped in embedded.skipped:
            warn(f"{skipped.path} passed over: {skipped.reason}")
        assignment = assign(self.model, embedded)
        return [
            Prediction(paths[row], self.names[c], c >= len(self.model.known), round(p, 4))
            for row, c, p in zip(
                embedded.rows, assignment.category.tolist(), assignment.confidence.tolist(), strict=True
            )
        ], embedded.skipped


def load(run: str | Path, device: str = "auto") -> LoadedRun:
    """Open a finished run directory."""
    return LoadedRun(run, device)


def train(data: str | Path | None, out: str | Path, **choices: Unpack[Choices]) -> LoadedRun:
    """Train a method on partly labelled images; the same call goes on with a run that was interrupted.

    `data` is a folder, a CSV file, the name of a data set, or None where a recipe names it.

    >>> newkinds.train("creatures", "runs/creatures", organizer="cpf", settings={"train": {"epochs": 20}})
    """
    run, table, config = _prepare(data, out, choices)
    _train(run, table, config)
    return LoadedRun(run.folder, config.train.device)


def discover(data: str | Path | None, out: str | Path, **choices: Unpack[Choices]) -> Discovery:
    """Train (or go on), then assign every image to a known or new category and write tables and a page.

    >>> found = newkinds.discover("photos/", "runs/photos", k=40, organizer="cpf")
    >>> len(found.new)
    """
    run, table, config = _prepare(data, out, choices)
    return discover_with(_train(run, table, config), table, run)


def discover_with(model: Model, table: Table, run: Run) -> Discovery:
    """Embed, assign, and write everything a run shows: features, tables, page and card."""
    from .report import render
    from .report.build import page_of  # jinja2 is needed here only

    embedded = model.embed(table)
    assignment = assign(model, embedded)
    names = found.read_names(run, model.known, model.k)
    result = found.gather(run, table, embedded, assignment, names, len(model.known))
    write_whole(run.path("features.safetensors"), save({"features": embedded.features}))
    found.write(result, run)
    write_whole(run.path("report.html"), render(page_of(result, model, table, run)))
    write_whole(run.path("README.md"), run_card(run, model, result))
    return result


def evaluate(run: str | Path, truth: str | Path | None = None) -> dict[str, Any]:
    """Accuracy of a run on its unlabelled images, where their true classes are known.

    `truth`: a folder with one sub-folder a class, or a CSV file with path and label (or truth), naming the
    same images; not needed for data sets that bring their own. Nothing is trained or chosen by it.
    """
    opened = Run(run)
    config = opened.config()
    if not opened.path("assignments.csv").is_file():
        discover_with(LoadedRun(run).model, readable(load_table(config.data)), opened)
    rows = _rows_of(opened.path("assignments.csv"))
    unlabelled = [row for row in rows if not row["given_label"]]
    given = load_table(config.data if truth is None else source_of(truth))
    if truth is None and given.truth is None:
        raise NewkindsError("the true classes of these images are not known: give them with --truth FOLDER or CSV.")
    truth_of = _truth([row["path"] for row in unlabelled], given)
    true = [truth_of[row["path"]] for row in unlabelled if row["path"] in truth_of]
    predicted = [row["category"] for row in unlabelled if row["path"] in truth_of]
    missing = len(unlabelled) - len(true)
    if not true:
        raise NewkindsError(f"the truth of none of the unlabelled images in {run} is known: give it with --truth.")
    if missing:
        warn(f"{missing} unlabelled image(s) have no true class and are left out of the evaluation.")
    result = score(true, predicted, {row["given_label"] for row in rows} - {""})
    evaluation = {
        "evaluated": len(true),
        "metrics": result,
        "protocol": dict(describe_protocol(opened, len(true))),
    }
    opened.write_json("evaluation.json", evaluation)
    return evaluation


def score(
    true: Sequence[str], predicted: Sequence[str] | Sequence[int], known: Iterable[str]
) -> dict[str, float | None]:
    """All metrics; None, and a warning, where a split is empty."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = metrics.evaluate(true, predicted, set(known))
    for message in caught:
        warn(str(message.message))
    return {name: None if math.isnan(value) else value for name, value in result.items()}


def predict(run: str | Path, images: str | Path | Iterable[str | Path]) -> list[Prediction]:
    """Categories of images never seen, by a finished run."""
    return load(run).predict(images)


@torch.inference_mode()
def assign(model: Model, embedded: Embedded) -> Assignment:
    """The categories of embedded images."""
    return model.method.assign(embedded.features.to(model.device))


def _prepare(data: str | Path | None, out: str | Path, choices: Choices) -> tuple[Run, Table, Config]:
    """Settings, images and run directory, all checked before anything long begins."""
    layers: list[Mapping[str, Any]] = []
    if (recipe := choices.get("recipe")) is not None:
        layers.append(read_recipe(recipe))
    if data is not None:
        layers.append({"data": source_of(data)})
    for section in ("method", "organizer", "backbone"):
        if (name := choices.get(section)) is not None:
            layers.append({section: {"name": name}})
    if (weights := choices.get("weights")) is not None:
        layers.append({"backbone": {"weights": str(Path(weights).expanduser().resolve())}})
    if (k := choices.get("k")) is not None:
        layers.append({"k": k})
    settings = choices.get("settings", {})
    layers += [settings] if isinstance(settings, Mapping) else list(settings)
    config = resolve(*layers)
    table = readable(load_table(config.data))
    require_discoverable(table)
    config = replace(config, k=_category_count(config.k, table))
    run = Run(out)
    run.begin(config)
    found.write_skipped(table.skipped, run)
    return run, table, config


def _category_count(k: int | None, table: Table) -> int:
    known = len(table.known)
    if k is None:
        if table.categories is None:
            raise NewkindsError(
                f"say how many categories you expect in all, the {known} known ones included: --k N. "
                "A generous guess is better than a tight one; superfluous categories stay empty."
            )
        k = table.categories
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


def _train(run: Run, table: Table, config: Config) -> Model:
    device = choose_device(config.train.device)
    if run.model_file.is_file():
        record_protocol(run, config, table, device)
        say(f"{run.folder} has been trained already")
        model = load_model(config, run.model_file, device)
    else:
        assert config.k is not None
        model = build_model(config, table.known, config.k)
        record_protocol(run, config, table, device)
        fit(model, table, config.train, run, partial(_score_unlabelled, table=table))
    if not run.path("README.md").is_file():
        write_whole(run.path("README.md"), run_card(run, model, None))
    return model


def _score_unlabelled(model: Model, table: Table) -> dict[str, float | None]:
    """All/Old/New of the unlabelled images whose truth is known, for the curve in metrics.jsonl."""
    truth = table.truth or [None] * len(table)
    judged = table.rows([i for i, label in enumerate(table.labels) if label is None and truth[i] is not None])
    embedded = model.embed(judged)
    true = [str((judged.truth or [])[row]) for row in embedded.rows]
    result = score(true, assign(model, embedded).category.tolist(), table.known)
    return {name: value for name, value in result.items() if name in ("acc_all", "acc_old", "acc_new")}


def _truth(paths: Sequence[str], given: Table) -> dict[str, str]:
    """True classes of images by their path, or else by their file name: a folder that was sorted has other paths."""
    classes = given.truth if given.truth is not None else given.labels
    by_path = {path: label for path, label in zip(given.paths, classes, strict=True) if label is not None}
    if any(path in by_path for path in paths):
        return by_path
    wanted: dict[str, list[str]] = {}
    for path in paths:
        wanted.setdefault(Path(path).name, []).append(path)
    truth_of: dict[str, str] = {}
    for path, label in by_path.items():
        same_name = wanted.get(Path(path).name, [])
        if len(same_name) > 1 or any(truth_of.get(image, label) != label for image in same_name):
            raise NewkindsError(
                f"several images are called {Path(path).name}, so their true classes cannot be told apart by name: "
                "give the same paths as in the run, e.g. in a CSV file with path and label."
            )
        truth_of.update(dict.fromkeys(same_name, label))
    return truth_of


def _rows_of(file: Path) -> list[dict[str, str]]:
    """A table that newkinds wrote."""
    with open(file, encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def _image_files(images: Iterable[str | Path]) -> list[str]:
    """Files as they are, folders as the files below them."""
    paths: list[str] = []
    for entry in images:
        path = Path(entry)
        if path.is_dir():
            paths += [str(path / name) for name in read_folder(str(path)).paths]
        elif path.exists():
            paths.append(str(path))
        else:
            raise NewkindsError(f"there is no file or folder {path}.")
    return list(dict.fromkeys(paths))


def _open_path(paths: list[str], row: int) -> Image.Image:
    return open_image(paths[row])

