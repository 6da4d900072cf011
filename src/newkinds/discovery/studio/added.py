"""A dropped image that is to belong to the run: its file is put where the run finds it, and over no other file."""

import os
import re
from pathlib import Path

from ...data.headers import ENDINGS, look_at_header
from ...data.images import open_image
from ...data.spellings import UNLABELLED
from ...errors import NewkindsError
from ...files import make_folder, write_new
from ...runs.directory import RunDirectory

ADDED = "added"  # the folder in a run for images that have no other place
LONGEST_STEM = 100  # letters
USUAL = {"JPEG": ".jpg", "MPO": ".jpg", "TIFF": ".tif", "JPEG2000": ".jp2", "HEIF": ".heic"}  # others: .png of PNG


def can_grow(run: RunDirectory) -> bool:
    """Whether images can be added to a run: its own are files, not those of a data set."""
    try:
        data = run.settings().get("data")
    except NewkindsError:  # told where it is needed
        return False
    return isinstance(data, dict) and data.get("name") in ("folder", "csv")


def keep_image(run: RunDirectory, image: Path, called: str) -> tuple[Path, list[Path]]:
    """Copy an image, which the user calls so, to where the run finds it; `BadImage` if it cannot be read.

    Its file, and what `newkinds update` must be told to find it: nothing, if it is in the run's own folder of images.
    """
    open_image(image)  # all of it can be read, not its header alone
    name = file_name(called, look_at_header(image)[2])
    data = run.settings().get("data")
    if isinstance(data, dict) and data.get("name") == "folder":
        root = Path(str(data.get("path")))
        folder = next((root / name for name in UNLABELLED if (root / name).is_dir()), root)
        if os.access(folder, os.W_OK | os.X_OK) and folder.is_dir():
            return write_new(folder / name, image.read_bytes()), []
    if not run.folder.is_dir():
        raise NewkindsError(f"{run.folder} is not there any more.")
    file = write_new(make_folder(run.folder.resolve() / ADDED) / name, image.read_bytes())
    return file, [file]


def file_name(called: str, kind: str) -> str:
    """A name that is a file's, in this folder and on any system; it ends as images of its `kind` do.

    >>> file_name("../../my <photo>", "JPEG")
    'my _photo_.jpg'
    """
    last = re.split(r"[/\\]", called)[-1]
    plain = re.sub(r"[^\w .()+-]", "_", last).strip(" .")
    stem, dot, ending = plain.rpartition(".")
    if not (dot and f".{ending.lower()}" in ENDINGS):
        stem, ending = plain, USUAL.get(kind, f".{kind.lower()}")[1:]
    return f"{stem[:LONGEST_STEM].strip(' .') or 'image'}.{ending.lower()}"
