"""The token cache in more than one file: what holds for one holds for many, and each is lost alone."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from test_store import IMAGES, ROW, a_store, check, complete

from newkinds.training import store as cache_files
from newkinds.training.store import ENTRY, CacheUnavailable, clear_caches, list_caches


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_files, "SHARD_BYTES", 50 * ROW)  # full after two of three views of 40 images


@pytest.fixture
def folder(caches: Path) -> Path:
    """Six views: three shards of two views each."""
    complete(a_store(), views=6)
    return a_store().folder


def shards(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.tokens"))


NAMES = ["rows-000000000080.tokens", "rows-000000000160.tokens", "rows.tokens"]


def test_rows_go_to_the_next_file_when_one_is_full(folder: Path) -> None:
    assert shards(folder) == NAMES
    assert [(folder / name).stat().st_size for name in NAMES] == [80 * ROW] * 3
    store = a_store()
    assert len(check(store, views=6)) == 0
    mixed = store.rows_of(IMAGES, 6)[:, ::-1].ravel()  # from all files, not in order
    taken, damaged = store.take(mixed)
    assert len(damaged) == 0
    for row, tokens in zip(mixed, taken, strict=True):
        np.testing.assert_array_equal(store.take(np.array([row]))[0][0], tokens)
    (entry,) = list_caches()
    assert entry.bytes == 240 * (ROW + ENTRY.itemsize)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("harm", "lost"),
    [(os.unlink, 80), (lambda file: os.truncate(file, 10 * ROW + 3), 70), (lambda file: os.truncate(file, 0), 80)],
)
def test_a_lost_shard_costs_its_own_rows(name: str, harm, lost: int, folder: Path) -> None:  # type: ignore[no-untyped-def]
    harm(folder / name)
    store = a_store()
    assert (store.rows_of(IMAGES, 6) < 0).sum() == lost
    added = complete(store, views=6)
    added += complete(store, views=6, damaged=check(store, views=6))
    assert added == lost
    assert len(check(a_store(), views=6)) == 0
    assert complete(a_store(), views=6) == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_costs_one_row(name: str, folder: Path) -> None:
    content = bytearray((folder / name).read_bytes())
    content[33 * ROW + 5] ^= 1
    (folder / name).write_bytes(content)
    store = a_store()
    damaged = check(store, views=6)
    assert len(damaged) == 1
    assert complete(store, views=6, damaged=damaged) == 1
    assert len(check(a_store(), views=6)) == 0


def test_a_cache_of_one_large_file_goes_on_in_shards(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cache_files, "SHARD_BYTES", 2**33)  # as an earlier version would have made it
        complete(a_store(), views=4)
    folder = a_store().folder
    before = (folder / "rows.tokens").read_bytes()
    assert shards(folder) == ["rows.tokens"]
    assert complete(a_store(), views=6) == 80
    assert shards(folder) == ["rows-000000000160.tokens", "rows.tokens"]
    assert (folder / "rows.tokens").read_bytes() == before
    assert len(check(a_store(), views=6)) == 0


def test_a_writer_that_was_killed_in_a_new_shard_loses_only_that(folder: Path) -> None:
    name = "rows-000000000240.tokens"  # just begun: half a row, and no entry for it
    (folder / name).write_bytes(bytes(ROW // 2))
    assert len(check(a_store(), views=6)) == 0
    assert complete(a_store(), views=7) == 40
    assert len(check(a_store(), views=7)) == 0
    assert name in shards(folder)


def test_a_store_is_sent_to_another_process_without_its_rows(folder: Path) -> None:
    store = a_store()
    sent = pickle.dumps(store)
    assert len(sent) < 240 * ROW
    assert len(check(pickle.loads(sent), views=6)) == 0
    os.truncate(folder / NAMES[0], 5)
    with pytest.raises(CacheUnavailable, match="cannot use the cache"):
        pickle.loads(sent)


def test_clearing_deletes_all_shards(folder: Path) -> None:
    (folder / "rows-of-mine.tokens").write_text("not a shard")
    clear_caches()
    assert [file.name for file in folder.iterdir()] == ["rows-of-mine.tokens"]
