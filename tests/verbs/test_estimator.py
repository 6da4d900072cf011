"""CategoryDiscovery: what scikit-learn wants of an estimator, and that it finds what `newkinds discover` would find."""

from __future__ import annotations

import inspect
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import newkinds
from blobs import blobs
from conftest import save_image
from newkinds.assigners.calibration import probabilities
from newkinds.cluster.count import by_shape
from newkinds.errors import NewkindsError
from newkinds.search.search import Search
from newkinds.search.ways import judge_of
from newkinds.verbs.estimator import CategoryDiscovery, labels_of

# Checks of scikit-learn that do not apply, and why; docs/estimator.md lists the same.
NOT_APPLICABLE: dict[str, str] = {}


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of nine kinds, their truth, and labels of half of the first six."""
    X, truth = blobs(n=360, clusters=9, dim=12, spread=0.35, seed=3)
    labelled = (truth < 6) & (np.arange(len(truth)) // 9 % 2 == 0)
    return X, truth, np.where(labelled, truth, -1)


@pytest.fixture(scope="module")
def fitted(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> CategoryDiscovery:
    X, _, y = data
    return CategoryDiscovery(random_state=0).fit(X, y)


def test_few_rows_are_worked_on_in_one_thread_and_the_others_are_given_back(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that wait for each other at each small product took ten times the processor time of one."""
    threads = []

    def note_and_stop(*_: Any) -> None:
        threads.append(torch.get_num_threads())
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "compare", note_and_stop)
    X, _, y = data
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for small in (X.size, X.size - 1):
            monkeypatch.setattr("newkinds.threads.SMALL", small)
            with pytest.raises(KeyboardInterrupt):
                CategoryDiscovery(9).fit(X, y)
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert threads == [1, 2]


# -- scikit-learn's rules --------------------------------------------------------------------------------------------


def test_every_check_of_scikit_learn_that_applies_passes() -> None:
    estimator = CategoryDiscovery.from_features()
    if "expected_failed_checks" in inspect.signature(check_estimator).parameters:
        found = check_estimator(estimator, on_fail=None, expected_failed_checks=NOT_APPLICABLE)
        wrong = [f"{check['check_name']}: {check['exception']!r}" for check in found if check["status"] == "failed"]
        assert len(found) > 40
        assert not wrong
    else:  # scikit-learn before 1.6 stops at the first
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_estimator(estimator)


def test_it_is_found_by_its_short_name_and_shows_its_parameters() -> None:
    assert newkinds.CategoryDiscovery is CategoryDiscovery
    estimator = CategoryDiscovery.from_features(12, assigner="ward", random_state=3)
    assert estimator.get_params()["input"] == "features"
    assert clone(estimator).get_params() == estimator.get_params()
    assert "n_categories=12" in repr(estimator)


def test_a_pickled_copy_predicts_the_same(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], fitted: CategoryDiscovery
) -> None:
    copy = pickle.loads(pickle.dumps(fitted))
    X = data[0]
    assert np.array_equal(copy.predict(X), fitted.predict(X))
    assert np.array_equal(copy.predict_proba(X), fitted.predict_proba(X))


def test_it_is_the_last_step_of_a_pipeline(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, truth, y = data
    scales = np.logspace(0, 4, X.shape[1])  # columns that only scaling makes comparable
    pipeline = make_pipeline(StandardScaler(), CategoryDiscovery.from_features(9)).fit(X * scales, y)
    assert adjusted_rand_score(truth, pipeline.predict(X * scales)) > 0.9
    unscaled = CategoryDiscovery(9, assigner="balanced", whiten="none").fit(X * scales, y)
    assert adjusted_rand_score(truth[y < 0], unscaled.labels_[y < 0]) < 0.7
    assert np.array_equal(pipeline.fit_predict(X * scales, y), pipeline.predict(X * scales))
    assert pipeline.get_feature_names_out()[0] == "categorydiscovery0"


def test_a_grid_search_chooses_by_the_labels_that_were_held_out(
    data: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    X, _, y = data
    noise = np.random.default_rng(0).normal(scale=8, size=(len(X), 1))  # what whitening within classes takes away
    noisy = np.hstack([X, noise])
    grid = {"whiten": ["none", 0.1], "assigner": ["sskmeans"]}
    search = GridSearchCV(CategoryDiscovery(9, random_state=0), grid, cv=StratifiedKFold(3)).fit(noisy, y)
    assert search.best_params_["whiten"] == 0.1
    assert search.best_score_ > 0.95
    assert search.best_estimator_.predict(noisy).max() < 9


def test_before_fit_nothing_is_predicted() -> None:
    for ask in (CategoryDiscovery().predict, CategoryDiscovery().predict_proba, CategoryDiscovery().transform):
        with pytest.raises(NotFittedError):
            ask(np.ones((2, 3)))


# -- what is found ---------------------------------------------------------------------------------------------------


def test_known_classes_keep_their_labels_and_new_ones_are_named(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], fitted: CategoryDiscovery
) -> None:
    X, truth, y = data
    assert fitted.n_categories_ == 9  # nobody said how many
    assert fitted.categories_.tolist() == [0, 1, 2, 3, 4, 5, "new-1", "new-2", "new-3"]
    known = truth < 6
    assert (fitted.labels_[known] == truth[known]).mean() > 0.97
    assert adjusted_rand_score(truth[~known], fitted.labels_[~known]) > 0.95
    assert np.array_equal(fitted.labels_, fitted.predict(X))
    assert (np.diff(np.bincount(fitted.labels_, minlength=9)[6:]) <= 0).all()  # the largest is new-1
    assert fitted.count_ is not None
    assert fitted.count_.low <= 9 <= fitted.count_.high
    names = np.array([f"kind {label}" if label >= 0 else "" for label in y])
    texts = CategoryDiscovery(random_state=0).fit(X, names)
    assert texts.categories_[0] == "kind 0"
    assert np.array_equal(texts.labels_, fitted.labels_)


def test_the_same_seed_gives_the_same_bits_and_leaves_other_random_numbers_alone(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], fitted: CategoryDiscovery
) -> None:
    X, _, y = data
    torch.manual_seed(1)
    before = torch.get_rng_state()
    again = CategoryDiscovery(random_state=0).fit(X, y)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert CategoryDiscovery(9, random_state=np.random.RandomState(3)).fit(X, y).n_categories_ == 9


def test_what_the_search_hid_calibrates_confidence(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], fitted: CategoryDiscovery
) -> None:
    splits = judge_of(data[2], 0, fitted.n_categories_).splits
    assert fitted.model_.calibration.record["images"] == sum(len(split.hidden) for split in splits)
    assert "trained" not in fitted.model_.calibration.note


def test_probabilities_sum_to_one_and_the_largest_is_the_confidence(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], fitted: CategoryDiscovery
) -> None:
    X, truth, _ = data
    shares = fitted.predict_proba(X)
    assert shares.shape == (len(X), 9)
    assert np.allclose(shares.sum(axis=1), 1, atol=1e-12)
    assert np.array_equal(shares.argmax(axis=1), fitted.labels_)
    confidence = fitted.model_.assign(torch.from_numpy(X).float()).confidence.numpy()
    sure = confidence > 1.01 / 9
    assert sure.mean() > 0.8
    assert np.allclose(shares.max(axis=1)[sure], confidence[sure], atol=1e-6)
    assert (fitted.confidence_ <= confidence + 1e-6).all(), "there, each row is compared with the others alone"
    strange = -X[truth == 0].mean(axis=0, keepdims=True)  # opposite to a kind: like none of them
    assert fitted.predict_proba(strange).max() < 0.5 < np.median(shares.max(axis=1))


def test_a_category_without_members_has_no_probability() -> None:
    logits = torch.tensor([[0.3, -torch.inf, 0.1], [0.2, -torch.inf, 0.9]])
    shares = probabilities(logits, torch.tensor([0.75, 0.1]))
    assert torch.allclose(shares[0], torch.tensor([0.75, 0, 0.25], dtype=torch.float64))
    assert torch.allclose(shares[1], torch.tensor([0.495, 0, 0.505], dtype=torch.float64))


def test_the_embedding_is_whitened_if_that_was_asked_for(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, _, y = data
    plain = CategoryDiscovery(9, whiten="none", assigner="sskmeans").fit_transform(X, y)
    assert np.allclose(plain, X / np.linalg.norm(X, axis=1, keepdims=True), atol=1e-6)
    whitened = CategoryDiscovery(9, whiten=0.5, assigner="sskmeans").fit(X, y)
    assert whitened.way_ == "sskmeans, whitened"
    assert len(whitened.candidates_) == 1
    assert np.allclose(np.linalg.norm(whitened.transform(X), axis=1), 1, atol=1e-5)
    assert not np.allclose(whitened.transform(X), plain, atol=0.1)


def test_score_demands_known_labels_and_matches_new_ones(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], fitted: CategoryDiscovery
) -> None:
    X, truth, y = data
    labelled = y >= 0
    assert fitted.score(X, y) == (fitted.labels_[labelled] == y[labelled]).mean()
    assert fitted.score(X, truth) > 0.95  # new kinds have other names than new-1, new-2 …
    swapped = np.where(y < 0, -1, (y + 1) % 6)  # a permutation of known labels is wrong, however consistent
    assert fitted.score(X, swapped) < 0.05
    with pytest.raises(ValueError, match="nothing to judge by"):
        fitted.score(X, np.full(len(X), -1))


# -- labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "classes", "targets"),
    [
        ([3, -1, 7, 3], [3, 7], [0, -1, 1, 0]),
        ([3.0, np.nan, 7.0, -1.0], [3, 7], [0, -1, 1, -1]),
        (["dog", "", "cat", "-1"], ["cat", "dog"], [1, -1, 0, -1]),
        (np.array(["+", "-", "", "+"]), ["+", "-"], [0, 1, -1, 0]),
        (np.array(["dog", None, "cat", np.nan], dtype=object), ["cat", "dog"], [1, -1, 0, -1]),
        (np.array(["dog", -1, "cat", ""], dtype=object), ["cat", "dog"], [1, -1, 0, -1]),
        ([True, False, True, True], [False, True], [1, 0, 1, 1]),
        ([[3], [-1], [3], [3]], [3], [0, -1, 0, 0]),
        (None, [], [-1, -1, -1, -1]),
    ],
)
@pytest.mark.filterwarnings("ignore:A column-vector y")
def test_what_is_no_label(y: Any, classes: list[Any], targets: list[int]) -> None:
    found, numbers = labels_of(y, np.zeros((4, 2)))
    assert found.tolist() == classes
    assert numbers.tolist() == targets


@pytest.mark.parametrize("y", [[0.5, 1, 2, 3], np.array(["a", 2, "b", 3], dtype=object), [1, 2]])
def test_labels_that_are_no_classes_are_refused(y: Any) -> None:
    with pytest.raises(ValueError, match=r"labels|inconsistent"):
        CategoryDiscovery().fit(np.eye(4), y)


@pytest.mark.parametrize(
    ("X", "says"),
    [(np.ones((40, 4)), "nothing can be told apart"), (np.arange(-20.0, 20)[:, None], "all that counts is its sign")],
)
def test_features_without_information_are_doubted(X: np.ndarray, says: str) -> None:
    y = np.where(np.arange(40) % 3 == 0, np.arange(40) % 2, -1)
    with pytest.warns(UserWarning, match=says):
        CategoryDiscovery(n_categories=3, random_state=0).fit(X, y)


def test_a_number_that_is_no_more_than_a_guess_is_called_so() -> None:
    X = np.random.default_rng(0).normal(size=(60, 5))
    with pytest.warns(UserWarning, match=r"categories is a guess: between \d+ and \d+; labels of 4 classes"):
        found = CategoryDiscovery(random_state=0).fit(X)
    assert found.count_ is not None
    assert found.count_.sure == "unsure"


def test_without_labels_it_is_a_clustering(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, truth, _ = data
    found = CategoryDiscovery(random_state=0).fit(X)
    assert found.n_known_ == 0
    assert found.categories_[0] == "new-1"
    assert adjusted_rand_score(truth, found.labels_) > 0.9
    assert CategoryDiscovery(4).fit(X).n_categories_ == 4
    one_class = CategoryDiscovery().fit(X, np.where(truth == 2, 2, -1))
    assert one_class.categories_[:2].tolist() == [2, "new-1"]


def test_if_all_is_labelled_nothing_is_discovered(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, truth, _ = data
    found = CategoryDiscovery().fit(X, truth)
    assert found.categories_.tolist() == list(range(9))
    assert found.score(X, truth) > 0.97


def test_a_guess_by_the_shape_of_the_data_alone() -> None:
    assert by_shape(blobs(n=300, clusters=7, dim=16)[0]).answer == 7
    same = by_shape(np.ones((5, 3)))
    assert (same.answer, same.sure) == (1, "unsure")
    assert "Only 1 class has labels" in by_shape(blobs(n=60, clusters=3)[0], known=1).caution


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"n_categories": 3}, "6 labelled classes and 240 unlabelled rows allow 6 to 246"),
        ({"n_categories": 400}, "allow 6 to 246"),
        ({"n_categories": 2.5}, "whole number"),
        ({"assigner": "wards"}, "Did you mean 'ward'"),
        ({"assigner": "prototypes"}, "nothing trains here"),
        ({"whiten": True}, "whiten is"),
        ({"whiten": 0}, "whiten is"),
        ({"input": "pictures"}, "input is"),
    ],
)
def test_parameters_that_cannot_be_used(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], parameters: dict[str, Any], said: str
) -> None:
    with pytest.raises(NewkindsError, match=said):
        CategoryDiscovery(**parameters).fit(data[0], data[2])


# -- images ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[str]]:
    """Red, green and blue ones; of red and green some are labelled."""
    folder, colours = tmp_path_factory.mktemp("pictures"), {"red": 0, "green": 1, "blue": 2}
    paths = []
    for name, channel in colours.items():
        colour = tuple(200 if place == channel else 40 for place in range(3))
        paths += [save_image(folder / f"{name}{i}.png", colour) for i in range(6)]
    return paths, ["red"] * 3 + [""] * 3 + ["green"] * 3 + [""] * 9


def test_paths_pictures_and_arrays_are_the_same_images(pictures: tuple[list[Path], list[str]]) -> None:
    paths, y = pictures
    found = CategoryDiscovery(3, backbone="tiny").fit(paths, y)
    assert found.categories_.tolist() == ["green", "red", "new-1"]
    assert len(set(found.labels_[12:])) == 1  # blue is one category, and a new one
    assert found.labels_[12] == 2
    opened = [Image.open(path) for path in paths]
    arrays = np.stack([np.asarray(image) for image in opened])
    alone = found.predict(paths)
    assert set(np.flatnonzero(alone != found.labels_)) == set(found.doubts_)
    for X in (list(map(str, paths)), np.array(paths, dtype=object), opened, arrays, list(arrays)):
        assert np.array_equal(found.predict(X), alone)
    assert found.transform(paths).shape == (18, 96)
    restored = pickle.loads(pickle.dumps(found))
    assert np.array_equal(restored.predict(arrays), alone)
    assert len(pickle.dumps(found)) < 500_000  # the backbone's weights are not in it
    search = GridSearchCV(found, {"n_categories": [3]}, cv=StratifiedKFold(2)).fit(paths, y)
    assert np.isfinite(search.best_score_)


def test_images_that_cannot_be_used_are_named(pictures: tuple[list[Path], list[str]], tmp_path: Path) -> None:
    paths, y = pictures
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"not a picture")
    estimator = CategoryDiscovery(3, backbone="tiny")
    with pytest.raises(NewkindsError, match=r"1 of 19 images cannot be read: .*broken\.png"):
        estimator.fit([*paths, broken], [*y, ""])
    with pytest.raises(NewkindsError, match="no image: \\(height, width, 3\\)"):
        estimator.fit(np.zeros((4, 8, 8, 3)), None)
    estimator.fit(paths, y)
    with pytest.raises(NewkindsError, match="was fitted to images"):
        estimator.predict(np.zeros((4, 96)))
    with pytest.raises(NewkindsError, match="list of paths"):
        CategoryDiscovery(input="images").fit("one.png")
    estimator.backbone_digest_ = "of other weights"
    with pytest.raises(NewkindsError, match="not those of the fit"):
        estimator.predict(paths)
