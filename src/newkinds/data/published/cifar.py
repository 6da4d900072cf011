"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), read from the python batches without running what a pickle may hold."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import NewkindsError
from ..table import table_of_pixels
from .base import Listing, Part

SIDE = 32


def read_cifar10(folder: Path, part: Part) -> Listing:
    """Images in the order of the batches."""
    files = [f"data_batch_{i}" for i in range(1, 6)] if part == "train" else ["test_batch"]
    return _read(folder, files, "labels", "batches.meta", "label_names", f"cifar10-{part}")


def read_cifar100(folder: Path, part: Part) -> Listing:
    """Images in the order of the file, with the fine labels."""
    return _read(folder, [part], "fine_labels", "meta", "fine_label_names", f"cifar100-{part}")


def _read(folder: Path, files: list[str], labels: str, meta: str, names: str, prefix: str) -> Listing:
    class_names = [str(name) for name in _list(folder / meta, unpickle_arrays(folder / meta), names)]
    batches = [_batch(folder / name, labels, len(class_names)) for name in files]
    pixels = np.concatenate([some for some, _ in batches])  # (n, 3·32·32)
    images = pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)  # (n, 32, 32, 3)
    classes = [class_names[number] for _, numbers in batches for number in numbers]
    return Listing(table_of_pixels(prefix, images, classes), class_names)


def _batch(file: Path, labels: str, most: int) -> tuple[np.ndarray, list[int]]:
    """Pixels (n, 3·32·32) and classes (n,) of one file."""
    content = unpickle_arrays(file)
    pixels, classes = _field(file, content, "data"), _list(file, content, labels)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3 * SIDE * SIDE,):
        raise NewkindsError(f"{file} does not hold images of {SIDE}×{SIDE} pixels.")
    if len(pixels) != len(classes):
        raise NewkindsError(f"{file} holds {len(pixels)} images, but {len(classes)} labels.")
    for row, number in enumerate(classes):
        if type(number) is not int or not 0 <= number < most:  # True would pass for an int
            raise NewkindsError(f"{file} image {row} has the class {number!r}, not a number from 0 to {most - 1}.")
    return pixels, classes


def _field(file: Path, content: Any, name: str) -> Any:
    if not isinstance(content, dict) or name not in content:
        raise NewkindsError(f"{file} has no '{name}': it is not the file of that name.")
    return content[name]


def _list(file: Path, content: Any, name: str) -> list[Any]:
    """A field of plain values; some copies have an array there."""
    values = _field(file, content, name)
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(values, list | tuple):
        raise NewkindsError(f"{file} has no list '{name}': it is not the file of that name.")
    return list(values)


def unpickle_arrays(file: Path) -> Any:
    """What a pickle of plain values and NumPy arrays holds; one that asks for anything else is refused."""
    try:
        with open(file, "rb") as stream:
            return _ArraysOnly(stream, encoding="latin1").load()  # written by Python 2
    except OSError as error:
        raise NewkindsError(f"cannot read {file}: {error.strerror}.") from None
    except _Refused as error:
        raise NewkindsError(f"{file} is refused: it would call {error}, which no CIFAR batch needs.") from None
    except Exception as error:  # damaged pickles raise nearly anything
        raise NewkindsError(f"{file} is damaged or truncated ({type(error).__name__}): unpack it again.") from None


class _Refused(pickle.UnpicklingError):
    pass


class _ArraysOnly(pickle.Unpickler):
    """Knows arrays, their types and bytes; every other name in the pickle is an error, not an import."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return lambda kind, shape, typecode: np.ndarray((0,), np.uint8)  # always empty, filled afterwards
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):  # how bytes are written for Python 2
            return lambda text, encoding="latin1": text.encode("latin1")
        raise _Refused(f"{module}.{name}")
