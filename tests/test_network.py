"""Nothing connects to a network without the user's word: verbs run where every connection is refused and noted."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import timm
from safetensors.torch import save_file

from conftest import made_once, save_image
from newkinds import console
from newkinds.encoders import hub
from newkinds.encoders.backbones import build_backbone
from newkinds.encoders.hub import THE_WORD, NoWord
from newkinds.errors import NewkindsError

NO_WORD = "without your word"
FORBIDDEN = """
import os, socket

def refused(*where, **how):
    with open(os.environ["TRIED"], "a") as log:
        log.write(f"{where}\\n")
    raise OSError("no connections here")

class Socket(socket.socket):
    connect = connect_ex = sendto = refused

socket.socket = socket.SocketType = Socket
socket.getaddrinfo = socket.gethostbyname = socket.create_connection = refused
"""

# each line is a command, perhaps after the word; printed are its status, how many connections it tried, what it said
RUN = """
import contextlib, io, os, sys
from newkinds.cli import main

def tried():
    return len(open(os.environ["TRIED"]).readlines()) if os.path.exists(os.environ["TRIED"]) else 0

for line in sys.stdin.read().splitlines():
    before, said, words = tried(), io.StringIO(), line.split()
    os.environ["NEWKINDS_DOWNLOAD"] = words.pop(0).partition("=")[2] if "=" in words[0] else ""
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        status = main(words)
    print("LINE", line, status, tried() - before, " ".join(said.getvalue().split()), sep="|")
"""
NAMED = "--backbone vit_small_patch14_dinov2"
TINY = (
    "--method simgcd --set data.categories=4 --set data.per_category=8 --set train.epochs=1 "
    "--set method.projection_hidden=32"
)
BENCH = "bench plugin --out b --data sorted --methods simgcd --organizers none --baselines none --set data.known=0.5"
# verbs that open a backbone, which is missing: discover by default, by name and with a training of its own …
MISSING = (
    "discover photos", f"discover photos {NAMED}", f"discover photos --method simgcd {NAMED}", "tune photos",
    "train photos --out a --k 3", f"train photos --out a --k 3 {NAMED}", "count photos", f"check photos {NAMED}",
    f"{BENCH} {NAMED}",
)  # fmt: skip
# what needs no backbone but the bundled one, or one that the hub's cache holds
POSSIBLE = (
    f"discover creatures --out run {TINY}", "name run #0=first", "report run", "eval run", "count run",
    "predict run photos", "assign run --assigner kmeans --out other", "diagnose run --features-only",
    "figures run --examples 1", "export run --to csv --out found.csv", "list backbones", "check photos",
    "train photos --out cached --k 3 --epochs 1 --backbone test_vit", "predict cached photos",
)  # fmt: skip


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, int, str]]:
    """Commands where every connection is refused: command → its status, connections it tried, and what it said."""
    return json.loads((made_once(tmp_path_factory, "offline", try_all) / "found.json").read_text())


def try_all(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text(FORBIDDEN)
    for place in ("photos/red", "photos/unlabeled", "sorted/red", "sorted/green"):
        for number in range(4):
            save_image(folder / place / f"{number}.png", (60 * number, 40 * len(place), 90))
    published(folder / "hub" / "hub" / "models--timm--test_vit.r160_in1k")
    unset = ("HF_HUB_OFFLINE", "HF_HUB_CACHE", "NEWKINDS_BACKBONE")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PYTHONPATH": str(folder), "TRIED": str(folder / "tried"), "HF_HOME": str(folder / "hub")}
    lines = [*POSSIBLE, *MISSING, *(f"{line} --download" for line in MISSING), *WITH_A_VARIABLE]
    done = subprocess.run(
        [sys.executable, "-c", RUN], input="\n".join(lines), env={**environment, "OMP_NUM_THREADS": "1"}, cwd=folder,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    found = re.findall(r"^LINE\|([^|]*)\|(\d+)\|(\d+)\|(.*)$", done.stdout, re.MULTILINE)
    assert [line for line, *_ in found] == lines, done.stderr
    kept = {line: (int(status), int(tried), said) for line, status, tried, said in found}
    (folder / "found.json").write_text(json.dumps(kept))


def published(folder: Path) -> None:
    """The cache of the hub, as after a download."""
    revision = "0" * 40
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(revision)
    (folder / "snapshots" / revision).mkdir(parents=True)
    save_file(timm.create_model("test_vit").state_dict(), folder / "snapshots" / revision / hub.HUB_FILE)


WITH_A_VARIABLE = ("NEWKINDS_DOWNLOAD=1 count photos", "NEWKINDS_DOWNLOAD=0 count photos", "count photos")


@pytest.mark.parametrize("line", POSSIBLE)
def test_what_is_here_needs_no_connection(tried: dict[str, tuple[int, int, str]], line: str) -> None:
    status, connections, said = tried[line]
    assert (status, connections) == (1 if line == "check photos" else 0, 0), said
    if line == "check photos":  # it flags images, and leaves out what needs a backbone
        assert "--download, which would bring vit_small_patch14_dinov2 (about 88 MB): only pixels count" in said


@pytest.mark.parametrize("line", MISSING)
def test_without_the_users_word_it_says_what_to_do_and_with_it_it_tries(
    tried: dict[str, tuple[int, int, str]], line: str
) -> None:
    status, connections, said = tried[line]
    assert (status, connections) == (1, 0), said
    for part in ("without your word", THE_WORD, "(about 88 MB)", "--weights FILE", "--backbone tiny"):
        assert part in said
    status, connections, said = tried[f"{line} --download"]
    assert (status, connections > 0) == (1, True), said
    assert "cannot be downloaded (no connections here)" in said


def test_the_word_as_a_variable_holds_as_long_as_it_is_set(tried: dict[str, tuple[int, int, str]]) -> None:
    assert [tried[line][1] > 0 for line in WITH_A_VARIABLE] == [True, False, False]


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: str) -> int:
    """From now on standard input and error are a terminal where somebody typed this; a descriptor that reads it."""
    person, machine = pty.openpty()
    os.write(person, typed.encode())
    monkeypatch.setattr(sys, "stdin", os.fdopen(os.dup(machine)))
    monkeypatch.setattr(sys, "stderr", os.fdopen(machine, "w"))
    monkeypatch.delenv("NEWKINDS_DOWNLOAD", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "_connect", lambda _: (_ for _ in ()).throw(OSError("asked the network")))
    hub._answer.cache_clear()
    return person


@pytest.mark.parametrize(("answer", "outcome"), [("y", "asked the network"), ("n", NO_WORD), ("", NO_WORD)])
def test_at_a_terminal_it_asks_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, outcome: str) -> None:
    terminal = at_a_terminal(monkeypatch, tmp_path, f"{answer}\n")
    for _ in range(2):  # the second time it knows
        with pytest.raises(NewkindsError, match=outcome):
            build_backbone("test_vit")
    question = "Download test_vit (about 1 MB) from https://huggingface.co/timm/test_vit.r160_in1k, once? [y/N]"
    assert read_terminal(terminal).count(question) == 1


def read_terminal(terminal: int) -> str:
    """All that was written to it; what was typed and what was asked may arrive one after the other."""
    written = b""
    while select.select([terminal], [], [], 0.5)[0]:
        written += os.read(terminal, 10_000)
    return written.decode()


@pytest.mark.parametrize("who", ["another process", "a script", "offline"])
def test_who_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, who: str) -> None:
    at_a_terminal(monkeypatch, tmp_path, "y\n")
    if who == "another process":
        monkeypatch.setattr(console, "_quiet", True)  # one of several, and not the first
    elif who == "a script":
        monkeypatch.setenv("NEWKINDS_DOWNLOAD", "0")
    else:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(NoWord):
        build_backbone("test_vit")
