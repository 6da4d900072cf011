"""Write the tables of RESULTS.md and README.md, each from a JSON file in results/tables/; prose around them stays.

A table stands between two comments. The first names the file, and may choose rows, by words of their first cell, and
columns:

    <!-- table: discover-by-default | rows: cars; birds | columns: data; k-means; discover -->
    <!-- end of table -->

Below each table a line says by which command, when, where and with which seeds it was measured, and leads to the page
of the notebook that tells more. `"without": "line"` leaves that line out.

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
PAGES = ("RESULTS.md", "README.md")
BLOCK = re.compile(r"(<!-- table: (?P<wanted>[^\n]*?) -->\n).*?(<!-- end of table -->)", re.DOTALL)
FIELDS = ("command", "date", "machine", "seeds", "notebook", "columns", "rows")


class Wanted(NamedTuple):
    """What a comment asks for: the name of a table, and which of its rows and columns (none: all)."""

    name: str
    rows: list[str]
    columns: list[str]
    with_line: bool  # how it was measured, below the table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is stale")
    given = parser.parse_args()
    stale = [page for page in (ROOT / name for name in PAGES) if built(page) != page.read_text(encoding="utf-8")]
    for page in stale:
        print(f"{page.name} is {'stale: run python scripts/build_results.py' if given.check else 'written'}")
        if not given.check:
            page.write_text(built(page), encoding="utf-8")
    if not given.check and (unshown := sorted({file.stem for file in TABLES.glob("*.json")} - shown_tables())):
        print(f"shown on no page: {', '.join(unshown)}")
    sys.exit(bool(stale) and given.check)


def shown_tables() -> set[str]:
    """Names of the tables that some page shows."""
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in PAGES]
    return {read_wanted(found["wanted"]).name for page in pages for found in BLOCK.finditer(page)}


def built(page: Path) -> str:
    """The text of a page with each table as its file has it."""

    def block(found: re.Match[str]) -> str:
        wanted = read_wanted(found["wanted"])
        shown = markdown(read_table(wanted.name), wanted, page.parent)
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
    return Wanted(name, chosen.get("rows", []), chosen.get("columns", []), "line" not in chosen.get("without", []))


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


def markdown(table: dict[str, Any], wanted: Wanted, folder: Path) -> str:
    """The table, and below it how it was measured."""
    columns = [place for place, name in enumerate(table["columns"]) if not wanted.columns or name in wanted.columns]
    if missing := set(wanted.columns) - set(table["columns"]):
        raise SystemExit(f"table {wanted.name} has no column {', '.join(sorted(missing))}.")
    rows = [row for row in table["rows"] if not wanted.rows or any(words in str(row[0]) for words in wanted.rows)]
    digits = table.get("digits", 1)
    lines = [line_of(table["columns"][place] for place in columns)]
    lines.append(f"|---|{'--:|' * (len(columns) - 1)}")
    lines += [line_of(shown(row[place], digits) for place in columns) for row in rows]
    return "\n".join(lines + ([f"\n{how_measured(table, folder)}"] if wanted.with_line else []))


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


def how_measured(table: dict[str, Any], folder: Path) -> str:
    commands = ", ".join(f"`{command}`" for command in table["command"])
    page, _, anchor = table["notebook"].partition("#")
    place = Path(os.path.relpath(ROOT / "results" / page, folder)).as_posix()
    more = f"[more]({place}{'#' if anchor else ''}{anchor})"
    return f"{commands}; seeds {table['seeds']}; {table['machine']}; {table['date']}; {more}"


if __name__ == "__main__":
    main()
