"""A paper's table as text: Markdown, LaTeX, CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..comparison import OverSeeds, difference, number
from ..files import csv_text
from ..text import protocol_lines, text_table
from .grid import COLUMNS, Cell, Outcome, merged, protocol_of, row_name
from .tables import TEST_IMAGES, PaperTable, entries, with_test_images

EMPTY = ""  # a cell that was not run
TEX = {
    **{character: f"\\{character}" for character in "%_&#${}"},
    "\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}",
    "±": r"$\pm$", "Δ": r"$\Delta$", "\N{MINUS SIGN}": "$-$", "–": "--",
}


def markdown(table: PaperTable, outcomes: Mapping[Cell, Outcome]) -> str:
    """A table a data set, one more where test images were evaluated, each with the protocol of its runs."""
    blocks = [f"# {table.title}"]
    for data in table.data:
        of_data = {cell: outcome for cell, outcome in outcomes.items() if cell.data == data}
        blocks.append(f"## {data}")
        for part, runs in with_test_images(table, of_data):
            blocks += ["On the test images:"] if part.evaluated == TEST_IMAGES else []
            blocks.append(text_table(*_sheet(part, data, runs)))
        protocol = _protocol(table, of_data)
        blocks.append(protocol_lines(protocol) if protocol else "no run yet")
    return "\n\n".join(blocks)


def latex(table: PaperTable, outcomes: Mapping[Cell, Outcome]) -> str:
    """A tabular a data set, one more where test images were evaluated, with the protocol as comments."""
    blocks = []
    for data in table.data:
        of_data = {cell: outcome for cell, outcome in outcomes.items() if cell.data == data}
        protocol = _protocol(table, of_data)
        for part, runs in with_test_images(table, of_data):
            header, rows = _sheet(part, data, runs)
            where = ", on the test images" if part.evaluated == TEST_IMAGES else ""
            lines = [f"% {table.title}: {data}{where}"]
            lines += [f"% {name}: {' '.join(value.split())}" for name, value in protocol]
            lines += [f"\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", "\\hline"]
            lines += [" & ".join(map(_tex, row)) + r" \\" for row in (header, *rows)]
            lines.insert(-len(rows), "\\hline")
            blocks.append("\n".join([*lines, "\\hline", "\\end{tabular}"]))
    return "\n\n".join(blocks)


def _protocol(table: PaperTable, outcomes: Mapping[Cell, Outcome]) -> list[tuple[str, str]]:
    """What stands beneath a table: nothing about accuracies or counts where it shows none."""
    silent = set() if table.evaluated else {"evaluated", "metric"}
    silent |= set() if "count" in table.measures else {"counting"}
    return [(name, value) for name, value in protocol_of(outcomes) if name not in silent]


def tidy_csv(table: PaperTable, outcomes: Mapping[Cell, Outcome]) -> str:
    """A line a figure, with the protocol of its runs, for those who make tables of their own."""
    columns = (
        "table", "data", "method", "organizer", "evaluated", "measure",
        "reported", "mean", "std", "seeds", "gain_over_host", "gain_std", "gain_seeds",
    )  # fmt: skip
    protocols = {
        row: merged([outcome.protocol for cell, outcome in outcomes.items() if replace(cell, seed=0) == row])
        for row in table.cells([0])
    }
    fields = list(dict.fromkeys(name for protocol in protocols.values() for name in protocol))
    rows = [
        (
            table.name, entry.data, entry.method, entry.organizer, part.evaluated, entry.measure, entry.reported,
            entry.ours and entry.ours.mean, entry.ours and entry.ours.std, entry.ours.runs if entry.ours else 0,
            entry.gain and entry.gain.mean, entry.gain and entry.gain.std, entry.gain.runs if entry.gain else 0,
            *(protocols[Cell(entry.data, entry.method, entry.organizer, 0)].get(name, "") for name in fields),
        )
        for part, runs in with_test_images(table, outcomes)
        for entry in entries(part, runs)
    ]  # fmt: skip
    return csv_text([*columns, *(f"protocol: {name}" for name in fields)], rows).rstrip("\n")


STYLES: dict[str, Callable[[PaperTable, Mapping[Cell, Outcome]], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": tidy_csv,
}


def _sheet(
    table: PaperTable, data: str, outcomes: Mapping[Cell, Outcome]
) -> tuple[list[str], list[list[str]]]:
    """Header and rows for one data set: for each measure reported (if ever), ours and Δ, and how many seeds that is."""
    columns = [COLUMNS[measure] for measure in table.measures]
    header = [""]
    for column in columns:
        header += [f"{column.title} reported", "ours", "Δ"] if table.reports else [column.title, "Δ"]
    rows: dict[tuple[str, str], list[str]] = {}
    seeds = Counter((cell.method, cell.organizer) for cell in outcomes if cell.data == data)
    for entry in entries(table, outcomes):
        if entry.data == data:
            column, key = COLUMNS[entry.measure], (entry.method, entry.organizer)
            row = rows.setdefault(key, [row_name(*key)])
            if table.reports:
                row.append(EMPTY if entry.reported is None else number(OverSeeds({0: float(entry.reported)}), column))
            row += [
                number(entry.ours, column) if key in seeds else EMPTY,
                difference(entry.ours, entry.host, column) if entry.ours and entry.host else EMPTY,
            ]
    return [*header, "seeds"], [[*row, str(seeds[key] or EMPTY)] for key, row in rows.items()]


def _tex(text: str) -> str:
    return "".join(TEX.get(character, character) for character in text)
