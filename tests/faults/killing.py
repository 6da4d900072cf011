"""Processes that are killed at a chosen moment, and what is compared afterwards."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

LONG = os.environ.get("NEWKINDS_FAULTS") == "long"
Count = Callable[[str, int], None]
Acknowledge = Callable[[str], object]
Work = Callable[[Acknowledge], object]

# not compared: a log of all that was ever written, how long embedding took, and a lock
NOT_COMPARED = ("checksums.txt", "timing.json", ".lock")
# what is measured or drawn by lot, in files that are compared without it
OF_THE_MOMENT = {
    "metrics.jsonl": {"seconds"},
    "plan.json": {"seconds", "spent_seconds", "stages"},
    "refined.json": {"seconds"},
    "edits.jsonl": {"at", "after", "check"},
}


def killed(work: Work, seconds: float) -> tuple[list[str], bool]:
    """Do the work in a process that is killed after a while: what it acknowledged, and whether it was killed."""
    reading, writing = os.pipe()
    noise = tempfile.TemporaryFile()  # noqa: SIM115
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.dup2(noise.fileno(), 1)
            os.dup2(noise.fileno(), 2)
            work(lambda said: os.write(writing, f"{said}\n".encode()))
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(writing)
    said, end = b"", time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
        if not (piece := os.read(reading, 1 << 16)):
            break
        said += piece
    os.kill(child, signal.SIGKILL)  # it was not waited for yet: the number is still its own
    status = os.waitpid(child, 0)[1]
    while piece := os.read(reading, 1 << 16):
        said += piece
    os.close(reading)
    with noise:
        noise.seek(0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, noise.read().decode(errors="replace")
    return said.decode().splitlines(), os.WIFSIGNALED(status)


def undisturbed(work: Work) -> float:
    """Do all of the work in another process; how long that takes."""
    started = time.monotonic()
    assert not killed(work, 120)[1]
    return time.monotonic() - started


def content(out: Path) -> dict[str, Any]:
    """All files of a folder, or of a single file, by name; without what differs each time."""
    files = [out] if out.is_file() else sorted(file for file in out.rglob("*") if file.is_file())
    return {str(file.relative_to(out.parent)): _lasting(file) for file in files if file.name not in NOT_COMPARED}


def _lasting(file: Path) -> Any:
    if file.name not in OF_THE_MOMENT:
        return file.read_bytes()
    left_out, text = OF_THE_MOMENT[file.name], file.read_text()

    def without(value: Any) -> Any:
        if isinstance(value, list):
            return [without(one) for one in value]
        if isinstance(value, dict):
            return {name: without(one) for name, one in value.items() if name not in left_out}
        return value

    lines = text.split("\n") if file.suffix == ".jsonl" else [text]
    return [without(json.loads(line)) for line in lines if line]


def again_and_again(
    work: Work, out: Path, kills: int, *, begin: Callable[[], object] = lambda: None, but: tuple[str, ...] = (),
    seen: Callable[[Path], dict[str, Any]] = content,
) -> int:  # fmt: skip
    """Kill the work at random moments, up to three times before it may end: then what is `seen` in `out` is what
    undisturbed work leaves, but for the named files, and nothing half-written is there. Until there were so many
    `kills`."""
    begin()
    whole = undisturbed(work)
    sound, luck, count = seen(out), random.Random(2), 0
    assert sound
    while count < kills:
        shutil.rmtree(out) if out.is_dir() else out.unlink()
        begin()
        started, before = time.monotonic(), count
        for _ in range(min(3, kills - count)):
            if not killed(work, luck.uniform(0, whole))[1]:
                break  # it was over
            count += 1
        else:
            undisturbed(work)
        if count == before:
            whole = min(whole, time.monotonic() - started)  # the machine has less to do than before
        ended = seen(out)
        assert ended.keys() == sound.keys()
        assert [name for name in sound if ended[name] != sound[name] and Path(name).name not in but] == []
        assert not list(out.parent.rglob(".*.tmp"))
    return count
