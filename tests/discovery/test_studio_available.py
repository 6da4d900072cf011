"""The studio answers its owner, whatever others do: other apps, strangers, clients that go, files that are moved."""

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from discovered import discovered
from newkinds.data.table import Table
from newkinds.discovery.categories import Discovery
from newkinds.discovery.studio import pictures as studio_pictures
from windows import GREY, HERE, PER_CLASS, Studio, TestClient, Window, server, strange_run, uvicorn


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return strange_run(tmp_path_factory.mktemp("studio"))


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


@pytest.mark.parametrize(
    "others",
    ['prefs={"theme":"dark"}', "a=b=c; =; ;;x", 'q="un;closed', "{NAME}=another app's", "\xff=\xff", "a" * 4000],
)
def test_cookies_of_other_apps_do_not_lock_the_owner_out(run: Path, others: str) -> None:
    app = server.app_of(Studio(run), 8517)
    client = TestClient(app, base_url=HERE)
    others = others.replace("{NAME}", app.cookie)
    for cookies in (f"{others}; {app.cookie}={app.token}", f"{app.cookie}={app.token}; {others}"):
        assert client.get("/api/version", headers={"Cookie": cookies.encode("latin-1")}).status_code == 200
    assert client.get("/api/version", headers={"Cookie": others.encode("latin-1")}).status_code == 403


@pytest.mark.parametrize("digits", ["9" * 5000, "1" * 10, "-5", "x", "٣", "1e3"])
def test_numbers_of_any_kind_are_answered_with_a_sentence(run: Path, digits: str) -> None:
    window = Window(Studio(run))
    for path in ("/api/image/{}", "/api/members/{}", "/api/nearest/{}", "/api/parts/{}", "/api/similar/{}",
                 "/api/fields/{}", "/thumb/{}.jpg", "/image/{}.jpg", "/field/{}/0.png", "/field/0/{}.png"):  # fmt: skip
        answer = window.client.get(path.format(digits))
        assert answer.status_code in (400, 404) or (digits == "-5" and answer.status_code == 200), path
        assert "Traceback" not in answer.text
    length = {"Content-Length": "9" * 5000, "Content-Type": "application/json"}
    assert window.client.post("/api/edit", content=b"{}", headers=length).status_code == 413


@pytest.fixture
def port_and_cookie(run: Path) -> Iterator[tuple[int, str]]:
    bound = server.listening(0)
    app = server.app_of(Studio(run), port := bound.getsockname()[1])
    running = uvicorn.Server(server.config_of(app))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    yield port, f"{app.cookie}={app.token}"
    running.should_exit = True
    thread.join(10)


def ask(client: socket.socket, port: int, cookie: str, request: str = "GET /api/version") -> bytes:
    client.sendall(f"{request} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n".encode())
    with client.makefile("rb") as answer:
        status = answer.readline()
        length = 0
        while (line := answer.readline()).strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        answer.read(length)
    return status


def test_connections_without_a_token_do_not_lock_the_owner_out(port_and_cookie: tuple[int, str]) -> None:
    port, cookie = port_and_cookie
    with socket.create_connection(("127.0.0.1", port), timeout=10) as early:
        assert ask(early, port, cookie).startswith(b"HTTP/1.1 200")
        strangers = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(260)]
        with socket.create_connection(("127.0.0.1", port), timeout=10) as late:
            assert ask(late, port, cookie).startswith(b"HTTP/1.1 200")
        assert ask(early, port, cookie).startswith(b"HTTP/1.1 200"), "its own connection is not closed for strangers"
        for stranger in strangers:
            stranger.close()


def test_a_client_that_goes_in_mid_body_leaves_no_traceback(
    port_and_cookie: tuple[int, str], capfd: pytest.CaptureFixture[str]
) -> None:
    port, cookie = port_and_cookie
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        kinds = "Content-Type: application/json\r\nContent-Length: 100"
        client.sendall(
            f"POST /api/edit HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n{kinds}\r\n\r\n{{".encode()
        )
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        assert ask(client, port, cookie).startswith(b"HTTP/1.1 200")
        assert ask(client, port, cookie, "GET /api/state").startswith(b"HTTP/1.1 200")
    said = capfd.readouterr()
    assert "Traceback" not in said.out + said.err


def test_a_run_that_is_moved_away_is_told_until_it_is_back(run: Path) -> None:
    window = Window(Studio(run))
    window.edit(edit="rename", category=0, name="kept")
    away = run.rename(run.with_name("elsewhere"))
    for path in ("/api/state", "/api/version", "/api/members/0", "/api/map", "/api/log"):
        assert "is not there any more" in window.ask(path, status=400)["error"]
    assert "is not there any more" in window.edit(400, edit="rename", category=0, name="lost")["error"]
    assert not run.exists(), "nothing is made where it was"
    away.rename(run)
    assert window.look()["categories"][0]["name"] == "kept"


def test_a_table_that_is_damaged_while_it_serves_is_told_until_it_is_mended(run: Path) -> None:
    window = Window(Studio(run))
    whole = (run / "assignments.csv").read_bytes()
    (run / "assignments.csv").write_bytes(whole[: len(whole) // 2])
    for _ in range(2):
        assert "assignments.csv" in window.ask("/api/state", status=400)["error"]
        assert "assignments.csv" in window.edit(400, edit="rename", category=0, name="on what?")["error"]
    (run / "assignments.csv").write_bytes(whole)
    assert window.look()["revision"] == 0


def test_pictures_of_two_runs_have_different_addresses_and_only_the_right_one_is_kept_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images that are no files: all had the version 0, and the next run on the port showed the first one's."""
    from PIL import Image

    colour = {"one": (200, 0, 0), "two": (0, 0, 200)}

    def drawn(run, members, folder=None) -> Table:  # the real one reads a data set of images in one file
        shade = colour[run.folder.name]
        return Table([m.path for m in members], [None] * len(members), lambda _: Image.new("RGB", (8, 8), shade))

    monkeypatch.setattr(studio_pictures, "originals", drawn)
    windows = [Window(Studio(discovered(tmp_path / name))) for name in colour]
    versions = [{image["row"]: image["v"] for image in window.ask("/api/members/0")["images"]} for window in windows]
    assert len({*versions[0].values(), *versions[1].values()}) == len(versions[0]) + len(versions[1])
    assert not {"0", ""} & {*versions[0].values()}
    for window, own, other in zip(windows, versions, versions[::-1], strict=True):
        row = next(iter(own))
        right = window.client.get(f"/thumb/{row}.jpg?v={own[row]}")
        assert "immutable" in right.headers["cache-control"]
        wrong = window.client.get(f"/thumb/{row}.jpg?v={other[row]}")
        assert wrong.headers["cache-control"] == "no-store"
    faces = [window.look()["categories"][0]["faces"] for window in windows]
    assert {v for _, v in faces[0]}.isdisjoint({v for _, v in faces[1]})


def test_versions_follow_what_the_images_of_a_run_showed(run: Path) -> None:
    def versions() -> list[str]:
        return studio_pictures.Pictures(server_run, Discovery.read(run).found_members).versions

    from newkinds.runs.directory import RunDirectory

    server_run = RunDirectory(run)
    before = versions()
    assert len(set(before)) == len(before)
    paths = [m.path for m in Discovery.read(run).found_members]
    server_run.write_table(
        "images.csv", ("path", "stamp", "content"), [(p, "1-1", f"{i:016x}") for i, p in enumerate(paths)]
    )
    after = versions()
    assert not set(before) & set(after)


def test_accepted_images_come_last_under_least_certain_first(run: Path) -> None:
    window = Window(Studio(run))
    rows = [image["row"] for image in window.ask("/api/members/4")["images"]]
    assert len(rows) == GREY
    window.edit(edit="accept", rows=rows[:2])
    images = window.ask("/api/members/4")["images"]
    assert [image["row"] for image in images] == rows[2:] + rows[:2]


def test_an_answer_names_its_edit_and_undo_takes_that_one(run: Path) -> None:
    window = Window(Studio(run))
    first = window.edit(edit="rename", category=0, name="first")
    second = window.edit(edit="rename", category=1, name="second")
    assert (first["n"], second["n"]) == (1, 2)
    window.edit(edit="undo", of=first["n"])
    names = [category["name"] for category in window.look()["categories"]]
    assert names[1] == "second"
    assert names[0] != "first"
    window.edit(edit="move", rows=[0], name="made")
    made = window.state["categories"][-1]["id"]
    window.edit(edit="move", rows=[1], to=made)
    assert "edit 5" in window.edit(400, edit="undo", of=4)["error"]


def test_marks_count_labels_of_classes_that_were_renamed_in_the_file(run: Path) -> None:
    """All images of a class lie, labelled, in another category: that is mixed, whatever the class is called now."""
    studio = Studio(run)
    studio.mark()
    rows = [row for row, m in enumerate(Discovery.read(run).members) if m.category_id == 1]
    assert len(rows) == PER_CLASS
    window = Window(studio)
    window.edit(edit="move", rows=rows, to=0)
    studio.mark()
    assert "mixed" in window.look()["categories"][0]["marks"]
    entries = json.loads((run / "categories.json").read_text())
    entries[0]["name"], entries[1]["name"] = "by hand", "by hand, too"
    (run / "categories.json").write_text(json.dumps(entries))
    renamed = Studio(run)
    renamed.mark()
    card = Window(renamed).state["categories"][0]
    assert card["name"] == "by hand"
    assert "mixed" in card["marks"]
    assert np.isfinite(card["confidence"])
