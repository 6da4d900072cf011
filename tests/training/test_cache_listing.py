"""Looking after caches: all are listed and can be cleared, whatever became of them, and nothing else is touched."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from newkinds.errors import NewkindsError
from newkinds.training.store import Store, cache_listing, clear_caches, list_caches

IMAGES = sorted(sha256(str(i).encode()).hexdigest()[:32] for i in range(40))


def a_store(seed: int = 0, about: str = "birds") -> Store:
    store = Store({"backbone": "tiny", "seed": seed}, (5, 4), np.dtype("float16"), about)
    store.open()
    return store


def fill(store: Store) -> None:
    with store.lock():
        for view in range(3):
            store.append(IMAGES, view, np.zeros((40, 5, 4)))


def test_a_cache_of_another_format_is_listed_as_such_and_cleared(caches: Path) -> None:
    fill(a_store())
    origin = {"format": 1, "backbone": "tiny", "images": "ab"}
    folder = caches / sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()[:16]
    folder.mkdir()
    record = {"about": "birds, tiny", "origin": origin, "made": "2026-11-16"}
    (folder / "cache.json").write_text(json.dumps(record))
    (folder / "rows.tokens").write_bytes(b"0123456789" * 10_000)
    other, ours = sorted(list_caches(), key=lambda entry: entry.state, reverse=True)
    assert (other.key, other.state, other.about, ours.state) == (folder.name, "other format", "birds, tiny", "in use")
    assert "| birds, tiny |      – |     – | 0.1 MB | 2026-11-16 | other format |" in cache_listing([other], "in x")
    assert clear_caches([folder.name]) == [other]
    assert not folder.exists()
    assert list_caches() == [ours]


def test_listing_needs_no_torch(caches: Path) -> None:
    fill(a_store())
    check_imports = (
        "import sys; from newkinds.cli import main; main(['cache', 'list']); main(['cache', 'clear', '--all']);"
        "sys.exit(' '.join(set(sys.modules) & {'torch', 'timm', 'torchvision', 'sklearn', 'matplotlib'}))"
    )
    done = subprocess.run([sys.executable, "-c", check_imports], capture_output=True, text=True)
    assert done.stderr == "\n"
    assert "1 cache(s)" in done.stdout
    assert list_caches() == []


def test_only_our_own_caches_are_listed_and_cleared(caches: Path, tmp_path: Path) -> None:
    fill(a_store())
    (entry,) = list_caches()
    outside = tmp_path / "outside"
    shutil.copytree(caches / entry.key, outside)
    (caches / "0123456789abcdef").symlink_to(outside)
    shutil.copytree(outside, caches / "tool")
    for name, content in (("cache.json", '{"count": [], "about": 3}'), ("rows.tokens", "mine"), ("a.txt", "")):
        (caches / "fedcba9876543210").mkdir(exist_ok=True)
        (caches / "fedcba9876543210" / name).write_text(content)
    (caches / entry.key / "rows.png").write_text("somebody else's")
    assert list_caches() == [entry]
    assert clear_caches([entry.key, entry.key]) == [entry]
    assert [file.name for file in (caches / entry.key).iterdir()] == ["rows.png"]
    assert len(list(outside.iterdir())) == len(list((caches / "tool").iterdir())) == 3
    assert len(list((caches / "fedcba9876543210").iterdir())) == 3


@pytest.mark.parametrize("name", ["rows.tokens", "rows.index"])
def test_one_bad_cache_hides_no_other(name: str, caches: Path) -> None:
    fill(a_store(about="good"))
    fill(a_store(seed=1, about="bad"))
    bad = a_store(seed=1)
    (bad.folder / name).unlink()
    (bad.folder / name).symlink_to("/nonexistent")
    assert {entry.about for entry in list_caches()} == {"good", "bad"}
    clear_caches([bad.key])
    assert {entry.about for entry in list_caches()} == {"good"}


def test_a_foreign_cache_is_refused_and_can_be_cleared_also_without_its_rows(caches: Path) -> None:
    fill(a_store(seed=0))
    fill(a_store(seed=1))
    mine, foreign = a_store(seed=0).folder, a_store(seed=1).folder
    shutil.rmtree(mine)
    foreign.rename(mine)
    with pytest.raises(NewkindsError, match=f"newkinds cache clear {mine.name} deletes it"):
        a_store(seed=0)
    (entry,) = list_caches()
    assert entry.state == "damaged"
    for file in mine.glob("rows.*"):
        file.unlink()
    clear_caches([mine.name])
    fill(a_store(seed=0))
    assert list_caches()[0].state == "in use"


@pytest.mark.parametrize("description", [None, "{", "[]", '{"about": 3}', '{"origin": [], "about": {}}'])
def test_a_cache_that_does_not_say_what_it_holds_can_be_cleared_and_is_not_read(
    caches: Path, description: str | None
) -> None:
    store = a_store()
    fill(store)
    file = store.folder / "cache.json"
    if description is None:
        file.unlink()
    else:
        file.write_text(description)
    (entry,) = list_caches()
    assert entry.state == "damaged"
    assert entry.bytes > 0
    if description and "origin" in description:
        with pytest.raises(NewkindsError, match="not the cache it is named after"):
            a_store()
    else:
        assert (a_store().rows_of(IMAGES, 3) == -1).all()
        fill(a_store())
        assert (a_store().rows_of(IMAGES, 3) < 120).all()
        assert list_caches()[0].state == "in use"
    clear_caches([store.key])
    assert not store.folder.exists()


def test_listing_and_clearing_from_the_command_line(caches: Path, run_cli: Callable[..., tuple[int, str, str]]) -> None:
    assert "0 cache(s)" in run_cli("cache", "list")[1]
    fill(a_store(about="birds, tiny"))
    fill(a_store(seed=1))
    key = a_store().key
    status, text, _ = run_cli("cache", "list")
    assert status == 0
    assert "birds, tiny" in text
    assert "2 cache(s)" in text
    assert run_cli("cache", "clear")[0] == 1
    assert run_cli("cache", "clear", "nothing")[0] == 1
    (caches / key / "mine.txt").write_text("somebody else's")
    assert run_cli("cache", "clear", key)[0] == 0
    assert [file.name for file in (caches / key).iterdir()] == ["mine.txt"]
    assert run_cli("cache", "clear", "--all")[0] == 0
    assert list_caches() == []
