"""Labelled images split again into known and new classes."""

import numpy as np

from newkinds.assigners.resplit import resplits


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
