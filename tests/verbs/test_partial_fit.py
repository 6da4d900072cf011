"""`CategoryDiscovery.partial_fit`: more rows, by scikit-learn's rules."""

import pickle
from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from growing import DIM, Kinds
from newkinds import CategoryDiscovery

EACH = 12


def are_nearly(found: np.ndarray, wanted: list[int]) -> bool:
    """All are where they belong, but that one may be farther from there than nearly all others, and so wait."""
    return bool(np.isin(found - np.array(wanted), 0).sum() >= len(wanted) - 1 and set(found.tolist()) <= {*wanted, -1})


@pytest.fixture(scope="module")
def kinds() -> Kinds:
    return Kinds()


@pytest.fixture(scope="module")
def first(kinds: Kinds) -> tuple[np.ndarray, np.ndarray]:
    """Ten kinds, six of them known: half of their rows are labelled."""
    truth = np.repeat(np.arange(10), EACH)
    labels = np.where((truth < 6) & (np.arange(len(truth)) % 2 == 0), truth, -1)
    return kinds.draw(dict.fromkeys(range(10), EACH)), labels


@pytest.fixture
def fitted(first: tuple[np.ndarray, np.ndarray]) -> CategoryDiscovery:
    return CategoryDiscovery(10).partial_fit(*first)


def test_the_first_call_is_fit(fitted: CategoryDiscovery, first: tuple[np.ndarray, np.ndarray]) -> None:
    other = CategoryDiscovery(10).fit(*first)
    assert_array_equal(fitted.labels_, other.labels_)
    assert_array_equal(fitted.predict(first[0]), other.predict(first[0]))
    assert_array_equal(fitted.predict_proba(first[0]), other.predict_proba(first[0]))


def test_more_rows_are_placed_wait_or_open(fitted: CategoryDiscovery, kinds: Kinds) -> None:
    before, names = fitted.labels_.copy(), fitted.categories_.tolist()
    majority = [Counter(before[kind * EACH : (kind + 1) * EACH].tolist()).most_common(1)[0][0] for kind in range(10)]
    fitted.partial_fit(kinds.draw({3: 4, 8: 4, 12: 3}))
    assert_array_equal(fitted.labels_[: len(before)], before)
    later = fitted.labels_[len(before) :]
    assert are_nearly(later[:8], [majority[3]] * 4 + [majority[8]] * 4)
    assert later[8:].tolist() == [-1] * 3  # like noise, and unlike all
    assert (fitted.unlike_[-3:] > 1).all()
    fitted.partial_fit(kinds.draw({12: 9, 13: 8}))
    assert fitted.categories_.tolist() == [*names, "new-5", "new-6"]
    assert fitted.n_categories_ == 12
    assert_array_equal(fitted.labels_[: len(before)], before)
    opened = fitted.labels_[-17:-8]
    assert len(set(opened.tolist())) == 1
    assert_array_equal(fitted.labels_[len(before) + 8 : len(before) + 11], opened[:3])  # those that had waited
    assert {*opened.tolist(), *fitted.labels_[-8:].tolist()} == {10, 11}
    assert len(fitted.labels_) == len(fitted.confidence_) == len(fitted.unlike_) == len(before) + 28
    fresh = kinds.draw({12: 3, 13: 3, 0: 3})
    predicted = fitted.predict(fresh)
    assert predicted.tolist() == [opened[0]] * 3 + [21 - opened[0]] * 3 + [majority[0]] * 3
    shares = fitted.predict_proba(fresh)
    assert shares.shape == (9, 12)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert_array_equal(shares.argmax(axis=1), predicted)
    again = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(again.predict(fresh), predicted)
    assert are_nearly(again.partial_fit(fresh).labels_[-9:], predicted.tolist())


def test_labels_are_a_persons_word(fitted: CategoryDiscovery, kinds: Kinds) -> None:
    rows = kinds.draw({2: 2, 5: 1, 12: 3})
    fitted.partial_fit(rows, np.array([2, 5, -1, 77, 77, -1]))
    assert fitted.labels_[-6:-4].tolist() == [2, 5]
    assert len(fitted.labels_) - 5 in fitted.doubts_.tolist()  # it looks like kind 2
    place = fitted.n_categories_ - 1
    assert fitted.categories_[place] == 77
    assert are_nearly(fitted.labels_[-3:], [place] * 3)
    assert fitted.score(rows[3:], np.array([77, 77, 77])) == 1


def test_other_features_are_refused_and_a_clone_begins_anew(fitted: CategoryDiscovery) -> None:
    with pytest.raises(ValueError, match="features"):
        fitted.partial_fit(np.ones((3, DIM + 1)))
    assert not hasattr(clone(fitted), "labels_")
