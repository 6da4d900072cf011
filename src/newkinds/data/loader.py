"""Batches. All randomness is a function of (seed, epoch, position), never of what happened before: a run that was
killed resumes bit for bit, with any number of reading processes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from ..errors import NewkindsError
from .batch import Batch, CachedTokens, Inputs, Pixels, split_views
from .images import BadImage, content_digest
from .table import Skipped, Table
from .views import TWO_CROPS, Gathered, Preprocessing, View, ViewPlan, views_to_gather
from .world import ALONE, World, chunks

Key = tuple[int, int, int]  # row of the table, epoch, position in the epoch
Sample = tuple[Tensor | str, int]  # views or why there are none, row of the table

PURPOSES = (
    "rows of an epoch", "organizer", "head", "training", "categories", "cached views", "cached views of all",
    "whitening", "plan", "calibration", "start of the organizer", "diagnosis", "tuning",
)  # fmt: skip


def seed_for(purpose: str, seed: int, epoch: int = 0) -> int:
    """A separate seed for each purpose and epoch, so that no two random streams are the same."""
    key = (PURPOSES.index(purpose) + 1, seed, epoch)  # +1: trailing zeros would not count
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))


class BalancedBatches(Sampler[list[Key]]):
    """Rows of a batch, drawn with replacement: labelled and unlabelled images equally often, on average.

    With `draw="by_total"` labelled ones somewhat more often: n / (n + n_u) of the draws.
    An epoch is as many draws as there are images, or `epoch_size`; an incomplete last batch is dropped.
    Each process of a `world` gets its share of every batch.
    """

    def __init__(
        self,
        is_labelled: np.ndarray,
        batch_size: int,
        seed: int,
        draw: str = "half_labelled",
        epoch_size: int | None = None,
        world: World = ALONE,
    ) -> None:
        labelled = int(is_labelled.sum())
        divisor = len(is_labelled) if draw == "by_total" else len(is_labelled) - labelled
        self.weight = torch.from_numpy(np.where(is_labelled, 1.0, labelled / max(divisor, 1)))
        self.batch_size = min(batch_size, len(is_labelled))  # a small folder is one batch, not none
        if self.batch_size < world.size:
            raise NewkindsError(
                f"a batch of {self.batch_size} image(s) cannot be shared by {world.size} processes: start fewer, or "
                "take larger batches (train.batch_size)."
            )
        self.draws = max(epoch_size or len(is_labelled), self.batch_size)
        self.seed = seed
        self.world = world
        self.epoch = 0
        self.whole = self.batch_size if world.size > 1 else None  # see `Batch.whole`

    def __len__(self) -> int:
        return self.draws // self.batch_size

    def __iter__(self) -> Iterator[list[Key]]:
        generator = torch.Generator().manual_seed(seed_for("rows of an epoch", self.seed, self.epoch))
        rows = torch.multinomial(self.weight, self.draws, replacement=True, generator=generator).tolist()
        share = self.world.share(self.batch_size)
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            yield [(rows[i], self.epoch, i) for i in range(start, start + self.batch_size)][share]


@dataclass(eq=False)
class RandomViews(Dataset[Sample]):
    """Random views of an image, (V, 3, size, size) uint8, and its row."""

    table: Table
    preprocessing: Preprocessing
    seed: int
    views: Sequence[View]

    def __getitem__(self, key: Key) -> Sample:
        row, epoch, position = key
        try:
            image = self.table.open(row)
        except BadImage as error:
            return str(error), row  # raised in the main process, where it can be shown without a traceback
        rng = np.random.default_rng((self.seed, epoch, position))
        return self.preprocessing.random_views(self.preprocessing.resize(image), self.views, rng), row


def _view_major(samples: list[Sample]) -> tuple[Tensor, list[int]] | tuple[str, int]:
    """The views of a batch (V·B, 3, H, W) and its rows, or the reason and the row of the first that has none."""
    views = []
    for seen, row in samples:
        if isinstance(seen, str):
            return seen, row
        views.append(seen)
    return torch.stack(views, dim=1).flatten(0, 1), [row for _, row in samples]


class TrainingBatches:
    """`for batch in batches(epoch)`: uint8 views, normalised later on the device; `pinned` where a GPU reads them."""

    def __init__(
        self,
        table: Table,
        preprocessing: Preprocessing,
        batch_size: int,
        seed: int,
        workers: int,
        draw: str = "half_labelled",
        epoch_size: int | None = None,
        plan: ViewPlan = TWO_CROPS,
        world: World = ALONE,
        pinned: bool = False,
    ) -> None:
        self.paths = table.paths
        self.plan = plan
        self.targets = torch.from_numpy(table.targets)
        self.sampler = BalancedBatches(table.targets >= 0, batch_size, seed, draw, epoch_size, world)
        self._views = partial(RandomViews, table, preprocessing, seed)
        self._loader = partial(DataLoader, collate_fn=_view_major, num_workers=workers, pin_memory=pinned)
        self._steps = self._loader(
            self._views(plan.student + plan.teacher), batch_sampler=self.sampler, persistent_workers=workers > 0
        )

    def __len__(self) -> int:
        return len(self.sampler)

    def __call__(self, epoch: int) -> Iterator[Batch]:
        self.sampler.epoch = epoch
        yield from self._checked(self._steps, self.plan)

    def of_all_rows(self, epoch: int, views: Gathered) -> Iterator[Batch]:
        """Every row once, in order, in other random views (weak ones) than the epoch's steps see, or in the middle.

        Of several processes, each gets every so many-th batch.
        """
        n, size = len(self.paths), self.sampler.batch_size
        keys = [(row, epoch, self.sampler.draws + row) for row in range(n)]  # steps take the positions before
        own = [[keys[row] for row in some] for some in self.sampler.world.turns(chunks(n, size))]
        plan = views_to_gather(views)
        yield from self._checked(self._loader(self._views(plan.student), batch_sampler=own), plan)

    def _checked(self, loader: DataLoader, plan: ViewPlan) -> Iterator[Batch]:
        for views, rows in loader:
            if isinstance(views, str):
                raise no_longer_readable(Skipped(self.paths[rows], views))
            seen, for_teacher = split_views(Pixels(views), len(plan.student), len(plan.teacher))
            yield Batch(seen, self.targets[rows], torch.tensor(rows), for_teacher, self.sampler.whole)


@dataclass(eq=False)
class FixedViews(Dataset[Tensor | str]):
    """Numbered views of an image: 0 is the evaluation view, each other number a random view that is always the same,
    of one of the `kinds` in turn.

    Item i is (len(numbers[i]), 3, size, size) uint8: the views `numbers[i]` of the image in row `rows[i]`, or the
    reason why there are none. A random view is drawn from the seed, its number and the image's pixels.
    """

    table: Table
    preprocessing: Preprocessing
    seed: int
    rows: Sequence[int]
    numbers: Sequence[Sequence[int]]
    kinds: tuple[View, ...] = ("weak",)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int) -> Tensor | str:
        row = self.rows[item]
        try:
            image = self.table.open(row)
        except BadImage as error:
            return str(error)
        content = content_digest(image)
        if self.table.seen is not None and self.table.seen[row].content != content:
            return "it shows something else now"
        resized = self.preprocessing.resize(image)
        return torch.stack([self._view(resized, content, number) for number in self.numbers[item]])

    def _view(self, resized: Tensor, content: str, number: int) -> Tensor:
        if number == 0:
            return self.preprocessing.centre_view(resized)
        rng = np.random.default_rng((self.seed, number, int(content, 16)))
        return self.preprocessing.random_views(resized, [kind_of(number, self.kinds)], rng)[0]


def kind_of(number: int, kinds: Sequence[View]) -> View:
    """Of a random view with this number."""
    return kinds[(number - 1) % len(kinds)]


class ViewStore(Protocol):
    """Numbered views that are ready to be taken, such as a cache of their tokens."""

    @property
    def random_views(self) -> int: ...

    @property
    def kinds(self) -> tuple[View, ...]: ...  # of the random views, in turn

    def holds(self, table: Table) -> bool: ...

    def rows_of(self, table: Table) -> np.ndarray: ...

    def inputs(self, rows: np.ndarray, numbers: np.ndarray) -> Inputs: ...


@dataclass(frozen=True, eq=False)
class ReadyVectors:
    """The vectors of a table in the place of views: each has one alone, which is the evaluation view."""

    vectors: np.ndarray  # (n, D)
    random_views: ClassVar[int] = 0
    kinds: ClassVar[tuple[View, ...]] = ("weak",)

    @classmethod
    def of(cls, table: Table) -> "ReadyVectors | None":
        return None if table.vectors is None else cls(table.vectors)

    def holds(self, table: Table) -> bool:
        return table.vectors is self.vectors

    def rows_of(self, table: Table) -> np.ndarray:
        return np.arange(len(table))

    def inputs(self, rows: np.ndarray, numbers: np.ndarray) -> CachedTokens:
        """What a backbone's class tokens would be: (n, 1, D), of the length that a final norm gives these.

        Only directions are compared; where something trains, it finds numbers of the size that it is used to.
        """
        values = self.vectors[rows].astype(np.float64)  # (n, D)
        values *= values.shape[1] ** 0.5 / np.linalg.norm(values, axis=1, keepdims=True)
        return CachedTokens(torch.from_numpy(values.astype(np.float32))[:, None])


class StoredBatches:
    """What `TrainingBatches` gives, with views taken from a store instead of made."""

    def __init__(
        self,
        table: Table,
        store: ViewStore,
        batch_size: int,
        seed: int,
        draw: str = "half_labelled",
        epoch_size: int | None = None,
        plan: ViewPlan = TWO_CROPS,
        world: World = ALONE,
    ) -> None:
        self.targets = table.targets
        self.rows = store.rows_of(table)
        self.store = store
        self.seed = seed
        self.plan = plan
        self.sampler = BalancedBatches(self.targets >= 0, batch_size, seed, draw, epoch_size, world)

    def __len__(self) -> int:
        return len(self.sampler)

    def __call__(self, epoch: int) -> Iterator[Batch]:
        self.sampler.epoch = epoch
        numbers = self._numbers("cached views", epoch, self.sampler.draws, self.plan)
        for keys in self.sampler:
            rows, positions = np.array([row for row, _, _ in keys]), [position for _, _, position in keys]
            yield self._batch(rows, numbers[positions], self.plan)

    def of_all_rows(self, epoch: int, views: Gathered) -> Iterator[Batch]:
        """Every row once, in order, in the middle or in random views drawn apart from those of the epoch's steps."""
        plan = views_to_gather(views)
        numbers = self._numbers("cached views of all", epoch, len(self.rows), plan)
        for rows in self.sampler.world.turns(chunks(len(self.rows), self.sampler.batch_size)):
            some = np.array(rows)
            yield self._batch(some, numbers[some], plan)

    def _numbers(self, purpose: str, epoch: int, positions: int, plan: ViewPlan) -> np.ndarray:
        """For each position of an epoch, a random view for each of the plan: (positions, V), different as far as there
        are enough of its kind.

        If there are none, it is the evaluation view each time, as "centre" is, and only dropout makes them differ.
        """
        wanted = np.array(plan.student + plan.teacher)  # (V,)
        numbers = np.zeros((positions, len(wanted)), dtype=np.int64)
        rng = np.random.default_rng(seed_for(purpose, self.seed, epoch))
        kinds = np.array([kind_of(number, self.store.kinds) for number in range(1, self.store.random_views + 1)])
        for kind in dict.fromkeys(wanted[wanted != "centre"]) if len(kinds) else ():
            places = np.flatnonzero(wanted == kind)
            of_kind = np.tile(np.flatnonzero(kinds == kind) + 1, (positions, 1))
            if not of_kind.shape[1]:
                needed = self.store.kinds.index(kind) + 1
                raise NewkindsError(f"a cache of {len(kinds)} view(s) has no {kind} one: give --cache-views {needed}.")
            numbers[:, places] = rng.permuted(of_kind, axis=1)[:, np.arange(len(places)) % of_kind.shape[1]]
        return numbers

    def _batch(self, rows: np.ndarray, numbers: np.ndarray, plan: ViewPlan) -> Batch:
        """Rows (B,) of the table, each in the views (B, V) of its line."""
        stored = self.store.inputs(np.tile(self.rows[rows], numbers.shape[1]), numbers.T.ravel())  # V·B, view-major
        seen, for_teacher = split_views(stored, len(plan.student), len(plan.teacher))
        labels, whole = torch.from_numpy(self.targets[rows]), self.sampler.whole
        return Batch(seen, labels, torch.from_numpy(rows), for_teacher, whole)


def no_longer_readable(image: Skipped) -> NewkindsError:
    """All images were opened before training began: one that has gone bad since is an error."""
    return NewkindsError(
        f"{image.path} could be read when the run began, but no longer: {image.reason}. "
        "Restore it; to resume from the last epoch, rerun the same command."
    )


@dataclass(eq=False)
class CentreViews(Dataset[tuple[int, Tensor | str]]):
    """The evaluation view of an image (3, size, size) uint8, or the reason why there is none."""

    table: Table
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, row: int) -> tuple[int, Tensor | str]:
        try:
            image = self.table.open(row)
        except BadImage as error:
            return row, str(error)
        return row, self.preprocessing.centre_view(self.preprocessing.resize(image))


def evaluation_batches(
    table: Table, preprocessing: Preprocessing, batch_size: int, workers: int, world: World = ALONE
) -> DataLoader[tuple[int, Tensor | str]]:
    """All rows in order, as lists of (row, view or reason); of several processes, each gets every so many-th list."""
    views = CentreViews(table, preprocessing)
    own = torch.Generator()  # else each loader takes a number from the caller's
    batches = [list(rows) for rows in world.turns(chunks(len(table), batch_size))]
    return DataLoader(views, batch_sampler=batches, num_workers=workers, collate_fn=list, generator=own)
