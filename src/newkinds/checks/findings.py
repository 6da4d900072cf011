"""Running all checks, and what comes out: a table, and lines for the terminal."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from ..data.table import Table
from ..errors import NewkindsError
from ..ownership import OwnFiles
from ..runs.records import Finding, Findings
from ..runs.run import Run
from .base import CHECKS, CheckInput, CheckResult

CHECK_CSV = Findings.FILE
SHOWN = 3  # images that are named in the terminal; the rest is counted


def in_order() -> list[str]:
    """The names of all checks, the most important first."""
    return sorted(CHECKS, key=lambda name: (CHECKS[name].order, name))


def run_checks(table: Table, embedding: Tensor | None = None) -> list[CheckResult]:
    """What every check found, the most important first; without an `embedding` (n, D) some are left out.

    `table` must come from `readable(…, contents=True)`: no image is opened again.

    >>> results = run_checks(readable(load_table(source), contents=True))
    >>> print(findings_text(results))
    """
    if embedding is not None and len(embedding) != len(table):
        raise NewkindsError(f"the embedding has {len(embedding)} rows, but there are {len(table)} images.")
    evidence = CheckInput(table, embedding if len(table) > 1 else None)
    results = []
    for name in in_order():
        if evidence.embedding is None and CHECKS[name].needs_embedding:
            continue
        if not evidence.has_pixels and CHECKS[name].needs_pixels:
            continue
        found = CHECKS[name]().look(evidence)
        results.append(CheckResult(name, found, table.paths if found.paths is None else found.paths))
    return results


def not_run(results: Sequence[CheckResult]) -> list[str]:
    """The names of the checks that were left out."""
    made = {result.check for result in results}
    return [name for name in in_order() if name not in made]


def without_embedding(names: Sequence[str]) -> list[str]:
    """Those of the checks that an embedding would have made possible; the others look at pixels."""
    return [name for name in names if CHECKS[name].needs_embedding]


def findings_of(results: Sequence[CheckResult]) -> list[Finding]:
    """One finding per flagged image and check, and one without a path for each sentence about all the data."""
    findings = []
    for result in results:
        found = result.found
        if not result.flagged and found.sentence:
            findings.append(Finding("", result.check, None, found.sentence))
        for row in result.flagged:
            why, score = found.why.get(row, found.sentence), round(float(found.score[row]), 4)
            findings.append(Finding(result.paths[row], result.check, score, why))
    return findings


def write_findings(results: Sequence[CheckResult], where: Run | str | Path) -> None:
    """`check.csv` (path, check, score, sentence) in a run or in a folder that exists."""
    findings = findings_of(results)
    if isinstance(where, Run):
        Findings.write(findings, where)
    else:
        OwnFiles(Path(where)).write(Findings.FILE, Findings.text(findings))


def findings_text(results: Sequence[CheckResult]) -> str:
    """For the terminal: one line per check that found something, with the first images; the others are named last."""
    said = [result for result in results if result.found.sentence]
    width = max([len(result.check) for result in said], default=0)
    lines = []
    for result in said:
        lines.append(f"{result.check.ljust(width)}  {result.found.sentence}")
        for row in result.flagged[:SHOWN]:
            why = result.found.why.get(row, "")
            lines.append(f"{' ' * width}    {result.paths[row]}{f': {why}' if why else ''}")
        if len(result.flagged) > SHOWN:
            lines.append(f"{' ' * width}    … and {len(result.flagged) - SHOWN:,} more")
    if fine := [result.check for result in results if not result.found.sentence]:
        lines.append(f"nothing to say: {', '.join(fine)}")
    return "\n".join(lines)
