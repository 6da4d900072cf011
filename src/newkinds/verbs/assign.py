"""The verb that finds the categories of a finished run again, in the features it already has."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..console import say, warn
from ..data import load_table
from ..data.table import readable
from ..discovery.assignment_tables import read_names
from ..discovery.categories import Discovery
from ..discovery.finished import LoadedRun, read_features
from ..discovery.kinds import category_names
from ..errors import NewkindsError
from ..runs.config import OWN, resolve
from ..runs.directory import CORRECTIONS, IMAGES, K_AUTO
from ..runs.protocol import require_same_images
from ..runs.run import Run
from ..runs.seen_images import earlier_images
from ..training.device import choose_device
from ..training.embedding import Embedded
from ..training.model import load_model

CHANGED = ("assigner", "embedding")  # sections of the settings
STALE = ("assignments.csv", "evaluation.json", "count.json", "count.png", "count_published.json", "count_published.png")
COPIED = (
    IMAGES, CORRECTIONS, "protocol.json", "metrics.jsonl", "skipped.csv", "timing.json", f"{K_AUTO}.json",
    f"{K_AUTO}.png",
)  # fmt: skip


def assign(
    run: str | Path, assigner: str = OWN, *, whiten: bool = False, out: str | Path | None = None,
    seed: int | None = None, device: str = "auto", page: bool = True,
    settings: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
) -> Discovery:  # fmt: skip
    """Assign the images of a finished run by another assigner, without embedding them again.

    The run is changed in place, or copied to `out` and left as it is. Figures of the previous assignment (evaluation,
    count) are deleted. Names of known classes stay; the new categories differ from before and get their default names.
    `page=False` writes no page: a grid of many runs needs none.

    >>> newkinds.assign("runs/photos", "pim", whiten=True, out="runs/photos-pim")
    """
    source, target = Run(run), Run(run if out is None else out)
    in_place = target.folder.resolve() == source.folder.resolve()
    layers = [settings] if isinstance(settings, Mapping) else settings
    for section in (section for layer in layers for section in layer if section not in CHANGED):
        raise NewkindsError(f"the {section} of a finished run is fixed: only assigner.… and embedding.… can be set.")
    kept = {section: values for section, values in source.config().as_dict().items() if section not in CHANGED}
    whitening = {"embedding": {"whiten": "auto"}} if whiten else {}
    config = resolve(kept, {"assigner": {"name": assigner}}, whitening, *layers)
    model = load_model(config, source.verified("model.safetensors"), choose_device(device), find_anew=True)
    names = read_names(source, model.known, model.k, anew=True)
    table = readable(load_table(config.data), contents=True, earlier=earlier_images(source))
    require_same_images(source, table)
    features = read_features(source) if source.path("features.safetensors").is_file() else torch.empty(0)
    if len(features) == len(table):
        embedded = Embedded(features, list(range(len(table))), [])
    else:
        say("the features of the run are missing or not of all images: these are embedded once more")
        embedded = LoadedRun(source, model, names).embed(table)
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
    with target.claimed():
        if in_place:
            for name in STALE:
                target.remove(name)
        else:
            target.begin(config)
            for name in (name for name in (*COPIED, "features.safetensors") if source.path(name).is_file()):
                target.write(name, source.verified(name).read_bytes())
        # killed between these two, the model does not fit its settings: the same command repairs that
        target.write_json("calibration.json", model.calibration.record)
        target.write("model.safetensors", model.as_safetensors())
        target.write("config.yaml", config.as_yaml())
        replace(target.protocol(), outside=config.outside_parts()).write(target)
        loaded = LoadedRun(target, model, category_names(names[: len(model.known)], model.categories))
        if names != loaded.names:
            warn("the new categories differ from before: names that you gave them are not kept.")
        return loaded.show(table, embedded, page)
