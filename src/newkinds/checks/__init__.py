"""What may be wrong with data before anything is learnt from it: one small class per check."""

from . import copies, counts, labels, outliers, unusable  # noqa: F401  (registers the checks)
from .base import CHECKS, Check, CheckInput, CheckResult, Verdict
from .findings import CHECK_CSV, findings_of, findings_text, not_run, run_checks, without_embedding, write_findings

__all__ = [
    "CHECKS", "CHECK_CSV", "Check", "CheckInput", "CheckResult", "Verdict", "findings_of", "findings_text", "not_run",
    "run_checks", "without_embedding", "write_findings",
]  # fmt: skip
