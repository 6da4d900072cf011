"""The studio as a process: what it prints, clients that are slow or send without end, ends at any moment."""

import builtins
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from newkinds.discovery.categories import Discovery
from newkinds.discovery.studio import open_studio
from newkinds.errors import NewkindsError
from windows import Served, Studio, guard, server, strange_run, uvicorn


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return strange_run(tmp_path_factory.mktemp("studio"))


@pytest.fixture
def served(run: Path) -> Iterator[Callable[..., Served]]:
    """`served()`: a studio of the run; all are ended afterwards."""
    made: list[Served] = []

    def serve(*more: str) -> Served:
        made.append(Served(run, *more))
        return made[-1]

    yield serve
    for one in made:
        one.end()


@pytest.fixture
def impatient(run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, str]]:
    """A real server in this process, whose patience is short: its port and its cookie."""
    monkeypatch.setattr(server, "HEAD_WITHIN", 0.5)
    monkeypatch.setattr(guard, "BODY_WITHIN", 0.5)
    bound = server.listening(0)
    app = server.app_of(Studio(run), port := bound.getsockname()[1])
    running = uvicorn.Server(server.config_of(app))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    yield port, f"{app.cookie}={app.token}"
    running.should_exit = True
    thread.join(10)


def head(port: int, cookie: str, method: str, path: str, *more: str) -> bytes:
    return "\r\n".join(
        [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Cookie: {cookie}", *more, "", ""]
    ).encode()


def answer_to(port: int, sent: bytes) -> bytes:
    """All that the server answers until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(sent)
        got = b""
        while piece := client.recv(65536):
            got += piece
        return got


def test_it_prints_its_address_and_stops_when_interrupted(served: Callable[..., Served], run: Path) -> None:
    studio = served()
    assert f"http://127.0.0.1:{studio.port}/?token=" in studio.said
    assert "Ctrl+C" in studio.said
    assert str(run) in studio.said
    assert len(studio.token) >= 32
    assert studio.ask("GET", "/")[0] == 200
    said = studio.end(signal.SIGINT)
    assert "nothing is lost" in said
    assert "Traceback" not in said
    assert studio.process.returncode == 0


def test_it_listens_on_this_machine_only(served: Callable[..., Served]) -> None:
    studio = served()
    table = Path("/proc/net/tcp")
    if not table.exists():
        pytest.skip("needs /proc/net/tcp to see where a process listens")
    listening = [line.split()[1] for line in table.read_text().splitlines()[1:] if line.split()[3] == "0A"]
    assert [address for address in listening if address.endswith(f":{studio.port:04X}")] == [
        f"0100007F:{studio.port:04X}"
    ]


def test_an_edit_survives_a_kill_as_soon_as_it_is_answered(served: Callable[..., Served], run: Path) -> None:
    first = served()
    status, _ = first.edit(edit="rename", category=0, name="survivor")
    first.end(signal.SIGKILL)
    assert status == 200
    assert Discovery.read(run).category(0).name == "survivor"
    again = served()
    assert again.token != first.token, "the old address no longer opens anything"
    assert again.state()["categories"][0]["name"] == "survivor"
    assert again.edit(edit="undo")[0] == 200
    assert Discovery.read(run).category(0).name != "survivor"


def test_a_port_that_is_taken_is_told(served: Callable[..., Served], run: Path) -> None:
    studio = served()
    command = [sys.executable, "-m", "newkinds", "studio", str(run), "--no-browser", "--port", str(studio.port)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert "choose another --port" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_request_of_a_gigabyte_is_refused_at_once(impatient: tuple[int, str]) -> None:
    port, cookie = impatient
    kinds = ("Content-Type: application/json", "Content-Length: 1000000000")
    started = time.monotonic()
    # nothing of it is sent: of a connection that is closed with much unread, TCP may throw the answer away
    got = answer_to(port, head(port, cookie, "POST", "/api/edit", *kinds))
    assert got.startswith(b"HTTP/1.1 413")
    assert time.monotonic() - started < 5, "nobody waited for the rest"


def test_chunks_without_end_are_refused(impatient: tuple[int, str], monkeypatch: pytest.MonkeyPatch) -> None:
    port, cookie = impatient
    monkeypatch.setattr(guard, "MOST_JSON", 100_000)
    # just above the limit: of a connection that is closed with much unread, TCP may throw the answer away
    chunks = b"".join(b"%x\r\n" % size + b" " * size + b"\r\n" for size in (50_000, 50_000, 10))
    sent = head(port, cookie, "POST", "/api/edit", "Content-Type: application/json", "Transfer-Encoding: chunked")
    assert answer_to(port, sent + chunks).startswith(b"HTTP/1.1 413")


def test_slow_clients_are_dropped_and_nobody_waits_for_them(impatient: tuple[int, str]) -> None:
    port, cookie = impatient
    silent = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(20)]
    slow = socket.create_connection(("127.0.0.1", port), timeout=10)
    slow.sendall(b"GET / HTTP/1.1\r\nHost: 127")
    body = socket.create_connection(("127.0.0.1", port), timeout=10)
    body.sendall(
        head(port, cookie, "POST", "/api/edit", "Content-Type: application/json", "Content-Length: 100") + b"{"
    )
    got = answer_to(port, head(port, cookie, "GET", "/api/version", "Connection: close"))
    assert got.startswith(b"HTTP/1.1 200"), "others are answered meanwhile"
    assert body.recv(65536).startswith(b"HTTP/1.1 408")
    for client in [*silent, slow]:
        assert client.recv(10) == b"", "closed by the server"
        client.close()
    body.close()


def test_a_connection_that_is_used_stays_open(impatient: tuple[int, str]) -> None:
    port, cookie = impatient
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        for _ in range(3):
            client.sendall(head(port, cookie, "GET", "/api/version"))
            got = b""
            while not got.endswith(b"}"):
                got += client.recv(65536)
            assert got.startswith(b"HTTP/1.1 200")
            time.sleep(0.4)


def test_without_its_server_the_verb_says_what_to_install(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "starlette":
            raise ModuleNotFoundError("No module named 'starlette'", name="starlette")
        return found(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NewkindsError, match=r"pip install 'newkinds\[studio\]'"):
        open_studio(run)


def test_what_is_no_run_is_a_sentence(tmp_path: Path, run_cli: Callable[..., tuple[int, str, str]]) -> None:
    status, _, said = run_cli("studio", tmp_path, "--no-browser")
    assert status == 1
    assert "is not a run directory" in said
