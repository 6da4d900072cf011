"""What the README promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import newkinds
from newkinds import losses
from newkinds.assigners.prototypes import PrototypeClassifier
from newkinds.encoders.backbones import weights_file
from newkinds.methods import METHODS, Method

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
    assert len([line for line in example.splitlines() if line and not line.startswith("#")]) <= 10
    exec(compile(example, "README.md", "exec"), {})
    assert (tmp_path / "runs" / "example" / "report.html").is_file()
    *categories, accuracy, predicted = capsys.readouterr().out.splitlines()
    found = [line.split(maxsplit=3)[:3] for line in categories]  # "new" or "known", name, size
    assert [kind for kind, _, _ in found] == ["known"] * 3 + ["new"] * 3
    assert any(kind == "new" and int(size) > 0 for kind, _, size in found)
    assert sum(int(size) for _, _, size in found) == 6 * 12
    assert 0 < float(accuracy) <= 1
    assert predicted in [name for _, name, _ in found]


def test_the_example_method_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import dataclass

    monkeypatch.setattr(METHODS, "_entries", dict(METHODS._entries))  # registered for this test only
    scope = {
        "METHODS": METHODS, "Method": Method, "dataclass": dataclass,
        "PrototypeClassifier": PrototypeClassifier, "losses": losses,
    }  # fmt: skip
    exec(compile(code_after("## Adding a method"), "README.md", "exec"), scope)
    settings = {"data": {"categories": 4, "per_category": 6}, "train": {"epochs": 1, "batch_size": 12}}
    found = newkinds.discover("creatures", tmp_path / "run", method="mine", organizer="cpf", settings=settings)
    assert len(found.members) == 24


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
