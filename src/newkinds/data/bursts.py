"""Photos that were taken right after each other become groups, by the times that cameras wrote into them (EXIF)."""

import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path, PurePath
from typing import NamedTuple

from ..console import say, track, warn
from ..text import plural, read_duration
from .headers import read_exif
from .table import Table

TAKEN, DIGITIZED = (0x9003, 0x9291), (0x9004, 0x9292)  # tags of a time, and of the fraction of its second
CAMERA = (0x010F, 0x0110, 0xA431)  # tags: maker, model, serial number
FIRST_YEAR = 1990  # no camera wrote such times before
AT_ONCE = 4  # files that are read at the same time
TIME = re.compile(r"(\d{4})[:/-](\d\d)[:/-](\d\d)[ T](\d\d):(\d\d):(\d\d)", re.ASCII)


class Shot(NamedTuple):
    """What a photo says about itself."""

    time: datetime | None = None
    camera: str = ""
    nonsense: str = ""  # a time that cannot be right


def group_photos(table: Table, within: str | float | None) -> Table:
    """The table, where photos of one folder and one camera that follow each other `within` so short a time ("10s") are
    a group. Those with a group already, without a time, or with several boxes, which may be of several kinds, are not.

    Nothing is grouped if `within` is None.
    """
    if within is None:
        return table
    gap = read_duration(within, "--group-by-time")
    groups = list(table.groups or [None] * len(table))
    rows = _rows_of_photos(table, groups)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        read = pool.map(lambda row: read_shot(table.file(row)) if table.file else Shot(), rows)
        shots = list(track(read, "reading times", total=len(rows)))
    _mention_nonsense([(table.paths[row], shot.nonsense) for row, shot in zip(rows, shots, strict=True)])
    series: dict[tuple[str, str], list[tuple[datetime, int]]] = {}
    for row, shot in zip(rows, shots, strict=True):
        if shot.time is not None:
            folder = str(PurePath(table.paths[row]).parent)
            series.setdefault((folder, shot.camera), []).append((shot.time, row))
    bursts = [burst for one in series.values() for burst in _bursts(sorted(one), timedelta(seconds=gap))]
    for burst in bursts:
        for row in burst:
            groups[row] = table.paths[burst[0]]  # the first photo names it
    if not series:
        warn("no photo says when it was taken: nothing is grouped by time.")
    grouped = sum(map(len, bursts))
    counts = f"{plural(grouped, 'photo')} in {plural(len(bursts), 'group')}"
    say(f"{counts} by time ({gap:g} s), {len(table) - grouped:,} not")
    return replace(table, groups=groups if any(groups) else None)


def _rows_of_photos(table: Table, groups: Sequence[str | None]) -> list[int]:
    """Images that may be grouped by time: photos, and boxes that are alone in their photo."""
    if table.file is None:
        return []
    images_of = Counter(map(str, table.files()))
    parts = [table.part_of(row) for row in range(len(table))]
    return [
        row
        for row, part in enumerate(parts)
        if groups[row] is None and part.time is None and images_of[str(table.file(row))] == 1
    ]


def _bursts(shots: Sequence[tuple[datetime, int]], gap: timedelta) -> list[list[int]]:
    """Rows of photos (in the order of time) that follow each other closely; one alone is none."""
    found: list[list[int]] = []
    before = None
    for time, row in shots:
        if before is None or time - before > gap:
            found.append([])
        found[-1].append(row)
        before = time
    return [burst for burst in found if len(burst) > 1]


def read_shot(file: Path) -> Shot:
    """When a photo was taken, to the fraction of a second if it says so, and by which camera."""
    exif = read_exif(file)
    camera = " ".join(str(exif.get(tag, "")).strip("\0 ") for tag in CAMERA).strip()
    for tag, fraction in (TAKEN, DIGITIZED):
        text = str(exif.get(tag, "")).strip("\0 ").strip(": ")  # colons alone say that it is not known
        if text:
            time = _time_of(text, str(exif.get(fraction, "")).strip("\0 "))
            return Shot(time, camera, "" if time is not None else text[:40])
    return Shot(None, camera)


def _time_of(text: str, fraction: str) -> datetime | None:
    """None if that cannot be a time: 0000:00:00 00:00:00, a clock that was not set, the future, any other text."""
    found = TIME.match(text)
    if found is None:
        return None
    try:
        time = datetime(*map(int, found.groups()))  # type: ignore[arg-type]
    except ValueError:
        return None
    if time.year < FIRST_YEAR or time > datetime.now() + timedelta(days=1):  # a day, for cameras in other time zones
        return None
    return time + timedelta(seconds=float(f"0.{fraction}")) if re.fullmatch(r"[0-9]{1,9}", fraction) else time


def _mention_nonsense(times: Sequence[tuple[str, str]]) -> None:
    wrong = [(path, text) for path, text in times if text]
    if wrong:
        path, text = wrong[0]
        have = "1 photo has a time" if len(wrong) == 1 else f"{len(wrong):,} photos have times"
        warn(f"{have} that cannot be right, and count as without: the first is {path} ('{text}').")
