"""Which images of a labelled data set keep their labels: the benchmark protocol of category discovery."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..console import warn
from ..errors import NewkindsError, nearest
from .table import Table, all_caveats

Known = float | list[str]  # the known classes' share, counted from the first in sorted order, or their names


def gcd_split(
    labels: ArrayLike, known: Collection[Any], fraction: float = 0.5, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that keep their label and rows that lose it, both ascending.

    A `fraction` of all images of the `known` classes stays labelled, drawn without regard to class; the
    rest of them and every image of another class is unlabelled (Vaze et al., CVPR 2022). With the same
    `labels`, in the data set's own order, these are the images of the published splits.

    >>> labelled, unlabelled = gcd_split([0, 0, 1, 1, 2, 2], known=[0, 1])
    >>> labelled, unlabelled
    (array([2, 3]), array([0, 1, 4, 5]))
    """
    if not 0 <= fraction <= 1:
        raise NewkindsError(f"the labelled fraction of a split lies between 0 and 1, not at {fraction}.")
    if not 0 <= seed < 2**32:
        raise NewkindsError(f"the seed of a split lies between 0 and {2**32 - 1}, not at {seed}.")
    classes = np.asarray(labels)
    candidates = np.flatnonzero(np.isin(classes, list(known)))
    if len(known) and not len(candidates):
        raise NewkindsError(
            f"none of the {len(known)} known classes occurs among the {len(classes)} labels of the data set: "
            "are they written in the same way?"
        )
    # The legacy generator, because the published splits were drawn with it.
    drawn = np.random.RandomState(seed).choice(len(candidates), size=int(fraction * len(candidates)), replace=False)
    keeps_label = np.zeros(len(classes), dtype=bool)
    keeps_label[candidates[drawn]] = True
    return np.flatnonzero(keeps_label), np.flatnonzero(~keeps_label)


def hide_labels(table: Table, known: Sequence[str], fraction: float = 0.5, seed: int = 0) -> Table:
    """A labelled table as a benchmark: a `fraction` of the `known` classes' images keeps its label.

    All labels become the table's truth. Images that had none stay without label and without truth; how many
    categories there are is then unknown. Images of one group keep their labels together, as the first of them does.
    """
    drawn, _ = gcd_split(["" if label is None else label for label in table.labels], known, fraction, seed)
    kept = np.flatnonzero(np.isin(table.group_numbers(), drawn))
    labels: list[str | None] = [None] * len(table)
    for row in kept:
        labels[row] = table.labels[row]
    labelled_classes = set(labels)
    without = [name for name in known if name not in labelled_classes]
    if without and len(kept):
        warn(f"{len(without)} known class(es) keep no labelled image, the first is '{without[0]}'.")
    return replace(
        table,
        labels=labels,
        truth=table.labels,
        known_first=list(known),
        categories=None if None in table.labels else len({*known, *table.labels}),
    )


def for_tuning(table: Table) -> Table:
    """The labelled images alone, split again: half of their classes are known, half of whose images keep their label.

    Settings that are chosen on it have seen no label that a result is judged by.
    """
    labelled = table.rows([row for row, label in enumerate(table.labels) if label is not None])
    classes = sorted({label for label in labelled.labels if label is not None})
    if len(classes) < 2:
        raise NewkindsError(f"data.tune splits the labelled classes into known and new: {len(classes)} is too few.")
    split = hide_labels(labelled, classes[: (len(classes) + 1) // 2])
    caveat = "only its labelled images are taken, split again to choose settings"
    return replace(split, class_list=None, caveat=all_caveats(table.caveat, caveat))


def as_benchmark(
    table: Table, known: Known | None, fraction: float = 0.5, split_seed: int = 0, tune: bool = False
) -> Table:
    """The table unchanged, or, if `known` is given, split like the published benchmarks.

    If it has a truth besides its labels, the truth is split. `tune`: only what is labelled then, see `for_tuning`.
    """
    if known is not None:
        truth = table.truth or [None] * len(table)
        full = [label if true is None else true for label, true in zip(table.labels, truth, strict=True)]
        table = hide_labels(replace(table, labels=full), _known_names(known, full), fraction, split_seed)
    elif fraction != 0.5 or split_seed != 0:
        raise NewkindsError(
            "data.fraction and data.split_seed say how a labelled table is split: "
            "say also which classes are known, e.g. --set data.known=0.5 or --set 'data.known=[cat, dog]'."
        )
    return for_tuning(table) if tune else table


def _known_names(known: Known, labels: Sequence[str | None]) -> list[str]:
    classes = sorted({name for name in labels if name is not None})
    if isinstance(known, list):
        names = known
        for name in names:
            if name not in classes:
                raise NewkindsError(
                    f"data.known names '{name}', but no image is of that class.{nearest(name, classes)}"
                )
        if len(set(names)) < len(names):
            raise NewkindsError("data.known names a class twice.")
    else:
        names = classes[: int(known * len(classes))] if 0 < known < 1 else []
    if not 0 < len(names) < len(classes):
        raise NewkindsError(
            f"of the {len(classes)} classes {len(names)} would be known with data.known={known}, but some must be "
            "known and some new: give a share between 0 and 1 or a list of names."
        )
    return names


def split_checksum(table: Table) -> str:
    """Short, to be shown with results: the same images with the same labels give the same one."""
    return table.fingerprint()[:16]
