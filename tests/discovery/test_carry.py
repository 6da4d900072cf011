"""Decisions belong to images: random edits, carried into other assignments, against what a naive model says of each
image, pair of images and category."""

import random
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from discovered import discovered
from newkinds import Discovery
from newkinds.discovery.carry import carry_over, match_renamed
from newkinds.discovery.edits import JUNK
from newkinds.discovery.kinds import Member, category_names, category_of

DECIDED = ("moved", "accepted")


def assignment(folder: Path, of: dict[str, int], known: list[str], k: int) -> Discovery:
    """A discovery that puts each image into a category by its number; the first ones are `known` classes."""
    names = category_names(known, k)
    members = [Member(path, None, names[c], c >= len(known), 0.5, 0.5, c) for path, c in of.items()]
    inside = [[member for member in members if member.category_id == c] for c in range(k)]
    categories = [category_of(c, names[c], c >= len(known), inside[c]) for c in range(k)]
    folder.mkdir(parents=True, exist_ok=True)
    return Discovery(folder, categories, members, [])


def edit_at_random(found: Discovery, chance: random.Random, edits: int) -> None:
    for step in range(edits):
        names = {c.id: c.name for c in found.categories}
        members = {m.path: m.category_id for m in found.members}
        category, other = chance.sample(sorted(names), 2)
        inside = sorted(path for path, c in members.items() if c == category)
        images = chance.sample(sorted(members), chance.randint(1, 4))
        kind = chance.choice(["rename", "merge", "split", "move", "move new", "junk", "junk all", "accept", "undo"])
        if kind == "rename":
            found.rename(category, f"kind {step}")
        elif kind == "merge" and len(names) > 3:
            found.merge([category, other], into=other)
        elif kind == "split" and len(inside) >= 2:
            cut = chance.randint(1, len(inside) - 1)
            chance.shuffle(inside)
            found.split(category, parts=[inside[:cut], inside[cut:]])
        elif kind == "move":
            found.move(images, category)
        elif kind == "move new":
            found.move(images, f"made {step}", new=True)
        elif kind == "junk":
            found.junk(images)
        elif kind == "junk all" and len(names) > 3:
            found.junk(category=category)
        elif kind == "accept" and inside:
            found.accept(inside[: chance.randint(1, len(inside))])
        elif kind == "undo" and found.corrections().in_force:
            found.undo()


def groups(found: Discovery) -> set[frozenset[str]]:
    made: dict[int, set[str]] = {}
    for member in found.members:
        made.setdefault(member.category_id, set()).add(member.path)
    return {frozenset(paths) for paths in made.values()}


@pytest.mark.parametrize("seed", range(20))
def test_the_same_assignment_with_other_ids_shows_the_same_in_the_end(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    before = Discovery.read(discovered(tmp_path / "run"))
    edit_at_random(before, chance, 25)
    other_id = [0, 1, *chance.sample(range(2, 6), 4)]  # known classes keep theirs
    of = {m.path: other_id[m.category_id] for m in before.found_members}
    after = assignment(tmp_path / "later", of, ["cat", "dog"], 6)
    sentences = carry_over(before, after)

    assert groups(after) == groups(before)
    was = {m.path: m for m in before.members}
    for member in after.members:
        assert (member.status in DECIDED) == (was[member.path].status in DECIDED)
        assert (member.status == "junk") == (was[member.path].status == "junk")
    given = {c.name for c in before.categories if c.size and not c.name.startswith("new-")}
    assert given <= {c.name for c in after.categories}
    assert all(" has no images" in sentence for sentence in sentences)
    name_of = {m.path: m.category for m in after.members}
    for member in before.members:  # names are where they were
        if member.category in given:
            assert name_of[member.path] == member.category
    assert carry_over(after, Discovery(after.run, after.found_categories, after.found_members, [])) == []


@pytest.mark.parametrize("seed", range(20))
def test_any_other_assignment_keeps_what_was_decided_about_each_image(tmp_path: Path, seed: int) -> None:
    chance = random.Random(1000 + seed)
    before = Discovery.read(discovered(tmp_path / "run"))
    edit_at_random(before, chance, chance.randint(3, 25))
    k = chance.randint(3, 8)
    close = chance.random() < 0.5  # to what the model had found, or by chance
    of = {}
    for member in before.found_members:
        if chance.random() < 0.1:
            continue  # the image is gone
        of[member.path] = member.category_id % k if close and chance.random() < 0.8 else chance.randrange(k)
    of.update({f"unlabeled/fresh-{i}.jpg": chance.randrange(k) for i in range(6)})
    after = assignment(tmp_path / "later", of, ["cat", "dog"], k)
    found_in = {m.path: m.category_id for m in after.members}
    sentences = carry_over(before, after)

    was = {m.path: m for m in before.members}
    now = {m.path: m for m in after.members}
    both = [path for path in was if path in now]
    state = before.corrections()
    for path in both:
        assert (now[path].status == "junk") == (was[path].status == "junk")
        assert (now[path].category_id == JUNK) == (was[path].category_id == JUNK)
        assert now[path].status in DECIDED or was[path].status not in DECIDED
    # what a person has put somewhere (by a split, too) is together and apart as it was
    put = [path for path in both if was[path].status in DECIDED or path in state.place]
    for one, other in combinations(put, 2):
        together = was[one].category_id == was[other].category_id
        assert together == (now[one].category_id == now[other].category_id), (one, other)
    # every name is where most of its images are, or it is said that it is not
    for category in before.categories:
        if any(edit["edit"] == "rename" and edit["category"] == category.id for edit in state.in_force):
            holders = Counter(now[p].category for p in both if was[p].category_id == category.id)
            is_told = any(f"'{category.name}'" in sentence for sentence in sentences)
            assert is_told or category.name in {c.name for c in after.categories}
            put_there = [p for p in put if was[p].category_id == category.id]
            assert is_told or not put_there or now[put_there[0]].category == category.name
            assert is_told or not category.is_new or max(holders, key=holders.__getitem__) == category.name
    # what lies mostly in a merged category is merged
    native = [p for p in both if p not in state.place]
    for merged in {state.now(c) for c in state.became} - {JUNK}:
        inside = set()
        for category in range(2, k):  # not a known class: that corresponds by its name
            of_it = Counter(was[p].category_id for p in native if found_in[p] == category)
            if 2 * of_it[merged] > of_it.total() and of_it.total():
                own = [p for p in native if found_in[p] == category and was[p].category_id == merged]
                inside |= {now[p].category_id for p in own if p not in put}
        assert len(inside) <= 1
    gone = [path for path, member in was.items() if member.status and path not in now]
    assert any("not there any more" in sentence for sentence in sentences) == bool(gone)


def test_names_moves_and_junk_follow_the_images_to_their_new_categories(tmp_path: Path) -> None:
    run = discovered(tmp_path / "run")
    before = Discovery.read(run)
    before.rename("new-1", "shiba inu")
    before.rename("cat", "Katze")
    before.move(["new-2-0.jpg"], "shiba inu")
    before.accept(["new-3-0.jpg"])
    before.junk(["new-4-5.jpg"])
    other_id = [0, 1, 5, 4, 3, 2]
    of = {m.path: other_id[m.category_id] for m in before.found_members}
    after = assignment(run, of, ["cat", "dog"], 6)  # in the same folder
    assert carry_over(before, after) == []
    shown = {m.path.rpartition("/")[2]: (m.category, m.status) for m in after.members}
    assert shown["new-1-3.jpg"] == ("shiba inu", "")
    assert shown["new-2-0.jpg"] == ("shiba inu", "moved")
    assert shown["new-3-0.jpg"] == ("new-2", "accepted")
    assert shown["new-4-5.jpg"][1] == "junk"
    assert shown["cat-0.jpg"][0] == "Katze"
    assert after.category("shiba inu").id == 5


def test_names_in_categories_json_are_decisions_too(tmp_path: Path) -> None:
    run = discovered(tmp_path / "run")
    file = run / "categories.json"
    file.write_text(file.read_text().replace('"new-3"', '"akita"').replace('"dog"', '"Hund"'))
    before = Discovery.read(run)
    other_id = [0, 1, 3, 2, 5, 4]
    after = assignment(
        tmp_path / "later", {m.path: other_id[m.category_id] for m in before.found_members}, ["cat", "dog"], 6
    )
    assert carry_over(before, after) == []
    assert [c.name for c in after.categories] == ["cat", "Hund", "new-1", "new-2", "new-3", "akita"]


def test_parts_that_were_joined_are_split_again_and_new_images_join_the_nearest(tmp_path: Path) -> None:
    before = Discovery.read(discovered(tmp_path / "run"))
    even = [f"unlabeled/new-3-{i}.jpg" for i in (0, 2, 4)]
    odd = [f"unlabeled/new-3-{i}.jpg" for i in (1, 3, 5)]
    before.split("new-3", parts=[even, odd])
    before.rename("new-3-2", "odd ones")
    of = {m.path: m.category_id for m in before.found_members}
    of.update({"unlabeled/fresh-0.jpg": 4, "unlabeled/fresh-1.jpg": 4})
    after = assignment(tmp_path / "later", of, ["cat", "dog"], 6)
    is_odd = [m.path in odd or m.path.endswith("fresh-1.jpg") for m in after.members]
    rows = np.array([[0.0, 1.0] if odd_one else [1.0, 0.0] for odd_one in is_odd], np.float32)
    assert carry_over(before, after, embedding=lambda: rows) == []
    shown = {m.path: m.category for m in after.members}
    assert {shown[path] for path in odd} == {"odd ones"} == {shown["unlabeled/fresh-1.jpg"]}
    assert {shown[path] for path in even} == {"new-3"} == {shown["unlabeled/fresh-0.jpg"]}


def test_what_cannot_be_carried_is_said_with_its_name_and_why(tmp_path: Path) -> None:
    before = Discovery.read(discovered(tmp_path / "run"))
    before.rename("new-1", "scattered")
    before.rename("new-2", "swallowed")
    before.rename("new-3", "labelled since")
    before.accept(["new-4-0.jpg"])
    places = {"new-1": [2, 3, 4], "new-2": [0], "new-3": [5], "new-4": [2]}
    of = {}
    for place, m in enumerate(before.found_members):
        choices = places.get(m.category, [m.category_id])
        of[m.path] = choices[place % len(choices)]
    del of["unlabeled/new-4-0.jpg"]
    after = assignment(tmp_path / "later", of, ["cat", "dog"], 6)
    after = Discovery(
        after.run, [c._replace(is_new=c.is_new and c.id != 5, name="wolf" if c.id == 5 else c.name)
                    for c in after.found_categories], after.found_members, [],
    )  # fmt: skip
    said = "\n".join(carry_over(before, after))
    assert "the name 'scattered' is not carried over: its 6 images lie in several categories now" in said
    assert "the name 'swallowed' is not carried over: its 6 images lie in several categories now, or among more" in said
    assert "the name 'labelled since' is not carried over: its images are in the known class 'wolf' now." in said
    assert "what was decided about 1 image is not carried over: not there any more (unlabeled/new-4-0.jpg)." in said


def test_a_category_that_is_junk_as_a_whole_is_found_again_as_junk(tmp_path: Path) -> None:
    before = Discovery.read(discovered(tmp_path / "run"))
    before.junk(category="new-4")
    of = {m.path: m.category_id for m in before.found_members} | {"unlabeled/fresh.jpg": 5}
    after = assignment(tmp_path / "later", of, ["cat", "dog"], 6)
    (sentence,) = carry_over(before, after)
    assert sentence.startswith("1 image that nobody has seen yet became junk with 'new-4'")
    assert "new-4" not in {c.name for c in after.categories}


def test_images_with_another_name_are_found_by_their_content(tmp_path: Path) -> None:
    before = {"a": "1", "b": "2", "c": "3", "copy": "3", "d": "4"}
    after = {"a": "9", "x/b": "2", "x/c": "3", "d": "4", "fresh": "5"}
    assert match_renamed(before, after) == {"x/b": "b"}
    found = Discovery.read(discovered(tmp_path / "run"))
    found.junk(["new-4-5.jpg"])
    of = {m.path.replace("unlabeled/new-4-5", "blurred"): m.category_id for m in found.found_members}
    later = assignment(tmp_path / "later", of, ["cat", "dog"], 6)
    assert carry_over(found, later, was={"blurred.jpg": "unlabeled/new-4-5.jpg"}) == []
    assert [m.path for m in later.members if m.status == "junk"] == ["blurred.jpg"]


def test_what_was_merged_into_a_known_class_stays_in_it_by_image(tmp_path: Path) -> None:
    before = Discovery.read(discovered(tmp_path / "run"))
    merged = [member.path for member in before.members if member.category == "new-1"]
    before.merge(["new-1", "cat"])
    assert before.category("cat").size > len(merged) > 2
    scattered = {m.path: m.category_id for m in before.found_members}
    scattered |= {path: 1 + place % 4 for place, path in enumerate(merged)}  # among dogs and new categories
    after = assignment(tmp_path / "later", scattered, ["cat", "dog"], 6)
    assert carry_over(before, after) == []
    category = {member.path: member.category for member in after.members}
    assert {category[path] for path in merged} == {"cat"}
