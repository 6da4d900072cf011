"""A log of edits that lost whole lines at its end: that is said, and nothing else ever makes it be said."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import newkinds
from newkinds.discovery import editlog

EDITS = 6
Said = Callable[[], str]
Count = Callable[[str, int], None]


@pytest.fixture
def edited(table_run: Path) -> Path:
    for number in range(EDITS):
        newkinds.Discovery.read(table_run).rename(0, f"name {number}")
    return table_run


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Said:
    """What has been said since, in one line."""
    return lambda: " ".join(capfd.readouterr().err.split())


def test_a_cut_between_any_two_lines_is_named(edited: Path, said: Said, count_cases: Count) -> None:
    log = edited / "edits.jsonl"
    content = log.read_bytes()
    cuts = [place for place in range(len(content)) if content[place : place + 1] == b"\n"]
    assert len(cuts) == EDITS + 1  # a line break comes first
    for kept, place in enumerate(cuts):
        for cut in (place, place + 1):
            log.write_bytes(content[:cut])
            left = max(kept - 1, 0)
            assert len(newkinds.Discovery.read(edited).log()) == left
            assert f"ends after edit {left}, but {EDITS} were made: the last {EDITS - left} are missing" in said()
    log.write_bytes(content)
    assert len(newkinds.Discovery.read(edited).log()) == EDITS
    assert said() == ""
    count_cases("logs of edits cut between two lines", 2 * len(cuts))


def test_the_next_edit_ends_it(edited: Path, said: Said) -> None:
    log = edited / "edits.jsonl"
    log.write_bytes(b"\n".join(log.read_bytes().split(b"\n")[:-2]))
    newkinds.Discovery.read(edited).rename(0, "again")
    assert f"but {EDITS} were made" in said()
    assert newkinds.Discovery.read(edited).category(0).name == "again"
    assert said() == ""


def test_a_log_that_was_taken_away_is_begun_anew(edited: Path, said: Said) -> None:
    """As we tell people to do if the categories were found again."""
    (edited / "edits.jsonl").rename(edited / "edits-earlier.jsonl")
    assert newkinds.Discovery.read(edited).log() == []
    newkinds.Discovery.read(edited).rename(0, "anew")
    assert [edit["name"] for edit, _ in newkinds.Discovery.read(edited).log()] == ["anew"]
    assert said() == ""
    log = (edited / "edits.jsonl").read_bytes()
    (edited / "edits.jsonl").write_bytes(log[: log.rindex(b"\n")])
    assert newkinds.Discovery.read(edited).log() == []
    assert "ends after edit 0, but 1 were made" in said()


def test_other_categories_have_other_edits(edited: Path, said: Said) -> None:
    other = editlog.EditLog(edited / "edits.jsonl", "another assignment")
    assert other.edits() == []
    assert "belongs to categories that the run no longer has" in said()


@pytest.mark.parametrize("damage", ["missing", "empty", "damaged", "behind", "longer", "folder", "link"])
def test_a_count_that_says_nothing(damage: str, edited: Path, tmp_path: Path, said: Said) -> None:
    count = edited / "edits.count"
    content = count.read_bytes()
    early = Path(shutil.copy(count, tmp_path / "early"))
    newkinds.Discovery.read(edited).rename(0, "one more")
    made = {
        "empty": b"", "damaged": content.replace(b" 6 ", b"99 "), "behind": content, "longer": content + b"\xff" * 300,
    }.get(damage)  # fmt: skip
    count.unlink()
    if made is not None:
        count.write_bytes(made)
    elif damage == "folder":
        count.mkdir()
    elif damage == "link":
        count.symlink_to(early)
    newkinds.Discovery.read(edited).rename(0, "and another")
    assert len(newkinds.Discovery.read(edited).log()) == EDITS + 2
    assert said() == ""
    assert early.read_bytes() == content, "nothing is written through a link"


def test_a_folder_that_may_only_be_read(edited: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the count cannot be written, an edit is made all the same."""
    opened = editlog._opened

    def refusing(file: Path, how: int) -> int:
        if file.name == "edits.count" and how & os.O_WRONLY:
            raise PermissionError(13, "no")
        return opened(file, how)

    monkeypatch.setattr(editlog, "_opened", refusing)
    newkinds.Discovery.read(edited).rename(0, "still")
    assert newkinds.Discovery.read(edited).category(0).name == "still"
    assert said() == ""
