"""The files of the token cache: rows are only added, and never used if they are not what their entry says."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from conftest import Killed
from newkinds.errors import NewkindsError
from newkinds.training import store as cache_files
from newkinds.training.store import (
    ENTRY,
    CacheUnavailable,
    Store,
    clear_caches,
    list_caches,
)

SHAPE = (5, 4)
ROW = 5 * 4 * 2  # bytes
IMAGES = sorted(sha256(str(i).encode()).hexdigest()[:32] for i in range(40))


def a_store(seed: int = 0, about: str = "birds") -> Store:
    store = Store({"backbone": "tiny", "seed": seed}, SHAPE, np.dtype("float16"), about)
    store.open()
    return store


def tokens_of(content: str, view: int) -> np.ndarray:
    """What stands for the tokens of a view: (5, 4)."""
    return np.random.default_rng((int(content, 16), view)).standard_normal(SHAPE).astype(np.float16)


def complete(store: Store, contents: list[str] = IMAGES, views: int = 3, damaged: Iterable[int] = ()) -> int:
    """Add what is missing or damaged, as a cache does; how many rows that were."""
    added = 0
    with store.lock():
        store.open()
        rows = store.rows_of(contents, views)
        missing = (rows < 0) | np.isin(rows, damaged)
        for view in range(views):
            some = [content for content, is_missing in zip(contents, missing[:, view], strict=True) if is_missing]
            if some:
                store.append(some, view, np.stack([tokens_of(content, view) for content in some]))
                added += len(some)
        store.open()
    return added


def check(store: Store, contents: list[str] = IMAGES, views: int = 3) -> np.ndarray:
    """Which rows are damaged; all others must hold what belongs there."""
    rows = store.rows_of(contents, views)
    assert (rows >= 0).all()
    taken, damaged = store.take(rows.ravel())
    expected = np.stack([tokens_of(content, view) for content in contents for view in range(views)])
    sound = ~np.isin(rows.ravel(), damaged)
    assert np.array_equal(taken[sound], expected[sound])
    return damaged


def file_of(store: Store, name: str) -> Path:
    return store.folder / f"rows.{name}"


def flip(file: Path, offset: int, bit: int = 4) -> None:
    content = bytearray(file.read_bytes())
    content[offset] ^= bit
    file.write_bytes(content)


def test_one_new_image_costs_its_own_tokens_and_nothing_is_copied(caches: Path) -> None:
    store = a_store()
    assert complete(store, IMAGES[1:]) == 3 * 39
    files = {file_of(store, "tokens"): ROW, file_of(store, "index"): ENTRY.itemsize}
    before = {file: (file.stat().st_ino, file.read_bytes()) for file in files}
    other = a_store(about="birds and a photo")
    assert complete(other) == 3
    for file, (inode, content) in before.items():
        assert (file.stat().st_ino, file.stat().st_size) == (inode, len(content) + 3 * files[file])
        assert file.read_bytes().startswith(content)
    assert len(check(other)) == len(check(store, IMAGES[1:])) == 0
    (entry,) = list_caches()
    assert (entry.images, entry.views, entry.about) == (40, 2, "birds; birds and a photo")
    assert complete(a_store(), IMAGES[:7], views=5) == 7 * 2


def test_opening_reads_no_tokens_and_each_row_is_checked_once(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complete(a_store())
    checked = []
    checksum = Store._checksum

    def counted(store: Store, entry: np.void, tokens: np.ndarray) -> int:
        checked.append(entry)
        return checksum(store, entry, tokens)

    monkeypatch.setattr(Store, "_checksum", counted)
    store = a_store()
    rows = store.rows_of(IMAGES, 3)
    assert len(checked) == 0
    store.take(rows[:4, 1])
    assert len(checked) == 4
    store.take(rows[:6, 1])
    assert len(checked) == 6


def test_a_cache_larger_than_the_memory_is_read_where_it_is_needed(caches: Path) -> None:
    """A file of 100 GB, of which two rows are not holes."""
    shape = (1000, 5000)
    store = Store({"backbone": "large"}, shape, np.dtype("float16"), "")
    first, last = (np.full((1, *shape), value, dtype=np.float16) for value in (1, 2))
    with store.lock():
        store.append(IMAGES[:1], 0, first)
        os.truncate(file_of(store, "tokens"), 10**4 * store.row_bytes)
        store.append(IMAGES[1:2], 0, last)
    store.open()
    taken, damaged = store.take(store.rows_of(IMAGES[:2], 1).ravel())
    assert np.array_equal(taken, np.concatenate([first, last]))
    assert len(damaged) == 0


def test_tokens_that_do_not_fit_are_refused(caches: Path) -> None:
    store = a_store()
    with store.lock(), pytest.raises(NewkindsError, match="cache_precision=float32"):
        store.append(IMAGES[:1], 0, np.full((1, *SHAPE), 1e6, dtype=np.float32))
    assert not file_of(store, "tokens").exists()


def swap(file: Path, item: int) -> None:
    content = file.read_bytes()
    file.write_bytes(content[item : 2 * item] + content[:item] + content[2 * item :])


@pytest.mark.parametrize(
    ("name", "harm", "recomputed"),
    [
        ("tokens", lambda file: flip(file, 7 * ROW), 1),
        ("tokens", lambda file: flip(file, -1), 1),
        ("tokens", lambda file: swap(file, ROW), 2),
        ("tokens", lambda file: os.truncate(file, file.stat().st_size - 7), 1),
        ("tokens", lambda file: os.truncate(file, 0), 120),
        ("tokens", lambda file: file.write_bytes(bytes(120 * ROW)), 120),
        ("tokens", lambda file: file.unlink(), 120),
        ("index", lambda file: flip(file, 7 * 24), 1),  # of which image
        ("index", lambda file: flip(file, 7 * 24 + 16), 1),  # of which view: one that nobody wants
        ("index", lambda file: flip(file, 47 * 24 + 16, bit=1), 2),  # or one that is there too
        ("index", lambda file: flip(file, 7 * 24 + 21), 1),  # the checksum
        ("index", lambda file: file.write_bytes(file.read_bytes()[:24] * 120), 120),
        ("index", lambda file: os.truncate(file, file.stat().st_size - 7), 1),
        ("index", lambda file: os.truncate(file, 24 * 50), 70),
        ("index", lambda file: file.write_bytes(bytes(24 * 120)), 120),
        ("index", lambda file: file.write_bytes(b"?" * 24 * 120), 120),
        ("index", lambda file: file.unlink(), 120),
    ],
)  # fmt: skip
def test_damage_is_noticed_and_costs_only_what_is_damaged(
    name: str, harm: Callable[[Path], None], recomputed: int, caches: Path
) -> None:
    complete(a_store())
    harm(file_of(a_store(), name))
    store = a_store()
    added = complete(store)
    added += complete(store, damaged=check(store))
    assert len(check(store)) == 0
    assert added == recomputed
    assert complete(a_store()) == 0
    assert len(check(a_store())) == 0


def test_a_reader_is_not_disturbed_by_damage_and_its_mending(caches: Path) -> None:
    complete(a_store())
    reader = a_store()
    assert len(check(reader)) == 0
    os.truncate(file_of(reader, "index"), 24)
    flip(file_of(reader, "index"), 3)
    assert complete(a_store()) == 120
    assert len(check(reader)) == 0


@pytest.mark.parametrize("moment", range(6))
def test_a_killed_writer_loses_only_what_it_had_not_finished(
    moment: int, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each view is synced twice, its tokens and then their entries: killed before one of these, a torn entry behind."""
    with a_store().lock():
        pass  # described
    synced: list[int] = []

    def die(handle: int) -> None:
        if len(synced) == moment:
            raise Killed
        synced.append(handle)

    with monkeypatch.context() as patch:
        patch.setattr(cache_files.os, "fsync", die)
        with pytest.raises(Killed):
            complete(a_store())
    with open(file_of(a_store(), "index"), "ab") as file:
        file.write(b"torn")
    finished = 40 * ((moment + 1) // 2)
    assert complete(a_store()) == 120 - finished
    assert len(check(a_store())) == 0


WRITER = """
import sys
import numpy as np
from newkinds.training.store import Store
print("ready", flush=True)
contents = sys.stdin.readline().split()
store = Store({"backbone": "tiny", "seed": 0}, (5, 4), np.dtype("float16"), "birds")
for content in contents:
    with store.lock():
        store.open()
        for view in np.flatnonzero(store.rows_of([content], 3)[0] < 0).tolist():
            tokens = np.random.default_rng((int(content, 16), view)).standard_normal((5, 4)).astype(np.float16)
            store.append([content], view, tokens[None])
print("torch" in sys.modules)
"""


def writer() -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen[str], contents: list[str]) -> None:
    assert process.stdin is not None
    process.stdin.write(" ".join(contents) + "\n")
    process.stdin.flush()


def test_one_process_is_killed_and_two_go_on_together(caches: Path) -> None:
    killed = writer()
    go(killed, IMAGES)
    deadline = time.monotonic() + 60
    while not any(file.stat().st_size for file in caches.glob("*/rows.index")) and time.monotonic() < deadline:
        time.sleep(0.001)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    writers = [writer(), writer()]
    for process, contents in zip(writers, (IMAGES[:30], IMAGES[10:]), strict=True):
        go(process, contents)
    assert [process.communicate(timeout=120)[0] for process in writers] == ["False\n", "False\n"]
    store = a_store()
    assert len(check(store)) == 0
    entries = np.fromfile(file_of(store, "index"), ENTRY)
    assert len(entries[entries["content"] != b""]) == 120, "nothing was written twice"


def test_readers_do_not_wait_for_a_writer_and_clearing_is_refused(caches: Path) -> None:
    complete(a_store())
    (entry,) = list_caches()
    with a_store().lock():
        assert len(check(a_store())) == 0
        with pytest.raises(NewkindsError, match="being made by another process"):
            clear_caches()
    assert list_caches() == [entry]


def test_a_full_disk_is_said_and_what_is_whole_is_kept(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complete(a_store(), views=1)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(cache_files.os, "fsync", full)
        with pytest.raises(CacheUnavailable, match=r"No space left.*What is whole in it is kept"):
            complete(a_store())
        with pytest.raises(CacheUnavailable, match="No space left"):
            complete(a_store(about="its description cannot be written"))
    assert complete(a_store()) == 80
    assert len(check(a_store())) == 0


@pytest.mark.parametrize("name", ["tokens", "index"])
def test_a_folder_in_the_place_of_a_file_is_said(name: str, caches: Path) -> None:
    complete(a_store())
    file = file_of(a_store(), name)
    file.unlink()
    file.mkdir()
    with pytest.raises(CacheUnavailable, match="cannot use the cache"):
        complete(a_store())
