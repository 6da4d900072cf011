"""Corrections by hand: against a naive model of them, and through races."""

import copy
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from discovered import discovered, shown
from newkinds import Discovery
from newkinds.discovery.edits import JUNK, EditConflict

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


def test_threads_share_a_discovery(run: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    found = Discovery.read(run)
    with ThreadPoolExecutor(6) as pool:
        made = [pool.submit(found.rename, f"#{i % 3}", f"kind {i}") for i in range(60)]
        seen = [pool.submit(lambda: len(found.members)) for _ in range(60)]
        assert all(edit.result() for edit in made)
        assert {look.result() for look in seen} == {36}
    assert [edit["n"] for edit, _ in found.log()] == list(range(1, 61))


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
