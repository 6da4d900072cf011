"""A run of images that are really there, made in milliseconds, whose names may be anything; no training, no torch."""

import csv
from collections.abc import Sequence
from pathlib import Path

import yaml

from conftest import save_image
from newkinds.discovery.categories import Discovery
from newkinds.discovery.kinds import Member, category_of
from newkinds.runs.directory import RunDirectory
from newkinds.text import unescaped

DATA_SETS = ("folders", "coco", "fiftyone", "imagefolder", "label-studio")
NAMES = ["cat", "dog", "new-1", "new-2"]  # the first two are known
PATHS = [
    "cat/1.png", "dog/1.jpg", "unlabeled/1.png", "unlabeled/b/1.PNG", "unlabeled/x.jpg", "unlabeled/y.png", "loose.png",
    "unlabeled/z.png",
]  # fmt: skip
CATEGORIES = [0, 1, 0, 0, 2, 2, 3, 3]


def photos_run(
    folder: Path, paths: Sequence[str] = PATHS, categories: Sequence[int] = CATEGORIES, names: Sequence[str] = NAMES
) -> Path:
    """`folder`/photos with an image at each path, no two of them equal, and a run of them, which is returned."""
    for number, path in enumerate(paths):
        saved = save_image(folder / "photos" / f"{number}{Path(path).suffix}", size=(20 + number, 30))
        (folder / "photos" / path).parent.mkdir(parents=True, exist_ok=True)
        saved.rename(folder / "photos" / path)
    return run_of({"name": "folder", "path": str(folder / "photos")}, folder / "run", paths, categories, names)


def run_of(
    data: dict[str, object], out: Path, paths: Sequence[str], categories: Sequence[int], names: Sequence[str]
) -> Path:
    """A run directory; images below a folder of the name of a known class are labelled."""
    members = [
        Member(path, label if (label := path.partition("/")[0]) in names[:2] else None, names[c], c > 1,
               round(0.5 + 0.01 * row, 4), 0.25 * row, c)
        for row, (path, c) in enumerate(zip(paths, categories, strict=True))
    ]  # fmt: skip
    inside = [[member for member in members if member.category_id == c] for c in range(len(names))]
    found = [category_of(c, name, c > 1, inside[c]) for c, name in enumerate(names)]
    run = RunDirectory(out)
    out.mkdir(parents=True)
    run.write("config.yaml", yaml.safe_dump({"data": data}))
    Discovery(out, found, members, []).write()
    return out


def table(file: Path) -> list[dict[str, str]]:
    """An exported CSV table as its documentation says how to read it."""
    with open(file, encoding="utf-8", newline="") as text:
        return [{name: unescaped(cell) for name, cell in row.items()} for row in csv.DictReader(text)]


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files below a folder, hidden ones too, with their contents."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
