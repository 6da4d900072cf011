"""Data sets that a program has loaded: of torchvision, or of Hugging Face. Their images are written as files, once, for
a run needs them again: its page shows them, and exports and the studio open them."""

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
from PIL import Image

from ..console import say, track
from ..errors import NewkindsError
from ..files import make_folder
from ..ownership import OwnFiles
from .images import BadImage, as_rgb, open_full

LIST = "list.csv"
Item = tuple[Image.Image, str | None]  # an image, and its label if it has one


class LoadedDataset(Protocol):
    """A data set of torchvision: (image, target); or of Hugging Face: an image and a class label in each row."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Any: ...


def named_data(data: str | Path | LoadedDataset | None, out: str | Path | None) -> str | Path | None:
    """What names the data of a run: paths and names as they are. Of a data set that a program has loaded, the images
    are written to the folder `OUT-images`, and its list names them; a second time only those that changed.

    >>> named_data(torchvision.datasets.FakeData(10), "runs/a")
    PosixPath('runs/a-images/list.csv')
    """
    if data is None or isinstance(data, (str, os.PathLike)):
        return data if isinstance(data, str) or data is None else Path(data)
    if out is None:
        raise NewkindsError("say where to write (out): the images of a data set are written beside it, as files.")
    return write_files(data, Path(out).with_name(f"{Path(out).name}-images"))


def write_files(dataset: Any, folder: Path) -> Path:
    """Write the images of a data set into a folder, and a list of them with their labels; the list's path."""
    own = OwnFiles(make_folder(folder))
    lines = io.StringIO(newline="")
    writer = csv.writer(lines)
    writer.writerow(["path", "label"])
    items = _items_of_hub(dataset) if _is_of_hub(dataset) else _items_of_pairs(dataset)
    for row, (image, label) in enumerate(track(items, "writing the images as files", total=len(dataset))):
        name = f"image-{row:06d}.png"
        content = io.BytesIO()
        as_rgb(image).save(content, "PNG")
        if not (folder / name).is_file() or (folder / name).read_bytes() != content.getvalue():
            own.write(name, content.getvalue())  # one that is the same keeps its stamp, by which a run knows it
        writer.writerow([name, "" if label is None else label])
    own.write(LIST, lines.getvalue())
    say(f"the images of {type(dataset).__name__} are in {folder}")
    return folder / LIST


def _is_of_hub(dataset: Any) -> bool:
    return hasattr(dataset, "features") and hasattr(dataset, "column_names")


def _items_of_hub(dataset: Any) -> Iterator[Item]:
    """Rows of a Hugging Face `Dataset` with one column of images and at most one of class labels."""
    kinds = {name: type(feature).__name__ for name, feature in dataset.features.items()}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    if len(images) != 1 or len(labels) > 1:
        raise NewkindsError(
            f"a data set must have one column of type Image and at most one of type ClassLabel, and this one has "
            f"{len(images)} and {len(labels)} ({', '.join(f'{name}: {kind}' for name, kind in kinds.items())}): choose "
            "by dataset.select_columns([…])."
        )
    names = dataset.features[labels[0]].names if labels else []
    for row in dataset:
        yield _as_picture(row[images[0]]), _label(row[labels[0]] if labels else None, names)


def _items_of_pairs(dataset: Any) -> Iterator[Item]:
    """(image, target) of a data set of torchvision; targets are numbers of its classes, or their names."""
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise NewkindsError(
            f"data are a folder, a file, the name of a data set, or a data set of torchvision or Hugging Face, not "
            f"{type(dataset).__name__}."
        )
    names = list(getattr(dataset, "classes", []))
    for row in range(len(dataset)):
        item = dataset[row]
        if not isinstance(item, (tuple, list)) or len(item) < 2:
            raise NewkindsError(f"row {row} of {type(dataset).__name__} is not (image, target), as torchvision has it.")
        yield _as_picture(item[0]), _label(item[1], names)


def _as_picture(image: Any) -> Image.Image:
    if isinstance(image, Image.Image):
        return image
    if isinstance(image, dict) and image.get("bytes"):  # of the hub, not decoded
        return _decode(image["bytes"])
    if isinstance(image, np.ndarray) and image.dtype == np.uint8:
        return Image.fromarray(image)
    raise NewkindsError(
        f"an image of the data set is {type(image).__name__}, not a picture of Pillow: leave out its transform "
        "(transform=None, or without set_transform); newkinds makes its own views."
    )


def _decode(content: bytes) -> Image.Image:
    """As a file of that content: with the same formats and the same limits."""
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "image"
        file.write_bytes(content)
        try:
            return open_full(file)[0]
        except BadImage as reason:
            raise NewkindsError(f"an image of the data set cannot be used: {reason}; leave its row out.") from None


def _label(target: Any, names: list[str]) -> str | None:
    """None and numbers below 0 are no label."""
    if target is None or isinstance(target, str):
        return target or None
    number = int(target)
    if number < 0:
        return None
    return str(names[number]) if number < len(names) else str(number)
