"""Comparisons as text: for the terminal (Markdown), LaTeX, CSV. Needs no torch."""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ..comparison import COLLAPSED, OF_COLLAPSED, Comparison, Entry, Row
from ..files import csv_text
from ..text import protocol_lines, text_table
from .averages import AVERAGE, side_by_side
from .result_lines import zip_by_row

BOOKTABS = r"in the preamble: \usepackage{booktabs}"
ON_TEST_IMAGES = "On the test images:"
TEX = str.maketrans({
    **{character: f"\\{character}" for character in "%_&#${}"},
    "\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}",
    "±": r"$\pm$", "Δ": r"$\Delta$", "\N{MINUS SIGN}": "$-$", "–": "--", "†": r"$^\dagger$",
})  # fmt: skip


def text(*parts: Comparison) -> str:
    """Tables of the same runs, how to read their figures, and the protocol."""
    blocks = []
    for part in parts:
        blocks += [ON_TEST_IMAGES] if part.parts.get("evaluated") == "test" else []
        blocks += [text_table(_header(part), [line.cells for line in _lines(part)])] if part.rows else []
    protocol = protocol_lines(parts[0].protocol) if parts[0].protocol else "no run yet"
    return "\n\n".join([*blocks, *parts[0].said_below, protocol])


def markdown(tables: Sequence[Comparison]) -> str:
    """A section for each data set: its table, one more for test images, and the protocol of the runs; one for their
    average."""
    blocks = [f"# {tables[0].title}"]
    for data, parts in groupby(tables, key=lambda table: table.parts["data"]):
        blocks += [f"## {_heading(data)}", text(*parts)]
    return "\n\n".join(blocks)


def latex(tables: Sequence[Comparison]) -> str:
    """A tabular of booktabs for each data set, one more for test images, with the protocol as comments; if several have
    been run, also one of our figures in all of them, and their average, side by side. The best figures are bold."""
    blocks = [_tabular(table) for table in tables if table.rows and table.parts["data"] != AVERAGE]
    of_data = [table for table in tables if table.parts["evaluated"] != "test" and any(row.runs for row in table.rows)]
    if any(table.parts["data"] == AVERAGE for table in of_data):
        blocks.append(_tabular(side_by_side(of_data)))
    return "\n\n".join(blocks)


def tidy_csv(tables: Sequence[Comparison]) -> str:
    """One line per figure, and one for each run that it is the mean of (`seed`), with the protocol of its runs, for
    those who make their own tables."""
    lines = [line for each in zip_by_row(tables) for line in each]
    return csv_text(list(lines[0]) if lines else [], [list(line.values()) for line in lines]).rstrip("\n")


STYLES: dict[str, Callable[[Sequence[Comparison]], str]] = {"markdown": markdown, "latex": latex, "csv": tidy_csv}


def _heading(data: str) -> str:
    return data.capitalize() if data == AVERAGE else data


class _Line(NamedTuple):
    """A line of a table."""

    cells: list[str]
    row: Row
    is_figures: bool = False  # else differences
    begins_averages: bool = False


def _reports(table: Comparison) -> bool:
    """Whether what is reported stands beside ours; it does not where data sets stand side by side."""
    grouped = any(column.group for column in table.columns)
    return not grouped and any(entry.reported is not None for row in table.rows for entry in row.entries)


def _header(table: Comparison) -> list[str]:
    """For each column what is reported (if anything) and ours, finally the number of seeds."""
    header = [""]
    for column in table.columns:
        header += [f"{column.title} reported", "ours"] if _reports(table) else [column.title]
    return [*header, "seeds"]


def _lines(table: Comparison) -> Iterator[_Line]:
    """What changed from the host is the line beneath a row, the 95 % interval of that the next, if there are any; in
    the end, averages of these changes."""
    reports = _reports(table)
    for row in table.rows:
        figures = [f"{row.name} {COLLAPSED}" if row.collapsed else row.name]
        for entry in row.entries:
            figures += ["" if entry.reported is None else f"{round(entry.reported, 2):,}"] if reports else []
            figures.append(entry.text if row.runs and not _was_not_run(entry) else "")
        yield _Line([*figures, _seeds(row)], row, is_figures=True)
        if row.runs and row.compared:
            yield from _changes(row, "Δ", reports)
    for place, row in enumerate(table.averages):
        for number, line in enumerate(_changes(row, row.name, reports)):
            yield line._replace(begins_averages=not (place or number))


def _changes(row: Row, name: str, reports: bool) -> Iterator[_Line]:
    """How a row differs from what it is compared with, and how sure that is."""
    beside = [""] if reports else []
    paired = [entry.gain.runs if entry.gain else 0 for entry in row.entries]
    changes = ["" if _was_not_run(entry) else entry.change for entry in row.entries]
    yield _Line([name, *(cell for change in changes for cell in (*beside, change)), _range(paired)], row)
    if any(entry.interval for entry in row.entries):
        yield _Line(["95 %", *(cell for entry in row.entries for cell in (*beside, entry.interval)), ""], row)


def _was_not_run(entry: Entry) -> bool:
    """Whether there is no run of the row on the data set of this column, beside others of which there are."""
    return bool(entry.column.group) and entry.ours is None


def _seeds(row: Row) -> str:
    """How many runs; of columns of several data sets, from the fewest to the most."""
    grouped = any(entry.column.group for entry in row.entries)
    return _range([entry.ours.runs for entry in row.entries if entry.ours]) if grouped else str(row.runs or "")


def _range(numbers: Sequence[int]) -> str:
    some = [number for number in numbers if number]
    if not some:
        return ""
    return str(max(some)) if min(some) == max(some) else f"{min(some)}–{max(some)}"


def _tabular(table: Comparison) -> str:
    """LaTeX, with all that must be known about it as comments; what a mark in it means is printed, too."""
    where = ", on the test images" if table.parts["evaluated"] == "test" else ""
    said = [BOOKTABS, f"{table.title}: {table.parts['data']}{where}", *table.said_below]
    said += [f"{name}: {value}" for name, value in table.protocol]
    header, best = _header(table), _best(table)
    lines = [f"% {' '.join(sentence.split())}" for sentence in said]
    lines += [f"\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\toprule", *_groups(table), _tex_line(header)]
    lines.append(r"\midrule")
    for line in _lines(table):
        lines += [r"\midrule"] if line.begins_averages else []
        bold = best.get(id(line.row), set()) if line.is_figures else set()
        lines.append(_tex_line(line.cells, bold))
    lines.append(r"\bottomrule")
    if any(row.collapsed for row in table.rows):
        note = f"{OF_COLLAPSED}.".translate(TEX)
        lines.append(f"\\multicolumn{{{len(header)}}}{{l}}{{\\footnotesize {note}}} \\\\")
    return "\n".join([*lines, r"\end{tabular}"])


def _tex_line(cells: Sequence[str], bold: Collection[int] = ()) -> str:
    escaped = [cell.translate(TEX) for cell in cells]
    marked = [f"\\textbf{{{cell}}}" if place in bold else cell for place, cell in enumerate(escaped)]
    return " & ".join(marked) + r" \\"


def _groups(table: Comparison) -> list[str]:
    """The line above the header, if columns are in groups, and the rules beneath it."""
    names = [name for name, _ in groupby(column.group for column in table.columns)]
    if names == [""]:
        return []
    cells, rules, first = [""], [], 2
    for name in names:
        width = sum(column.group == name for column in table.columns)
        cells.append(f"\\multicolumn{{{width}}}{{c}}{{{_heading(name).translate(TEX)}}}")
        rules.append(f"\\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    return [" & ".join([*cells, ""]) + r" \\", "".join(rules)]


def _best(table: Comparison) -> dict[int, set[int]]:
    """Row, by its id, → the places of its cells that no other row surpasses, as they are printed; what a collapsed row
    has is no answer, however high it is."""
    best: dict[int, set[int]] = {}
    step = 2 if _reports(table) else 1
    for place, column in enumerate(table.columns):
        ours = {id(row): row.entries[place].ours for row in table.rows if row.runs}
        fallen = {id(row) for row in table.rows if row.collapsed}
        every = {row: round(figure.mean, column.decimals) for row, figure in ours.items() if figure}
        values = {row: value for row, value in every.items() if row not in fallen}
        if values and len(every) > 1 and column.better is not None:
            most = (max if column.better == "higher" else min)(values.values())
            for row in [row for row, value in values.items() if value == most]:
                best.setdefault(row, set()).add(step * (place + 1))
    return best
