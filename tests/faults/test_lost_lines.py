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
            with pytest.raises(newkinds.NewkindsError, match=f"the last {EDITS - left} are missing"):
                newkinds.Discovery.read(edited).log()
    log.write_bytes(content)
    assert len(newkinds.Discovery.read(edited).log()) == EDITS
    assert said() == ""
    count_cases("logs of edits cut between two lines", 2 * len(cuts))


def test_no_edit_takes_the_place_of_one_that_is_missing(edited: Path, said: Said) -> None:
    log = edited / "edits.jsonl"
    log.write_bytes(b"\n".join(log.read_bytes().split(b"\n")[:-2]))
    with pytest.raises(newkinds.NewkindsError, match=f"but {EDITS} edits were made"):
        newkinds.Discovery.read(edited).rename(0, "again")
    (edited / "edits.count").unlink()  # as it is told
    newkinds.Discovery.read(edited).rename(0, "again")
    assert newkinds.Discovery.read(edited).category(0).name == "again"
    assert said() == ""


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
