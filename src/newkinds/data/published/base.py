"""What all benchmarks share: finding a copy, comparing it with the class list, hiding labels."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from PIL import Image

from ...console import warn
from ...errors import NewkindsError, nearest
from ...files import user_path
from ..folder import table_below
from ..images import BadImage, open_image
from ..splits import for_tuning, hide_labels, split_checksum
from ..table import DATASETS, Table, all_caveats
from .classes import ClassList, read_class_list

ROOT_VARIABLE = "NEWKINDS_DATA"
Part = Literal["train", "test"]


@dataclass(frozen=True)
class Listing:
    """One part of a data set: its images in the owner's order, all labelled, and the order of its classes."""

    table: Table
    class_names: Sequence[str]
    caveat: str = ""  # why a split of these images is not the published one, if it is not


@dataclass(frozen=True)
class Benchmark:
    """A published data set: how to recognise, read and judge a copy of it; benchmarks.yaml explains the rest."""

    name: str
    read: Callable[[Path, Part], Listing]
    title: str
    about: str
    folders: Sequence[str]
    markers: Sequence[str]
    archives: Sequence[str]
    instructions: str
    images: Mapping[Part, int | None]
    published: Sequence[str]
    packed: bool = False
    checksum: str | None = None


BENCHMARKS: dict[str, Benchmark] = {}


def register(benchmark: Benchmark) -> None:
    """Make a benchmark a data set that can be named in recipes and on the command line."""

    def read_and_split(
        root: str | None = None,
        fraction: float = 0.5,
        split_seed: int = 0,
        classes: int | None = None,
        tune: bool = False,
    ) -> Table:
        listing, class_list = read_part(benchmark, find_copy(benchmark, root), "train")
        table = split_listing(benchmark, listing, class_list, fraction, split_seed)
        if table.caveat:
            warn(f"{benchmark.title}: {table.caveat}. The split is not the published one, image by image.")
        if classes is not None:
            table = of_some_classes(table, class_list, listing.class_names, classes)
        table = replace(table, test=partial(load_test_images, benchmark.name, root, complete=True, classes=classes))
        return for_tuning(table) if tune else table

    read_and_split.__doc__ = f"{benchmark.title}: {benchmark.about}."
    DATASETS.register(benchmark.name)(read_and_split)
    BENCHMARKS[benchmark.name] = benchmark


def split_listing(
    benchmark: Benchmark, listing: Listing, classes: ClassList, fraction: float = 0.5, split_seed: int = 0
) -> Table:
    """The training images, of which a `fraction` of those of the known classes keeps its label."""
    known = [listing.class_names[number] for number in classes.known]
    table = hide_labels(listing.table, known, fraction, split_seed)
    if (fraction, split_seed) == (0.5, 0):
        caveat = listing.caveat or _why_not_published(benchmark, table)
    else:
        caveat = f"it is drawn with fraction {fraction:g} and split_seed {split_seed} instead of 0.5 and 0"
    return replace(table, class_list=classes.label, caveat=caveat)


def of_some_classes(table: Table, class_list: ClassList, class_names: Sequence[str], count: int) -> Table:
    """The images of `count` classes, half of them known and half new, evenly spread over both lists.

    An image keeps its label here if it does in the whole split: a small benchmark for small machines.
    """
    half, most = count // 2, 2 * min(len(class_list.known), len(class_list.new))
    if count % 2 or not 0 < count <= most:
        raise NewkindsError(
            f"data.classes={count}: give an even number up to {most}, for as many known as new classes."
        )
    known, new = (
        [class_names[group[place * len(group) // half]] for place in range(half)]
        for group in (class_list.known, class_list.new)
    )
    chosen = {*known, *new}
    part = table.rows([row for row, name in enumerate(table.truth or []) if name in chosen])
    caveat = f"only {count} of its {len(class_names)} classes are taken" if count < len(class_names) else ""
    return replace(part, known_first=known, categories=count, caveat=all_caveats(caveat, table.caveat))


def _why_not_published(benchmark: Benchmark, split: Table) -> str:
    """Why a split drawn in the published way is not the published one, as far as that is known, or nothing."""
    expected, checksum = benchmark.images["train"] or len(split), split_checksum(split)
    if len(split) != expected:
        return f"this copy lists {len(split):,} training images instead of {expected:,}"
    labelled = sum(label is not None for label in split.labels)
    unlabelled = len(split) - labelled
    if [f"{labelled / 1000:.1f}k", f"{unlabelled / 1000:.1f}k"] != list(benchmark.published):
        published = " and ".join(benchmark.published)
        return f"{labelled:,} labelled and {unlabelled:,} unlabelled images instead of {published}"
    if benchmark.checksum not in (None, checksum):
        return f"its images or labels have the checksum {checksum}, not {benchmark.checksum}"
    return ""


def load_test_images(name: str, root: str | None = None, complete: bool = False, classes: int | None = None) -> Table:
    """The official test images of a benchmark, for inductive evaluation: no labels, only truth.

    `complete`: refuse a copy that lacks some of them. Their files are looked for, not opened.
    `classes`: only those of so many classes, the same as in training.

    >>> table = load_test_images("cub", "datasets/")
    >>> embed(model.encoder, table, model.device)
    """
    if name not in BENCHMARKS:
        raise NewkindsError(f"'{name}' has no test images of its own.{nearest(name, BENCHMARKS)}")
    benchmark = BENCHMARKS[name]
    folder = find_copy(benchmark, root)
    listing, class_list = read_part(benchmark, folder, "test")
    if complete:  # an index names them even if nobody unpacked them
        listed = listing.table.paths
        there = len(listed) if benchmark.packed else sum((folder / path).is_file() for path in listed)
        expected = max(benchmark.images["test"] or 0, len(listed))
        if not there or there < expected:
            lacks = f"lacks {expected - there:,}" if there else "has none"
            raise NewkindsError(f"this copy of {benchmark.title} {lacks} of its {expected:,} test images.")
    table = replace(
        listing.table,
        labels=[None] * len(listing.table),
        truth=listing.table.labels,
        known_first=[listing.class_names[number] for number in class_list.known],
        categories=len(listing.class_names),
        class_list=class_list.label,
    )
    return table if classes is None else of_some_classes(table, class_list, listing.class_names, classes)


def find_copy(benchmark: Benchmark, root: str | None) -> Path:
    """The folder of the data set under `root` (else under $NEWKINDS_DATA), which may itself be that folder."""
    base = data_root(root)
    if base is None:
        raise NewkindsError(
            f"where is {benchmark.title}? Say it with --data-root FOLDER, the setting data.root or the environment "
            f"variable {ROOT_VARIABLE}.\n{benchmark.instructions}"
        )
    if not base.is_dir():
        raise NewkindsError(f"there is no folder {base}, in which {benchmark.title} should be.")
    candidates = [*(base / name for name in reversed(benchmark.folders)), base]
    found = [folder for folder in candidates if any(any(folder.glob(marker)) for marker in benchmark.markers)]
    # a link, or another spelling on a disk that ignores case, is not another copy
    copies = {(folder.stat().st_dev, folder.stat().st_ino): folder for folder in found}
    if len(copies) > 1:
        raise NewkindsError(
            f"there are {len(copies)} copies of {benchmark.title}: {', '.join(map(str, copies.values()))}. "
            f"Name one of them, e.g. --data-root {next(iter(copies.values()))}."
        )
    if not copies:
        packed = [base / name for name in benchmark.archives if (base / name).is_file()]
        raise NewkindsError(
            f"{benchmark.title} is not in {base}: there is no {' or '.join(benchmark.markers)} in it, "
            f"nor in {', '.join(benchmark.folders)} below it."
            + "".join(f"\nUnpack {archive} first." for archive in packed)
            + f"\n{benchmark.instructions}"
        )
    [folder] = copies.values()
    return folder


def data_root(root: str | None) -> Path | None:
    """Where the data sets are, as an absolute path: as given, else from the environment."""
    where = root or os.environ.get(ROOT_VARIABLE)
    return user_path(where) if where else None


def read_part(benchmark: Benchmark, folder: Path, part: Part) -> tuple[Listing, ClassList]:
    """The images of one part, compared with the list of known and new classes."""
    classes, listing = read_class_list(benchmark.name), benchmark.read(folder, part)
    names, expected = listing.class_names, len(classes.known) + len(classes.new)
    if len(names) != expected:
        raise NewkindsError(
            f"{folder} has {len(names)} classes, but {benchmark.title} has {expected}: this copy is not complete, "
            "or not of this data set."
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise NewkindsError(f"{folder} has two classes called '{twice[0]}'.")
    present = set(listing.table.labels)
    empty = [name for name in names if name not in present]
    if empty and part == "train":
        raise NewkindsError(f"{folder} has no training image of {len(empty)} class(es), the first is '{empty[0]}'.")
    return listing, classes


def listed_files(folder: Path, rows: Sequence[tuple[str, str, str]]) -> Table:
    """A table of files below `folder`: of each the path, the class, and which line of which index file names it."""
    first: dict[str, str] = {}
    for path, _, origin in rows:
        if path in first:
            raise NewkindsError(f"{folder}: {origin} names {path}, as {first[path]} does already.")
        first[path] = origin
    table = table_below(folder, list(first), [label for _, label, _ in rows])
    return replace(table, open=partial(_open_listed, folder, rows))


def index_lines(file: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, first word and rest of each line of a text file such as `17 some/image.jpg`."""
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors put a mark before the first line
    except OSError as error:
        raise NewkindsError(f"cannot read {file}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise NewkindsError(f"{file} line {line} is not text: unpack the data set again.") from None
    for number, content in enumerate(text.splitlines(), start=1):
        first, _, rest = content.strip().partition(" ")
        if first:
            yield number, first, rest.strip()


def _open_listed(folder: Path, rows: Sequence[tuple[str, str, str]], row: int) -> Image.Image:
    path, _, origin = rows[row]
    try:
        return open_image(folder / path)
    except BadImage as error:
        raise BadImage(f"{error} ({origin})") from None
