"""The benchmark split against the index lists and hashes of the published loaders."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from newkinds.data.splits import as_benchmark, gcd_split, hide_labels
from newkinds.data.table import Table
from newkinds.errors import NewkindsError

EXPECTED = json.loads((Path(__file__).parents[1] / "numbers" / "splits.json").read_text())
SCATTERED = [7, 2, 5, 0, 9]


def sha256(rows):
    return hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()


def shuffled(classes, images, seed):
    return np.random.RandomState(seed).permutation(np.repeat(np.arange(classes), images))


@pytest.mark.parametrize(
    ("case", "labels", "known"),
    [
        ("cifar10_50000_gcd", shuffled(10, 5000, 123), range(5)),
        ("cifar100_50000_gcd", shuffled(100, 500, 124), range(80)),
        ("cub_synth5994", np.arange(5994) // 30, EXPECTED["cub_known"]),
        ("imagenet100_synth10perclass", np.arange(1000) // 10, range(50)),
    ],
)
def test_large_published_splits(case, labels, known):
    for rows, name in zip(gcd_split(labels, known), ("labelled", "unlabelled"), strict=True):
        assert len(rows) == EXPECTED[case][name]["n"]
        assert sha256(rows) == EXPECTED[case][name]["sha256_sorted"]


@pytest.mark.parametrize(
    ("case", "labels", "known"),
    [
        ("cifar_small200_gcd", 7 * np.arange(200) % 10, range(5)),
        ("cub_small200", np.arange(200) // 20, SCATTERED),
        ("scars_small200", 7 * np.arange(200) % 10, SCATTERED),
        ("aircraft_small200", 7 * np.arange(200) % 10, SCATTERED),
    ],
)
def test_small_published_splits(case, labels, known):
    labelled, unlabelled = gcd_split(labels, known)
    assert labelled.tolist() == EXPECTED[case]["labelled"]
    assert unlabelled.tolist() == EXPECTED[case]["unlabelled"]


@pytest.mark.parametrize("case", EXPECTED["subsample_instances"])
def test_published_draws(case):
    n, fraction = case.removeprefix("n").split("_p")
    labelled, _ = gcd_split(np.zeros(int(n)), known=[0], fraction=float(fraction))
    assert len(labelled) == EXPECTED["subsample_instances"][case]["count"]
    assert sha256(labelled) == EXPECTED["subsample_instances"][case]["sha256_sorted"]


def test_a_split_is_a_partition_that_hides_every_new_class():
    labels = np.array(["cat", "owl", "cat", "dog", "owl", "cat", "dog", "cat", "cat"])
    labelled, unlabelled = gcd_split(labels, known={"cat", "dog"}, seed=3)
    assert sorted([*labelled, *unlabelled]) == list(range(9))
    assert len(labelled) == 3  # half of seven, rounded down
    assert "owl" not in labels[labelled]


def test_seed_and_fraction():
    labels = np.zeros(40)
    assert gcd_split(labels, [0], seed=1)[0].tolist() == gcd_split(labels, [0], seed=1)[0].tolist()
    assert gcd_split(labels, [0], seed=1)[0].tolist() != gcd_split(labels, [0], seed=2)[0].tolist()
    assert [len(gcd_split(labels, [0], fraction=f)[0]) for f in (0, 0.25, 1)] == [0, 10, 40]


def test_does_not_touch_the_global_generator():
    np.random.seed(5)
    expected = np.random.rand()
    np.random.seed(5)
    gcd_split(np.zeros(10), [0])
    assert np.random.rand() == expected


def test_bad_requests_and_nothing_known():
    labelled, unlabelled = gcd_split([0, 1, 2], known=[])
    assert (labelled.tolist(), unlabelled.tolist()) == ([], [0, 1, 2])
    with pytest.raises(NewkindsError, match=r"between 0 and 1, not at 1\.5"):
        gcd_split([0, 1], known=[0], fraction=1.5)
    with pytest.raises(NewkindsError, match="none of the 1 known classes"):
        gcd_split(["cat", "dog"], known=["Cat"])


def labelled_table(labels, truth=None):
    paths = [f"{i}.png" for i in range(len(labels))]
    return Table(paths=paths, labels=labels, open=lambda row: None, truth=truth)


def test_hidden_labels_become_truth():
    labels = ["cat", "dog", "owl", "cat", "dog", "cat"]
    table = hide_labels(labelled_table(labels), known=["dog", "cat"], fraction=0.6, seed=1)
    kept, _ = gcd_split(labels, ["dog", "cat"], 0.6, 1)
    assert table.labels == [label if i in kept else None for i, label in enumerate(labels)]
    assert table.truth == labels
    assert table.known == ["dog", "cat"]  # the order given, not the alphabet's
    assert table.categories == 3


def test_a_known_class_without_labelled_images_is_said(capfd):
    hide_labels(labelled_table(["cat"] * 9 + ["dog"]), known=["cat", "dog"], fraction=0.1)
    assert "1 known class(es) keep no labelled image, the first is 'dog'" in capfd.readouterr().err


def test_a_table_of_ones_own_as_a_benchmark():
    labels = ["d", "c", "b", "a", "a", "b", None]
    assert as_benchmark(labelled_table(labels), None).labels == labels
    table = as_benchmark(labelled_table(labels), 0.5)
    assert table.known == ["a", "b"]
    assert sum(label is not None for label in table.labels) == 2
    assert table.truth == labels
    assert table.categories is None  # of the last image nobody knows
    table = as_benchmark(labelled_table(labels), ["d", "a"], fraction=0.4, split_seed=5)
    assert table.known == ["d", "a"]
    assert sum(label is not None for label in table.labels) == 1


def test_settings_are_chosen_on_labelled_images_alone():
    """What was unlabelled, with truth or without, is not there; the classes that were known are split again."""
    labels = ["a", "b", None, "c", "a", "b", "c", "a", "b"]
    table = as_benchmark(labelled_table(labels, truth=["a", "b", "d", "c", "a", "b", "c", "a", "b"]), None, tune=True)
    assert table.truth == [label for label in labels if label is not None]
    assert table.known == ["a", "b"]
    assert table.categories == 3
    assert sum(label is not None for label in table.labels) == 3  # of six
    assert set(table.labels) <= {"a", "b", None}
    assert "labelled images" in table.caveat
    whole = as_benchmark(labelled_table(["a", "b", "c", "d"] * 8), 0.5)
    kept = [path for path, label in zip(whole.paths, whole.labels, strict=True) if label is not None]
    assert as_benchmark(labelled_table(["a", "b", "c", "d"] * 8), 0.5, tune=True).paths == kept
    with pytest.raises(NewkindsError, match="1 is too few"):
        as_benchmark(labelled_table(["a", "a", None]), None, tune=True)


def test_where_there_is_truth_beside_labels_it_is_split():
    table = as_benchmark(labelled_table(["a", None, None, "b"], truth=["a", "a", "c", None]), ["a"])
    assert table.truth == ["a", "a", "c", "b"]
    assert table.categories == 3


@pytest.mark.parametrize(
    ("known", "settings", "message"),
    [
        (["owl"], {}, "names 'owl', but no image"),
        (["caat"], {}, "Did you mean 'cat'"),
        (["cat", "cat"], {}, "twice"),
        (["cat", "dog"], {}, "some must be known and some new"),
        ([], {}, "some must be known"),
        (2.0, {}, "a share between 0 and 1"),
        (0.1, {}, "of the 2 classes 0 would be known"),
        (None, {"fraction": 0.3}, "say also which classes are known"),
        (None, {"split_seed": 1}, "say also which classes are known"),
        (0.5, {"fraction": 2.0}, "between 0 and 1"),
        (0.5, {"split_seed": -1}, "the seed of a split"),
    ],
)
def test_splits_that_cannot_be_made(known, settings, message):
    with pytest.raises(NewkindsError, match=message):
        as_benchmark(labelled_table(["cat", "dog", "cat"]), known, **settings)
