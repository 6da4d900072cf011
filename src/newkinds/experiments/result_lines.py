"""The numbers of comparisons as lines with named columns, for CSV files and data frames. Needs no torch."""

from collections.abc import Iterator, Sequence
from typing import Any

from ..comparison import Comparison, Entry, LeftOut, Row

NUMBERS = (
    "measure", "seed", "value", "difference", "reported", "mean", "std", "mean_low", "mean_high", "seeds",
    "gain", "gain_se", "gain_low", "gain_high", "gain_seeds", "collapsed", "left_out",
)  # fmt: skip
Line = dict[str, Any]


def figure_lines(tables: Sequence[Comparison]) -> list[Line]:
    """One line per row and measure: mean, spread, what changed, with 95 % intervals; averages of changes too."""
    return [line for lines in zip_by_row(tables) for line in lines if line["seed"] == ""]


def seed_lines(tables: Sequence[Comparison]) -> list[Line]:
    """One line per run and measure: its value, its difference from the run that it is compared with, whether it has
    collapsed, and why it is left out of the means, if it is."""
    return [line for lines in zip_by_row(tables) for line in lines if line["seed"] != ""]


def zip_by_row(tables: Sequence[Comparison]) -> Iterator[list[Line]]:
    """For each row and measure its line and those of its runs; all have the same columns."""
    rows = [(table, row) for table in tables for row in (*table.rows, *table.averages)]
    left_out = [run for table in tables for run in table.left_out]
    named = [{**table.parts, **row.parts} for table, row in rows]
    parts = list(dict.fromkeys(name for of_row in named for name in of_row))
    fields = list(dict.fromkeys(name for _, row in rows for name in row.protocol))
    for table, row in rows:
        said = {name: {**table.parts, **row.parts}.get(name, "") for name in parts}
        protocol = {f"protocol: {name}": row.protocol.get(name, "") for name in fields}
        is_average = row in table.averages
        for entry in row.entries:
            lines = [_of_figure(row, entry, is_average), *([] if is_average else _of_seeds(row, entry))]
            yield [{**said, "row": row.name, **line, **protocol} for line in lines]
    for run in left_out:
        said = {name: run.parts.get(name, "") for name in parts}
        unknown = {f"protocol: {name}": "" for name in fields}
        yield [{**said, "row": run.name, **line, **unknown} for line in _of_left_out(run)]


def _of_figure(row: Row, entry: Entry, is_average: bool) -> Line:
    ours, gain = (None if is_average else entry.ours), entry.gain
    low, high = (ours and ours.interval) or (None, None)
    gain_error = gain.error if gain and entry.column.is_paired else None
    gain_low, gain_high = entry.gain_interval or (None, None)
    numbers = {
        "measure": entry.column.measure, "reported": entry.reported, "mean": ours and ours.mean,
        "std": ours and ours.std, "mean_low": low, "mean_high": high, "seeds": ours.runs if ours else 0,
        "gain": gain and gain.mean, "gain_se": gain_error, "gain_low": gain_low, "gain_high": gain_high,
        "gain_seeds": gain.runs if gain else 0, "collapsed": len(row.collapsed) or "",
    }  # fmt: skip
    return _line(numbers)


def _of_seeds(row: Row, entry: Entry) -> list[Line]:
    measure = entry.column.measure
    gains = entry.gain.of_seed if entry.gain else {}
    lines = []
    for seed, value in (entry.ours.of_seed if entry.ours else {}).items():
        fallen = "yes" if seed in row.collapsed else ""
        numbers = {"measure": measure, "seed": seed, "value": value, "difference": gains.get(seed), "collapsed": fallen}
        lines.append(_line(numbers))
    return lines


def _of_left_out(run: LeftOut) -> list[Line]:
    figures = run.figures or {"": None}
    return [
        _line({"measure": measure, "seed": run.seed, "value": value, "left_out": run.reason})
        for measure, value in figures.items()
    ]


def _line(numbers: Line) -> Line:
    return {name: "" if numbers.get(name) is None else numbers[name] for name in NUMBERS}
