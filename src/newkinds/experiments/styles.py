"""Comparisons as text: for the terminal (Markdown), LaTeX, CSV. Needs no torch."""

from collections.abc import Callable, Sequence
from itertools import groupby

from ..comparison import Comparison
from ..files import csv_text
from ..text import protocol_lines, text_table

ON_TEST_IMAGES = "On the test images:"
TEX = str.maketrans({
    **{character: f"\\{character}" for character in "%_&#${}"},
    "\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}",
    "±": r"$\pm$", "Δ": r"$\Delta$", "\N{MINUS SIGN}": "$-$", "–": "--",
})  # fmt: skip


def text(*parts: Comparison) -> str:
    """Tables of the same runs, how to read their figures, and the protocol."""
    blocks = []
    for part in parts:
        blocks += [ON_TEST_IMAGES] if part.parts.get("evaluated") == "test" else []
        blocks += [text_table(*_sheet(part))] if part.rows else []
    protocol = protocol_lines(parts[0].protocol) if parts[0].protocol else "no run yet"
    return "\n\n".join([*blocks, *parts[0].said_below, protocol])


def markdown(tables: Sequence[Comparison]) -> str:
    """A section for each data set: its table, one more for test images, and the protocol of the runs."""
    blocks = [f"# {tables[0].title}"]
    for data, parts in groupby(tables, key=lambda table: table.parts["data"]):
        blocks += [f"## {data}", text(*parts)]
    return "\n\n".join(blocks)


def latex(tables: Sequence[Comparison]) -> str:
    """A tabular for each data set, one more for test images, with the protocol as comments."""
    blocks = []
    for table in filter(lambda table: table.rows, tables):
        header, rows = _sheet(table)
        where = ", on the test images" if table.parts["evaluated"] == "test" else ""
        lines = [f"% {table.title}: {table.parts['data']}{where}"]
        lines += [f"% {' '.join(said.split())}" for said in table.said_below]
        lines += [f"% {name}: {' '.join(value.split())}" for name, value in table.protocol]
        lines += [f"\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", "\\hline"]
        lines += [" & ".join(cell.translate(TEX) for cell in row) + r" \\" for row in (header, *rows)]
        lines.insert(-len(rows), "\\hline")
        blocks.append("\n".join([*lines, "\\hline", "\\end{tabular}"]))
    return "\n\n".join(blocks)


def tidy_csv(tables: Sequence[Comparison]) -> str:
    """One line per figure, with the protocol of its runs, for those who make their own tables."""
    rows = [(row, {**table.parts, **row.parts}) for table in tables for row in table.rows]
    parts = list(dict.fromkeys(name for _, of_row in rows for name in of_row))
    fields = list(dict.fromkeys(name for row, _ in rows for name in row.protocol))
    figures = ("measure", "reported", "mean", "std", "seeds", "gain", "gain_se", "gain_low", "gain_high", "gain_seeds")
    lines = []
    for row, of_row in rows:
        for entry in row.entries:
            ours, gain = entry.ours, entry.gain
            low, high = (gain and gain.interval) or (None, None)
            lines.append([
                *(of_row.get(name, "") for name in parts), entry.column.measure, entry.reported,
                ours and ours.mean, ours and ours.std, ours.runs if ours else 0,
                gain and gain.mean, gain and gain.error, low, high, gain.runs if gain else 0,
                *(row.protocol.get(name, "") for name in fields),
            ])  # fmt: skip
    return csv_text([*parts, *figures, *(f"protocol: {name}" for name in fields)], lines).rstrip("\n")


STYLES: dict[str, Callable[[Sequence[Comparison]], str]] = {"markdown": markdown, "latex": latex, "csv": tidy_csv}


def _sheet(table: Comparison) -> tuple[list[str], list[list[str]]]:
    """Header and lines: for each column what is reported (if anything) and ours, finally the number of seeds.
    What changed from the host is the line beneath a row, the 95 % interval of that the next, if there are any."""
    reports = any(entry.reported is not None for row in table.rows for entry in row.entries)
    header, lines = [""], []
    for column in table.columns:
        header += [f"{column.title} reported", "ours"] if reports else [column.title]
    for row in table.rows:
        figures, changes, intervals = [row.name], ["Δ"], ["95 %"]
        for entry in row.entries:
            if reports:
                figures.append("" if entry.reported is None else f"{entry.reported:,}")
                changes.append("")
                intervals.append("")
            figures.append(entry.text if row.runs else "")
            changes.append(entry.change)
            intervals.append(entry.interval)
        lines.append([*figures, str(row.runs or "")])
        if row.runs and row.compared:
            paired = max(entry.gain.runs if entry.gain else 0 for entry in row.entries)
            lines.append([*changes, str(paired or "")])
            lines += [[*intervals, ""]] if paired > 1 else []
    return [*header, "seeds"], lines
