"""Ids of categories are not their places in a list, and images may be in no category yet."""

import json
from pathlib import Path

import numpy as np
import pytest

from discovered import discovered
from newkinds import Discovery
from newkinds.discovery.card import _limits
from newkinds.discovery.carry import carry_over
from newkinds.discovery.edits import POOL, POOL_NAME
from newkinds.discovery.export.tables import assignments_text
from newkinds.discovery.report.edit_history import positions, present_labels
from newkinds.discovery.studio.space import Space
from newkinds.discovery.summary import discovery_text
from newkinds.errors import NewkindsError
from newkinds.runs.directory import RunDirectory


def grown(folder: Path) -> Path:
    """A run of cat (id 0), dog (9) and new-1 … new-4 (2, 3, 12, 5): the last known one came later, and new-3 later
    still; two images are not placed yet."""
    run = RunDirectory(discovered(folder))
    number = {1: 9, 4: 12}
    categories = run.read_json("categories.json")
    for entry in categories:
        entry["id"] = number.get(entry["id"], entry["id"])
    run.write_json("categories.json", categories)
    columns, rows = run.read_rows("assignments.csv")
    place = {name: column for column, name in enumerate(columns)}
    for row in rows:
        row[place["category_id"]] = str(number.get(int(row[place["category_id"]]), row[place["category_id"]]))
    for row in rows[-2:]:
        row[place["category_id"]], row[place["category"]], row[place["unlike"]] = str(POOL), POOL_NAME, "1.500"
        row[place["model_category_id"]], row[place["model_confidence"]], row[place["since"]] = "12", "0.2000", "3"
    run.write_table("assignments.csv", tuple(columns), [tuple(row) for row in rows])
    return folder


def test_categories_are_called_by_their_ids_wherever_they_stand(tmp_path: Path) -> None:
    found = Discovery.read(grown(tmp_path / "run"))
    assert [(c.id, c.name, c.is_new) for c in found.categories] == [
        (0, "cat", False), (9, "dog", False), (2, "new-1", True), (3, "new-2", True), (5, "new-4", True),
        (12, "new-3", True),
    ]  # fmt: skip
    assert {m.category_id for m in found.members if m.category == "dog"} == {9}
    assert found.category("#12").name == "new-3"
    found.rename(12, "owl")
    assert found.merge(["owl", "dog"]) == "merged 'owl' into 'dog'"  # the known one stays
    found.move([found.pool[0].path], "heron", new=True)
    assert found.category("heron").id == 13  # never one that there was
    assert found.class_ids(["cat", "dog"]) == {"cat": 0, "dog": 9}
    labels = present_labels(found, ["cat", "dog"])
    assert {label for label, m in zip(labels, found.members, strict=True) if m.given_label == "dog"} == {9}


def test_what_is_not_placed_yet_is_in_no_category(tmp_path: Path) -> None:
    found = Discovery.read(grown(tmp_path / "run"))
    one, two = found.pool
    assert (one.category_id, one.category, one.since, one.status) == (POOL, POOL_NAME, 3, "")
    assert not one.is_unlike  # it is in no category that it could be unlike
    assert sum(c.size for c in found.categories) == len(found.members) - 2
    with pytest.raises(NewkindsError, match="not placed yet, so there is nothing to accept: move it"):
        found.accept([one.path])
    with pytest.raises(NewkindsError, match="in no category: choose another name"):
        found.rename("new-1", POOL_NAME)
    found.move([one.path], "new-1")
    found.junk([two.path])
    assert not found.pool
    found.undo()
    found.undo()
    assert [m.path for m in Discovery.read(found.run).pool] == [one.path, two.path]
    assert assignments_text(found).splitlines()[-1].endswith("1.500,12,0.2000,3,")
    places = positions(found.categories, found.members)
    assert places[-2:] == [POOL, POOL]
    assert found.categories[places[-3]].id == found.members[-3].category_id


def test_images_that_wait_are_named_with_the_next_command(tmp_path: Path) -> None:
    run = grown(tmp_path / "run")
    found = Discovery.read(run)
    text = discovery_text(found)
    assert (
        f"2 images wait to be placed: like no category, and too few are alike to open one: {found.pool[0].path}" in text
    )
    assert f"newkinds next {run} --only pool asks where they belong" in text
    record = RunDirectory(run)
    card = "\n".join(_limits(record, found))
    assert "Every image gets one of these categories" not in card
    assert "2 images of this run wait to be placed" in card
    assert "Every image gets one of these categories" in "\n".join(
        _limits(record, Discovery.read(discovered(tmp_path / "b")))
    )


def test_a_table_of_an_earlier_version_has_no_updates(tmp_path: Path) -> None:
    run = RunDirectory(discovered(tmp_path / "run"))
    columns, rows = run.read_rows("assignments.csv")
    run.write_table("assignments.csv", tuple(columns[:-1]), [tuple(row[:-1]) for row in rows])
    categories = [
        {name: value for name, value in entry.items() if name != "id"} for entry in run.read_json("categories.json")
    ]
    run.write_json("categories.json", categories)
    found = Discovery.read(run.folder)
    assert [c.id for c in found.categories] == list(range(6))
    assert {m.since for m in found.members} == {0}


@pytest.mark.parametrize(
    ("ids", "said"), [([0, 1, 2, 3, 4, 4], "the same id"), ([0, 1, 2, 3, 4, "5"], "not a list of")]
)
def test_ids_that_are_none_are_refused(ids: list[object], said: str, tmp_path: Path) -> None:
    run = RunDirectory(discovered(tmp_path / "run"))
    categories = run.read_json("categories.json")
    for entry, number in zip(categories, ids, strict=True):
        entry["id"] = number
    run.path("categories.json").write_text(json.dumps(categories))
    with pytest.raises(NewkindsError, match=said):
        Discovery.read(run.folder)


def test_decisions_are_carried_from_and_to_such_a_run(tmp_path: Path) -> None:
    before, after = Discovery.read(grown(tmp_path / "a")), Discovery.read(grown(tmp_path / "b"))
    before.rename(12, "owl")
    before.move([before.pool[0].path], "dog")
    before.accept([before.members[0].path])
    assert carry_over(before, after) == []
    assert [(m.category, m.status) for m in after.members] == [(m.category, m.status) for m in before.members]
    plain = Discovery.read(discovered(tmp_path / "c"))  # all are placed there
    assert carry_over(before, plain) == []
    assert plain.members[-2].category == "dog"
    assert plain.members[-1].category == "new-4"


def test_the_map_of_the_studio_has_a_place_for_all(tmp_path: Path) -> None:
    found = Discovery.read(grown(tmp_path / "run"))
    of = np.array([member.category_id for member in found.members])
    space = Space(RunDirectory(found.run), of, [0, 9])
    assert space.places().shape == (len(of), 2)
    assert POOL not in {number for number, _ in space.nearest(0, of, 20)}
    spread = space.spread(of)
    assert np.isfinite(spread[[0, 2, 3, 5, 9, 12]]).all()
    assert np.isnan(spread[[1, 4, 6]]).all()
