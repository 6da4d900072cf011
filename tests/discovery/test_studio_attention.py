"""What deserves a look in the studio: what came last, what has no place yet, what to ask next, second-best ones."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from newkinds.discovery.categories import Discovery
from newkinds.discovery.edits import JUNK, POOL
from newkinds.discovery.questions import next_questions
from newkinds.discovery.split import EMBEDDING, read_embedding
from newkinds.runs.directory import RunDirectory
from windows import Studio, Window, with_update


@pytest.fixture
def window(creatures: Path) -> Window:
    window = Window(Studio(with_update(creatures)))
    window.studio.prepare()
    window.look()
    return window


def found(window: Window) -> Discovery:
    return Discovery.read(window.studio.run.folder)


def test_without_an_update_nothing_is_new(creatures: Path) -> None:
    window = Window(Studio(creatures))
    assert (window.state["fresh"], window.state["pool"], window.state["update"]) == (0, 0, None)
    assert window.ask("/api/new") == {"revision": 0, "groups": [], "total": 0}


def test_what_came_last_is_shown_by_category(window: Window) -> None:
    came = {row: member for row, member in enumerate(found(window).members) if member.since == 1}
    sizes = Counter(member.category_id for member in came.values())
    groups = window.ask("/api/new")["groups"]
    assert {group["id"]: len(group["images"]) for group in groups} == sizes
    assert [group["id"] for group in groups[:2]] == [15, POOL], "what was opened comes first, then what has no place"
    assert [len(group["images"]) for group in groups[2:]] == sorted((sizes[g["id"]] for g in groups[2:]), reverse=True)
    sure = [image["sure"] for image in groups[2]["images"]]
    assert sure == sorted(sure), "least certain first"
    update = window.state["update"]
    assert (update["came"], update["opened"], update["copies"]) == (len(came), [15], 1)
    assert window.state["fresh"] == len(came)
    row = next(row for row, member in came.items() if member.category_id >= 0)
    window.edit(edit="accept", rows=[row])
    assert window.state["fresh"] == len(came) - 1, "somebody has looked at it"


def test_what_is_not_placed_yet_is_a_place_like_junk(window: Window) -> None:
    rows = window.rows(POOL)
    assert sorted(rows) == [row for row, m in enumerate(found(window).members) if m.category_id == POOL]
    assert window.state["pool"] == len(rows) >= 8
    window.edit(edit="accept", rows=rows[:1], status=400)
    window.edit(edit="move", rows=rows[:2], to=3)
    window.edit(edit="move", rows=rows[2:5], name="a new kind")
    window.edit(edit="junk", rows=rows[5:6])
    counts = Counter(member.category_id for member in found(window).members)
    assert (counts[POOL], counts[JUNK]) == (len(rows) - 6, 1)
    assert found(window).category("a new kind").size == 3
    assert set(window.rows(POOL)) == set(rows[6:])
    assert window.state["pool"] == len(rows) - 6


def test_images_without_a_place_stand_beside_those_that_are_alike(window: Window) -> None:
    """Of neighbours in the list, more are alike than of pairs drawn at random."""
    vectors = read_embedding(RunDirectory(window.studio.run.folder), 480)
    rows = window.studio.space.alike_together(range(0, 480, 4))
    near = np.mean([vectors[a] @ vectors[b] for a, b in pairwise(rows)])
    assert sorted(rows) == list(range(0, 480, 4))
    assert near > 2 * (vectors[rows] @ vectors[rows].T).mean() + 0.1


def second_by_hand(window: Window) -> dict[int, int]:
    """The nearest centre besides its own, of each image that is doubtful."""
    members = found(window).members
    rows = read_embedding(RunDirectory(window.studio.run.folder), len(members))
    second = {}
    for row, member in enumerate(members):
        likeness: dict[int, float] = {}
        for number in range(16):
            inside = [r for r, m in enumerate(members) if m.category_id == number and (r != row)]
            centre = rows[inside].mean(axis=0)
            likeness[number] = float(rows[row] @ centre / np.linalg.norm(centre))
        own = likeness.pop(member.category_id, -1.0)
        best = max(likeness, key=lambda number: likeness[number])
        unsure = member.given_label is None and member.confidence < 0.5
        if not member.status and (unsure or member.is_unlike or member.category_id == POOL or own < likeness[best]):
            second[row] = best
    return second


def test_under_a_doubtful_image_stands_its_second_best_category(window: Window) -> None:
    numbers = [POOL, *range(16)]
    images = [image for number in numbers for image in window.ask(f"/api/members/{number}")["images"]]
    assert {image["row"]: image["second"] for image in images if "second" in image} == second_by_hand(window)
    row, other = next((image["row"], image["second"]) for image in images if "second" in image)
    window.edit(edit="move", rows=[row], to=other)
    assert "second" not in window.ask(f"/api/image/{row}"), "somebody has decided"


def test_the_queue_asks_what_newkinds_next_asks(window: Window) -> None:
    def asked() -> list[dict[str, Any]]:
        return window.ask("/api/next")["questions"]

    expected = next_questions(found(window), number=20)
    assert len(expected) == 20
    assert [one["asks"] for one in asked()] == [question.asks for question in expected]
    assert [one["reason"] for one in asked()] == [question.says_why for question in expected]
    assert [[image["path"] for image in one["images"]] for one in asked()] == [q.paths for q in expected]
    assert [one.get("other") for one in asked()] == [question.other_id for question in expected]
    first = asked()[0]
    window.edit(edit="accept", rows=[first["images"][0]["row"]])
    assert first["images"][0]["row"] not in [image["row"] for one in asked() for image in one["images"]]


def test_where_nothing_is_left_nothing_is_asked(window: Window, tmp_path: Path) -> None:
    window.edit(edit="junk", rows=list(range(480)))
    assert window.ask("/api/next") == {"questions": []}
    run = RunDirectory(tmp_path / "nothing")
    run.folder.mkdir()
    run.write("config.yaml", "data: {name: folder, path: nowhere}")
    run.write(EMBEDDING, save({"embedding": np.zeros((0, 8), np.float16)}))
    Discovery(run.folder, [], [], []).write()
    nothing = Window(Studio(run.folder))
    assert nothing.ask("/api/next") == {"questions": []}
    assert nothing.ask("/api/map")["of"] == []
