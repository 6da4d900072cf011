"""Another assigner for a finished run, in the features it already has."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ..console import say
from ..data.table import Table
from ..discovery.categories import Discovery
from ..discovery.finished import LoadedRun, images_of, read_features
from ..discovery.kinds import category_names
from ..errors import NewkindsError
from ..runs.changes import UpdateHistory
from ..runs.config import OWN, Config, resolve
from ..runs.directory import BEGINNING
from ..runs.protocol import record_assigned
from ..runs.records import Findings, Reliability
from ..runs.run import Run
from ..training.device import choose_device
from ..training.embedding import Embedded
from ..training.model import Model, build_model, load_model
from ..training.start import take_weights
from .results import Correct, put_result

CHANGED = ("assigner", "embedding")  # sections of the settings


def assign(
    run: str | Path, assigner: str = OWN, *, whiten: bool = False, out: str | Path | None = None,
    seed: int | None = None, device: str = "auto", page: bool = True,
    settings: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
) -> Discovery:  # fmt: skip
    """Assign the images of a finished run by another assigner, without embedding them again.

    The result takes the place of the run's, which is kept in its folder `earlier/`, or is written to `out`. Names and
    corrections are carried over by image; what cannot be is said. Figures of the previous assignment (evaluation,
    count) do not come along. `page=False` writes no page: a grid of many runs needs none.

    >>> newkinds.assign("runs/photos", "pim", whiten=True, out="runs/photos-pim")
    """
    source, target = Run(run), Run(run if out is None else out)
    config = _config(source, assigner, whiten, settings)
    model = load_model(config, source.verified("model.safetensors"), choose_device(device), find_anew=True)
    table = images_of(source)
    if (history := UpdateHistory.of(source)).last is not None:
        opened = sum(len(update.opened) for update in history.updates if not update.undone)
        config = replace(config, k=model.k + opened)
        model = _with_classes(source, model, config, table.known)
    embedded = _embedded(source, model, table)
    seed = config.train.seed if seed is None else seed
    if not config.train.epochs and config.organizer["name"] == "none":  # nothing else in it was random
        config = replace(config, train=replace(config.train, seed=seed))
    labels = torch.from_numpy(table.targets)[embedded.rows]
    model.find_categories(embedded.features, labels, seed)
    model.calibrate(embedded.features, labels, seed)  # what cannot be assigned is said before anything is changed
    if seed != config.train.seed:
        model.chosen_assigner.note = ", ".join(filter(None, [model.chosen_assigner.note, f"seed {seed}"]))
    for part, note in model.describe_found().items():
        say(f"{part}: {note}")
    if target.folder.resolve() != source.folder.resolve():
        target.refuse_other_contents()
        target.refuse_other_settings(config)
    write = partial(_write, source, config, model, table, embedded)
    with target.claimed():
        return put_result(target, config, write, decided_in=source, page=page)


def _with_classes(source: Run, model: Model, config: Config, known: list[str]) -> Model:
    """The model for the classes and the number of categories that there are since updates."""
    if model.chosen_assigner.learnt:
        raise NewkindsError(
            f"the prototypes of {config.method['name']} were learnt before more categories came to {source.folder}: "
            "choose an assigner that is fitted after training (--assigner sskmeans)."
        )
    assert isinstance(config.k, int)
    wider = build_model(config, known, config.k, load_weights=False)
    take_weights(wider, source)
    return wider.to(model.device).eval()


def _config(
    source: Run, assigner: str, whiten: bool, settings: Mapping[str, Any] | Sequence[Mapping[str, Any]]
) -> Config:
    """The settings of the run with another assigner."""
    layers = [settings] if isinstance(settings, Mapping) else settings
    for section in (section for layer in layers for section in layer if section not in CHANGED):
        raise NewkindsError(f"the {section} of a finished run is fixed: only assigner.… and embedding.… can be set.")
    same = {section: values for section, values in source.config().as_dict().items() if section not in CHANGED}
    whitening = {"embedding": {"whiten": "auto"}} if whiten else {}
    return resolve(same, {"assigner": {"name": assigner}}, whitening, *layers)


def _embedded(source: Run, model: Model, table: Table) -> Embedded:
    """The features that the run has kept, or new ones."""
    if source.path("features.safetensors").is_file():
        features = read_features(source)
        if len(features) == len(table):
            return Embedded.of_all(features)
    say("the features of the run are missing or not of all images: these are embedded once more")
    return LoadedRun(source, model, list(enumerate(category_names(model.known, model.categories)))).embed(table)


def _write(
    source: Run, config: Config, model: Model, table: Table, embedded: Embedded, target: Run, correct: Correct
) -> Discovery:
    """A whole run with this model."""
    target.copy_from(source, (*BEGINNING, Findings.FILE))
    Reliability.of_json(model.calibration.record).write(target)
    target.write("model.safetensors", model.as_safetensors())
    target.write("config.yaml", config.as_yaml())
    record_assigned(target, config)
    return LoadedRun(target, model).show(table, embedded, page=False, correct=correct)
