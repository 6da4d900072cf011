"""Data sets that are one folder per class: ImageNet-100 (Russakovsky et al., 2015), Herbarium 19 (Tan et al., 2019)."""

from collections.abc import Sequence
from pathlib import Path

from ...errors import NewkindsError
from ..folder import files_below, table_below
from ..table import Skipped, Table
from .base import Listing, Part
from .classes import read_class_list

# the endings by which the published loaders take a file for an image; others would shift the split
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def read_imagenet100(folder: Path, part: Part) -> Listing:
    """The classes of the list, by the names that ImageNet gives them."""
    classes = read_class_list("imagenet100").class_names
    inside = "train" if part == "train" else "val"
    missing = [name for name in classes if not (folder / inside / name).is_dir()]
    if missing:
        raise NewkindsError(
            f"{folder / inside} lacks {len(missing)} of the {len(classes)} class folders, the first is {missing[0]}."
        )
    return Listing(_class_folders(folder, inside, classes), classes)


def read_herbarium19(folder: Path, part: Part) -> Listing:
    """Class = place among the sorted folder names of small-train."""
    classes = _subfolders(folder / "small-train")
    inside = "small-train" if part == "train" else "small-validation"
    if part == "test":
        for name in _subfolders(folder / inside):
            if name not in classes:
                raise NewkindsError(f"{folder / inside} has a class folder {name}, which small-train does not have.")
    return Listing(_class_folders(folder, inside, classes), classes)


def _subfolders(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise NewkindsError(f"cannot read the folder {folder}: {error.strerror}.") from None


def _class_folders(folder: Path, inside: str, classes: Sequence[str]) -> Table:
    """Images by class, then by name."""
    paths: list[str] = []
    labels: list[str | None] = []
    closed: list[Skipped] = []
    for name in classes:
        # a link in a class folder could lead to images of another class
        for file in files_below(folder / inside / name, closed, follow_links=False):
            if file.suffix.lower() in IMAGE_ENDINGS:
                paths.append(file.relative_to(folder).as_posix())
                labels.append(name)
    if closed:
        raise NewkindsError(f"{folder / inside}: {closed[0].path}: {closed[0].reason}.")
    return table_below(folder, paths, labels)
