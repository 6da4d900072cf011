"""Data sets with ground truth, split into labelled and unlabelled images the way the field does.

One file a data set or family; `base.py` says what they share. Importing a file registers its data sets.
"""

from __future__ import annotations

from . import aircraft, cars, cifar, class_folders, cub  # noqa: F401  (registers the data sets)
from .base import BENCHMARKS, Benchmark, held_out

__all__ = ["BENCHMARKS", "Benchmark", "held_out"]
