"""Whether the benchmark data sets on a disk are complete, and whether their splits are the published ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import NewkindsError, nearest, place_outside, reason_of
from ..splits import split_checksum
from ..table import Skipped, Table, leave_out, look_at_all, unreadable_rows
from . import BENCHMARKS, Benchmark
from .base import Part, find_copy, read_part, split_listing

SHOWN = 3  # files that are named; the rest is counted

Finding = tuple[str, str]  # what was looked at, and what was found


@dataclass(frozen=True)
class Checked:
    """What was found of one data set."""

    benchmark: Benchmark
    folder: Path | None
    usable: bool  # the published protocol can be followed
    findings: list[Finding]

    def text(self) -> str:
        """A few lines for the terminal."""
        what = self.benchmark
        lines = [f"{what.name}: {what.title}, {what.about} ({self.folder or 'not found'})"]
        for subject, found in self.findings:
            first, *more = found.splitlines()
            lines += [f"  {subject:<8} {first}", *(f"  {'':<8} {line}" for line in more)]
        return "\n".join(lines)


def check_benchmarks(names: Sequence[str] = (), root: str | Path | None = None) -> list[Checked]:
    """Count and decode the images of the named data sets (else of all), and compare them with what is published.

    >>> print(check_benchmarks(["cub"], "datasets/")[0].text())
    """
    for name in names:
        if name not in BENCHMARKS:
            hint = nearest(name, BENCHMARKS) or f" There are: {', '.join(BENCHMARKS)}."
            raise NewkindsError(f"there is no benchmark data set called '{name}'.{hint}")
    return [_check(BENCHMARKS[name], None if root is None else str(root)) for name in names or BENCHMARKS]


def _check(benchmark: Benchmark, root: str | None) -> Checked:
    try:
        return _look_at(benchmark, root)
    except Exception as error:  # whatever it is, the other data sets are reported on
        whose = "" if place_outside(error) else " (this may be a bug in newkinds)"
        return Checked(benchmark, None, False, [("error", f"{reason_of(error)}{whose}")])


def _look_at(benchmark: Benchmark, root: str | None) -> Checked:
    try:
        folder = find_copy(benchmark, root)
    except NewkindsError as error:
        return Checked(benchmark, None, False, [("missing", str(error))])
    try:
        listing, classes = read_part(benchmark, folder, "train")
    except NewkindsError as error:
        return Checked(benchmark, folder, False, [("train", str(error)), _test_images(benchmark, folder)])
    bad = unreadable_rows(look_at_all(listing.table))
    split = leave_out(split_listing(benchmark, listing, classes), bad)
    verdict = f"the published protocol cannot be followed: {split.caveat}" if split.caveat else "usable as published"
    findings = [
        _count_readable("train", benchmark, listing.table, bad),
        ("classes", f"{len(classes.known)} known, {len(classes.new)} new (class list {classes.label})"),
        ("split", _describe(benchmark, split)),
        _test_images(benchmark, folder),
        ("verdict", verdict),
    ]
    return Checked(benchmark, folder, not split.caveat, findings)


def _count_readable(part: Part, benchmark: Benchmark, table: Table, bad: dict[int, Skipped]) -> Finding:
    """Images that can be read, of how many, and the first that cannot."""
    lines = [f"{len(table) - len(bad):,} of {benchmark.images[part] or len(table):,} images can be read"]
    lines += [f"{image.path}: {image.reason}" for image in list(bad.values())[:SHOWN]]
    if len(bad) > SHOWN:
        lines.append(f"… and {len(bad) - SHOWN:,} more")
    return part, "\n".join(lines)


def _test_images(benchmark: Benchmark, folder: Path) -> Finding:
    """Nothing here keeps a copy from being used: the published protocol evaluates unlabelled training images."""
    try:
        listing, _ = read_part(benchmark, folder, "test")
    except NewkindsError as error:
        return "test", f"{error} (only needed for inductive evaluation)"
    bad = unreadable_rows(look_at_all(listing.table))
    if len(bad) == len(listing.table):
        return "test", f"none of {len(bad):,} images is available (only needed for inductive evaluation)"
    return _count_readable("test", benchmark, listing.table, bad)


def _describe(benchmark: Benchmark, split: Table) -> str:
    """Size and checksum of the split of the readable images."""
    labelled, checksum = sum(label is not None for label in split.labels), split_checksum(split)
    text = (
        f"{labelled:,} labelled, {len(split) - labelled:,} unlabelled "
        f"(published: {' and '.join(benchmark.published)}), checksum {checksum}"
    )
    if benchmark.checksum is None:
        return text
    return text + (", as of a complete copy" if checksum == benchmark.checksum else f", not {benchmark.checksum}")
