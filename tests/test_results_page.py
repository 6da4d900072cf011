"""Figures of the README and of RESULTS.md are those of the tables in results/tables/."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILDER = ROOT / "scripts" / "build_results.py"
TABLES = sorted((ROOT / "results" / "tables").glob("*.json"))
README, RESULTS = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "RESULTS.md"))
NUMBER = re.compile(r"(?<![\w.])[+−-]?\d[\d,]*(?:\.\d+)?(?![\w.]*\w)")


def numbers_of(text: str) -> list[str]:
    """Numbers in a sentence, without signs and commas; no dates, and none of names: 5m, ViT-S/14, ICML 2026."""
    plain = re.sub(r"`[^`]*`|\]\([^)]*\)|\d{4}-\d\d(?:-\d\d)?|ViT-\w/\d+|arXiv [\d.]+|[A-Z]{3,} \d{4}", " ", text)
    return [found.lstrip("+−-").replace(",", "").rstrip(".") for found in NUMBER.findall(plain)]


def values_of(cell: Any) -> list[float]:
    if isinstance(cell, dict):
        return [value for part in cell.values() for value in values_of(part)]
    if isinstance(cell, list):
        return [value for part in cell for value in values_of(part)]
    if isinstance(cell, str):
        return [float(number) for number in numbers_of(cell)]
    return [] if cell is None else [float(cell)]


def occurs(number: str, values: list[float]) -> bool:
    """Whether a number is one of the values, rounded as far as it is."""
    digits = len(number.partition(".")[2])
    return any(f"{abs(value):.{digits}f}" == number for value in values)


def tables_below(heading: str) -> list[str]:
    """Names of the tables in the section of RESULTS.md to which an anchor leads."""
    for section in re.split(r"^## ", RESULTS, flags=re.MULTILINE)[1:]:
        title = section.partition("\n")[0]
        if re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") == heading:
            return re.findall(r"<!-- table: ([\w-]+)", section)
    raise AssertionError(f"RESULTS.md has no section {heading}")


def test_the_tables_are_as_the_builder_writes_them() -> None:
    done = subprocess.run([sys.executable, BUILDER, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_changed_figure_makes_the_page_stale(tmp_path: Path) -> None:
    for name in ("README.md", "RESULTS.md"):
        page = (ROOT / name).read_text(encoding="utf-8")
        changed = re.sub(r"\d(?= / )", lambda digit: str((int(digit[0]) + 1) % 10), page, count=1)
        (tmp_path / name).write_text(changed, encoding="utf-8")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / BUILDER.name).write_text(BUILDER.read_text(encoding="utf-8"))
    (tmp_path / "results").symlink_to(ROOT / "results")
    done = subprocess.run(
        [sys.executable, tmp_path / "scripts" / BUILDER.name, "--check"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "RESULTS.md is stale" in done.stdout


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.stem)
def test_a_table_says_how_it_was_measured(file: Path) -> None:
    table = json.loads(file.read_text(encoding="utf-8"))
    assert re.match(r"20\d\d-\d\d-\d\d", table["date"])
    for field in ("machine", "seeds", "rows", "command"):
        assert table[field], field
    for command in table["command"]:
        assert command.startswith(("python benchmarks/", "newkinds "))
        assert not command.startswith("python ") or (ROOT / command.split()[1]).is_file()
    assert (ROOT / "results" / table["notebook"].partition("#")[0]).is_file()


def test_every_figure_of_the_readme_is_in_the_tables_to_which_it_links() -> None:
    checked = 0
    for paragraph in re.split(r"\n\s*\n|\n- ", re.sub(r"```.*?```", "", README, flags=re.DOTALL)):
        linked = re.findall(r"\]\(RESULTS\.md#([\w-]+)\)", paragraph)
        if not linked or paragraph.startswith(("|", "<!--")):
            continue
        names = [name for heading in linked for name in tables_below(heading)]
        tables = [json.loads((ROOT / "results" / "tables" / f"{name}.json").read_text("utf-8")) for name in names]
        values = [value for table in tables for row in table["rows"] for value in values_of(row)]
        values += [95.0]  # of the intervals
        missing = [number for number in numbers_of(paragraph) if not occurs(number, values)]
        assert missing == [], paragraph
        checked += len(numbers_of(paragraph))
    assert checked >= 2
