"""The studio's server, killed while people edit: what it answered is in the log, and it starts again."""

from __future__ import annotations

import http.client
import random
import signal
import threading
import time
from pathlib import Path

from killing import LONG, Count

import newkinds
from windows import Served

WINDOWS = 2


def rename_without_end(studio: Served, window: int, answered: list[str]) -> None:
    """A window that gives a category one name after the other until nobody answers; conflicts are tried again."""
    for number in range(100_000):
        name = f"name {studio.process.pid} {window} {number}"
        try:
            status, _ = studio.edit(edit="rename", category=window, name=name)
        except (OSError, http.client.HTTPException, ValueError):  # the answer never came, or half of it
            return
        assert status in (200, 409)
        if status == 200:
            answered.append(name)


def made(run: Path) -> list[str]:
    return [edit["name"] for edit, _ in newkinds.Discovery.read(run).log()]


def test_a_studio_killed_while_two_windows_edit(table_run: Path, count_cases: Count) -> None:
    luck, kills, all_answered = random.Random(4), 12 if LONG else 2, 0
    for _ in range(kills):
        before = made(table_run)
        studio = Served(table_run)
        names = {card["id"]: card["name"] for card in studio.state()["categories"]}  # it started again, with all of it
        assert names == {c.id: c.name for c in newkinds.Discovery.read(table_run).categories}
        answered: list[list[str]] = [[] for _ in range(WINDOWS)]
        threads = [
            threading.Thread(target=rename_without_end, args=(studio, window, answered[window]))
            for window in range(WINDOWS)
        ]
        for thread in threads:
            thread.start()
        wanted, end = luck.randrange(6), time.monotonic() + 20
        while sum(map(len, answered)) < wanted and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(luck.uniform(0, 0.05))
        studio.end(signal.SIGKILL)
        for thread in threads:
            thread.join()
        after = made(table_run)
        assert after[: len(before)] == before
        for window, said in enumerate(answered):
            of_window = [name for name in after[len(before) :] if name.split()[2] == str(window)]
            assert of_window[: len(said)] == said
            assert len(of_window) <= len(said) + 1  # one whose answer was under way
        all_answered += sum(map(len, answered))
    assert all_answered, "it was always killed before the first edit"
    count_cases("kills of the studio's server while two windows edit", kills)
