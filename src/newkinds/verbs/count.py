"""How many categories there are in a finished run, or in images seen by the backbone alone."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Unpack

from ..cluster.count import COUNTERS, Count, by_shape, how_sure, plot
from ..cluster.points import UNLABELLED
from ..console import say, warn
from ..data import load_table
from ..data.table import Table, readable, require_discoverable
from ..discovery.categories import Discovery
from ..discovery.edits import NO_CATEGORY
from ..discovery.finished import ensure_assigned, read_features
from ..errors import NewkindsError
from ..evaluation.judge import all_true, table_with_truth
from ..files import make_folder, refuse_inputs
from ..ownership import require_output
from ..runs.config import Config
from ..runs.directory import K_AUTO
from ..runs.records import NumberSeen, read_count, write_count
from ..runs.run import Run
from ..search.search import FAILURES
from ..settings import flat
from ..training.model import load_model
from .choices import Choices, layers_of, recipes_of
from .layers import drop_setting, resolve_layers
from .stages import HOUR, embed_once, look

COUNT_BY = "combined"
# A number that somebody gave is looked at only if that costs next to nothing.
MOST_LOOKED_AT = 20_000  # images
SHARE_OF_SECOND_LOOK = 0.03  # of the time of a command
COUNT_SECONDS = 7e-6  # for each image and number of its feature, of one core (300 to 8,000 images, 384 and 768 numbers)


def count_categories(
    source: str | Path, by: str | None = None, *, largest: int | None = None, published: bool = False,
    truth: str | Path | None = None, plot_to: str | Path | None = None, **choices: Unpack[Choices],
) -> Count:  # fmt: skip
    """How many categories there are, and the curve that says so.

    `source` is a finished run, whose trained features are counted (and `count.json` and `count.png` written
    next to them), or data as in `discover`, seen by the backbone alone. Only labelled images count; with labels of
    fewer than two classes, "combined" can only look at the shape of the data, and says so.
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
        config = resolve_layers(layers_of(source, choices))
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
        named = (source, truth, *recipes_of(choices), config.backbone["weights"])
        refuse_inputs(Path(plot_to), [*read, *(Path(file) for file in named if file is not None)])
        require_output(Path(plot_to))
    if run is not None:
        features, paths, labels, y, known, learnt = _run_features(run)
        if learnt and "learnt" in takes:
            options["learnt"] = True
    else:
        table = readable(table, contents=True)
        require_discoverable(table)
        features = backbone_rows(config, table)
        if not published:  # whose score is of all images
            once = table.distinct()
            features, table = features[once], table.rows(once.tolist())
        paths, labels, y, known = table.paths, table.labels, table.targets, len(table.known)
    if with_truth is not None:
        options["published_truth"] = all_true(paths, labels, with_truth)
    labelled = np.unique(y[y != UNLABELLED])
    guessed = by == COUNT_BY and len(labelled) < 2  # nothing tells how well classes are separated
    counted = by_shape(features, len(labelled)) if guessed else counter(features, y, **options)
    counted = replace(counted, accepted=int((labelled >= known).sum()))
    if plot_to is not None:
        plot(counted, plot_to)
    if run is not None:
        try:
            write_count(counted, run, "count_published" if published else "count")
        except NewkindsError as error:  # in a run that may only be read, it can be counted as well
            warn(f"the result is not kept: {error}")
    return counted


def backbone_rows(config: Config, table: Table) -> Tensor:
    """Unit rows (n, D) of the backbone alone, untrained; of a table from `readable(…, contents=True)`."""
    layers = [drop_setting(config.as_dict(), "backbone", "image_size", None)]
    return embed_once(look(table, config, layers, HOUR)).rows


@dataclass(frozen=True)
class Number:
    """How many categories there are, and the estimate behind it, if it is one."""

    k: int
    estimate: Count | None = None


def decide_k(asked: int | str | None, table: Table, run: Run | None, rows: Callable[[], Tensor]) -> Number:
    """The number of categories in total: as `asked`, as the data set says, or ("auto") as it is estimated from unit
    rows (n, D). An estimate is made once per run and then kept."""
    if asked != "auto":
        return Number(require_possible(asked, table))
    if run is not None and run.path(f"{K_AUTO}.json").is_file():
        estimate = read_count(run, K_AUTO)
    else:
        once = table.distinct()  # a thousand copies of an image are one image
        estimate = estimate_number(rows()[once], table.targets[once], len(table.known))
        say(how_sure(estimate))
    say(f"{estimate.answer} categories, {estimate.new} of them new")
    # a known class may have no labelled image: it is not counted, but it is one
    return Number(require_possible(max(estimate.answer, len(table.known)), table), estimate)


def estimate_number(rows: Tensor, targets: NDArray[np.int64], known: int) -> Count:
    """How many categories unit rows (n, D) with labels (n,; -1: none) of so many known classes seem to have."""
    if known < 2:
        return by_shape(rows, known)
    return COUNTERS[COUNT_BY](rows, targets)


def look_at_given(k: int, rows: Tensor, table: Table, seconds: float) -> NumberSeen | None:
    """How many categories the images look like, if somebody said `k`: by the same estimate as `--k auto`, from unit
    rows (n, D), in a command that takes so many seconds. None: there are too many images to look in passing, or too few
    labels to contradict anybody. Nothing else depends on it."""
    once = table.distinct()
    known = len(table.known)
    needs = COUNT_SECONDS * len(once) * rows.shape[1]
    if known < 2 or len(once) > MOST_LOOKED_AT or needs > SHARE_OF_SECOND_LOOK * seconds:
        return None
    try:
        with torch.random.fork_rng(devices=[]):
            estimate = estimate_number(rows[once], table.targets[once], known)
    except FAILURES:  # such as images that all have a label: nobody has asked for this
        return None
    if estimate.low is None or estimate.high is None:
        return None
    return NumberSeen(k, max(estimate.answer, known), max(estimate.low, known), max(estimate.high, known))


def warn_of_number(seen: NumberSeen) -> None:
    """Say that a given number does not look like that of the images."""
    if seen.fits:
        return
    cost = (
        "With too few, images of new kinds are put into known classes, and look certain there."
        if seen.given < seen.low
        else "With too many, kinds are split."
    )
    warn(
        f"you said {seen.given} kinds (--k); these images look like {seen.looks_like}, known and new together. {cost} "
        "If you are not sure of the number, leave out --k: it is then estimated (into another --out)."
    )


def require_possible(k: int | str | None, table: Table) -> int:
    """How many categories there will be: `k`, or what the data set says; or why that is not possible."""
    known = len(table.known)
    k = table.categories if k is None else k
    if k is None:
        raise NewkindsError(
            f"say how many categories you expect in total, including the {known} known ones: --k N, or --k auto "
            "for an estimate. Guess high rather than low: categories that are not needed stay empty."
        )
    assert isinstance(k, int)  # "auto" has been counted
    refuse_impossible(k, table)
    if k == known and None in table.labels:
        warn(
            f"{known} classes are known, and {k} categories, known and new together, leave no room for a new one: "
            "every unlabelled image will get a known class."
        )
    return k


def refuse_impossible(k: int | str | None, table: Table) -> None:
    """Refuse a number of categories that these images cannot have; one that is not named yet is not judged."""
    if not isinstance(k, int):
        return
    known = len(table.known)
    if k < known:
        raise NewkindsError(f"--k {k} is too small: {known} classes are known already, and --k counts those too.")
    unlabelled = sum(label is None for label in table.labels)
    most = len(set(table.labels) - {None}) + unlabelled
    if k > most:  # k-means would say so too, but after the training
        allowed = f"the labelled classes and {unlabelled} unlabelled images allow at most {most} categories"
        raise NewkindsError(f"--k {k} is too large: {allowed}.")


def _run_features(run: Run) -> tuple[torch.Tensor, list[str], list[str | None], np.ndarray, int, bool]:
    """What a run's method compares images by (n, P), paths, labels, classes (n,; -1: none), of which so many are known
    classes and those beyond were accepted; and whether labels trained it.

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
    place = {category.id: number for number, category in enumerate(found.categories)}  # known ones come first
    y = np.array([place.get(classes.get(members[row].path, UNLABELLED), UNLABELLED) for row in kept])
    return embedding[kept], [members[row].path for row in kept], labels, y, len(found.known), model.method.trains


def classes_said(found: Discovery, known: Sequence[str]) -> dict[str, int]:
    """Image → the id of its class, for those whose class people have said: by a label, by accepting or by moving."""
    corrections = found.corrections()
    number = {name: corrections.now(of) for name, of in found.class_ids(known).items()}  # they may have been merged
    said = {member.path: number[member.given_label] for member in found.found_members if member.given_label is not None}
    decided = {m.path: m.category_id for m in found.members if m.status in ("accepted", "moved")}
    return {path: c for path, c in {**said, **decided}.items() if c not in NO_CATEGORY}
