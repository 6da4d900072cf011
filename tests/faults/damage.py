"""Single bits and lost tails: how files are damaged, and how what is read afterwards is judged."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from newkinds.errors import NewkindsError
from newkinds.runs import directory

LONG = os.environ.get("NEWKINDS_FAULTS") == "long"
Count = Callable[[str, int], None]
Readers = dict[str, Callable[[], Any]]


def outcome(read: Callable[[], Any]) -> tuple[str, Any]:
    """What was read, or the sentence that refuses it; anything else that is raised ends the test."""
    try:
        return "is", read()
    except NewkindsError as error:
        return "refused", str(error)


def damages(content: bytes, luck: random.Random, flips: int, tails: int) -> Iterator[tuple[str, bytes]]:
    """Single bits, at the ends and somewhere, and tails of different lengths that are not there."""
    if not content:
        return
    for place in [0, len(content) - 1, *(luck.randrange(len(content)) for _ in range(flips))]:
        changed = bytearray(content)
        changed[place] ^= 1 << luck.randrange(8)
        yield f"bit in byte {place}", bytes(changed)
    for kept in {0, len(content) // 2, *(luck.randrange(len(content)) for _ in range(tails))}:
        yield f"nothing after byte {kept}", content[:kept]


def files_below(folder: Path) -> list[str]:
    """All files of a folder that hold something, by their place in it."""
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file() and file.stat().st_size)


def restored(folder: Path, kept: Path) -> None:
    """Everything as in the copy `kept`."""
    there, wanted = set(files_below(folder)), files_below(kept)
    for name in there - set(wanted):
        (folder / name).unlink()
    for name in wanted:
        if name not in there or (folder / name).stat().st_mtime_ns != (kept / name).stat().st_mtime_ns:
            shutil.copy2(kept / name, folder / name)


def hit(
    folder: Path, kept: Path, names: Iterable[str], readers: Readers, capfd: pytest.CaptureFixture[str], *,
    luck: random.Random, flips: int, tails: int, judged_by: Callable[[str, int], list[str]] | None = None,
) -> int:  # fmt: skip
    """Damage one file after the other. What each reader gives is the same then as of the sound copy `kept`, or the
    damaged file is named. Returns how many cases there were."""
    sound = {name: outcome(read) for name, read in readers.items()}
    assert [name for name, (kind, _) in sound.items() if kind != "is"] == []
    restored(folder, kept)
    cases = 0
    for name in names:
        content, file = (kept / name).read_bytes(), folder / name
        for number, (what, damaged) in enumerate(damages(content, luck, flips, tails)):
            file.write_bytes(damaged)
            for verb in judged_by(file.name, number) if judged_by else readers:
                directory._mention_change.cache_clear()  # it is said once in a process; each reader stands for one
                capfd.readouterr()
                kind, got = outcome(readers[verb])
                said = capfd.readouterr().err + (got if kind == "refused" else "")
                named = file.name in said.replace("\n", "")
                same = (kind, got) == sound[verb]
                assert same or named, f"{name} with {what}: {verb} {kind} {str(got)[:300]}, and said {said!r}"
            cases += 1
            restored(folder, kept)
    return cases
