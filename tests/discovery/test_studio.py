"""The studio over HTTP: who may ask, what it answers, every edit, conflicts, strange names, images that have gone."""

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from newkinds.discovery.categories import Discovery
from newkinds.errors import NewkindsError
from windows import HERE, IMAGES, KNOWN, ODD, PORT, Studio, TestClient, Window, guard, server, strange_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studio")
    strange_run(folder)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "run", tmp_path / "run"))


@pytest.fixture
def window(run: Path) -> Window:
    return Window(Studio(run))


# -- who may ask --------------------------------------------------------------------------------------------------


def test_nothing_is_answered_without_the_token(window: Window) -> None:
    stranger = TestClient(window.app, base_url=HERE)
    for path in ("/", "/static/main.js", "/api/state", "/thumb/0.jpg", "/nothing", "/?token=", "/?token=wrong"):
        answer = stranger.get(path)
        assert answer.status_code == 403, path
        assert "creature" not in answer.text
        assert "newkinds studio" in answer.text, "it says what to do"
    assert stranger.post("/api/edit", json={"edit": "undo"}).status_code == 403
    stranger.cookies.set(window.app.cookie, "wrong")
    assert stranger.get("/api/state").status_code == 403


def test_a_token_becomes_a_cookie_that_no_script_and_no_other_site_gets(window: Window) -> None:
    answer = TestClient(window.app, base_url=HERE, follow_redirects=False).get("/", params={"token": window.app.token})
    assert (answer.status_code, answer.headers["location"]) == (303, "/"), "the token leaves the address"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert f"-{PORT}=" in cookie, "two studios do not share a cookie"


def test_a_ticket_opens_once(window: Window) -> None:
    ticket = window.app.ticket()
    assert TestClient(window.app, base_url=HERE).get("/", params={"token": ticket}).status_code == 200
    assert TestClient(window.app, base_url=HERE).get("/", params={"token": ticket}).status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8517", "127.0.0.1.evil.example:8517", "127.0.0.1:9", "", "[::1"]
)
def test_another_host_is_refused(window: Window, host: str) -> None:
    """DNS rebinding: a page of evil.example whose name now leads here."""
    assert window.client.get("/api/state", headers={"host": host}).status_code == 421
    assert window.client.get("/", params={"token": window.app.token}, headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:8517"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_an_edit_from_another_origin_is_refused(window: Window, headers: dict[str, str]) -> None:
    seen = {"edit": "rename", "category": 0, "name": "x", "seen": 0, "found": window.state["found"]}
    assert window.client.post("/api/edit", json=seen, headers=headers).status_code == 403
    assert window.client.get("/api/state", headers=headers).status_code == 403
    assert Discovery.read(window.state["folder"]).log() == []
    own = {"origin": HERE, "sec-fetch-site": "same-origin"}
    assert window.client.post("/api/edit", json=seen, headers=own).status_code == 200


def test_answers_forbid_foreign_scripts_and_are_not_kept(window: Window) -> None:
    for path in ("/", "/api/state", "/static/main.js", "/nothing", "/thumb/0.jpg"):
        headers = window.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert window.client.get("/api/state").headers["cache-control"] == "no-store"
    version = window.ask("/api/image/0")["v"]
    assert "immutable" in window.client.get(f"/thumb/0.jpg?v={version}").headers["cache-control"]
    page = window.client.get("/").text
    assert "<script>" not in page
    assert "style=" not in page
    assert "//" not in page.replace("/static/", ""), "nothing from elsewhere"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py", "/static/..%2fserver.py", "/static/%2e%2e/guard.py", "/thumb/../../etc/passwd",
        "/thumb/-1.jpg", "/thumb/99999.jpg", "/thumb/0.jpg/../../x", "/image/1e3.jpg", "//etc/passwd",
        "/static//etc/passwd", "/field/0/99.png", "/thumb/..%5c..%5cx.jpg",
    ],
)  # fmt: skip
def test_no_path_leads_out(window: Window, path: str) -> None:
    assert window.client.get(path).status_code == 404


def test_a_huge_request_is_refused_before_it_is_read(window: Window) -> None:
    answer = window.client.post("/api/edit", content=b"", headers={"content-length": str(10**9)})
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"
    assert window.client.post("/api/look", content=b"", headers={"content-length": "-1"}).status_code == 413

    def pieces(most: int) -> Iterator[bytes]:
        for _ in range(most // 1_000_000 + 2):
            yield b" " * 1_000_000

    for path, most in (
        ("/api/edit", guard.MOST_JSON),
        ("/api/look", guard.MOST_IMAGE),
    ):  # chunks, of which nobody said how many
        kind = {"content-type": "application/json"}
        assert window.client.post(path, content=pieces(most), headers=kind).status_code == 413, path


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "text/plain", 415),
        (b"edit=undo", "application/x-www-form-urlencoded", 415),
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"\xff", "application/json", 400),
    ],
)
def test_only_json_is_an_edit(window: Window, body: bytes, kind: str, status: int) -> None:
    assert window.client.post("/api/edit", content=body, headers={"content-type": kind}).status_code == status


@pytest.mark.parametrize(
    "wanted",
    [
        {"edit": "explode"}, {"edit": None}, {"edit": "rename", "category": "0", "name": "x"},
        {"edit": "rename", "category": True, "name": "x"}, {"edit": "rename", "category": 0, "name": 7},
        {"edit": "rename", "category": 999, "name": "x"}, {"edit": "move", "rows": [99999], "to": 0},
        {"edit": "move", "rows": [-1], "to": 0}, {"edit": "move", "rows": "0", "to": 0},
        {"edit": "move", "rows": [], "to": 0},
        {"edit": "move", "rows": [1], "to": -1}, {"edit": "split", "category": 0, "parts": [[0]]}, {"edit": "undo"},
        {"edit": "merge", "categories": [1], "into": 1}, {"edit": "rename", "category": 0, "name": "x\ny"},
        {"edit": "rename", "category": 0, "name": "\udcff"}, {"edit": "rename", "category": 0, "name": "x" * 300},
    ],
)  # fmt: skip
def test_an_edit_that_makes_no_sense_is_refused_with_a_sentence(window: Window, wanted: dict[str, Any]) -> None:
    said = window.edit(400, **wanted)["error"]
    assert len(said) > 10
    assert Discovery.read(window.state["folder"]).log() == []


def test_a_port_in_use_is_a_sentence() -> None:
    with server.listening(0) as taken, pytest.raises(NewkindsError, match="choose another --port"):
        server.listening(taken.getsockname()[1])
    with pytest.raises(NewkindsError, match="port"):
        server.listening(70000)


# -- what it shows ------------------------------------------------------------------------------------------------


def test_names_of_any_kind_arrive_as_they_are(window: Window, run: Path) -> None:
    found = Discovery.read(run)
    assert {c["name"] for c in window.state["categories"]} == {c.name for c in found.categories} >= set(KNOWN)
    shown = {image["path"] for c in window.names() for image in window.ask(f"/api/members/{c}")["images"]}
    assert shown == {member.path for member in found.members} >= {f"unlabeled/{name}" for name in ODD}
    raw = window.client.get("/api/state")
    assert raw.headers["content-type"] == "application/json", "never HTML, whatever the names are"


def test_members_come_least_certain_first(window: Window, run: Path) -> None:
    found = Discovery.read(run)
    images = window.ask("/api/members/4")["images"]
    assert [image["sure"] for image in images] == sorted(m.confidence for m in found.members if m.category_id == 4)
    assert [found.members[image["row"]].path for image in images] == [image["path"] for image in images]


def test_pictures_are_small_jpegs_kept_in_a_folder_that_may_be_deleted(window: Window, caches: Path) -> None:
    window = Window(Studio(window.state["folder"]))
    row = window.rows(0)[0]
    first = window.client.get(f"/thumb/{row}.jpg")
    with Image.open(io.BytesIO(first.content)) as picture:
        assert (picture.format, picture.size) == ("JPEG", (40, 30))
    assert list(caches.glob("thumbnails/*/*.jpg"))
    shutil.rmtree(caches)
    again = Window(Studio(window.state["folder"]))
    assert again.client.get(f"/thumb/{row}.jpg").content == first.content
    assert window.client.get(f"/image/{row}.jpg").status_code == 200


def test_search_by_name_and_by_likeness(window: Window, run: Path) -> None:
    hits = window.ask("/api/search?q=GREY-")
    assert hits["total"] == 7
    assert {Path(image["path"]).name for image in hits["images"]} == {f"grey-{n}.jpg" for n in range(7)}
    assert window.ask("/api/search?q=%20")["images"] == []
    assert window.ask("/api/search?q=../")["total"] == 0
    row = window.rows(4)[0]
    alike = window.ask(f"/api/similar/{row}")["images"]
    assert alike[0]["row"] == row
    assert alike[0]["score"] == pytest.approx(1, abs=1e-3)
    from newkinds.discovery.split import read_embedding
    from newkinds.runs.directory import RunDirectory

    cosine = read_embedding(RunDirectory(run), IMAGES) @ read_embedding(RunDirectory(run), IMAGES)[row]
    assert [image["row"] for image in alike] == (-cosine).argsort(kind="stable").tolist()[: len(alike)]


def test_nearest_categories_are_those_of_the_nearest_means(window: Window, run: Path) -> None:
    import numpy as np

    from newkinds.discovery.split import read_embedding
    from newkinds.runs.directory import RunDirectory

    rows, of = read_embedding(RunDirectory(run), IMAGES), np.array([m.category_id for m in Discovery.read(run).members])
    means = np.stack([rows[of == c].mean(axis=0) for c in range(5)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    expected = [int(c) for c in np.argsort(-(means @ means[2])) if c != 2]
    assert [near["id"] for near in window.ask("/api/nearest/2")["nearest"]] == expected
    window.edit(edit="merge", categories=[expected[0]], into=expected[1])
    assert expected[0] not in [near["id"] for near in window.ask("/api/nearest/2")["nearest"]], "as it is now"


def test_the_map_has_every_image_and_its_category_now(window: Window) -> None:
    before = window.ask("/api/map")
    assert len(before["places"]) == 2 * IMAGES
    assert min(before["places"]) == 0
    assert max(before["places"]) == 4000
    rows = window.rows(0)[:2]
    window.edit(edit="move", rows=rows, to=1)
    after = window.ask("/api/map")
    assert after["places"] == before["places"], "corrections move nothing on the map"
    assert [after["of"][row] for row in rows] == [1, 1]


# -- images that have gone ----------------------------------------------------------------------------------------


def test_a_deleted_image_is_a_name_without_a_picture(made: Path, run: Path, tmp_path: Path) -> None:
    photos = Path(shutil.copytree(made / "photos", tmp_path / "photos"))
    window = Window(Studio(run, photos))
    row = window.rows(4)[0]
    (photos / window.ask(f"/api/image/{row}")["path"]).unlink()
    assert window.client.get(f"/thumb/{row}.jpg").status_code == 404
    assert window.ask(f"/api/image/{row}")["v"] == ""
    assert "1 of 30 images" in window.look()["problem"]
    window.edit(edit="move", rows=[row], to=0)
    assert row in window.rows(0), "it can be corrected all the same"


def test_a_folder_that_has_moved_is_said_and_found_again(made: Path, run: Path, tmp_path: Path) -> None:
    config = (run / "config.yaml").read_text().replace("photos", "nowhere")
    (run / "config.yaml").write_text(config)
    (run / "checksums.txt").unlink()
    window = Window(Studio(run))
    assert window.client.get("/thumb/0.jpg").status_code == 404
    assert "--images FOLDER" in window.look()["problem"]
    window.edit(edit="rename", category=0, name="still works")
    found = Window(Studio(run, made / "photos"))
    assert found.client.get("/thumb/0.jpg").status_code == 200
    assert found.look()["problem"] == ""
    with pytest.raises(NewkindsError, match="there is no folder"):
        Studio(run, tmp_path / "nothing")
