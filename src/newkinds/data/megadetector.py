"""What MegaDetector found in camera-trap photos: each detection is an item.

Both of its formats are read: an object with normalised boxes (https://lila.science/megadetector-output-format), and a
list with corners in pixels (https://microsoft.github.io/MegaDetector/output_format/)."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from ..console import say, track, warn
from ..errors import NewkindsError, nearest
from ..settings import Share
from ..text import plural
from .bursts import group_photos
from .folder import csv_rows
from .fragments import Part
from .images import BadImage
from .json_lists import (
    MEGADETECTOR,
    ListedItems,
    dicts_of,
    four_numbers,
    number_in,
    read_json,
    root_of_list,
    text_in,
)
from .parts import size_of_whole
from .spellings import classes_of, refuse_two_spellings
from .table import DATASETS, Table

USUAL = "animal"  # what is taken if nobody says; a file without it is taken whole
AT_ONCE = 4  # files that are looked at at the same time


class Detection(NamedTuple):
    """A box that is taken."""

    file: str  # as the list names it
    place: tuple[float, float, float, float]  # x, y, width, height
    in_pixels: bool  # else, shares of the image
    time: float | None  # of a video


@DATASETS.register(MEGADETECTOR)
def read_megadetector(
    path: str, root: str | None = None, min_confidence: Share = 0.2, objects: list[str] | None = None,
    labels: str | None = None, group_by_time: str | float | None = None,
) -> Table:  # fmt: skip
    """MegaDetector's JSON: each animal that it found is an item of its own.

    Files are below `root`, by default the folder of the JSON file. Detections of at least `min_confidence` are taken,
    and of them animals, or what `objects` names ([animal, person, vehicle]). `labels`: a CSV file with the columns path
    and label; the label of a photo is that of all boxes in it.
    """
    file = Path(path)
    content = read_json(file)
    entries = dicts_of(content.get("images") if isinstance(content, dict) else content)
    items = ListedItems(root_of_list(file, root), [text_in(entry.get("file")) for entry in entries])
    taken = _detections(entries, content, file, min_confidence, objects, items)
    label_of = {} if labels is None else _read_labels(Path(labels))
    _add_all(taken, items, label_of)
    table = items.table(file)
    if label_of and all(label is None for label in table.labels):
        warn(f"{labels} labels no photo in which something was found: are its paths those of {file.name}?")
    return group_photos(table, group_by_time)


def _detections(
    entries: list[dict[str, Any]], content: Any, file: Path, least: float, objects: list[str] | None, items: ListedItems
) -> list[Detection]:
    """What is taken of the list; why others are not is said or noted."""
    named = content.get("detection_categories") if isinstance(content, dict) else None
    categories = {str(key): text_in(name) for key, name in named.items()} if isinstance(named, dict) else {}
    kinds = Counter(
        categories.get(str(found.get("category")), str(found.get("category"))).lower()
        for entry in entries
        for found in dicts_of(entry.get("detections"))
    )
    wanted = _wanted(kinds, file, objects)
    taken: list[Detection] = []
    unsure, empty = 0, 0
    for entry in entries:
        name, rate = text_in(entry.get("file")), number_in(entry.get("frame_rate"))
        if not name or text_in(entry.get("failure")):
            items.skip(name, f"MegaDetector: {text_in(entry.get('failure'))[:80] or 'no file is named'}")
            continue
        before = len(taken)
        for found in dicts_of(entry.get("detections")):
            kind = categories.get(str(found.get("category")), str(found.get("category"))).lower()
            if kind not in wanted:
                continue
            if not number_in(found.get("conf", found.get("confidence"))) >= least:
                unsure += 1
                continue
            try:
                place = four_numbers(found.get("bbox"))
            except ValueError as error:
                items.skip(name, str(error))
                continue
            if isinstance(content, list):  # corners
                place = place[0], place[1], place[2] - place[0], place[3] - place[1]
            frame = number_in(found.get("frame_number"))
            time = round(frame / rate, 3) if frame >= 0 and 0 < rate < 1e6 and frame / rate < 1e6 else None
            taken.append(Detection(name, place, isinstance(content, list), time))
        empty += len(taken) == before
    said = f"{plural(len(taken), 'detection')} of {', '.join(sorted(wanted)) or 'nothing'} in {len(entries):,} photos"
    say(f"{said}; {empty:,} photos without any, {unsure:,} below {least:g} (data.min_confidence)")
    return taken


def _wanted(kinds: Counter[str], file: Path, objects: list[str] | None) -> set[str]:
    """The categories of detections that are taken."""
    if objects is None:
        return {USUAL} if USUAL in kinds else set(kinds)
    wanted = {name.strip().lower() for name in objects}
    for name in sorted(wanted - set(kinds)):
        hint = nearest(name, list(kinds))
        raise NewkindsError(
            f"nothing in {file} is '{name}' (data.objects).{hint} There are: {', '.join(kinds) or 'none'}."
        )
    return wanted


def _add_all(taken: list[Detection], items: ListedItems, label_of: dict[str, str | None]) -> None:
    """Boxes in pixels; for normalised ones the size of each photo is looked at."""
    files = {one.file: items.file_of(one.file) for one in taken}
    times = {one.file: one.time for one in taken}
    shares = list(dict.fromkeys(one.file for one in taken if not one.in_pixels))

    def look(name: str) -> tuple[int, int] | str:
        try:
            return size_of_whole(items.root / files[name], Part(times[name]))
        except BadImage as error:
            return str(error)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        sizes = dict(zip(shares, track(pool.map(look, shares), "looking at photos", total=len(shares)), strict=True))
    for name in shares:
        if isinstance(sizes[name], str):
            items.skip(files[name], str(sizes[name]))
    for one in taken:
        file, size = files[one.file], sizes.get(one.file, (1, 1))
        if isinstance(size, str):
            continue
        numbers = [share * side for share, side in zip(one.place, (*size, *size), strict=True)]
        group = None if one.time is None else file  # frames of one video
        items.add_box(file, numbers, label_of.get(one.file, label_of.get(file)), group, one.time)


def _read_labels(file: Path) -> dict[str, str | None]:
    """Path of a photo → its label."""
    header, rows = csv_rows(file)
    for column in ("path", "label"):
        if column not in header:
            raise NewkindsError(f"{file} has no column '{column}' (it has: {', '.join(header[:8])}).")
    classes = classes_of([(cells or {}).get("label", "") for _, cells in rows], str(file))
    refuse_two_spellings(classes, str(file))
    found: dict[str, str | None] = {}
    for (line, cells), label in zip(rows, classes, strict=True):
        name = (cells or {}).get("path", "").strip()
        if found.setdefault(name, label) != label:
            raise NewkindsError(f"{file} line {line} gives {name} another label than before: delete one of the lines.")
    return found
