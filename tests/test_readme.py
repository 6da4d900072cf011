"""What the README promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from newkinds.encoders.backbones import weights_file

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def code_after(mark: str) -> str:
    found = re.search(re.escape(mark) + r".*?```\w*\n(.*?)```", README, re.DOTALL)
    assert found, mark
    return found.group(1)


def test_the_python_example_finds_new_categories_and_prints_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    example = code_after("<!-- example: python -->")
    assert len([line for line in example.splitlines() if line and not line.startswith("#")]) <= 8
    exec(compile(example, "README.md", "exec"), {})
    assert (tmp_path / "runs" / "example" / "report.html").is_file()
    *categories, accuracy, predicted = capsys.readouterr().out.splitlines()
    found = [line.split(maxsplit=3)[:3] for line in categories]  # "new" or "known", name, size
    assert [kind for kind, _, _ in found] == ["known"] * 4 + ["new"] * 4
    assert any(kind == "new" and int(size) > 0 for kind, _, size in found)
    assert sum(int(size) for _, _, size in found) == 8 * 12
    assert 0 < float(accuracy) <= 1
    assert predicted in [name for _, name, _ in found]


def test_the_bundled_backbone_is_complete_and_small() -> None:
    weights = weights_file("tiny")
    assert weights.stat().st_size <= 6_000_000
    card = weights.with_name("tiny.md").read_text(encoding="utf-8")
    done, planned = re.search(r"([\d,]+) of ([\d,]+) steps", card).groups()  # type: ignore[union-attr]
    assert done == planned


def test_no_placeholder_is_left() -> None:
    assert "RESULTS_HERE" not in README
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / picture).is_file()
