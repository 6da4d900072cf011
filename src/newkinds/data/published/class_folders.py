"""Data sets that are one folder a class: ImageNet-100 (Russakovsky et al., 2015), Herbarium 19 (Tan et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ...errors import NewkindsError
from ..folder import files_below, open_below
from ..table import Skipped, Table
from .base import Benchmark, Listing, Part, register
from .classes import read_class_list

# the endings by which the published loaders take a file for an image; others would shift the split
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

IMAGENET = """Get ImageNet (ILSVRC 2012) from https://www.image-net.org/ and unpack it to one folder a class;
the 100 folders of the class list are enough:
  ROOT/imagenet/train/n01443537/…JPEG
  ROOT/imagenet/val/n01443537/…JPEG     (optional)"""
HERBARIUM = """Get the small images of the Herbarium Challenge 2019 (https://www.kaggle.com/c/herbarium-2019-fgvc6)
and unpack them:
  ROOT/herbarium_19/small-train/CLASS/…jpg
  ROOT/herbarium_19/small-validation/CLASS/…jpg     (optional)"""


def read_imagenet100(folder: Path, part: Part) -> Listing:
    """The classes of the list, by the names that ImageNet gives them."""
    classes = read_class_list("imagenet100").class_names
    assert classes is not None
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
    return Table(paths=paths, labels=labels, open=partial(open_below, folder, paths))


register(
    Benchmark(
        name="imagenet100",
        title="ImageNet-100",
        about="100 classes of ImageNet",
        read=read_imagenet100,
        folders=("imagenet", "ImageNet", "imagenet100", "imagenet-100", "ILSVRC2012", "ILSVRC/Data/CLS-LOC"),
        markers=("train/n[0-9]*",),
        archives=("ILSVRC2012_img_train.tar", "imagenet-object-localization-challenge.zip"),
        instructions=IMAGENET,
        images={"train": None, "test": 5000},
        published=("31.9k", "95.3k"),
    )
)
register(
    Benchmark(
        name="herbarium19",
        title="Herbarium 19",
        about="683 species of plants",
        read=read_herbarium19,
        folders=("herbarium_19", "herbarium19", "herbarium-2019-fgvc6"),
        markers=("small-train",),
        archives=("small-train.tar", "small-train.tar.gz", "small-train.zip"),
        instructions=HERBARIUM,
        images={"train": None, "test": None},
        published=("8.9k", "25.4k"),
    )
)
