"""Undoing one edit of several: exactly that one, or a sentence that says which later edit builds on it."""

import random
from pathlib import Path

import pytest

from discovered import discovered
from newkinds import Discovery, NewkindsError
from newkinds.discovery.categories import Discovery as _Discovery


@pytest.fixture
def found(tmp_path: Path) -> Discovery:
    return Discovery.read(discovered(tmp_path / "run"))


def shown(found: _Discovery) -> tuple:
    names = {category.id: category.name for category in found.categories}
    return names, {m.path: (m.category_id, m.status) for m in found.members}


def test_the_edit_that_is_named_is_undone_and_no_other(found: Discovery) -> None:
    found.rename("new-1", "one")
    found.rename("new-2", "two")
    found.junk(["new-3-0.jpg"])
    assert found.undo(1) == "undo: renamed 'new-1' to 'one'"
    assert [c.name for c in found.categories][2:4] == ["new-1", "two"]
    assert found.members[24].status == "junk" or any(m.status == "junk" for m in found.members)
    assert [(edit["n"], in_force) for edit, in_force in found.log()] == [(1, False), (2, True), (3, True), (4, True)]
    assert found.redo() == "redo: renamed 'new-1' to 'one'"
    assert [c.name for c in found.categories][2:4] == ["one", "two"]
    with pytest.raises(NewkindsError, match="edit 9 is not in force"):
        found.undo(9)
    assert shown(Discovery.read(found.run)) == shown(found)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda f: f.move(["new-1-0.jpg"], "made", new=True), lambda f: f.move(["new-2-0.jpg"], "made")),
        (lambda f: f.move(["new-1-0.jpg"], "made", new=True), lambda f: f.rename("made", "called")),
        (lambda f: f.split("new-1"), lambda f: f.rename("new-1-2", "called")),
        (lambda f: f.rename("new-1", "one"), lambda f: f.rename("one", "two")),
        (lambda f: f.merge(["new-1", "new-2"]), lambda f: f.accept(category="new-1")),
        (lambda f: f.merge(["new-1", "new-2"]), lambda f: f.accept(["new-2-3.jpg"])),
        (lambda f: f.merge(["new-1", "new-2"]), lambda f: f.split("new-1")),
        (lambda f: f.junk(["new-1-0.jpg"]), lambda f: f.move(["new-1-0.jpg"], "cat")),
    ],
)
def test_an_edit_that_another_builds_on_is_not_undone_alone(found: Discovery, first, second) -> None:
    first(found)
    second(found)
    before = shown(found)
    with pytest.raises(NewkindsError, match=r"edit 1 \(.*\) cannot be undone alone: edit 2 \(.*\) builds on it"):
        found.undo(1)
    assert shown(found) == before
    found.undo(2)
    found.undo(1)
    assert not found.corrections().in_force


@pytest.mark.parametrize("seed", range(6))
def test_what_is_left_is_what_the_other_edits_make_without_it(tmp_path: Path, seed: int) -> None:
    """Any edit that may be undone, against a run in which it was never made. Ids of what was made differ."""
    chance = random.Random(seed)
    edits = []
    for step in range(12):
        category = chance.randint(0, 5)
        image, to = f"new-{chance.randint(1, 4)}-{chance.randint(0, 5)}.jpg", chance.choice(["cat", "dog"])
        edits.append(
            chance.choice(
                [
                    lambda f, i=image, t=to: f.move([i], t),
                    lambda f, i=image: f.junk([i]),
                    lambda f, i=image: f.accept([i]),
                    lambda f, c=category, s=step: f.rename(c, f"kind {s}"),
                    lambda f: f.merge([4, 5], into=4),
                ]
            )
        )
    found = Discovery.read(discovered(tmp_path / "run"))
    made = []
    for edit in edits:
        try:
            edit(found)
            made.append(edit)
        except NewkindsError:
            pass  # it did not fit
    undone = 0
    for number in range(1, len(made) + 1):
        try:
            found.undo(number)
        except NewkindsError:
            continue
        undone += 1
        other = Discovery.read(discovered(tmp_path / f"without-{number}"))
        for place, edit in enumerate(made, start=1):
            if place != number:
                edit(other)
        assert shown(other) == shown(found)
        found.redo()
    assert undone


def test_an_earlier_name_leads_to_what_the_category_is_called_now(found: Discovery) -> None:
    found.rename("new-1", "shiba inu")
    found.merge(["new-2", "new-3"], into="new-2")
    found.junk(category="new-4")
    for name, said in (
        ("new-1", "'new-1' is called 'shiba inu' now"),
        ("new-3", "'new-3' is part of 'new-2' now"),
        ("new-4", "'new-4' is junk"),
    ):
        with pytest.raises(NewkindsError, match=said) as refusal:
            found.rename(name, "x")
        assert "Did you mean" not in str(refusal.value)
