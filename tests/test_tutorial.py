"""The tutorial, followed word by word."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import newkinds

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"
Cli = Callable[..., tuple[int, str, str]]


def steps() -> list[tuple[str, str]]:
    """The blocks of the page that are to be run: ("sh", commands) or ("python", code)."""
    return re.findall(r"<!-- run: (\w+) -->\n```\w+\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_whoever_follows_the_tutorial_gets_what_it_says(
    run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said: dict[str, str] = {}
    for kind, block in steps():
        if kind == "python":
            exec(compile(block, PAGE.name, "exec"), {})
            continue
        for line in block.splitlines():
            program, *arguments = shlex.split(line, comments=True)
            assert program == "newkinds"
            status, out, err = run_cli(*arguments)
            assert status == 0, f"{line}\n{out}\n{err}"
            said[arguments[0]] = out
    found = newkinds.Discovery.read("runs/photos")
    named = {category.name: category for category in found.categories}
    assert {"new-2", "new-3", "new-3-2"} <= named.keys(), "the merge was undone, the split was not"
    members = {member.path: member for member in found.members}
    assert members["unlabeled/creature-00005.png"].category == "striped runner"
    assert members["unlabeled/creature-00009.png"].status == "junk"
    striped = [member for member in found.members if member.category == "striped runner"]
    assert len(striped) == named["striped runner"].size > 1
    assert {member.status for member in striped} <= {"accepted", "moved"}
    assert said["log"].count("(undone)") == 1
    assert said["predict"].count("\n") == 2
    exported = {image.name for image in (tmp_path / "sorted" / "striped runner").iterdir()}
    assert {Path(member.path).name for member in striped} <= exported, "what was decided stays when a run is refined"
    assert "creature-00009.png" not in {file.name for file in (tmp_path / "sorted").rglob("*.png")}, "it is junk"
    assert "striped runner" in (tmp_path / "runs" / "photos" / "report.html").read_text(encoding="utf-8")
