"""`calibration.json`: whether images with a confidence of 80 % are right in 80 % of the cases."""

from dataclasses import dataclass
from typing import ClassVar

from .record import Record


@dataclass(frozen=True)
class ReliabilityBin:
    """Held-out labelled images whose confidence lies between `low` and `high`; there is at least one."""

    low: float
    high: float
    images: int
    confidence: float  # their mean
    correct: float  # share of them


@dataclass(frozen=True)
class Reliability(Record):
    """How far confidence can be trusted."""

    FILE: ClassVar[str] = "calibration.json"

    bins: list[ReliabilityBin]
    images: int
    note: str = ""
    error: float | None = None  # expected calibration error
