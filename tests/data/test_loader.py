"""Batches: what is drawn, how often, and that nothing depends on what happened before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from newkinds.data import Table, load_table
from newkinds.data.batch import CachedTokens
from newkinds.data.images import BadImage
from newkinds.data.loader import (
    PURPOSES,
    BalancedBatches,
    FixedViews,
    StoredBatches,
    TrainingBatches,
    evaluation_batches,
    seed_for,
)
from newkinds.data.table import readable
from newkinds.data.views import Preprocessing, View, ViewPlan
from newkinds.errors import NewkindsError


@pytest.fixture(scope="module")
def table() -> Table:
    return load_table({"name": "creatures", "categories": 4, "per_category": 10, "seed": 0})


def test_no_two_random_streams_share_a_seed() -> None:
    seeds = [seed_for(purpose, seed, epoch) for purpose in PURPOSES for seed in range(5) for epoch in range(5)]
    assert len(set(seeds)) == len(seeds)


def test_labelled_and_unlabelled_are_drawn_equally_often() -> None:
    is_labelled = np.arange(1000) < 100
    batches = BalancedBatches(is_labelled, batch_size=128, seed=0)
    rows = [row for epoch_batches in [list(batches)] for batch in epoch_batches for row, _, _ in batch]
    assert len(batches) == 7  # the incomplete eighth is dropped
    assert len(rows) == 7 * 128
    assert 0.44 < np.mean([is_labelled[row] for row in rows]) < 0.56


def test_epochs_differ_and_repeat() -> None:
    batches = BalancedBatches(np.arange(64) < 32, batch_size=16, seed=0)
    first = list(batches)
    batches.epoch = 1
    second = list(batches)
    batches.epoch = 0
    assert list(batches) == first
    assert [key[0] for key in first[0]] != [key[0] for key in second[0]]
    other_seed = BalancedBatches(np.arange(64) < 32, batch_size=16, seed=1)
    assert [key[0] for key in next(iter(other_seed))] != [key[0] for key in first[0]]


def test_fewer_images_than_a_batch_still_make_one() -> None:
    batches = BalancedBatches(np.arange(5) < 2, batch_size=128, seed=0)
    assert len(batches) == 1
    assert len(next(iter(batches))) == 5


def test_rows_are_view_major_and_labelled(table: Table) -> None:
    batches = TrainingBatches(table, Preprocessing(64), batch_size=8, seed=0, workers=0)
    batch = next(iter(batches(0)))
    assert batch.inputs.values.shape == (16, 3, 64, 64)
    assert batch.inputs.values.dtype == torch.uint8
    assert batch.labels.tolist() == table.targets[batch.index.numpy()].tolist()
    resized = Preprocessing(64).resize(table.open(int(batch.index[3])))  # (3, 73, 73)
    windows = resized.unfold(1, 64, 1).unfold(2, 64, 1)
    for row in (3, 8 + 3):  # row and partner show the same image
        view = batch.inputs.values[row]
        matches = [(windows == v[:, None, None]).flatten(3).all(3).all(0).any() for v in (view, view.flip(-1))]
        assert any(matches)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_is_the_same_with_any_number_of_reading_processes(table: Table, workers: int) -> None:
    reference = TrainingBatches(table, Preprocessing(64), batch_size=8, seed=0, workers=0)
    again = TrainingBatches(table, Preprocessing(64), batch_size=8, seed=0, workers=workers)
    list(again(0))  # an epoch before must not matter
    for ours, theirs in zip(again(1), reference(1), strict=True):
        assert torch.equal(ours.inputs.values, theirs.inputs.values)
        assert torch.equal(ours.index, theirs.index)


def never(row: int) -> None:
    raise BadImage("file not found")


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_vanishes_during_training_is_named(table: Table, workers: int) -> None:
    broken = replace(table, open=never)
    batches = TrainingBatches(broken, Preprocessing(64), batch_size=8, seed=0, workers=workers)
    with pytest.raises(NewkindsError, match=r"^creature-\d+\.png could be read when the run began") as error:
        next(iter(batches(0)))
    assert "Traceback" not in str(error.value)


def test_evaluation_keeps_the_order_and_says_what_is_missing(table: Table) -> None:
    opener = table.open

    def sometimes(row: int) -> object:
        if row == 3:
            raise BadImage("damaged: for the test")
        return opener(row)

    broken = replace(table, open=sometimes)
    entries = [entry for batch in evaluation_batches(broken, Preprocessing(64), 7, 0) for entry in batch]
    assert [row for row, _ in entries] == list(range(len(table)))
    assert entries[3] == (3, "damaged: for the test")


# --- plans with views of several kinds ---------------------------------------------------------------------

STRONG_AND_WEAK = ViewPlan(student=("strong",), teacher=("weak",))


def shows(view: torch.Tensor, table: Table, row: int) -> bool:
    """Whether a view is a window of an image, mirrored or not, in its own colours."""
    windows = Preprocessing(64).resize(table.open(row)).unfold(1, 64, 1).unfold(2, 64, 1)
    return any((windows == v[:, None, None]).flatten(3).all(3).all(0).any() for v in (view, view.flip(-1)))


def test_the_teacher_has_views_of_its_own(table: Table) -> None:
    batches = TrainingBatches(table, Preprocessing(64), batch_size=8, seed=0, workers=0, plan=STRONG_AND_WEAK)
    batch = next(iter(batches(0)))
    assert batch.for_teacher is not None
    assert batch.inputs.values.shape == batch.for_teacher.values.shape == (8, 3, 64, 64)
    for i, row in enumerate(batch.index.tolist()):
        assert shows(batch.for_teacher.values[i], table, row)
        assert not shows(batch.inputs.values[i], table, row)
    (first, *_) = batches.of_all_rows(epoch=0, views=2)  # what methods gather are weak views, whatever the plan
    assert first.for_teacher is None
    assert all(shows(first.inputs.values[row], table, row % 8) for row in range(16))
    (middle, *_) = batches.of_all_rows(epoch=0, views="centre")
    expected = [Preprocessing(64).centre_view(Preprocessing(64).resize(table.open(row))) for row in range(8)]
    assert torch.equal(middle.inputs.values, torch.stack(expected))


def test_fixed_views_take_the_kinds_in_turn(table: Table) -> None:
    seen = readable(table, contents=True)
    fixed = FixedViews(seen, Preprocessing(64), 0, [5], [[0, 1, 2, 3, 4]], ("weak", "strong, same colours"))
    views = fixed[0]
    assert isinstance(views, torch.Tensor)
    assert [shows(view, seen, 5) for view in views] == [True, True, False, True, False]
    alone = FixedViews(seen, Preprocessing(64), 0, [5], [[4]], ("weak", "strong, same colours"))[0]
    assert torch.equal(views[4:], torch.as_tensor(alone))  # a view does not depend on which others are made


class Numbered:
    """A store that gives the row and the number of every view instead of its tokens."""

    def __init__(self, random_views: int, kinds: tuple[View, ...]) -> None:
        self.random_views, self.kinds = random_views, kinds

    def holds(self, table: Table) -> bool:
        return True

    def rows_of(self, table: Table) -> np.ndarray:
        return np.arange(len(table))

    def inputs(self, rows: np.ndarray, numbers: np.ndarray) -> CachedTokens:
        return CachedTokens(torch.from_numpy(np.stack([rows, numbers], axis=1)[:, None]))


def stored(table: Table, views: int, kinds: tuple[View, ...], plan: ViewPlan) -> StoredBatches:
    return StoredBatches(table, Numbered(views, kinds), batch_size=8, seed=0, plan=plan)


def test_stored_views_are_of_the_kinds_of_the_plan(table: Table) -> None:
    plan = ViewPlan(student=("strong", "strong"), teacher=("weak",))
    batches = stored(table, views=5, kinds=plan.kinds, plan=plan)  # 1, 3, 5 are weak, 2 and 4 strong
    numbers = []
    for batch in batches(0):
        assert batch.for_teacher is not None
        (rows, student), (others, teacher) = batch.inputs.values[:, 0].T, batch.for_teacher.values[:, 0].T
        assert rows.tolist() == batch.index.repeat(2).tolist()
        assert others.tolist() == batch.index.tolist()
        assert set(student.tolist()) <= {2, 4}
        assert set(teacher.tolist()) <= {1, 3, 5}
        assert (student[:8] != student[8:]).all(), "two views of a kind differ, if there are two"
        numbers += teacher.tolist()
    assert set(numbers) == {1, 3, 5}
    (whole, *_) = batches.of_all_rows(epoch=0, views=2)
    assert whole.for_teacher is None
    assert set(whole.inputs.values[:, 0, 1].tolist()) == {1, 3, 5}
    (middle, *_) = batches.of_all_rows(epoch=0, views="centre")
    assert middle.inputs.values[:, 0].tolist() == [[row, 0] for row in range(8)]
    again = [batch.inputs.values for batch in stored(table, views=5, kinds=plan.kinds, plan=plan)(0)]
    assert all(torch.equal(one.inputs.values, two) for one, two in zip(batches(0), again, strict=True))


def test_fewer_stored_views_than_the_plan_wants(table: Table) -> None:
    twice = next(iter(stored(table, views=2, kinds=("weak", "strong"), plan=ViewPlan(("strong", "strong")))(0)))
    assert set(twice.inputs.values[:, 0, 1].tolist()) == {2}  # the only strong one, two times
    none = next(iter(stored(table, views=0, kinds=("weak", "strong"), plan=STRONG_AND_WEAK)(0)))
    assert not none.inputs.values[:, 0, 1].any()  # the evaluation view
    too_few = stored(table, views=1, kinds=("weak", "strong"), plan=STRONG_AND_WEAK)
    with pytest.raises(NewkindsError, match=r"a cache of 1 view\(s\) has no strong one: give --cache-views 2"):
        next(iter(too_few(0)))
