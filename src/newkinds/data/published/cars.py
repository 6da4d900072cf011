"""Stanford Cars: 196 models of cars (Krause et al., 2013). The published splits follow the order of the devkit
(`cars_train_annos.mat`, images in `cars_train/`). The re-packaged set (`cars_annos.mat`, `car_ims/`) has the same
images in another order; with the devkit next to it, class and bounding box tell which image is which."""

import reprlib
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import NewkindsError
from ..table import Table
from .base import Listing, Part, listed_files

TEXTS = ("fname", "relative_im_path")  # all other fields are numbers
BOX = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
OTHER_ORDER = "cars_annos.mat lists the images in another order than the devkit"

Row = dict[str, Any]  # the annotation of an image, with its place in the file, counted from 1, as "entry"


def read_cars(folder: Path, part: Part) -> Listing:
    """Images in devkit order; class = number in the annotations - 1."""
    repackaged = folder / "cars_annos.mat"
    if repackaged.is_file() and (folder / "car_ims").is_dir() and not (folder / "cars_train").is_dir():
        return _read_repackaged(folder, repackaged, part)
    if part == "train":
        file = _first(folder, "devkit/cars_train_annos.mat", "cars_train_annos.mat")
    else:
        file = _first(folder, "cars_test_annos_withlabels.mat", "devkit/cars_test_annos_withlabels.mat")
    names = _class_names(_first(folder, "devkit/cars_meta.mat", "cars_meta.mat"))
    images = f"cars_{part}"
    if (folder / images / images).is_dir():  # as some copies unpack
        images = f"{images}/{images}"
    rows = _annotations(file, "fname", "class")
    return Listing(_table(folder, file, [f"{images}/{row['fname']}" for row in rows], rows, names), names)


def _read_repackaged(folder: Path, file: Path, part: Part) -> Listing:
    names = _class_names(file)
    rows = _annotations(file, "relative_im_path", "class", "test", *BOX)
    rows = [row for row in rows if row["test"] == (part == "test")]
    rows, caveat = _in_devkit_order(folder, rows) if part == "train" else (rows, "")
    return Listing(_table(folder, file, [row["relative_im_path"] for row in rows], rows, names), names, caveat)


def _in_devkit_order(folder: Path, rows: list[Row]) -> tuple[list[Row], str]:
    """The rows in the order of the devkit, and what keeps this from being exact."""
    devkit = folder / "devkit" / "cars_train_annos.mat"
    if not devkit.is_file():
        return rows, f"{OTHER_ORDER}, and {devkit}, which would give the published one, is missing"
    waiting: dict[tuple[int, ...], deque[Row]] = defaultdict(deque)
    for row in rows:
        waiting[_class_and_box(row)].append(row)
    alike = sum(len(same) for same in waiting.values() if len(same) > 1)
    keys = [_class_and_box(row) for row in _annotations(devkit, "class", *BOX)]
    ordered = [waiting[key].popleft() for key in keys if waiting[key]]
    if not len(ordered) == len(rows) == len(keys):
        return rows, f"{OTHER_ORDER}, and classes and boxes in {devkit} are not those of the same images"
    return ordered, (f"{alike} images share class and box, so their order is a guess" if alike else "")


def _class_and_box(row: Row) -> tuple[int, ...]:
    return tuple(row[field] for field in ("class", *BOX))


def _table(folder: Path, file: Path, paths: list[str], rows: list[Row], names: list[str]) -> Table:
    listed = []
    for path, row in zip(paths, rows, strict=True):
        entry, number = row["entry"], row["class"]
        if not 1 <= number <= len(names):
            raise NewkindsError(f"{file} entry {entry} gives the class {number}, but there are {len(names)} classes.")
        listed.append((path, names[number - 1], f"{file.name} entry {entry}"))
    return listed_files(folder, listed)


def _first(folder: Path, *places: str) -> Path:
    """The first of several places where a file may be."""
    for place in places:
        if (folder / place).is_file():
            return folder / place
    raise NewkindsError(f"there is no {' or '.join(places)} in {folder}.")


def _class_names(file: Path) -> list[str]:
    return [str(name) for name in np.atleast_1d(_variable(file, "class_names"))]


def _annotations(file: Path, *fields: str) -> list[Row]:
    found = np.atleast_1d(_variable(file, "annotations")).ravel()
    missing = [field for field in fields if field not in (found.dtype.names or ())]
    if missing:
        raise NewkindsError(f"the annotations in {file} have no '{missing[0]}': it is not the file of that name.")
    rows = []
    for entry, record in enumerate(found, start=1):
        row: Row = {"entry": entry}
        for field in fields:
            value = record[field]
            is_right, kind = (_is_text, "a text") if field in TEXTS else (_is_whole, "a whole number")
            if not is_right(value):
                said = f"gives the {field} {reprlib.repr(value)}, which is not {kind}"
                raise NewkindsError(f"{file} entry {entry} {said}: get the file again.")
            row[field] = value if field in TEXTS else int(value)
        rows.append(row)
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
