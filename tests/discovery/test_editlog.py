"""The log of edits: torn, damaged, joined, crafted, of another version or of categories that are gone."""

import json
import random
from pathlib import Path

import pytest

from discovered import discovered, shown
from newkinds import Discovery, NewkindsError
from newkinds.discovery.edits import EditConflict

LOG, COUNT = "edits.jsonl", "edits.count"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return discovered(tmp_path / "run")


def test_half_a_last_line_is_an_edit_that_never_happened(run: Path) -> None:
    found = Discovery.read(run)
    found.rename("new-1", "one")
    count = (run / COUNT).read_bytes()
    found.rename("new-2", "two")
    whole = (run / LOG).read_bytes()
    start = whole.rindex(b"\n")
    (run / COUNT).write_bytes(count)  # killed before it was acknowledged
    for end in [*range(start + 2, len(whole), 9), len(whole) - 1]:
        (run / LOG).write_bytes(whole[:end])
        torn = Discovery.read(run)
        assert {c.name for c in torn.new} == {"one", "new-2", "new-3", "new-4"}, whole[start:end]
    (run / LOG).write_bytes(whole[:-1])
    torn.rename("new-2", "again")  # and the log goes on
    assert {c.name for c in Discovery.read(run).new} == {"one", "again", "new-3", "new-4"}


def test_any_flipped_bit_is_noticed(run: Path, capsys) -> None:
    found = Discovery.read(run)
    for number in range(1, 4):
        found.rename(f"new-{number}", f"kind {number}")
    whole, right = (run / LOG).read_bytes(), shown(found)
    chance = random.Random(0)
    for place in chance.sample(range(1, len(whole)), 120):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(7)
        (run / LOG).write_bytes(damaged)
        capsys.readouterr()
        try:
            seen, said = shown(Discovery.read(run)), ""
        except NewkindsError as error:
            seen, said = None, str(error)
        said += capsys.readouterr().err
        assert seen == right or LOG in said, whole[place - 10 : place + 10]
        if place < whole.rindex(b"\n"):
            assert seen in (right, None)  # never other edits than were made


def test_a_flipped_line_leaves_its_place_to_no_other(run: Path) -> None:
    """Neither to a line that lost a race for its number nor to the next edit."""
    found = Discovery.read(run)
    found.rename("new-1", "winner")
    loser = (run / LOG).read_bytes().replace(b"winner", b"losers")
    lines = (run / LOG).read_bytes().split(b"\n")
    entry = json.loads(lines[-1])
    entry["name"] = entry["says"] = "loser"
    entry.pop("check")
    from newkinds.discovery import editlog

    line = editlog._canonical(entry)
    loser = f'{line[:-1]},"check":"{editlog._check(line)}"}}'.encode()
    (run / LOG).write_bytes(b"\n".join([*lines[:-1], lines[-1].replace(b"winner", b"wanner"), loser]))
    found.rename("new-2", "follows the loser")  # a log without a successor cannot know; with one, nobody can cheat
    whole = (run / LOG).read_bytes()
    (run / LOG).write_bytes(whole.replace(b'"loser"', b'"laser"', 1))
    with pytest.raises(NewkindsError, match="edit 1 is missing or damaged"):
        Discovery.read(run).members  # noqa: B018


def test_a_log_that_is_gone_is_no_log_without_edits(run: Path) -> None:
    found = Discovery.read(run)
    found.rename("new-1", "one")
    found.rename("new-2", "two")
    (run / LOG).unlink()
    for attempt in (lambda: Discovery.read(run).log(), lambda: Discovery.read(run).rename("new-1", "again")):
        with pytest.raises(NewkindsError, match="gone or empty, but 2 edits were made") as refusal:
            attempt()
        assert "delete edits.count" in str(refusal.value)
    (run / COUNT).unlink()
    assert Discovery.read(run).log() == []


def test_two_logs_joined_by_hand_are_refused_and_nobodys_edits_are_left_out(run: Path, tmp_path: Path) -> None:
    import shutil

    other = Path(shutil.copytree(run, tmp_path / "other"))
    Discovery.read(run).rename("new-1", "mine")
    Discovery.read(other).rename("new-2", "theirs")
    theirs = (other / LOG).read_bytes()
    whole = (run / LOG).read_bytes()
    for joined in (whole + theirs, whole + theirs[theirs.rindex(b"\n") :], whole + whole):
        (run / LOG).write_bytes(joined)
        with pytest.raises(NewkindsError, match="joined by hand"):
            Discovery.read(run).members  # noqa: B018
    Discovery.read(other).rename("new-3", "second")
    theirs = (other / LOG).read_bytes()
    (run / LOG).write_bytes(whole + theirs[theirs.rindex(b"\n") :])  # the numbers fit
    with pytest.raises(NewkindsError, match="edit 2 does not follow edit 1"):
        Discovery.read(run).members  # noqa: B018


def test_a_log_of_a_newer_version_is_neither_misread_nor_written_to(run: Path) -> None:
    Discovery.read(run).rename("new-1", "one")
    text = (run / LOG).read_text()
    header = json.loads(text.strip().splitlines()[0])
    from newkinds.discovery import editlog

    header.pop("check")
    line = editlog._canonical({**header, "edits": 3})
    newer = f'{line[:-1]},"check":"{editlog._check(line)}"}}' + text[text.index("\n", 1) :]
    (run / LOG).write_text(newer)
    for attempt in (lambda: Discovery.read(run).members, lambda: Discovery.read(run).rename("new-2", "two")):
        with pytest.raises(NewkindsError, match="another version of newkinds"):
            attempt()
    assert (run / LOG).read_text() == newer


def test_edits_of_categories_that_were_found_anew_are_kept_aside(run: Path, capsys) -> None:
    Discovery.read(run).rename("new-1", "one")
    kept = (run / LOG).read_bytes()
    discovered(run, per_category=7)  # the same folder, other categories
    (aside,) = run.glob("edits-of-*.jsonl")
    assert aside.read_bytes() == kept
    assert not (run / LOG).exists()
    assert "edits-of-" in capsys.readouterr().err
    Discovery.read(run).rename("new-1", "two")
    discovered(run)  # what it found at first, and its edits are found again
    assert Discovery.read(run).category("one").id == 2
    (run / LOG).write_bytes(next(run.glob("edits-of-*.jsonl")).read_bytes())  # put there by hand
    found = Discovery.read(run)
    assert "one" not in {category.name for category in found.categories}
    assert "no longer has" in capsys.readouterr().err
    with pytest.raises(NewkindsError, match="rename it"):
        found.rename("new-1", "two")


def test_edits_are_there_until_another_assignment_has_taken_the_place_of_theirs(run: Path) -> None:
    """A later assignment has its log before its tables: killed in between, the earlier one counts with its edits."""
    before = Discovery.read(run)
    before.rename("new-1", "one")
    moved = [m._replace(category_id=3, category="new-2") if m.category == "new-1" else m for m in before.found_members]
    after = Discovery(run, before.found_categories, moved, [])
    after.set_edits_aside()
    after.rename("new-2", "joined")
    assert Discovery.read(run).category("one").size == 6
    Discovery.read(run).rename("one", "still edited")
    after.write()
    assert Discovery.read(run).category("joined").size == 12
    assert len(list(run.glob("edits-of-*.jsonl"))) == 1


def test_a_missing_edit_in_the_middle_is_named(run: Path) -> None:
    found = Discovery.read(run)
    for number in range(1, 5):
        found.rename(f"new-{number}", f"kind {number}")
    lines = (run / LOG).read_text().split("\n")
    (run / LOG).write_text("\n".join(lines[:3] + lines[4:]))
    with pytest.raises(NewkindsError, match="edit 2 is missing"):
        Discovery.read(run).members  # noqa: B018


def crafted(run: Path, *changes: dict) -> Path:
    """Add lines to the log that no edit would write, with checksums that are right."""
    from newkinds.discovery.editlog import _canonical, _check

    Discovery.read(run).rename("new-1", "one")
    for number, change in enumerate(changes, start=2):
        before = json.loads((run / LOG).read_text().rpartition("\n")[2])["check"]
        line = _canonical({"n": number, "after": before, **change})
        with open(run / LOG, "a") as log:
            log.write(f'\n{line[:-1]},"check":"{_check(line)}"}}')
    return run


@pytest.mark.parametrize(
    "changes",
    [
        [{"edit": "merge", "into": 2, "categories": [2]}],
        [{"edit": "merge", "into": 3, "categories": [2]}, {"edit": "move", "images": [], "to": 2, "name": "back"}],
        [{"edit": "split", "category": 2, "parts": [{"id": 2, "name": "a", "images": []}, {"id": "x"}]}],
        [{"edit": "split", "category": 2, "parts": [{"id": 3, "name": "taken", "images": []}]}],
        [{"edit": "rename", "category": 2, "name": 5}],
        [{"edit": "rename", "category": 2, "name": "a\x1b[31mb"}],
        [{"edit": "rename", "category": 2, "name": "#3"}],
        [{"edit": "move", "images": [], "to": -1, "name": "minus"}],
        [{"edit": "undo"}, {"edit": "nonsense"}],
        [{"edit": "__init__"}],
    ],
)
def test_a_log_from_a_stranger_is_refused_in_a_sentence(run: Path, changes: list[dict]) -> None:
    found = Discovery.read(crafted(run, *changes))
    with pytest.raises(NewkindsError):
        found.members  # noqa: B018


def test_a_log_that_is_a_link_or_a_pipe_is_not_followed(run: Path, tmp_path: Path) -> None:
    import os

    victim = tmp_path / "profile"
    victim.write_text("untouched")
    (run / LOG).symlink_to(victim)
    with pytest.raises(NewkindsError, match="link or a pipe"):
        Discovery.read(run).rename("new-1", "one")
    assert victim.read_text() == "untouched"
    (run / LOG).unlink()
    os.mkfifo(run / LOG)
    with pytest.raises(NewkindsError, match="not a file"):
        Discovery.read(run).members  # noqa: B018


def test_a_reader_of_an_earlier_assignment_starts_no_log(run: Path) -> None:
    old = Discovery.read(run)
    discovered(run, per_category=7)
    with pytest.raises(EditConflict, match="found again"):
        old.rename("new-1", "one")
    assert Discovery.read(run).rename("new-1", "one")


def test_a_copy_that_was_put_back_is_seen(run: Path) -> None:
    found = Discovery.read(run)
    found.rename("new-1", "one")
    copy_of_log = (run / LOG).read_bytes()
    found.rename("new-2", "two")
    with open(run / LOG, "r+b") as log:  # the same file, as long as before
        log.write(copy_of_log.ljust((run / LOG).stat().st_size, b"\n"))
    (run / COUNT).unlink()  # else the missing edit is missed
    assert {c.name for c in found.new} == {"one", "new-2", "new-3", "new-4"}
