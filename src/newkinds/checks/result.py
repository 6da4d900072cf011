"""Running all checks, and what comes out: a table, lines for the terminal, records for scripts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ..data.table import Table
from ..errors import NewkindsError
from ..files import csv_text, write_whole
from ..runs.run import Run
from .base import CHECKS, Evidence, Finding

CHECK_CSV = "check.csv"
COLUMNS = ("path", "check", "score", "sentence")
SHOWN = 3  # images that are named in the terminal; the rest is counted


def in_order() -> list[str]:
    """The names of all checks, the most important first."""
    return sorted(CHECKS, key=lambda name: (CHECKS[name].order, name))


def run_checks(table: Table, embedding: Tensor | None = None) -> list[Finding]:
    """What every check found, the most important first; without an `embedding` (n, D) some are left out.

    `table` must come from `readable(…, contents=True)`: no image is opened again.

    >>> findings = run_checks(readable(load_table(source), contents=True))
    >>> print(summary(findings))
    """
    if embedding is not None and len(embedding) != len(table):
        raise NewkindsError(f"the embedding has {len(embedding)} rows, but there are {len(table)} images.")
    evidence = Evidence(table, embedding if len(table) > 1 else None)
    findings = []
    for name in in_order():
        if evidence.embedding is None and CHECKS[name].needs_embedding:
            continue
        if not evidence.has_pixels and CHECKS[name].needs_pixels:
            continue
        found = CHECKS[name]().look(evidence)
        findings.append(Finding(name, found, table.paths if found.paths is None else found.paths))
    return findings


def not_run(findings: Sequence[Finding]) -> list[str]:
    """The names of the checks that were left out."""
    made = {finding.check for finding in findings}
    return [name for name in in_order() if name not in made]


def without_embedding(names: Sequence[str]) -> list[str]:
    """Those of the checks that an embedding would have made possible; the others look at pixels."""
    return [name for name in names if CHECKS[name].needs_embedding]


def as_records(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """One record per flagged image and check, and one without a path for each sentence about all the data."""
    records: list[dict[str, Any]] = []
    for finding in findings:
        found = finding.found
        if not finding.flagged and found.sentence:
            records.append({"path": "", "check": finding.check, "score": None, "sentence": found.sentence})
        for row in finding.flagged:
            why, score = found.why.get(row, found.sentence), round(float(found.score[row]), 4)
            records.append({"path": finding.paths[row], "check": finding.check, "score": score, "sentence": why})
    return records


def write(findings: Sequence[Finding], where: Run | str | Path) -> None:
    """`check.csv` (path, check, score, sentence) in a run or in a folder that exists."""
    rows = [tuple("" if cell is None else cell for cell in record.values()) for record in as_records(findings)]
    if isinstance(where, Run):
        where.write_table(CHECK_CSV, COLUMNS, rows)
    else:
        write_whole(Path(where) / CHECK_CSV, csv_text(COLUMNS, rows))


def summary(findings: Sequence[Finding]) -> str:
    """For the terminal: one line per check that found something, with the first images; the others are named last."""
    said = [finding for finding in findings if finding.found.sentence]
    width = max([len(finding.check) for finding in said], default=0)
    lines = []
    for finding in said:
        lines.append(f"{finding.check.ljust(width)}  {finding.found.sentence}")
        for row in finding.flagged[:SHOWN]:
            why = finding.found.why.get(row, "")
            lines.append(f"{' ' * width}    {finding.paths[row]}{f': {why}' if why else ''}")
        if len(finding.flagged) > SHOWN:
            lines.append(f"{' ' * width}    … and {len(finding.flagged) - SHOWN:,} more")
    if fine := [finding.check for finding in findings if not finding.found.sentence]:
        lines.append(f"nothing to say: {', '.join(fine)}")
    return "\n".join(lines)
