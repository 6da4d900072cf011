import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from newkinds.assigners.nearest_images import WardClusters
from newkinds.errors import NewkindsError
from newkinds.methods.heads import ProjectionHead, PrototypeClassifier

DATA = Path(__file__).parents[1] / "numbers"


@pytest.fixture(scope="module")
def published():
    with np.load(DATA / "simgcd.npz") as stored:
        prefix = "simgcd_head/"
        names = [name for name in stored.files if name.startswith(prefix)]
        return {name.removeprefix(prefix): torch.from_numpy(stored[name]) for name in names}


def test_published_weights_give_published_outputs(published):
    """A published state maps as mlp.* → the projection, last_layer.weight_v → the prototypes.

    last_layer.weight_g, the magnitudes of weight normalisation, is one everywhere and has no counterpart.
    """
    state = {k.removeprefix("param."): v for k, v in published.items() if k.startswith("param.")}
    assert torch.equal(state["last_layer.weight_g"], torch.ones(5, 1, dtype=torch.float64))

    projection = ProjectionHead(16, hidden=32, out=8).double()
    projection.load_state_dict({k.removeprefix("mlp."): v for k, v in state.items() if k.startswith("mlp.")})
    classifier = PrototypeClassifier(16, 3, 5).double()
    classifier.load_state_dict({"prototypes": state["last_layer.weight_v"]})

    torch.testing.assert_close(projection(published["x"]), published["proj"], rtol=0, atol=1e-9)
    torch.testing.assert_close(classifier(published["x"]), published["logits"], rtol=0, atol=1e-9)


def test_size_is_the_published_one():
    heads = torch.nn.ModuleList([ProjectionHead(768), PrototypeClassifier(768, 100, 200)])
    assert sum(p.numel() for p in heads.parameters()) == 6_295_808 + 768 * 200


def test_projection_starts_small_and_truncated():
    head = ProjectionHead(64, hidden=256, out=32)
    for layer in (head[0], head[2], head[4]):
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert not layer.bias.any()


def test_prototypes_start_as_a_linear_layer():
    prototypes = PrototypeClassifier(64, 0, 500).prototypes
    assert prototypes.abs().max().item() <= 1 / 8
    assert prototypes.std().item() == pytest.approx(1 / 8 / math.sqrt(3), rel=0.05)


def test_logits_are_cosines_whatever_the_lengths():
    torch.manual_seed(0)
    head = PrototypeClassifier(6, 2, 4).double()
    x = torch.randn(3, 6, dtype=torch.float64)
    by_hand = [
        [
            sum(a * b for a, b in zip(f, p, strict=True)) / math.hypot(*f) / math.hypot(*p)
            for p in head.prototypes.tolist()
        ]
        for f in x.tolist()
    ]
    torch.testing.assert_close(head(x), torch.tensor(by_hand, dtype=torch.float64))
    torch.testing.assert_close(head(x * 37), head(x))
    with torch.no_grad():
        before = head(x)
        head.prototypes.mul_(5)
    torch.testing.assert_close(head(x), before)


def test_cosines_keep_their_precision_under_autocast():
    torch.manual_seed(0)
    head, x = PrototypeClassifier(64, 5, 10), torch.randn(8, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = head(x)
    assert torch.equal(logits, head(x))


def test_nearest_image_gives_remembered_images_their_category_and_others_the_nearest_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = F.normalize(torch.randn(40, 6, generator=generator), dim=1)
    category = torch.arange(40) % 5
    classifier = WardClusters(6, 3, 7)
    with pytest.raises(NewkindsError, match="finish the training"):
        classifier(rows)
    classifier.rows, classifier.category = rows, category
    assert classifier(rows).argmax(dim=1).tolist() == category.tolist()

    unseen = F.normalize(torch.randn(9, 6, generator=generator), dim=1)
    logits = classifier(unseen)
    assert logits.shape == (9, 7)
    assert (logits[:, 5:] == -torch.inf).all()
    for row, found in zip(unseen, logits, strict=True):
        for c in range(5):
            assert found[c] == pytest.approx(max(float(row @ other) for other in rows[category == c]), abs=1e-6)

    other = WardClusters(6, 3, 7)
    other.load_state_dict(classifier.state_dict())  # which has more rows than a new one
    assert torch.equal(other(unseen), logits)
