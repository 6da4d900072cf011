"""What every assigner promises; a new one is tested by being registered."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from newkinds.assigners import ASSIGNERS, Assigner, Assignment
from newkinds.assigners.base import SizedByState
from newkinds.assigners.centres import PlainKMeans
from newkinds.cluster.metrics import clustering_accuracy
from newkinds.errors import NewkindsError
from newkinds.settings import settings_of

DIM, KNOWN, CATEGORIES = 8, 3, 5
fitted = pytest.mark.parametrize("name", [name for name in ASSIGNERS if not ASSIGNERS[name].learnt])


def blobs(n: int = 100, noise: float = 0.2, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Unit rows around five directions, the first three of which are known classes: labels, truth."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(n) % CATEGORIES
    rows = torch.eye(CATEGORIES, DIM)[truth] + noise * torch.randn(n, DIM, generator=generator)
    labels = torch.where((truth < KNOWN) & (torch.arange(n) % 2 == 0), truth, -1)
    return F.normalize(rows, dim=1), labels, truth


def made(name: str) -> Assigner:
    quick = {"pim": {"steps": 60, "restarts": 3}}
    return ASSIGNERS[name](DIM, KNOWN, CATEGORIES, **quick.get(name, {}))


def category(assigner: Assigner, rows: Tensor) -> Tensor:
    return Assignment.of_logits(assigner(rows), assigner.temperature).category


@fitted
def test_categories_are_found_and_known_classes_keep_their_numbers(name: str) -> None:
    rows, labels, truth = blobs()
    assigner = made(name)
    torch.manual_seed(0)
    assigner.fit(rows, labels)
    logits = assigner(rows)
    assert logits.shape == (len(rows), CATEGORIES)
    assert not logits.isnan().any()
    found = Assignment.of_logits(logits, assigner.temperature)
    assert ((found.confidence > 0) & (found.confidence <= 1)).all()
    assert (found.category[labels >= 0] == labels[labels >= 0]).double().mean() > 0.9
    accuracy = clustering_accuracy(truth.numpy(), found.category.numpy(), known=range(KNOWN))
    assert accuracy.all > 0.9
    assert (found.category[truth < KNOWN] == truth[truth < KNOWN]).double().mean() > 0.9


@fitted
def test_images_never_seen_get_the_category_of_their_like(name: str) -> None:
    rows, labels, _ = blobs()
    unseen, _, truth = blobs(30, noise=0.05, seed=1)
    assigner = made(name)
    torch.manual_seed(0)
    assigner.fit(rows, labels)
    found = category(assigner, unseen)
    assert (found[truth < KNOWN] == truth[truth < KNOWN]).all()
    assert clustering_accuracy(truth.numpy(), found.numpy(), known=range(KNOWN)).all == 1


@fitted
def test_a_saved_assigner_assigns_the_same(name: str) -> None:
    rows, labels, _ = blobs(noise=0.5)
    assigner, loaded = made(name), made(name)
    torch.manual_seed(0)
    assigner.fit(rows, labels)
    loaded.load_state_dict(assigner.state_dict())
    assert torch.equal(loaded(rows), assigner(rows))


@fitted
def test_the_same_seed_finds_the_same(name: str) -> None:
    rows, labels, _ = blobs(noise=0.8)
    logits = []
    for _ in range(2):
        assigner = made(name)
        torch.manual_seed(3)
        assigner.fit(rows, labels)
        logits.append(assigner(rows))
    assert torch.equal(*logits)


@fitted
def test_few_images_and_one_label_per_class(name: str) -> None:
    rows, _, truth = blobs(10, noise=0.1)
    labels = torch.full((10,), -1)
    labels[:KNOWN] = truth[:KNOWN]
    assigner = made(name)
    assigner.fit(rows, labels)
    found = category(assigner, rows)
    assert ((found >= 0) & (found < CATEGORIES)).all()
    assert not assigner(rows).isnan().any()


@fitted
def test_a_known_class_without_a_label_keeps_its_number(name: str) -> None:
    rows, labels, truth = blobs(noise=0.05)
    labels = labels.where(labels != 0, -1)  # of class 0 there is none
    assigner = made(name)
    torch.manual_seed(0)
    assigner.fit(rows, labels)
    found = category(assigner, rows)
    for known in (1, 2):
        assert (found[truth == known] == known).all()


@fitted
def test_before_the_categories_are_found_it_says_so(name: str) -> None:
    with pytest.raises(NewkindsError, match="finish the training"):
        made(name)(blobs()[0])


@pytest.mark.parametrize("name", list(ASSIGNERS))
def test_settings_have_defaults_and_a_line_for_the_list(name: str) -> None:
    assert (ASSIGNERS[name].__doc__ or "").strip()
    settings = settings_of(ASSIGNERS[name])
    assert not {"dim", "known", "categories"} & set(settings)
    assert all(parameter.default is not parameter.empty for parameter in settings.values())


def test_prototypes_are_not_fitted_to_features() -> None:
    rows, labels, _ = blobs()
    with pytest.raises(NewkindsError, match="learnt by the loss of a method"):
        ASSIGNERS["prototypes"](DIM, KNOWN, CATEGORIES).fit(rows, labels)


def test_plain_k_means_does_not_look_at_labels() -> None:
    rows, labels, _ = blobs(noise=0.6)
    centres = []
    for given in (labels, labels.flip(0)):
        assigner = PlainKMeans(DIM, KNOWN, CATEGORIES)
        torch.manual_seed(0)
        assigner.fit(rows, given)
        centres.append({tuple(row) for row in assigner.centres.tolist()})
    assert centres[0] == centres[1]


def test_buffers_take_the_size_of_the_saved_ones_and_their_own_device() -> None:
    class Two(SizedByState):
        def __init__(self, rows: int) -> None:
            super().__init__()
            self.register_buffer("kept", torch.zeros(rows, 2))

    saved, loaded = Two(3), Two(0)
    loaded.load_state_dict(saved.state_dict())
    assert torch.equal(loaded.get_buffer("kept"), torch.zeros(3, 2))
    with pytest.raises(RuntimeError, match="Missing key"):
        loaded.load_state_dict({})


def test_a_score_that_is_no_number_is_no_category() -> None:
    logits = torch.tensor([[0.1, 0.2], [float("nan"), 0.0], [float("-inf"), float("-inf")], [float("-inf"), 0.3]])
    with pytest.raises(NewkindsError, match="2 of 4 images no finite score"):
        Assignment.of_logits(logits)
    assert Assignment.of_logits(logits[[0, 3]]).category.tolist() == [1, 1]
