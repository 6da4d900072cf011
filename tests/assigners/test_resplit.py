"""Labelled images split again into known and new classes."""

import numpy as np

from newkinds.assigners.resplit import resplits, task_splits


def test_half_the_labelled_classes_stay_known_and_half_of_their_images_labelled() -> None:
    labels = np.random.RandomState(0).permutation(np.repeat([-1, 2, 3, 5, 7, 8, 9], 10))  # some classes have no image
    splits = resplits(labels, 4, np.random.RandomState(0))
    for split in splits:
        assert split.rows.tolist() == np.flatnonzero(labels >= 0).tolist()
        assert (split.known, split.categories) == (3, 6)
        pairs = set(zip(labels[split.rows].tolist(), split.truth.tolist(), strict=True))
        assert len(pairs) == len({new for _, new in pairs}) == 6  # a new number for each class
        assert split.hidden.tolist() == np.flatnonzero(split.labels < 0).tolist()
        kept = split.labels >= 0
        assert kept.sum() == 15
        assert (split.labels[kept] == split.truth[kept]).all()
        assert split.labels.max() < split.known
    assert len({tuple(split.truth) for split in splits}) > 1
    assert len({split.seed for split in splits}) == 4


def test_the_same_random_numbers_give_the_same_splits_and_unlabelled_images_have_no_say() -> None:
    labels = np.arange(40) % 5
    first, again = (resplits(labels, 2, np.random.RandomState(3)) for _ in range(2))
    longer = resplits(np.concatenate([labels, np.full(9, -1)]), 2, np.random.RandomState(3))
    for a, b, c in zip(first, again, longer, strict=True):
        assert a.labels.tolist() == b.labels.tolist() == c.labels.tolist()
        assert (a.seed, a.truth.tolist()) == (b.seed, b.truth.tolist()) == (c.seed, c.truth.tolist())


def test_three_labelled_classes_are_too_few() -> None:
    assert resplits(np.array([0, 0, 1, 1, 2, 2, -1]), 3, np.random.RandomState(0)) == []


def test_the_task_itself_with_a_quarter_hidden() -> None:
    """All images are there, labelled or not; what was hidden is all that is judged."""
    labels = np.random.RandomState(0).permutation(np.concatenate([np.repeat(np.arange(8), 12), np.full(50, -1)]))
    splits = task_splits(labels, 20, 3, np.random.RandomState(0), most=1000)
    for split in splits:
        assert split.rows.tolist() == list(range(146))
        assert (split.known, split.categories) == (6, 20)
        assert ((split.truth < 0) == (labels < 0)).all()
        kept = split.labels >= 0
        assert (split.labels[kept] == split.truth[kept]).all()
        assert np.bincount(split.labels[kept]).tolist() == [9] * 6
        assert split.hidden.tolist() == np.flatnonzero((split.truth >= 0) & ~kept).tolist()
        assert (split.truth[split.hidden] >= split.known).sum() == 2 * 12
    assert len({tuple(split.truth) for split in splits}) > 1
    again = task_splits(labels, 20, 3, np.random.RandomState(0), most=1000)
    assert [split.labels.tolist() for split in again] == [split.labels.tolist() for split in splits]


def test_few_labels_leave_one_in_each_class_and_too_few_classes_leave_nothing() -> None:
    labels = np.concatenate([np.repeat(np.arange(5), 2), np.full(5, -1)])
    for split in task_splits(labels, 8, 20, np.random.RandomState(0), most=1000):
        assert split.known == 3
        assert set(split.labels.tolist()) == {-1, 0, 1, 2}
    assert task_splits(np.array([0, 0, 1, 1, 2, 2, -1]), 4, 3, np.random.RandomState(0), most=1000) == []
    assert task_splits(labels, 8, 3, np.random.RandomState(0), most=4) == [], "of four images nothing can be told"
