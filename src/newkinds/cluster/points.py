"""What the estimators are given: features and labels, checked once, in words the user can act on."""

import operator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..errors import NewkindsError

Features = ArrayLike | Tensor  # (n, D)
UNLABELLED = -1


def as_features(X: Features) -> Tensor:
    """Features (n, D) as a tensor on the device they are on: float32 and float64 stay, all else is float32."""
    X = (X if isinstance(X, Tensor) else _as_tensor(X)).detach()
    X = X.cpu() if X.device.type == "mps" else X  # MPS cannot do float64, which sums need
    if X.ndim != 2 or 0 in X.shape:
        raise NewkindsError(f"features are (points, features), one row per point, not of shape {tuple(X.shape)}.")
    if X.dtype not in (torch.float32, torch.float64):
        X = X.float()
    bad = (~(4 * len(X) * squared_norms(X)).isfinite()).nonzero()[:, 0].tolist()  # sums of distances must be finite too
    if bad:
        raise NewkindsError(
            f"features are NaN, infinite or too large to be squared and summed in {_rows(bad)} of {len(X)}: "
            "leave these rows out, or look at how their features were made."
        )
    return X


def squared_norms(rows: Tensor) -> Tensor:  # (n,)
    """‖x‖² of each row, without a second (n, D) matrix for the squares."""
    return torch.einsum("nd,nd->n", rows, rows)


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
