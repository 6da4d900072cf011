"""What only the model's code can tell about a run, written down once: page, card and studio are made from these files,
without torch."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import NewkindsError
from ..runs.directory import RunDirectory

DESCRIBED = "described.json"
FIELDS = "fields.safetensors"


@dataclass(frozen=True)
class TypicalFields:
    """The primitive fields of a few typical images."""

    paths: list[str]
    views: np.ndarray  # (n, H, W, 3) uint8, what the encoder saw
    shares: np.ndarray  # (n, N, M) of each primitive in each patch, row by row over `grid`
    grid: tuple[int, int]

    def of(self, places: Sequence[int]) -> "TypicalFields":
        """Those of some of the images."""
        kept = list(places)
        return TypicalFields([self.paths[place] for place in kept], self.views[kept], self.shares[kept], self.grid)


@dataclass(frozen=True)
class Described:
    """A run in words.

    >>> described = read_described(RunDirectory("runs/photos"))
    >>> dict(described.protocol)["method"]
    """

    known: list[str]  # names of the known classes, as labels have them: category i is known[i]
    protocol: list[tuple[str, str]]  # name and value
    fields: TypicalFields | None = field(default=None, compare=False)  # of models that have primitives


def known_classes(run: RunDirectory) -> list[str] | None:
    """The known classes as labels name them, in the order of their categories; None if the run has not kept that."""
    return _record(run)[0] if run.path(DESCRIBED).is_file() else None


def write_described(described: Described, run: RunDirectory) -> None:
    """`fields.safetensors`, if the model has primitives, and then `described.json`."""
    from safetensors.numpy import save

    if (fields := described.fields) is not None:
        about = json.dumps({"paths": fields.paths, "grid": fields.grid})  # ASCII: names of any bytes survive
        arrays = {"views": np.ascontiguousarray(fields.views), "shares": fields.shares.astype(np.float32)}
        run.write(FIELDS, save(arrays, {"newkinds": about}))
    record = {"known": described.known, "protocol": described.protocol, "fields": described.fields is not None}
    run.write_json(DESCRIBED, record)


def read_described(run: RunDirectory) -> Described:
    """What `write_described` wrote."""
    known, protocol, has_fields = _record(run)
    return Described(known, protocol, _read_fields(run) if has_fields else None)


def _record(run: RunDirectory) -> tuple[list[str], list[tuple[str, str]], bool]:
    """Known classes, protocol, and whether there are fields."""
    record = run.read_json(DESCRIBED)
    try:
        known = [str(name) for name in record["known"]]
        protocol = [(str(name), str(value)) for name, value in record["protocol"]]
        return known, protocol, bool(record["fields"])
    except (KeyError, TypeError, ValueError):
        raise _damaged(run, DESCRIBED) from None


def _read_fields(run: RunDirectory) -> TypicalFields:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(run.verified(FIELDS), framework="np") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {})["newkinds"])
            views, shares = file.get_tensor("views"), file.get_tensor("shares")
        paths, (rows, columns) = list(map(str, about["paths"])), map(int, about["grid"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        raise _damaged(run, FIELDS) from None
    if views.ndim != 4 or views.dtype != np.uint8 or shares.ndim != 3 or shares.shape[1] != rows * columns:
        raise _damaged(run, FIELDS)
    if not len(paths) == len(views) == len(shares):
        raise _damaged(run, FIELDS)
    return TypicalFields(paths, views, shares, (rows, columns))


def _damaged(run: RunDirectory, name: str) -> NewkindsError:
    return NewkindsError(
        f"{run.path(name)} is missing or damaged: restore it from a copy, or run newkinds discover again."
    )
