"""The paper's tables, run and printed: reported figures, ours, and the gain over the host."""

from .runs import Benched, bench, collect
from .tables import TABLES

__all__ = ["TABLES", "Benched", "bench", "collect"]
