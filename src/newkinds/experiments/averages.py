"""Averages of comparisons: over hosts (the rows Avg. Δ), and over data sets (the column Average). Needs no torch."""

import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from ..comparison import Comparison, Entry, OverSeeds, Row

ACCURACIES = ("all", "old", "new")
AVERAGE = "average"  # what stands for a data set, and for a method
OVER_DATA = "The mean of these data sets, seed by seed; only of rows that were run on all of them."


def mean_over(figures: Sequence[OverSeeds | None]) -> OverSeeds | None:
    """Seed by seed, for the seeds that all have; None if one has none.

    >>> mean_over([OverSeeds({0: 60.0, 1: 62.0}), OverSeeds({0: 50.0})])
    OverSeeds(of_seed={0: 55.0})
    """
    known = [figure for figure in figures if figure is not None]
    if not known or len(known) < len(figures):
        return None
    seeds = [seed for seed in known[0].of_seed if all(seed in other.of_seed for other in known)]
    return OverSeeds.of({seed: statistics.fmean(figure.of_seed[seed] for figure in known) for seed in seeds})


def average_gains(rows: Sequence[Row], what: Callable[[Row], str]) -> list[Row]:
    """For everything that several rows were compared for (an organizer, in several hosts), the mean of its gains.
    `what`: what is compared, as rows call it; empty for rows that do not count."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.runs and row.compared and what(row):
            groups.setdefault(what(row), []).append(row)
    found = []
    for name, group in groups.items():
        entries = []
        for place, entry in enumerate(group[0].entries):
            of_rows = [row.entries[place] for row in group]
            gains = mean_over([each.gain for each in of_rows])
            zero = None if gains is None else OverSeeds(dict.fromkeys(gains.of_seed, 0.0))
            entries.append(Entry(entry.column, gains, zero))
        runs = max((entry.ours.runs for entry in entries if entry.ours), default=0)
        if len(group) > 1 and runs:
            parts = {part: {row.parts[part] for row in group} for part in group[0].parts}
            shared = {part: values.pop() if len(values) == 1 else AVERAGE for part, values in parts.items()}
            found.append(Row(f"Avg. Δ {name}", entries, runs, parts=shared))
    return found


def average_over_data(tables: Sequence[Comparison]) -> Comparison | None:
    """The mean over the data sets of which there are runs, of what is measured in percent; None for fewer than two."""
    ran = [table for table in tables if any(row.runs for row in table.rows)]
    places = [place for place, column in enumerate(ran[0].columns) if column.unit == "%"] if ran else []
    if len(ran) < 2 or not places:
        return None
    by_key = [{_key(row): row for row in table.rows if row.runs} for table in ran]
    rows = []
    for key in dict.fromkeys(key for found in by_key for key in found):
        of_data = [found[key] for found in by_key if key in found]
        if len(of_data) == len(ran):
            entries = [_averaged([row.entries[place] for row in of_data]) for place in places]
            collapsed = {seed: share for row in of_data for seed, share in row.collapsed.items()}
            rows.append(replace(of_data[0], entries=entries, runs=_most(entries), protocol={}, collapsed=collapsed))
    if not rows:
        return None
    names = ", ".join(table.parts["data"] for table in ran)
    averages = []
    for row in ran[0].averages:
        of_data = [each for table in ran for each in table.averages if _key(each) == _key(row)]
        if len(of_data) == len(ran):
            entries = [_averaged([each.entries[place] for each in of_data]) for place in places]
            averages.append(replace(row, entries=entries, runs=_most(entries)))
    return replace(
        ran[0], rows=rows, averages=averages, protocol=[("data", names)], note=OVER_DATA, left_out=[],
        parts={**ran[0].parts, "data": AVERAGE},
    )  # fmt: skip


def side_by_side(tables: Sequence[Comparison]) -> Comparison:
    """One table with the accuracies of several data sets (or, if it has none, all their columns), in groups called as
    these; only rows of which there are runs."""
    accuracies = [column.measure for column in tables[0].columns if column.measure in ACCURACIES]

    def joined(of_tables: Sequence[Sequence[Row]]) -> list[Row]:
        rows = []
        for key in dict.fromkeys(_key(row) for found in of_tables for row in found if row.runs):
            matching = [next((row for row in found if _key(row) == key and row.runs), None) for found in of_tables]
            entries = []
            for table, row in zip(tables, matching, strict=True):
                for place, column in enumerate(table.columns):
                    if accuracies and column.measure not in accuracies:
                        continue
                    grouped = replace(column, group=table.parts["data"])
                    entries.append(replace(row.entries[place], column=grouped) if row else Entry(grouped, None))
            there = [row for row in matching if row]
            collapsed = {seed: share for row in there for seed, share in row.collapsed.items()}
            rows.append(replace(there[0], entries=entries, runs=max(row.runs for row in there), collapsed=collapsed))
        return rows

    rows, averages = joined([table.rows for table in tables]), joined([table.averages for table in tables])
    parts = {**tables[0].parts, "data": ", ".join(table.parts["data"] for table in tables)}
    return replace(tables[0], rows=rows, averages=averages, parts=parts, protocol=[], left_out=[])


def _averaged(entries: Sequence[Entry]) -> Entry:
    reported = [entry.reported for entry in entries if entry.reported is not None]
    return Entry(
        entries[0].column,
        mean_over([entry.ours for entry in entries]),
        mean_over([entry.base for entry in entries]) if all(entry.base for entry in entries) else None,
        statistics.fmean(reported) if len(reported) == len(entries) else None,
    )


def _most(entries: Sequence[Entry]) -> int:
    return max((entry.ours.runs for entry in entries if entry.ours), default=0)


def _key(row: Row) -> Hashable:
    return row.name if not row.parts else tuple(sorted(row.parts.items()))
