"""Category discovery as scikit-learn knows its estimators: `fit(X, y)` and `predict(X)`, on features or on images."""

import warnings
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d, validation
from torch import Tensor
from typing_extensions import Self

from ..assigners import ASSIGNERS
from ..assigners.calibration import probabilities
from ..assigners.whitening import Whitening
from ..cluster.count import Count
from ..cluster.count.combination import SOLID_CLASSES
from ..cluster.points import UNLABELLED, whole_number
from ..data.given import are_images, table_of_images
from ..discovery.kinds import category_names, next_numbered
from ..encoders.auto import AUTO, choose_backbone
from ..encoders.backbones import VECTORS
from ..encoders.encoder import Encoder, frozen_encoder
from ..errors import InvalidValue
from ..methods import METHODS
from ..search.clock import Clock
from ..search.evidence import TrialEvidence
from ..search.frozen_features import FrozenFeatures, frozen_ways, is_first_favoured
from ..search.search import Search
from ..search.ways import Way, judge_of
from ..threads import threads_for
from ..training.device import choose_device
from ..training.embedding import embed
from ..training.model import Model
from .count import estimate_number
from .growing_rows import GrowingRows

Input = Literal["auto", "features", "images"]
NO_LABEL = ("", "-1")  # among labels that are text; NumPy makes "-1" of the number in np.array(["cat", -1])


class CategoryDiscovery(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Known classes are recognised and new categories found in partly labelled data.

    `X`: features (n, D), in which rows are compared by their direction; or images: a list of paths or of Pillow's
    pictures, or an array (n, height, width, 3) uint8, which a frozen backbone embeds. `y`: the class of each row; none
    is -1, NaN, None or "". How categories are found is chosen by cross-validation on these labels, as
    `newkinds.discover` does it for what trains nothing: the assigners `em` and `pim`, judged by the
    same task with some of the labels hidden. (What trains, and takes minutes, is the business of `newkinds.discover`.)

    Parameters
    ----------
    n_categories : how many there are in total, known and new; None: an estimate.
    input : "features", "images", or "auto", which looks at X.
    assigner : the name of one (`newkinds list assigners`), or "auto".
    whiten : "none", a shrinkage above 0 and up to 1, or "auto".
    backbone, weights, image_size : for images, as in `newkinds.discover`.
    device : where images are embedded: "auto", "cpu", "cuda" or "mps".
    random_state : an int gives the same result at every call; None does not.

    Attributes
    ----------
    labels_ : (n,) the category of each row of X, a place in `categories_`; a labelled row is in its class. After
        `partial_fit`, -1: like no category yet.
    doubts_ : the labelled rows that would be elsewhere without their label, where `predict` puts them.
    categories_ : (n_categories_,) the labels of the known classes, then "new-1", "new-2" …, then what came later.
    n_categories_, n_known_ : how many there are, and how many of them are known. A known class whose labelled rows lie
        among others has only these, and is one more than `n_categories`.
    confidence_ : (n,) how probable it is that each is right.
    unlike_ : (n,) distance of each row to its category; above 1 it is like none of them.
    way_, why_ : how categories were found, and the evidence for that; `candidates_` is all that was compared.
    count_ : the estimate of the number of categories (`newkinds.count.Count`), or None if it was given, or if
        there is nothing to count: no row without a label, or none that differs from the known classes.

    >>> X, y = features, labels                        # y: classes as numbers or text, -1 for unlabelled
    >>> found = CategoryDiscovery(random_state=0).fit(X, y)
    >>> found.categories_[found.predict(X[:3])]
    array([3, 'new-2', 3], dtype=object)
    """

    def __init__(
        self, n_categories: int | None = None, *, input: Input = "auto", assigner: str = "auto",
        whiten: float | str = "auto", backbone: str = AUTO, weights: str | None = None, image_size: int | None = None,
        device: str = "auto", random_state: int | np.random.RandomState | None = 0,
    ) -> None:  # fmt: skip
        self.n_categories = n_categories
        self.input = input
        self.assigner = assigner
        self.whiten = whiten
        self.backbone = backbone
        self.weights = weights
        self.image_size = image_size
        self.device = device
        self.random_state = random_state

    @classmethod
    def from_features(cls, n_categories: int | None = None, **parameters: Any) -> Self:
        """One whose X is features (n, D), whatever it looks like: `input="features"`.

        >>> make_pipeline(StandardScaler(), CategoryDiscovery.from_features()).fit(X, y)
        """
        return cls(n_categories, **{**parameters, "input": "features"})

    # -- scikit-learn's methods ------------------------------------------------------------------------------------

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Find the categories of X, of whose rows some may have a label in y."""
        ways = self._ways()
        features = self._features(X, reset=True)
        classes, targets = labels_of(y, X)
        with threads_for(features.numel()):
            return self._fit(features, classes, targets, ways)

    def _fit(self, features: Tensor, classes: NDArray[Any], targets: NDArray[np.int64], ways: list[Way]) -> Self:
        """Find the categories of features (n, D), of the known classes (C,) and places (n,) among them, or -1."""
        seed = self._seed()
        rows = F.normalize(features, dim=1)
        _warn_of_alike(rows)
        k, self.count_ = self._count(rows, targets, len(classes))
        if self.count_ is not None and self.count_.sure == "unsure":
            between = f"between {self.count_.low} and {self.count_.high}"
            surer = f"labels of {SOLID_CLASSES} classes or more would make it surer"
            warnings.warn(f"{k} categories is a guess: {between}; {surer}", stacklevel=3)
        search = Search(judge_of(targets, seed, k), Clock(float("inf")))
        evidence = TrialEvidence()
        if search.judge.splits:
            search.favours_first = is_first_favoured(ways, rows, targets, k, seed)
        search.compare(FrozenFeatures(rows, evidence=evidence), ways)
        choice = search.choose()
        way = Way.of(choice.candidate.settings)
        self.way_, self.why_ = str(way), choice.why
        self.candidates_ = [score.as_json() for score in search.scores]
        known = [str(name) for name in classes.tolist()]
        self.model_ = _model(way, features.shape[1], known, k)
        self.model_.find_categories(features, torch.from_numpy(targets), seed)
        of_chosen = evidence.of(choice.candidate.name)  # by which nothing has to be fitted again
        self.model_.calibrate(features, torch.from_numpy(targets), seed, of_chosen)
        alone = self.model_.assign(features, inside=True)
        self.doubts_ = np.flatnonzero((targets != UNLABELLED) & (alone.category.numpy() != targets))
        assignment = self.model_.keep_labels(alone, features, torch.from_numpy(targets))
        assert assignment.unlike is not None  # it was calibrated
        self.confidence_, self.unlike_ = assignment.confidence.numpy(), assignment.unlike.numpy()
        self.n_categories_, self.n_known_ = self.model_.categories, len(classes)
        # new categories are numbered by their size, so that empty ones are the last
        sizes = assignment.category.bincount(minlength=self.n_categories_).numpy()[len(classes) :]
        largest_first = len(classes) + np.argsort(-sizes, kind="stable")
        self._order = np.concatenate([np.arange(len(classes)), largest_first])  # (K,) those of the model
        self.labels_ = np.argsort(self._order)[assignment.category.numpy()]
        new = category_names(known, self.n_categories_)[len(classes) :]
        self.categories_ = np.array([*classes.tolist(), *new], dtype=object)
        self._n_features_out = features.shape[1]
        self._class_numbers = {label: number for number, label in enumerate(classes.tolist())}
        agreed = np.where(alone.category.numpy() == targets, targets, UNLABELLED)  # part of the centre of their class
        self.grown_ = GrowingRows.begin(self.model_, features, assignment.category.numpy(), agreed)
        return self

    def partial_fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Place more rows in the categories that there are, which stay as they are; the first call is `fit`.

        Rows that are like no category wait: their label in `labels_` is -1, as that of noise elsewhere in scikit-learn,
        and later calls may place them. Enough of them that are alike open a category, see `newkinds.update`; so does a
        label in y that was not known. `labels_`, `confidence_`, `unlike_` are of all rows so far, in their order, and a
        place in `categories_` never means another category.

        >>> found = CategoryDiscovery().partial_fit(X, y)
        >>> found.partial_fit(next_week).labels_[len(X):]
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y)
        features = self._features(X)
        classes, targets = labels_of(y, X)
        with threads_for(features.numel()):
            return self._grow(features, classes, targets)

    def _grow(self, features: Tensor, classes: NDArray[Any], targets: NDArray[np.int64]) -> Self:
        """Place features (n, D) with labels: places (n,) among classes (C,), or -1."""
        before, names = len(self.grown_.sizes), self.categories_.tolist()
        number = dict(self._class_numbers)
        for label in classes.tolist():
            number.setdefault(label, before + len(number) - len(self._class_numbers))
        labels = [UNLABELLED if target == UNLABELLED else number[classes[target]] for target in targets.tolist()]
        by_label = {new: label for label, new in number.items() if new >= before}
        category, found, placed = self.grown_.place(features, labels, len(self.labels_))
        assert found.unlike is not None  # it was calibrated
        for new in range(before, len(self.grown_.sizes)):
            names.append(by_label.get(new, next_numbered(map(str, names))))
        self._class_numbers = number
        self.categories_ = np.array(names, dtype=object)
        self.n_categories_ = len(names)
        elsewhere = np.flatnonzero((targets != UNLABELLED) & (found.category.numpy() != np.array(labels)))
        self.doubts_ = np.concatenate([self.doubts_, len(self.labels_) + elsewhere])
        self.labels_ = np.concatenate([self.labels_, self._places()[category]])
        for row, now in placed.items():
            self.labels_[row] = self._places()[now]
        self.confidence_ = np.concatenate([self.confidence_, found.confidence.numpy()])
        self.unlike_ = np.concatenate([self.unlike_, found.unlike.numpy()])
        return self

    def _places(self) -> NDArray[np.int64]:
        """(n_categories_ + 1,) the place in `categories_` of each category by its number; -1 of none, which is last."""
        later = np.arange(len(self._order), self.n_categories_)
        return np.concatenate([np.argsort(self._order), later, [UNLABELLED]])

    def fit_predict(self, X: Any, y: ArrayLike | None = None) -> NDArray[np.int64]:
        """`fit(X, y).labels_`"""
        return self.fit(X, y).labels_  # scikit-learn's own would drop y

    def predict(self, X: Any) -> NDArray[np.int64]:
        """(n,) the category of each row, a place in `categories_`; of rows that need not have been seen before."""
        model = self._fitted_model()
        return self._places()[model.assign(self._features(X), self.grown_.extension).category.numpy()]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, n_categories_) rows sum to 1. The largest is the calibrated confidence, or an even share if that is less,
        as it is for a row that is like none of the categories."""
        model, features = self._fitted_model(), self._features(X)
        with torch.no_grad():
            logits = model.naming(model.chosen_assigner(model.embedding(features)))
        found = model.assign(features, self.grown_.extension)
        shares = F.pad(probabilities(logits, found.confidence), (0, self.n_categories_ - len(self._order)))
        every, alone = np.arange(len(shares)), logits.argmax(dim=1).numpy()
        largest = shares[every, alone].clone()
        shares[every, alone] = 0.0
        shares[every, found.category.numpy()] += largest  # of a later category, if that is nearer
        return shares.numpy()[:, np.argsort(self._places()[:-1])]

    def transform(self, X: Any) -> NDArray[Any]:
        """(n, D) unit rows: the space in which categories are found, after whitening if that was chosen."""
        model, features = self._fitted_model(), self._features(X)
        with torch.no_grad():
            embedding = model.embedding(features).numpy()
        return embedding.astype(np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64)

    def score(self, X: Any, y: ArrayLike) -> float:
        """Accuracy of the rows that have a label in y.

        A label that was known in `fit` must be met. Labels that were not are matched with new categories, one to one,
        in the best possible way: so discovery can be judged where the truth is known.
        """
        classes, targets = labels_of(y, X)
        labelled = targets != UNLABELLED
        if not labelled.any():
            raise InvalidValue("none of the rows has a label in y, so there is nothing to judge by.")
        found, targets = self.predict(X)[labelled], targets[labelled]
        place = {label: int(self._places()[number]) for label, number in self._class_numbers.items()}
        known = np.array([place.get(label, UNLABELLED) for label in classes.tolist()])[targets]
        right = int((found == known).sum())
        new = (known == UNLABELLED) & ~np.isin(found, list(place.values()))
        counts = np.zeros((self.n_categories_, len(classes)), np.int64)
        np.add.at(counts, (found[new], targets[new]), 1)
        return (right + int(counts[linear_sum_assignment(counts, maximize=True)].sum())) / len(found)

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.input != "images"
        tags.input_tags.string = self.input != "features"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _more_tags(self) -> dict[str, Any]:  # scikit-learn before 1.6
        return {"preserves_dtype": [np.float64, np.float32]}

    # -- parts -----------------------------------------------------------------------------------------------------

    def _fitted_model(self) -> Model:
        validation.check_is_fitted(self, "model_")
        return self.model_

    def _ways(self) -> list[Way]:
        """The ways to find categories that are compared."""
        if self.input not in ("auto", "features", "images"):
            raise InvalidValue(f"input is 'auto', 'features' or 'images', not {self.input!r}.")
        if self.assigner != "auto" and ASSIGNERS[self.assigner].learnt:
            raise InvalidValue(f"the assigner '{self.assigner}' is learnt in training, and nothing trains here.")
        number = isinstance(self.whiten, (int, float)) and not isinstance(self.whiten, bool)
        if self.whiten not in ("auto", "none") and not (number and 0 < float(self.whiten) <= 1):
            raise InvalidValue(f"whiten is 'auto', 'none' or above 0 and up to 1, not {self.whiten!r}.")
        return frozen_ways(
            None if self.assigner == "auto" else self.assigner, None if self.whiten == "auto" else self.whiten
        )

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)  # the seed of `newkinds discover --seed`
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _count(self, rows: Tensor, targets: NDArray[np.int64], known: int) -> tuple[int, Count | None]:
        """How many categories there are, and the estimate, if it is one."""
        unlabelled = int((targets == UNLABELLED).sum())
        if self.n_categories is not None:
            k = whole_number("n_categories", self.n_categories)
            if not known <= k <= known + unlabelled:
                allowed = f"{known} labelled classes and {unlabelled} unlabelled rows allow {known or 1}"
                raise InvalidValue(f"n_categories={k} is not possible: {allowed} to {known + unlabelled} categories.")
            return k, None
        if not unlabelled or len(rows.unique(dim=0)) <= known:
            return known, None  # there is nothing to discover
        estimate = estimate_number(rows, targets, known)
        return min(max(estimate.answer, known), known + unlabelled), estimate

    def _features(self, X: Any, reset: bool = False) -> Tensor:
        """(n, D) float32, scaled so that nothing overflows: only directions are compared."""
        images = self.input == "images" or (self.input == "auto" and are_images(X))
        if not reset and images != hasattr(self, "backbone_"):
            seen = "images" if hasattr(self, "backbone_") else "features"
            raise InvalidValue(f"the estimator was fitted to {seen}: give it {seen} here, too.")
        if reset:
            for name in ("backbone_", "n_features_in_", "feature_names_in_"):  # of an earlier fit to something else
                if hasattr(self, name):
                    delattr(self, name)
        if images:
            return self._embedded(X, reset)
        how: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_min_samples": 2 if reset else 1}
        if hasattr(validation, "validate_data"):
            checked = validation.validate_data(self, X, reset=reset, **how)
        else:  # scikit-learn before 1.6
            checked = self._validate_data(X, reset=reset, **how)
        largest = np.abs(checked).max(axis=1, keepdims=True)
        return torch.from_numpy((checked / np.where(largest > 0, largest, 1)).astype(np.float32))

    def _embedded(self, X: Any, reset: bool) -> Tensor:
        """(n, D) what the frozen backbone makes of images."""
        device = choose_device(self.device)
        if reset:
            named = self.weights if self.weights is None else str(self.weights)
            name = choose_backbone(named, True, device) if self.backbone == AUTO else self.backbone
            self.backbone_ = {"name": name, "weights": named, "image_size": self.image_size}
        encoder, digest = _encoder(**self.backbone_)
        if reset:
            self.backbone_digest_ = digest
        elif digest != self.backbone_digest_:
            raise InvalidValue(f"the weights of {self.backbone_['name']} are not those of the fit: restore them.")
        table = table_of_images(X)
        embedded = embed(encoder, table, device)
        if embedded.skipped:
            first = embedded.skipped[0]
            raise InvalidValue(
                f"{len(embedded.skipped)} of {len(table)} images cannot be read: {first.path}: {first.reason}. Leave "
                "them out of X (and of y)."
            )
        return embedded.features


def labels_of(y: ArrayLike | None, X: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The known classes (C,), sorted, and the place of each row's class among them, or -1 if it has no label.

    >>> labels_of(["dog", "", "cat", None], X)
    (array(['cat', 'dog'], dtype=object), array([ 1, -1,  0, -1]))
    """
    if y is None:
        return np.empty(0, dtype=object), np.full(len(X) if hasattr(X, "__len__") else X.shape[0], UNLABELLED)
    given = column_or_1d(np.asarray(y), warn=True)
    check_consistent_length(X, given)
    if given.dtype.kind == "f":
        none = np.isnan(given) | (given == UNLABELLED)
        if (given[~none] % 1).any():
            raise InvalidValue("labels are classes: whole numbers or text, -1 or NaN where there is none.")
        given = np.where(none, UNLABELLED, given).astype(np.int64)
    elif given.dtype.kind in "US":
        none = np.isin(given, NO_LABEL)  # not as given.dtype, which may be too short for "-1"
    elif given.dtype.kind in "iub":
        none = (given == UNLABELLED) & (given.dtype.kind == "i")
    else:
        none = np.array([_is_missing(value) for value in given.tolist()], dtype=bool)
    targets = np.full(len(given), UNLABELLED)
    try:
        classes, targets[~none] = np.unique(given[~none], return_inverse=True)
    except TypeError:
        raise InvalidValue("labels are all whole numbers or all text: those given cannot be sorted together.") from None
    return classes, targets


def _warn_of_alike(rows: Tensor) -> None:
    """Say if unit rows (n, D) cannot be told apart."""
    if rows.shape[1] == 1:
        warnings.warn("X has one column, and rows are compared by direction: all that counts is its sign", stacklevel=4)
    elif len(rows) > 1 and bool((rows - rows[0]).abs().max() < 1e-6):
        warnings.warn("all rows of X are equal, or multiples of each other: nothing can be told apart", stacklevel=4)


def _is_missing(value: Any) -> bool:
    """None, NaN (of pandas, too), "", "-1" and -1."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return value in NO_LABEL if isinstance(value, str) else bool(value != value or value == UNLABELLED)


def _model(way: Way, width: int, known: list[str], k: int) -> Model:
    """What finds and assigns categories in features of so many numbers."""
    method = METHODS["frozen"]
    model = Model(frozen_encoder(name=VECTORS, width=width), method(method.Config(), width, len(known), k), known, k)
    model.frozen = True
    model.assigner = ASSIGNERS[way.assigner](width, len(known), k, **dict(way.options))
    model.whitening = None if way.whiten == "none" else Whitening(float(way.whiten))
    return model.requires_grad_(False).eval()


@lru_cache(maxsize=1)  # outside the estimator, so that a pickle of that does not hold the backbone's weights
def _encoder(**backbone: Any) -> tuple[Encoder, str]:
    encoder = frozen_encoder(**backbone)
    return encoder, encoder.backbone.frozen_digest()
