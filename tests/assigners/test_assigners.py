"""Single assigners; what every one promises is in tests/contracts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from newkinds.assigners import ASSIGNERS, Assignment
from newkinds.assigners.base import SizedByState
from newkinds.assigners.centres import PlainKMeans
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


@pytest.mark.parametrize("name", list(ASSIGNERS))
def test_sizes_are_no_settings(name: str) -> None:
    settings = settings_of(ASSIGNERS[name])
    assert not {"dim", "known", "categories"} & set(settings)


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
