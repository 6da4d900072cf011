"""Within-class whitening, by hand and as labelled images choose it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from newkinds.assigners.start import whiten
from newkinds.assigners.whitening import Whitening, choose_shrinkage
from newkinds.cluster.em import oracle_shrinkage
from newkinds.errors import NewkindsError


def stretched(classes: int = 8, per_class: int = 12, nuisance: float = 3.0) -> tuple[Tensor, Tensor]:
    """Unit rows of classes that differ a little in many directions, and all vary much in a few others; truth."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(classes * per_class) % classes
    rows = torch.randn(classes, 16, generator=generator)[truth] + 0.3 * torch.randn(len(truth), 16, generator=generator)
    rows[:, :3] += nuisance * torch.randn(len(truth), 3, generator=generator)
    return F.normalize(rows, dim=1), truth


def test_rows_are_centred_and_whitened_within_classes_by_hand() -> None:
    rows, truth = stretched()
    labels = torch.where(truth < 5, truth, -1)
    whitening = Whitening(0.2)
    whitening.fit(rows.double(), labels)
    within = np.concatenate(
        [(x := rows[labels == c].double().numpy()) - x.mean(axis=0) for c in range(5)]
    )  # (n_l, P) differences from the class's mean
    covariance = within.T @ within / (len(within) - 5)
    shrunk = 0.8 * covariance + 0.2 * np.trace(covariance) / 16 * np.eye(16)
    values, vectors = np.linalg.eigh(shrunk)
    expected = (rows.double().numpy() - rows.double().numpy().mean(axis=0)) @ (vectors / np.sqrt(values)) @ vectors.T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(whitening(rows.double()).numpy(), expected, atol=1e-9)


def test_what_a_clustering_starts_in_is_whitened_less_by_fewer_labels() -> None:
    rows, truth = stretched(per_class=60)
    taken = []
    for per_class in (2, 4, 60):
        labels = torch.where((truth < 5) & (torch.arange(len(truth)) < 8 * per_class), truth, -1)
        parts = [rows[labels == c].double() - rows[labels == c].double().mean(dim=0) for c in range(5)]
        within = torch.cat(parts)
        freedom = len(within) - 5
        taken.append(oracle_shrinkage(within.T @ within / freedom, freedom))
        whitening = Whitening(taken[-1])
        whitening.fit(rows, labels)
        torch.testing.assert_close(whiten(rows, labels), whitening(rows), atol=1e-4, rtol=1e-4)
    assert 1 > taken[0] > taken[1] > taken[2]


def test_a_saved_whitening_is_the_same_also_for_rows_never_seen() -> None:
    rows, truth = stretched()
    whitening, loaded = Whitening(0.5), Whitening(0.5)
    whitening.fit(rows, truth)
    loaded.load_state_dict(whitening.state_dict())
    unseen = F.normalize(torch.randn(4, 16), dim=1)
    assert torch.equal(loaded(unseen), whitening(unseen))
    assert torch.allclose(whitening(unseen).norm(dim=1), torch.ones(4))


def test_labelled_images_recommend_it_where_it_helps_and_only_there() -> None:
    rows, truth = stretched()
    torch.manual_seed(0)
    shrinkage, why = choose_shrinkage(rows, truth)
    assert isinstance(shrinkage, float)
    assert "% without" in why
    clean, truth = stretched(nuisance=0.0)
    assert choose_shrinkage(clean, truth)[0] == "none"  # of equals, no whitening wins


def test_unlabelled_images_have_no_say() -> None:
    rows, truth = stretched()
    labels = torch.where(truth < 6, truth, -1)
    torch.manual_seed(0)
    chosen = choose_shrinkage(rows, labels)
    rows[labels < 0] = F.normalize(torch.randn(int((labels < 0).sum()), 16), dim=1)
    torch.manual_seed(0)
    assert choose_shrinkage(rows, labels) == chosen


@pytest.mark.parametrize(
    ("classes", "per_class", "why"), [(3, 12, "3 classes with two labelled"), (8, 1, "0 classes with two labelled")]
)
def test_too_few_labels_to_choose_by_leave_it_out(classes: int, per_class: int, why: str) -> None:
    rows, truth = stretched(classes, per_class)
    whitening = Whitening("auto")
    whitening.fit(rows, truth)
    assert why in whitening.note
    assert torch.equal(whitening(rows), rows)


def test_one_image_per_class_cannot_be_whitened_by() -> None:
    rows, truth = stretched(8, 1)
    with pytest.raises(NewkindsError, match="two labelled images"):
        Whitening(0.5).fit(rows, truth)
