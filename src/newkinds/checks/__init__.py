"""What may be wrong with data before anything is learnt from it: one small class per check."""

from . import copies, counts, labels, pixels, unlike  # noqa: F401  (registers the checks)
from .base import CHECKS, Check, Evidence, Finding, Found
from .result import CHECK_CSV, as_records, not_run, run_checks, summary, without_embedding, write

__all__ = [
    "CHECKS", "CHECK_CSV", "Check", "Evidence", "Finding", "Found", "as_records", "not_run", "run_checks", "summary",
    "without_embedding", "write",
]  # fmt: skip
