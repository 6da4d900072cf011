"""A studio to test: a run of images with strange names, and a browser's window as far as the server can tell.

Tests import what needs the server's packages from here, behind the check that they are there."""

import http.client
import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from conftest import save_image
from newkinds.data import load_table
from newkinds.discovery.categories import Discovery
from newkinds.discovery.edits import POOL, POOL_NAME
from newkinds.discovery.kinds import Member, category_of
from newkinds.runs.changes import OpenedCategory, UpdateHistory, UpdateRecord
from newkinds.runs.directory import RunDirectory

pytest.importorskip("starlette", reason="needs the studio's server: pip install 'newkinds[studio]'")
if not any(map(find_spec, ("httpx", "httpx2"))):
    pytest.skip("needs starlette's client: pip install httpx", allow_module_level=True)

import uvicorn as uvicorn
from starlette.testclient import TestClient as TestClient

from newkinds.discovery.studio import guard as guard
from newkinds.discovery.studio import server as server
from newkinds.discovery.studio.state import Studio as Studio
from studio import draw_run as draw_run

PORT = 8517
HERE = f"http://127.0.0.1:{PORT}"
KNOWN = ["<script>alert(1)<script>", "a'b\"c", "שלום"]
ODD = [
    "two\nlines.png", "\u202eknup.png", os.fsdecode(b"not-utf8-\xff.png"), "<img src=x onerror=alert(1)>.png",
    "plain.png",
]  # fmt: skip
PER_CLASS, GREY = 6, 7
IMAGES = PER_CLASS * len(KNOWN) + len(ODD) + GREY


def strange_run(folder: Path) -> Path:
    """Three known classes, and two new categories: images with odd names (3) and grey ones (4)."""
    photos = folder / "photos"
    for place, name in enumerate(KNOWN):
        for number in range(PER_CLASS):
            save_image(photos / name / f"{number}.png", (200 - 60 * place, 40 + 60 * place, 40))
    for name in ODD:
        save_image(photos / "unlabeled" / "new.png", (40, 40, 200)).rename(photos / "unlabeled" / name)
    for number in range(GREY):
        save_image(photos / "unlabeled" / f"grey-{number}.jpg", (120, 120, 120))
    data: dict[str, object] = {"name": "folder", "path": str(photos)}
    table = load_table(data)
    order = [*table.known, "odd", "grey"]
    named = zip(table.paths, table.labels, strict=True)
    kinds = [label or ("grey" if "grey" in path else "odd") for path, label in named]
    return draw_run(folder / "run", data, [order.index(kind) for kind in kinds], len(KNOWN), wrong=0.0)


def with_update(run: Path) -> Path:
    """The drawn run `run` as an update leaves it: every twelfth image came with it, a third of those is not placed yet,
    and it has opened the last category."""
    found = Discovery.read(run)
    members = list(found.found_members)
    for row in range(3, len(members), 12):
        members[row] = members[row]._replace(since=1)
        if row % 36 == 3 and members[row].given_label is None:
            members[row] = members[row]._replace(category_id=POOL, category=POOL_NAME, is_new=False, unlike=1.4)
    inside: dict[int, list[Member]] = {}
    for member in members:
        inside.setdefault(member.category_id, []).append(member)
    categories = [category_of(c.id, c.name, c.is_new, inside.get(c.id, [])) for c in found.found_categories]
    Discovery(run, categories, members, []).write()
    placed = {str(number): len(some) for number, some in inside.items() if number >= 0}
    last = categories[-1]
    record = UpdateRecord(
        1, "2026-11-18T07:30:00Z", sum(member.since for member in members), placed, len(inside[POOL]), last.id + 1,
        [OpenedCategory(last.id, last.name, last.size, False)], copies={"again.png": members[0].path},
    )  # fmt: skip
    UpdateHistory([record]).write(RunDirectory(run))
    return run


class Window:
    """Opens a studio by its token, and edits what it has seen of it."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self.app = server.app_of(studio, PORT)
        self.client = TestClient(self.app, base_url=HERE)
        assert self.client.get("/", params={"token": self.app.token}).status_code == 200
        self.look()

    def look(self) -> dict[str, Any]:
        self.state = self.client.get("/api/state").json()
        return self.state

    def ask(self, path: str, status: int = 200) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    def edit(self, status: int = 200, **wanted: Any) -> dict[str, Any]:
        """Edit what this window has seen; it then shows what the answer says."""
        seen = {"seen": self.state["revision"], "found": self.state["found"]}
        kind = {"content-type": "application/json"}
        answer = self.client.post("/api/edit", content=json.dumps({**seen, **wanted}), headers=kind)
        assert answer.status_code == status, answer.text
        self.state = answer.json().get("state", self.state)
        return answer.json()

    def rows(self, category: int) -> list[int]:
        return [image["row"] for image in self.ask(f"/api/members/{category}")["images"]]

    def card(self, category: int) -> dict[str, Any]:
        return next(card for card in self.state["categories"] if card["id"] == category)

    def names(self) -> dict[int, str]:
        return {category["id"]: category["name"] for category in self.state["categories"]}


class Served:
    """`newkinds studio` as a process of its own, and a client that has its token."""

    def __init__(self, run: Path, *more: str) -> None:
        command = [sys.executable, "-m", "newkinds", "studio", str(run), "--no-browser", *(more or ("--port", "0"))]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        self.said = ""
        while "Ctrl+C" not in self.said:
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line
        self.address = next(word for word in self.said.split() if "token=" in word)
        self.port = int(self.address.split(":")[2].split("/")[0])
        self.token = self.address.split("token=")[1]
        self.cookie = f"newkinds-studio-{self.port}={self.token}"

    def end(self, how: int = signal.SIGKILL) -> str:
        """Stop the process, by default without a warning; what it said."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        rest = self.process.communicate(timeout=20)[0]
        return self.said + rest

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, path, body, {"Cookie": self.cookie, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def state(self) -> dict[str, Any]:
        return json.loads(self.ask("GET", "/api/state")[1])

    def edit(self, **wanted: Any) -> tuple[int, bytes]:
        state = self.state()
        body = json.dumps({"seen": state["revision"], "found": state["found"], **wanted}).encode()
        return self.ask("POST", "/api/edit", body, **{"Content-Type": "application/json"})
