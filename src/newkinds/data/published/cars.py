"""Stanford Cars: 196 models of cars (Krause et al., 2013), in both forms in which people have it.

The published splits follow the order of the devkit's annotations (`cars_train_annos.mat`, images in
`cars_train/`). The re-packaged set (`cars_annos.mat`, images in `car_ims/`) holds the same images under other
names in another order; with the devkit beside it, class and bounding box tell which image is which.
"""

from __future__ import annotations

import reprlib
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import NewkindsError
from ..table import Table
from .base import Benchmark, Listing, Part, listed_files, register

INSTRUCTIONS = """Its own site is gone; look for copies of cars_train.tgz, cars_test.tgz, car_devkit.tgz and
cars_test_annos_withlabels.mat (https://github.com/pytorch/vision/issues/7545 names some), and unpack them:
  ROOT/stanford_cars/devkit/cars_train_annos.mat, cars_meta.mat
  ROOT/stanford_cars/cars_train/00001.jpg …
  ROOT/stanford_cars/cars_test_annos_withlabels.mat, cars_test/00001.jpg …     (optional)
or the re-packaged set, which needs devkit/ as well to be split as published:
  ROOT/stanford_cars/cars_annos.mat, car_ims/000001.jpg …"""

TEXTS = ("fname", "relative_im_path")  # all other fields are numbers
BOX = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
OTHER_ORDER = "cars_annos.mat lists the images in another order than the devkit"


def read_cars(folder: Path, part: Part) -> Listing:
    """Images in devkit order; class = number in the annotations - 1."""
    repackaged = folder / "cars_annos.mat"
    if repackaged.is_file() and (folder / "car_ims").is_dir() and not (folder / "cars_train").is_dir():
        return _read_repackaged(folder, repackaged, part)
    if part == "train":
        file = _first(folder, "devkit/cars_train_annos.mat", "cars_train_annos.mat")
    else:
        file = _first(folder, "cars_test_annos_withlabels.mat", "devkit/cars_test_annos_withlabels.mat")
    meta = _first(folder, "devkit/cars_meta.mat", "cars_meta.mat")
    images = f"cars_{part}"
    if (folder / images / images).is_dir():  # as some copies unpack
        images = f"{images}/{images}"
    names = _class_names(meta)
    rows = _annotations(file, "fname", "class")
    return Listing(_table(folder, file, [f"{images}/{name}" for name in rows["fname"]], rows, names), names)


def _read_repackaged(folder: Path, file: Path, part: Part) -> Listing:
    names = _class_names(file)
    rows = _annotations(file, "relative_im_path", "class", "test", *BOX)
    rows = rows[rows["test"] == (part == "test")]
    caveat = ""
    if part == "train":
        order, caveat = _devkit_order(folder, rows)
        rows = rows[order]
    return Listing(_table(folder, file, list(rows["relative_im_path"]), rows, names), names, caveat)


def _devkit_order(folder: Path, rows: np.ndarray) -> tuple[np.ndarray, str]:
    """Where each image of the devkit is in `rows`, and what keeps this from being exact."""
    as_they_are = np.arange(len(rows))
    devkit = folder / "devkit" / "cars_train_annos.mat"
    if not devkit.is_file():
        return as_they_are, f"{OTHER_ORDER}, and {devkit}, which would give the published one, is not there"
    waiting: dict[tuple[int, ...], deque[int]] = defaultdict(deque)
    for i, key in enumerate(_keys(rows)):
        waiting[key].append(i)
    alike = sum(len(places) for places in waiting.values() if len(places) > 1)
    keys = _keys(_annotations(devkit, "class", *BOX))
    order = [waiting[key].popleft() for key in keys if waiting[key]]
    if not len(order) == len(rows) == len(keys):
        return as_they_are, f"{OTHER_ORDER}, and classes and boxes in {devkit} are not those of the same images"
    return np.array(order), (f"{alike} images share class and box, so their order is a guess" if alike else "")


def _keys(rows: np.ndarray) -> list[tuple[int, ...]]:
    return rows[["class", *BOX]].tolist()


def _table(folder: Path, file: Path, paths: list[str], rows: np.ndarray, names: list[str]) -> Table:
    labels = []
    for entry, number in rows[["entry", "class"]].tolist():
        if not 1 <= number <= len(names):
            raise NewkindsError(f"{file} entry {entry} gives the class {number}, but there are {len(names)} classes.")
        labels.append(names[number - 1])
    return listed_files(folder, paths, labels, [f"{file.name} entry {entry}" for entry in rows["entry"]])


def _first(folder: Path, *places: str) -> Path:
    """The first of several places where a file may be."""
    for place in places:
        if (folder / place).is_file():
            return folder / place
    raise NewkindsError(f"there is no {' or '.join(places)} in {folder}.")


def _class_names(file: Path) -> list[str]:
    return [str(name) for name in np.atleast_1d(_variable(file, "class_names"))]


def _annotations(file: Path, *fields: str) -> np.ndarray:
    """The annotated images as a structured array: the fields, and `entry`, the place in the file from 1 on."""
    found = np.atleast_1d(_variable(file, "annotations")).ravel()
    missing = [field for field in fields if field not in (found.dtype.names or ())]
    if missing:
        raise NewkindsError(f"the annotations in {file} have no '{missing[0]}': it is not the file of that name.")
    types = [(field, object if field in TEXTS else np.int64) for field in fields]
    rows = np.empty(len(found), dtype=[("entry", np.int64), *types])
    rows["entry"] = np.arange(1, len(rows) + 1)
    for field in fields:
        is_right, kind = (_is_text, "a text") if field in TEXTS else (_is_whole, "a whole number")
        for entry, value in enumerate(found[field], start=1):
            if not is_right(value):
                said = f"gives the {field} {reprlib.repr(value)}, which is not {kind}"
                raise NewkindsError(f"{file} entry {entry} {said}: get the file again.")
        rows[field] = found[field]
    return rows


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_whole(value: Any) -> bool:
    """MATLAB's numbers are floating-point ones unless somebody took care."""
    is_number = isinstance(value, int | float | np.integer | np.floating)
    return is_number and float(value).is_integer() and abs(float(value)) < 2**31


def _variable(file: Path, name: str) -> np.ndarray:
    from scipy.io import loadmat  # needed for this data set only

    try:
        content = loadmat(str(file), squeeze_me=True, variable_names=[name])
    except Exception as error:  # damaged files raise nearly anything
        raise NewkindsError(f"{file} is damaged ({type(error).__name__}): get it again.") from None
    if name not in content:
        raise NewkindsError(f"{file} has no '{name}': it is not the file of that name.")
    return content[name]


register(
    Benchmark(
        name="cars",
        title="Stanford Cars",
        about="196 models of cars",
        read=read_cars,
        folders=("stanford_cars", "stanford_car", "stanford-cars", "StanfordCars", "cars"),
        markers=("devkit/cars_train_annos.mat", "cars_train_annos.mat", "cars_annos.mat"),
        archives=("cars_train.tgz", "car_ims.tgz", "car_devkit.tgz"),
        instructions=INSTRUCTIONS,
        images={"train": 8144, "test": 8041},
        published=("2.0k", "6.1k"),
    )
)
