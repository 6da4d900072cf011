"""What people type to find something in the studio, and images by their rows."""

from pathlib import Path

import pytest

from newkinds.discovery.categories import Discovery
from newkinds.discovery.kinds import OUTSIDE
from newkinds.discovery.studio.searching import Query
from windows import Studio, Window


@pytest.fixture
def window(creatures: Path) -> Window:
    return Window(Studio(creatures))


@pytest.mark.parametrize(
    ("text", "words", "ids", "unlike"),
    [
        ("", (), set(), False), ("  Beach  FOX ", ("beach", "fox"), set(), False), ("#31", (), {31}, False),
        ("#31 #4 Unlike beach", ("beach",), {31, 4}, True), ('"#31 unlike"', ("#31 unlike",), set(), False),
        ("#x", ("#x",), set(), False), ("#1234567890", ("#1234567890",), set(), False), ('"', ('"',), set(), False),
    ],
)  # fmt: skip
def test_what_a_text_asks_for(text: str, words: tuple[str, ...], ids: set[int], unlike: bool) -> None:
    assert Query.of(text) == Query(words, frozenset(ids), unlike)


def found(window: Window, text: str) -> tuple[list[int], set[int]]:
    answer = window.client.get("/api/search", params={"q": text}).json()
    assert answer["total"] == len(answer["images"])
    return answer["categories"], {image["row"] for image in answer["images"]}


def test_search_by_id_name_path_and_unlike(window: Window) -> None:
    window.edit(edit="rename", category=9, name="Red Fox")
    members = Discovery.read(window.studio.run.folder).members
    of = {number: {row for row, m in enumerate(members) if m.category_id == number} for number in range(16)}
    unlike = {row for row, m in enumerate(members) if m.unlike > OUTSIDE and not m.status}
    assert unlike
    assert unlike & of[9]
    assert found(window, "#9") == ([9], of[9])
    assert found(window, "red fox") == found(window, "FOX red") == ([9], of[9])
    assert found(window, "unlike") == ([], unlike)
    assert found(window, "#9 unlike") == ([9], of[9] & unlike)
    assert found(window, "#9 #10") == ([9, 10], of[9] | of[10])
    path = members[min(of[9])].path
    assert found(window, path) == ([], {row for row, m in enumerate(members) if path in m.path})
    assert found(window, f"fox {path}") == ([], {min(of[9])}), "one word in the path, one in the name"
    assert found(window, "#9 no such") == ([], set())
    assert found(window, "") == ([], set())
    row = min(unlike)
    window.edit(edit="accept", rows=[row])
    assert found(window, "unlike")[1] == unlike - {row}, "a person has decided"


def test_images_by_their_rows(window: Window) -> None:
    answer = window.client.post("/api/images", json={"rows": [7, 3]}).json()
    assert [image["row"] for image in answer["images"]] == [7, 3]
    for rows in (None, [999], ["x"], [-1]):
        assert window.client.post("/api/images", json={"rows": rows}).status_code == 400
