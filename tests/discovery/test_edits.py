"""Corrections by hand: against a naive model of them, through crashes, races and damage."""

import copy
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from discovered import discovered
from newkinds import Discovery, NewkindsError
from newkinds.discovery.edits import JUNK, EditConflict

LOG, COUNT = "edits.jsonl", "edits.count"
KINDS = ("rename", "merge", "split", "move", "move new", "junk", "junk all", "accept", "undo", "redo")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return discovered(tmp_path / "run")


class Naive:
    """The same edits on plain dictionaries, with a copy of everything for each undo."""

    def __init__(self, found: Discovery) -> None:
        self.state = (
            {category.id: category.name for category in found.categories},
            {member.path: member.category_id for member in found.members},
            dict[str, str](),
        )
        self.past, self.future = [], []
        self.next_id = len(found.categories)

    def begin(self):
        """The state, to be changed by one edit."""
        self.past.append(copy.deepcopy(self.state))
        self.future = []
        return self.state

    def undo(self) -> None:
        self.future.append(self.state)
        self.state = self.past.pop()

    def redo(self) -> None:
        self.past.append(self.state)
        self.state = self.future.pop()


def shown(found: Discovery):
    names = {category.id: category.name for category in found.categories}
    place = {member.path: member.category_id for member in found.members}
    return names, place, {member.path: member.status for member in found.members if member.status}


@pytest.mark.parametrize("seed", range(8))
def test_any_sequence_of_edits_is_what_a_naive_model_gives(run: Path, seed: int) -> None:
    found, chance = Discovery.read(run), random.Random(seed)
    naive = Naive(found)
    for step in range(40):
        names, place, _ = naive.state
        category, other = chance.sample(sorted(names), 2)
        images = chance.sample(sorted(place), chance.randint(1, 4))
        inside = [path for path, c in place.items() if c == category]
        kind = chance.choice(KINDS)
        if kind == "rename":
            found.rename(names[category], f"kind {step}")
            naive.begin()[0][category] = f"kind {step}"
        elif kind == "merge" and len(names) > 2:
            found.merge([category, other], into=other)
            names, place, status = naive.begin()
            del names[category]
            place.update(dict.fromkeys(inside, other))
        elif kind == "split" and len(inside) >= 4:
            parts = found.parts(category, 2)
            found.split(category, parts=parts)
            names, place, status = naive.begin()
            made, naive.next_id = naive.next_id, naive.next_id + 1
            free = (name for i in range(2, 99) if (name := f"{names[category]}-{i}") not in names.values())
            names[made] = next(free)
            for path in parts[1]:
                place[path] = made
                status.pop(path, None)
        elif kind in ("move", "move new"):
            to = category
            if kind == "move new":
                found.move(images, f"made {step}", new=True)
                to, naive.next_id = naive.next_id, naive.next_id + 1
            else:
                found.move(images, names[category])
            names, place, status = naive.begin()
            names.setdefault(to, f"made {step}")
            place.update(dict.fromkeys(images, to))
            status.update(dict.fromkeys(images, "moved"))
        elif kind == "junk":
            found.junk(images)
            names, place, status = naive.begin()
            place.update(dict.fromkeys(images, JUNK))
            status.update(dict.fromkeys(images, "junk"))
        elif kind == "junk all" and len(names) > 3:
            found.junk(category=category)
            names, place, status = naive.begin()
            del names[category]
            place.update(dict.fromkeys(inside, JUNK))
            status.update(dict.fromkeys(inside, "junk"))
        elif kind == "accept" and inside:
            found.accept(category=category)
            naive.begin()[2].update(dict.fromkeys(inside, "accepted"))
        elif kind == "undo" and naive.past:
            found.undo()
            naive.undo()
        elif kind == "redo" and naive.future:
            found.redo()
            naive.redo()
        assert shown(found) == naive.state
    assert shown(Discovery.read(run)) == naive.state  # and so it is read back
    sizes = Counter(place for place in naive.state[1].values() if place != JUNK)
    assert {category.id: category.size for category in found.categories if category.size} == sizes


def test_what_the_model_found_stays_and_ids_never_return(run: Path) -> None:
    before = (run / "assignments.csv").read_bytes()
    found = Discovery.read(run)
    assert "new-1-2" in found.split("new-1")
    made = max(category.id for category in found.categories)
    found.undo()
    found.move(["new-2-0.jpg"], "fresh", new=True)
    assert found.category("fresh").id == made + 1
    assert (run / "assignments.csv").read_bytes() == before
    assert [m.category for m in found.found_members] == [m.path.split("/")[1].rpartition("-")[0] for m in found.members]


def test_a_split_finds_the_two_groups_that_a_category_is_made_of(run: Path) -> None:
    found = Discovery.read(run)
    for into in (None, 2):
        parts = found.parts("new-3", into)
        groups = [{int(path.rpartition("-")[2].removesuffix(".jpg")) % 2 for path in part} for part in parts]
        assert sorted(map(len, groups)) == [1, 1]
        assert groups[0] != groups[1]


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


def test_two_processes_make_all_their_edits_once(run: Path) -> None:
    script = (
        "import sys; from newkinds import Discovery\n"
        "found = Discovery.read(sys.argv[1])\n"
        "for i in range(25): found.rename('#' + sys.argv[2], f'{sys.argv[2]} {i}')\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", script, str(run), str(c)]) for c in range(4)]
    assert [process.wait(timeout=60) for process in started] == [0] * 4
    found = Discovery.read(run)
    assert [edit["n"] for edit, _ in found.log()] == list(range(1, 101))
    assert Counter(edit["category"] for edit, _ in found.log()) == dict.fromkeys(range(4), 25)
    assert [found.category(f"#{c}").name for c in range(4)] == [f"{c} 24" for c in range(4)]


def test_an_edit_of_what_others_have_changed_since_is_refused(run: Path) -> None:
    mine, theirs = Discovery.read(run), Discovery.read(run)
    seen = mine.revision
    theirs.move(["new-1-0.jpg"], "cat")
    mine.move(["new-1-1.jpg"], "cat", seen=seen)  # another image
    mine.rename("new-4", "four", seen=seen)  # another category
    for again in (
        lambda: mine.move(["new-1-0.jpg"], "dog", seen=seen),
        lambda: mine.junk(["new-1-0.jpg"], seen=seen),
        lambda: mine.merge(["new-2", "cat"], seen=seen),
        lambda: mine.undo(seen=seen),
        lambda: mine.rename("four", "five", seen=seen),
    ):
        with pytest.raises(EditConflict, match="since you looked"):
            again()
    assert len(mine.log()) == 3


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


def test_threads_share_a_discovery(run: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    found = Discovery.read(run)
    with ThreadPoolExecutor(6) as pool:
        made = [pool.submit(found.rename, f"#{i % 3}", f"kind {i}") for i in range(60)]
        seen = [pool.submit(lambda: len(found.members)) for _ in range(60)]
        assert all(edit.result() for edit in made)
        assert {look.result() for look in seen} == {36}
    assert [edit["n"] for edit, _ in found.log()] == list(range(1, 61))


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


@pytest.mark.parametrize("seen", [-1, 1, 999])
def test_a_revision_that_never_was_is_refused(run: Path, seen: int) -> None:
    with pytest.raises(EditConflict, match="no revision"):
        Discovery.read(run).rename("new-1", "one", seen=seen)


def test_names_in_both_places_are_told_apart(run: Path) -> None:
    Discovery.read(run).rename("new-1", "corgi")
    categories = json.loads((run / "categories.json").read_text())
    categories[3]["name"] = "corgi"
    (run / "categories.json").write_text(json.dumps(categories))
    assert [c.name for c in Discovery.read(run).categories][2:4] == ["corgi", "corgi (#3)"]


def test_the_known_classes_as_found_are_neither_new_nor_renamed(run: Path) -> None:
    found = Discovery.read(run)
    known = [category.name for category in found.known]
    found.rename(found.known[0].id, "another name")
    assert [category.name for category in Discovery.read(run).known_as_found()] == known
    assert 0 < len(known) < len(found.categories)
