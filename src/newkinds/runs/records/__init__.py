"""One type per file of a run, with its reader and its writer; nothing here needs torch."""

from .findings import Finding, Findings
from .plan import CandidateScore, PlanRecord, Stage
from .record import Record
from .reliability import Reliability, ReliabilityBin

__all__ = [
    "CandidateScore",
    "Finding",
    "Findings",
    "PlanRecord",
    "Record",
    "Reliability",
    "ReliabilityBin",
    "Stage",
]
