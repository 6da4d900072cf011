"""The one table every source of images becomes: a path, a label or none, and how to open the image."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from ..console import say, track, warn
from ..errors import NewkindsError, Skipped
from ..registry import Registry
from ..text import plural
from .facts import Facts, measure
from .fragments import WHOLE, Box, Part
from .images import BadImage, content_digest
from .parts import open_part
from .world import chunks

T = TypeVar("T")
LOOKED_AT_ONCE = 32  # images that a thread opens one after the other


@dataclass(frozen=True)
class ImageRecord:
    """What an image was when it was looked at."""

    stamp: str  # see `Table.stamp`
    content: str = ""  # digest of its pixels; empty: not requested
    facts: Facts | None = None  # likewise


Earlier = Mapping[str, ImageRecord]  # what images were, by their paths


@dataclass(frozen=True)
class Table:
    """Images, some with a label.

    >>> table = load_table("photos/")
    >>> table.known                       # names of the known classes, sorted
    >>> table.targets                     # (n,) class of each image, -1 if there is no label
    """

    paths: list[str]  # the name of each image in all results; unique
    labels: list[str | None]  # None = unlabelled
    open: Callable[[int], Image.Image]  # row → RGB image, or BadImage
    file: Callable[[int], Path] | None = None  # row → the file it is opened from, if there is one
    part: Callable[[int], Part] | None = None  # row → which part of that file it is; None: all are whole files
    truth: list[str | None] | None = None  # true classes, for evaluation only; training never reads them
    skipped: list[Skipped] = field(default_factory=list)
    known_first: list[str] | None = None  # order of the known classes if a benchmark fixes it
    categories: int | None = None  # how many there are in total, if a benchmark says so
    class_list: str | None = None  # the published list of known classes it follows: name and checksum
    caveat: str = ""  # why it is not the published split of a benchmark, if it is not
    seen: list[ImageRecord] | None = None  # what each image was when it was looked at, if requested
    groups: list[str | None] | None = None  # images of one burst, event or specimen, which are of one kind; None: alone
    vectors: np.ndarray | None = None  # (n, D) floating: what rows are if they are ready-made features, not images
    # reads the official test images, if there are some: no labels, only truth; training never calls it
    test: "Callable[[], Table] | None" = None

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def known(self) -> list[str]:
        return self.known_first or sorted({label for label in self.labels if label is not None})

    @property
    def targets(self) -> np.ndarray:
        position = {name: i for i, name in enumerate(self.known)}
        return np.array([-1 if label is None else position[label] for label in self.labels], dtype=np.int64)

    @property
    def contents(self) -> list[str] | None:
        """A digest of each image's pixels, if requested."""
        return None if self.seen is None else [image.content for image in self.seen]

    def distinct(self) -> np.ndarray:
        """(m,) the rows without exact copies and repetitions: of those with the same pixels and the same label the
        first, if pixels were looked at; and of each group the first."""
        contents = self.contents or self.paths
        first: dict[tuple[str | int, str | None], int] = {}
        numbers = self.group_numbers().tolist()
        shared = {number for row, number in enumerate(numbers) if number != row}
        for row, key in enumerate(zip(contents, self.labels, strict=True)):
            first.setdefault((numbers[row], None) if numbers[row] in shared else key, row)
        return np.array(list(first.values()), dtype=np.int64)

    def part_of(self, row: int) -> Part:
        """Which part of its file an image is."""
        return WHOLE if self.part is None else self.part(row)

    def open_small(self, row: int, enough: int | None) -> Image.Image:
        """As `open`, but of a large photograph no more may be decoded than is `enough` pixels a side."""
        return self.open(row) if self.file is None else open_part(self.file(row), self.part_of(row), enough)

    def group_numbers(self) -> np.ndarray:
        """(n,) equal for images that are of one kind because they are in one group, and for no others.

        Where images of a group have different labels, they cannot be of one kind: then only those with the same label
        are, and those without one stand alone.
        """
        if self.groups is None:
            return np.arange(len(self))
        labels: dict[str, set[str]] = {}
        for group, label in zip(self.groups, self.labels, strict=True):
            if group is not None and label is not None:
                labels.setdefault(group, set()).add(label)
        first: dict[tuple[str, str | None], int] = {}
        numbers = list(range(len(self)))
        for row, (group, label) in enumerate(zip(self.groups, self.labels, strict=True)):
            if group is None:
                continue
            if len(labels.get(group, ())) < 2:
                numbers[row] = first.setdefault((group, None), row)
            elif label is not None:
                numbers[row] = first.setdefault((group, label), row)
        return np.array(numbers, dtype=np.int64)

    def targets_once(self) -> np.ndarray:
        """As `targets`, but one label of each group alone: the others have the same feature, and would tell what one
        that is hidden is."""
        targets = self.targets
        labelled = np.flatnonzero(targets >= 0)
        _, first = np.unique(self.group_numbers()[labelled], return_index=True)
        once = np.full(len(self), -1, dtype=np.int64)
        once[labelled[first]] = targets[labelled[first]]
        return once

    def files(self) -> list[Path]:
        """The files that the images are opened from, if there are any; one may hold several images."""
        return [] if self.file is None else [self.file(row) for row in range(len(self))]

    def stamp(self, row: int) -> str:
        """Of an image's file: size (bytes), time of change of its contents and of itself (ns), and its number; empty if
        it has none. The first two alone may be equal for files that were swapped. Which part of the file the image is,
        its name says."""
        try:
            status = None if self.file is None else self.file(row).stat()
        except (OSError, ValueError):
            status = None
        if status is None:
            return ""
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"

    def rows(self, keep: Sequence[int]) -> "Table":
        """The table of some rows only."""
        kept = list(keep)
        return replace(
            self,
            paths=[self.paths[i] for i in kept],
            labels=[self.labels[i] for i in kept],
            truth=None if self.truth is None else [self.truth[i] for i in kept],
            seen=None if self.seen is None else [self.seen[i] for i in kept],
            groups=None if self.groups is None else [self.groups[i] for i in kept],
            vectors=None if self.vectors is None else self.vectors[kept],
            open=partial(_of_kept, self.open, kept),
            file=None if self.file is None else partial(_of_kept, self.file, kept),
            part=None if self.part is None else partial(_of_kept, self.part, kept),
        )

    def fingerprint(self) -> str:
        """Changes if an image is added, removed, labelled or grouped differently."""
        digest = sha256()
        for path, label in zip(self.paths, self.labels, strict=True):
            digest.update(repr((path, label)).encode("utf-8"))
        if self.groups is not None:
            digest.update(repr(self.groups).encode("utf-8"))
        return digest.hexdigest()


def _of_kept(of_row: Callable[[int], T], kept: list[int], row: int) -> T:
    return of_row(kept[row])


def table_of_pixels(name: str, images: np.ndarray, labels: Sequence[str]) -> Table:
    """Images (n, H, W, 3) uint8 in memory, which are called name-00000.png and so on."""
    return Table([f"{name}-{row:05d}.png" for row in range(len(images))], list(labels), partial(_open_pixels, images))


def _open_pixels(images: np.ndarray, row: int) -> Image.Image:
    return Image.fromarray(images[row])


DATASETS: Registry[Callable[..., Table]] = Registry("data set")


def look_at_all(table: Table, contents: bool = False, earlier: Earlier | None = None) -> list[Skipped | ImageRecord]:
    """Decode every image once: what is wrong with it, or its stamp, a digest of its pixels and facts (if `contents`).

    An image whose stamp is as it was `earlier` (by its path) is not opened again, if its facts were kept.
    """

    def look_at(row: int) -> Skipped | ImageRecord:
        if table.vectors is not None:
            return ImageRecord("", sha256(table.vectors[row].tobytes()).hexdigest()[:32])
        stamp = table.stamp(row)
        known = (earlier or {}).get(table.paths[row])
        if stamp and known and known.facts and known.stamp == stamp:
            return known
        try:
            image = table.open(row)
        except BadImage as error:
            return Skipped(table.paths[row], str(error))
        return ImageRecord(stamp, content_digest(image), measure(image)) if contents else ImageRecord(stamp)

    def look_at_some(rows: range) -> list[Skipped | ImageRecord]:
        return [look_at(row) for row in rows]

    with ThreadPoolExecutor(max_workers=4) as pool:
        parts = pool.map(look_at_some, chunks(len(table), LOOKED_AT_ONCE))  # what waits for a thread takes memory too
        every = (image for part in parts for image in part)
        return list(track(every, "checking images", total=len(table)))


def unreadable_rows(seen: Sequence[Skipped | ImageRecord]) -> dict[int, Skipped]:
    """The images that cannot be read, by their row."""
    return {row: image for row, image in enumerate(seen) if isinstance(image, Skipped)}


def readable(table: Table, contents: bool = False, earlier: Earlier | None = None) -> Table:
    """The table without the images that cannot be read; they are listed in `skipped`.

    A broken file is found before hours of training, not in the middle of them. With `contents` the images that stay
    are known by their pixels, which are not looked at again if an image's file is as it was `earlier`.
    """
    seen = look_at_all(table, contents, earlier)
    if contents:
        table = replace(table, seen=[ImageRecord("") if isinstance(image, Skipped) else image for image in seen])
        _mention_clipped(table)
    table = leave_out(table, unreadable_rows(seen))
    if table.skipped:
        first = table.skipped[0]
        warn(f"{plural(len(table.skipped), 'file')} skipped; the first is {first.path}: {first.reason}")
    return table


def _mention_clipped(table: Table) -> None:
    """Say how many boxes reach beyond their images."""
    clipped = [
        table.paths[row]
        for row, seen in enumerate(table.seen or [])
        if seen.facts is not None and _is_clipped(table.part_of(row).box, seen.facts)
    ]
    if clipped:
        reach = "1 box reaches" if len(clipped) == 1 else f"{len(clipped):,} boxes reach"
        say(f"{reach} beyond the image, and what is outside is cut off: the first is {clipped[0]}")


def _is_clipped(box: Box | None, facts: Facts) -> bool:
    """Whether what was opened is smaller than its box, and not because squares of pixels were averaged."""
    if box is None or (facts.width >= box.width and facts.height >= box.height):
        return False
    factor = round(box.width / facts.width)
    averaged = (abs(facts.width - box.width / factor) < 2, abs(facts.height - box.height / factor) < 2)
    return factor == 1 or not all(averaged)


def leave_out(table: Table, bad: dict[int, Skipped]) -> Table:
    """The table without these rows, listed in `skipped`; a published split with holes is not the published one."""
    if not bad:
        return table
    holes = f"{len(bad):,} of {len(table):,} images cannot be read" if table.class_list is not None else ""
    kept = table.rows([row for row in range(len(table)) if row not in bad])
    return replace(kept, skipped=[*table.skipped, *bad.values()], caveat=all_caveats(table.caveat, holes))


def all_caveats(*caveats: str) -> str:
    """Several reasons why a split is not the published one, as one; empty ones are none."""
    return ", and ".join(filter(None, caveats))


def require_discoverable(table: Table) -> None:
    """Refuse a table in which there is nothing to discover. It may be without any label."""
    if not len(table):
        raise NewkindsError("there is no readable image: nothing to do.")
    if all(label is not None for label in table.labels):
        raise NewkindsError(
            f"all {len(table)} images have a label, so there is nothing to discover: put the images without "
            "a label into a folder called 'unlabeled' (or leave their label empty in the CSV file), or hide the "
            "labels of some classes by --set data.known=0.5."
        )


def require_labels(table: Table) -> None:
    """Refuse a table without any label for what learns from labels, and say if there is only one class of them."""
    if all(label is None for label in table.labels):
        raise NewkindsError(
            f"none of the {len(table)} images has a label, and training learns from labels: put some of each known "
            "class into a folder named after the class (or fill in the label column of the CSV file; for vectors, name "
            "one by --labels). newkinds discover without a method, organizer or recipe needs no label."
        )
    if len(table.known) == 1:
        warn(
            f"only one known class ('{table.known[0]}'): how kinds differ is learnt from the known classes, "
            "so expect little."
        )


def require_judgeable(table: Table) -> None:
    """Refuse a table on which a trained method could not be judged."""
    require_discoverable(table)
    require_labels(table)
    truth = table.truth or [None] * len(table)
    unknown = sum(label is None and true is None for label, true in zip(table.labels, truth, strict=True))
    if unknown:
        raise NewkindsError(
            f"the true classes of {unknown} unlabelled images are not known, so nothing can be judged: sort all images "
            "into folders of their classes and hide the labels of some by --set data.known=0.5."
        )
