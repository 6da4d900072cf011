"""What the estimators are given: features and labels, checked once, in words the user can act on."""

import operator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..errors import NewkindsError
from ..shards import Shards
from .rows import FLOATS, Rows

Features = ArrayLike | Tensor | Shards  # (n, D)
UNLABELLED = -1


def as_rows(X: Features) -> Rows:
    """Features (n, D), checked, to be looked at in blocks: float32 and float64 stay, all else becomes float32.

    A tensor is worked on where it is; of `np.memmap` and `Shards` no more than a block is in memory at a time.
    """
    source = X if isinstance(X, (np.memmap, Shards)) else (X if isinstance(X, Tensor) else _as_tensor(X)).detach()
    if isinstance(source, Tensor) and source.device.type == "mps":
        source = source.cpu()  # MPS cannot do float64, which sums need
    if len(source.shape) != 2 or 0 in source.shape:
        raise NewkindsError(f"features are (points, features), one row per point, not of shape {tuple(source.shape)}.")
    if isinstance(source, Tensor) and source.dtype not in FLOATS:
        source = source.float()
    rows = Rows(source)
    squares = squares_of(rows)
    bad = (~(4 * len(rows) * squares).isfinite()).nonzero()[:, 0].tolist()  # sums of distances must be finite too
    if bad:
        raise NewkindsError(
            f"features are NaN, infinite or too large to be squared and summed in {_rows(bad)} of {len(rows)}: "
            "leave these rows out, or look at how their features were made."
        )
    return rows


def as_features(X: Features) -> Tensor:
    """What `as_rows` checks, at once: (n, D), a tensor on the device it is on."""
    return as_rows(X).whole()


def squared_norms(rows: Tensor) -> Tensor:  # (n,)
    """‖x‖² of each row, without a second (n, D) matrix for the squares."""
    return torch.einsum("nd,nd->n", rows, rows)


def squares_of(points: Rows) -> Tensor:  # (n,)
    """`squared_norms` of points that are looked at in blocks."""
    return torch.cat([squared_norms(block) for block in points.split()])


def _as_tensor(X: ArrayLike) -> Tensor:
    try:
        array = np.asarray(X)
        if array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise NewkindsError(f"features are a table of numbers: {error}.") from error
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))  # torch wants memory it may write to


def as_labels(y: ArrayLike | Tensor | None, points: int) -> np.ndarray:
    """One whole number per point: a class, or -1 if there is none. None labels nothing."""
    if y is None:
        return np.full(points, UNLABELLED)
    try:
        labels = np.asarray(y.tolist() if isinstance(y, Tensor) else y)  # a list: NumPy knows no bfloat16
    except ValueError as error:
        raise NewkindsError(f"labels are one number per point: {error}.") from error
    if labels.shape != (points,):
        raise NewkindsError(f"labels are one number per point: shape ({points},), not {labels.shape}.")
    if labels.dtype.kind not in "iu":
        raise NewkindsError(f"labels are whole numbers, -1 if there is none, not of type {labels.dtype}.")
    wrong = np.flatnonzero(labels < UNLABELLED)
    if len(wrong):
        raise NewkindsError(f"labels are 0 and above, or -1 for none: see {_rows(wrong.tolist())}.")
    return labels.astype(np.int64)


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """`value` as an int of at least `least`; NumPy's integers count, 2.0 and True do not."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise NewkindsError(f"{name} is a whole number of at least {least}, not {value!r}.")
    return number


def _rows(rows: list[int], shown: int = 5) -> str:
    listed = ", ".join(map(str, rows[:shown]))
    more = f" and {len(rows) - shown} more" if len(rows) > shown else ""
    return f"row{'s' if len(rows) > 1 else ''} {listed}{more}"
