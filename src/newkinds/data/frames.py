"""Videos among the images of a table: some of their frames take their place."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from PIL import Image

from ..console import say
from ..text import plural
from .fragments import Part, split_name
from .images import BadImage
from .parts import open_part
from .table import Skipped, Table
from .videos import frame_times, is_video

EVERY = 1.0  # seconds between two frames that are taken
MOST_FRAMES = 300  # of one video


def with_frames(table: Table, every: float | None = None, most: int | None = None, separate: bool = False) -> Table:
    """The table with frames in the place of videos: one every so many seconds, at `most` so many, spread evenly.

    Frames of one video are a group, if they are not `separate`, unless the video is in one already. A video that cannot
    be read is skipped.
    """
    videos = [row for row in range(len(table)) if _is_whole_video(table, row)]
    if not videos:
        return table
    times: dict[int, list[float]] = {}
    skipped = list(table.skipped)
    for row in videos:
        try:
            assert table.file is not None
            times[row] = frame_times(table.file(row), every or EVERY, most or MOST_FRAMES)
        except BadImage as error:
            times[row] = []
            skipped.append(Skipped(table.paths[row], str(error)))
    kept = [row for row in range(len(table)) if row not in times]
    names = {
        table.paths[row]: (row, table.part_of(row)) for row in kept
    }  # each once, also a frame that is named itself
    for row, own in times.items():
        for time in own:
            part = table.part_of(row)._replace(time=time)
            names.setdefault(f"{split_name(table.paths[row])[0]}{part}", (row, part))
    in_order = sorted(names.items(), key=lambda item: (item[1][0], item[1][1].time or 0.0))
    made = table.rows([row for _, (row, _) in in_order])
    parts = [part for _, (_, part) in in_order]
    groups = list(made.groups or [None] * len(made))
    for place, (_, (row, _)) in enumerate(in_order):
        if row in times and not separate:
            groups[place] = groups[place] or split_name(table.paths[row])[0]
    if any(times.values()):
        frames, read = sum(map(len, times.values())), sum(map(bool, times.values()))
        say(f"{plural(frames, 'frame')} of {plural(read, 'video')} taken as images")
    return replace(
        made, paths=[name for name, _ in in_order], groups=groups if any(groups) else None, skipped=skipped,
        part=parts.__getitem__, open=partial(_open_part, made, parts),
    )  # fmt: skip


def _is_whole_video(table: Table, row: int) -> bool:
    return table.file is not None and table.part_of(row).time is None and is_video(table.file(row))


def _open_part(table: Table, parts: Sequence[Part], row: int) -> Image.Image:
    assert table.file is not None
    return open_part(table.file(row), parts[row])
