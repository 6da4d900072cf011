"""How many categories there are in a finished run, or in images seen by the backbone alone."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from typing_extensions import Unpack

from ..cluster.count import COUNTERS, Count, plot
from ..cluster.points import UNLABELLED
from ..console import warn
from ..data import load_table
from ..data.table import Table, readable, require_discoverable
from ..discovery.categories import Discovery
from ..discovery.edits import JUNK
from ..discovery.finished import ensure_assigned, read_features
from ..encoders.encoder import frozen_encoder
from ..errors import NewkindsError
from ..evaluation.judge import all_true, table_with_truth
from ..files import make_folder, refuse_inputs
from ..ownership import require_output
from ..runs.config import Config
from ..runs.records import write_count
from ..runs.run import Run
from ..settings import flat
from ..training.device import choose_device
from ..training.embedding import embed
from ..training.model import load_model
from .choices import Choices, layers_of
from .settled import settled

COUNT_BY = "combined"


def count_categories(
    source: str | Path, by: str | None = None, *, largest: int | None = None, published: bool = False,
    truth: str | Path | None = None, plot_to: str | Path | None = None, **choices: Unpack[Choices],
) -> Count:  # fmt: skip
    """How many categories there are, and the curve that says so.

    `source` is a finished run, whose trained features are counted (and `count.json` and `count.png` written
    next to them), or data as in `train`, seen by the backbone alone. Only labelled images count.
    `by`: "combined" (default), "ward", "brent" or "binary" (`newkinds.count`); `largest`: the most categories a search
    tries. `published=True` counts by "ward" as the published CMS code does, which needs the true classes of all images.
    `plot_to`: a PNG file for the curve.

    >>> newkinds.count_categories("photos/", backbone="vit_small_patch14_dinov2").answer
    >>> newkinds.count_categories("runs/photos").answer
    """
    if not isinstance(source, (str, Path)):
        raise NewkindsError("this counts images or a run; for your own features, use newkinds.count.COUNTERS[name].")
    if truth is not None and not published:
        raise NewkindsError("only the published score uses the truth: add --published, or leave out --truth.")
    by = by or ("ward" if published else COUNT_BY)
    counter = COUNTERS[by]
    takes = inspect.signature(counter).parameters
    for option, asked in (("largest", largest is not None), ("published_truth", published)):
        if asked and option not in takes:
            name = option.removesuffix("_truth")
            raise NewkindsError(f"counting by {by} has no option {name}: leave it out, or count in another way.")
    options: dict[str, Any] = {} if largest is None else {"largest": largest}
    run = Run(source) if Run(source).path("config.yaml").is_file() else None
    if run is None:
        config = settled(layers_of(source, choices))
        table = load_table(config.data)
        read = table.files()
    else:
        if given := [name for layer in layers_of(None, choices) for name in flat(layer) if name != "train.device"]:
            own = f"{run.folder} is a run, whose own settings are used"
            raise NewkindsError(f"{own}: leave out {', '.join(given)}, or name the images instead.")
        config = run.config()
        read = [file for file in run.own_files() if file.suffix != ".png"]
    with_truth = table_with_truth(config, truth) if published else None  # what is missing is reported before the work
    if plot_to is not None:
        make_folder(Path(plot_to).parent)  # before the work, not after it
        named = (source, truth, choices.get("recipe"), config.backbone["weights"])
        refuse_inputs(Path(plot_to), [*read, *(Path(file) for file in named if file is not None)])
        require_output(Path(plot_to))
    if run is not None:
        features, paths, labels, y, learnt = _run_features(run)
        if learnt and "learnt" in takes:
            options["learnt"] = True
    else:
        table = readable(table)
        require_discoverable(table)
        features, rows = backbone_features(config, table)
        paths, labels = [table.paths[row] for row in rows], [table.labels[row] for row in rows]
        y = table.targets[rows]
    if with_truth is not None:
        options["published_truth"] = all_true(paths, labels, with_truth)
    counted = counter(features, y, **options)
    if plot_to is not None:
        plot(counted, plot_to)
    if run is not None:
        try:
            write_count(counted, run, "count_published" if published else "count")
        except NewkindsError as error:  # in a run that may only be read, it can be counted as well
            warn(f"the result is not kept: {error}")
    return counted


def backbone_features(config: Config, table: Table) -> tuple[torch.Tensor, list[int]]:
    """Unit rows (n, D) of the backbone alone, untrained, and the rows of the table they are of."""
    encoder, device = frozen_encoder(**config.backbone), choose_device(config.train.device)
    embedded = embed(encoder, table, device, workers=config.train.workers)
    return F.normalize(embedded.features, dim=1), embedded.rows


def _run_features(run: Run) -> tuple[torch.Tensor, list[str], list[str | None], np.ndarray, bool]:
    """What a run's method compares images by (n, P), paths, labels and classes (n,; -1: none); if labels trained it.

    What people said counts: an image that they accepted or moved is labelled, junk is not there.
    """
    ensure_assigned(run)
    found, features = Discovery.read(run.folder), read_features(run)
    members = found.members
    if len(features) != len(members):
        sizes = f"{run.path('features.safetensors')} has {len(features)} rows, assignments.csv {len(members)}"
        raise NewkindsError(f"{sizes}: run newkinds discover again.")
    model = load_model(run.config(), run.verified("model.safetensors"), torch.device("cpu"))
    with torch.inference_mode():
        embedding = model.embedding(features)
    kept = [row for row, member in enumerate(members) if member.status != "junk"]
    classes = classes_said(found, model.known)
    labels = [members[row].given_label for row in kept]
    y = np.array([classes.get(members[row].path, UNLABELLED) for row in kept])
    return embedding[kept], [members[row].path for row in kept], labels, y, model.method.trains


def classes_said(found: Discovery, known: Sequence[str]) -> dict[str, int]:
    """Image → the id of its class, for those whose class people have said: by a label, by accepting or by moving."""
    corrections = found.corrections()
    number = {name: corrections.now(i) for i, name in enumerate(known)}  # known classes may have been merged
    said = {member.path: number[member.given_label] for member in found.found_members if member.given_label is not None}
    decided = {m.path: m.category_id for m in found.members if m.status in ("accepted", "moved")}
    return {path: c for path, c in {**said, **decided}.items() if c != JUNK}
