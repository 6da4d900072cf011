"""Write the tables of RESULTS.md, README.md and the notebook (results/*.md), each from a JSON file in results/tables/.

A table stands between two comments; prose around them stays. The first comment names the file, and may choose rows, by
words of their first cell, and columns:

    <!-- table: discover-by-default | rows: cars; birds | columns: data; k-means; discover -->
    <!-- end of table -->

Every table is also on the page of the notebook that its file names. There its full commands, seeds, machine and date
stand below it. Elsewhere one line has seeds, machine and date, and leads to the table's heading in the notebook.
`without: line` leaves that line out; `without: table` leaves the table itself out, where the notebook has a fuller one.

    python scripts/build_results.py            # write
    python scripts/build_results.py --check    # say which page is stale, write nothing
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "results" / "tables"
NOTEBOOK = ROOT / "results"
PAGES = (ROOT / "RESULTS.md", ROOT / "README.md", *sorted(NOTEBOOK.glob("*.md")))
BLOCK = re.compile(r"(<!-- table: (?P<wanted>[^\n]*?) -->\n).*?(<!-- end of table -->)", re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
FIELDS = ("command", "date", "machine", "seeds", "notebook", "columns", "rows")


class Wanted(NamedTuple):
    """What a comment asks for: the name of a table, and which of its rows and columns (none: all)."""

    name: str
    rows: list[str]
    columns: list[str]
    with_table: bool
    with_line: bool  # how it was measured, below the table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is stale")
    given = parser.parse_args()
    stale = [page for page in PAGES if built(page) != page.read_text(encoding="utf-8")]
    for page in stale:
        state = "stale: run python scripts/build_results.py" if given.check else "written"
        print(f"{page.relative_to(ROOT).as_posix()} is {state}")
        if not given.check:
            page.write_text(built(page), encoding="utf-8")
    if not given.check and (unshown := sorted({file.stem for file in TABLES.glob("*.json")} - shown_tables())):
        print(f"shown on no page: {', '.join(unshown)}")
    sys.exit(bool(stale) and given.check)


def shown_tables() -> set[str]:
    """Names of the tables that some page shows."""
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    return {read_wanted(found["wanted"]).name for page in pages for found in BLOCK.finditer(page)}


def built(page: Path) -> str:
    """The text of a page with each table as its file has it."""

    def block(found: re.Match[str]) -> str:
        wanted = read_wanted(found["wanted"])
        shown = markdown(read_table(wanted.name), wanted, page)
        return f"{found[1]}{shown}\n{found[3]}"

    return BLOCK.sub(block, page.read_text(encoding="utf-8"))


def read_wanted(text: str) -> Wanted:
    name, *options = (part.strip() for part in text.split("|"))
    chosen: dict[str, list[str]] = {}
    for option in options:
        key, _, values = option.partition(":")
        chosen[key] = [value.strip() for value in values.split(";")]
    if unknown := set(chosen) - {"rows", "columns", "without"}:
        raise SystemExit(f"table {name}: rows, columns and without can be said, not {', '.join(unknown)}.")
    without = chosen.get("without", [])
    return Wanted(
        name, chosen.get("rows", []), chosen.get("columns", []), "table" not in without, "line" not in without
    )


def read_table(name: str) -> dict[str, Any]:
    file = TABLES / f"{name}.json"
    if not file.is_file():
        raise SystemExit(f"there is no table '{name}': {file} does not exist.")
    table = json.loads(file.read_text(encoding="utf-8"))
    if missing := [field for field in FIELDS if field not in table]:
        raise SystemExit(f"{file}: {', '.join(missing)} missing.")
    for row in table["rows"]:
        if len(row) != len(table["columns"]):
            raise SystemExit(f"{file}: the row '{row[0]}' has {len(row)} cells, and there are other columns.")
    return table


def markdown(table: dict[str, Any], wanted: Wanted, page: Path) -> str:
    """The table, and below it how it was measured."""
    parts = [grid(table, wanted)] if wanted.with_table else []
    if wanted.with_line:
        parts.append(how_measured(table) if page.parent == NOTEBOOK else caption(table, wanted.name, page.parent))
    return "\n\n".join(parts)


def grid(table: dict[str, Any], wanted: Wanted) -> str:
    """Those rows and columns of a table that are wanted."""
    columns = [place for place, name in enumerate(table["columns"]) if not wanted.columns or name in wanted.columns]
    if missing := set(wanted.columns) - set(table["columns"]):
        raise SystemExit(f"table {wanted.name} has no column {', '.join(sorted(missing))}.")
    if missing := {words for words in wanted.rows if not any(words in str(row[0]) for row in table["rows"])}:
        raise SystemExit(f"table {wanted.name} has no row with {', '.join(sorted(missing))}.")
    rows = [row for row in table["rows"] if not wanted.rows or any(words in str(row[0]) for words in wanted.rows)]
    digits = table.get("digits", 1)
    lines = [line_of(table["columns"][place] for place in columns)]
    lines.append(f"|---|{'--:|' * (len(columns) - 1)}")
    return "\n".join(lines + [line_of(shown(row[place], digits) for place in columns) for row in rows])


def line_of(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def shown(cell: Any, digits: int) -> str:
    """A cell as it is printed: text, a number, several numbers, a mean with its deviation, a difference."""
    if cell is None:
        return ""
    if isinstance(cell, list):
        return " / ".join(shown(part, digits) for part in cell)
    if isinstance(cell, dict) and "difference" in cell:
        difference, low, high = (f"{cell[part]:+.{digits}f}" for part in ("difference", "low", "high"))
        return f"{difference} [{low}, {high}]".replace("-", "−")
    if isinstance(cell, dict):
        return f"{shown(cell['mean'], digits)} ± {shown(cell['deviation'], digits)}"
    if isinstance(cell, float):
        return f"{cell:.{digits}f}".replace("-", "−")
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def how_measured(table: dict[str, Any]) -> str:
    """All that is needed to measure it again: commands in full, seeds, machine, date."""
    commands = "\n".join(wrapped(command) for command in table["command"])
    note = f" {table['note']}" if "note" in table else ""
    return f"```sh\n{commands}\n```\n\nSeeds: {table['seeds']}; {table['machine']}; {table['date']}.{note}"


def wrapped(command: str) -> str:
    """A command on lines of at most 116 characters; an option stays with its value where that fits."""
    lines = [""]
    for part in re.split(r" (?=--)", command):
        words = [part] if len(part) < 108 else part.split(" ")
        for word in words:
            if lines[-1] and len(lines[-1]) + len(word) > 113:
                lines.append(f"    {word}")
            else:
                lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def caption(table: dict[str, Any], name: str, folder: Path) -> str:
    """One line below a table: seeds, machine, date, and where its command is."""
    page = NOTEBOOK / table["notebook"].partition("#")[0]
    link = f"{Path(os.path.relpath(page, folder)).as_posix()}#{heading_above(name, page)}"
    return f"Seeds: {table['seeds']} · {table['machine']} · {table['date']} · [command and notebook]({link})"


def heading_above(name: str, page: Path) -> str:
    """The anchor of the last heading before a table on a page of the notebook."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        if read_wanted(found["wanted"]).name == name:
            *_, title = HEADING.findall(FENCED.sub("", text[: found.start()]))
            return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    raise SystemExit(f"table {name}: {page.name} does not have it. Put <!-- table: {name} --> there.")


if __name__ == "__main__":
    main()
