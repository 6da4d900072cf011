import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from assigning import assign
from newkinds import losses
from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.tokens import Encoded
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS, Progress, Step

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "simgcd.json").read_text())["simgcd_step"]
SimGCD = METHODS["simgcd"]


def method(dim=12, known=2, categories=5, **settings):
    torch.manual_seed(0)
    config = SimGCD.Config(projection_hidden=16, projection_dim=8, **settings)
    return SimGCD(config, dim=dim, known=known, categories=categories)


def batch(labels):
    labels = torch.tensor(labels)
    return Batch(Pixels(torch.empty(0)), labels, torch.arange(len(labels)))


@pytest.mark.parametrize("epoch", [0, 15, 120])
def test_a_step_gives_the_published_numbers(epoch):
    with np.load(DATA / "simgcd.npz") as stored:
        names = [name for name in stored.files if name.startswith("simgcd_step/")]
        step = {name.split("/")[1]: torch.from_numpy(stored[name]) for name in names}
    labels = step["class_labels"].where(step["mask_lab"], torch.tensor(-1))
    logits, projections = step["logits"].requires_grad_(), step["proj"].requires_grad_()

    terms = method(memax_weight=2).loss_of(logits, projections, labels, Progress(epoch, epochs=200))

    expected = EXPECTED[str(epoch)]
    cluster = terms["self_distillation"] + 2 * terms["mean_entropy_gap"]
    for got, name in [
        (terms["labelled_cross_entropy"], "cls_loss"),
        (cluster, "cluster_loss"),
        (terms["mean_entropy_gap"], "me_max_loss"),
        (terms["info_nce"], "contrastive_loss"),
        (terms["supervised_contrastive"], "sup_con_loss"),
        (terms["loss"], "loss"),
    ]:
        assert got.item() == pytest.approx(expected[name], abs=1e-9), name
    if epoch == 15:
        gradients = torch.autograd.grad(terms["loss"], (logits, projections))
        torch.testing.assert_close(gradients[0], step["grad_logits_e15"], rtol=0, atol=1e-9)
        torch.testing.assert_close(gradients[1], step["grad_proj_e15"], rtol=0, atol=1e-9)


def test_loss_feeds_both_branches_with_the_feature():
    simgcd, features = method(), torch.randn(8, 12)
    labelled = batch([0, 1, -1, -1])
    terms = simgcd.loss(Step(labelled, Encoded(features), Progress(3, 10)))
    assert terms["info_nce"] == losses.info_nce(simgcd.projection(features))
    assert terms["mean_entropy_gap"] == losses.mean_entropy_gap(simgcd.classifier(features))
    both_views = torch.tensor([0, 1, -1, -1, 0, 1, -1, -1])
    assert terms["labelled_cross_entropy"] == losses.labelled_cross_entropy(simgcd.classifier(features), both_views)


@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [0, 0, 1, 1], [-1, -1, -1, -1], [1]])
def test_every_batch_has_a_finite_loss_and_gradients(labels):
    simgcd = method()
    features = torch.randn(2 * len(labels), 12, requires_grad=True)
    terms = simgcd.loss(Step(batch(labels), Encoded(features), Progress(0, 10)))
    terms["loss"].backward()
    assert all(math.isfinite(value.item()) for value in terms.values())
    for parameter in (features, *simgcd.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    if max(labels) < 0:
        assert terms["labelled_cross_entropy"] == terms["supervised_contrastive"] == 0


def test_mixed_precision_keeps_the_loss_in_float32():
    simgcd, features = method(), torch.randn(8, 12)
    plain = simgcd.loss(Step(batch([0, 1, -1, -1]), Encoded(features), Progress(0, 10)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = simgcd.loss(Step(batch([0, 1, -1, -1]), Encoded(features), Progress(0, 10)))
    assert all(value.dtype == torch.float32 for value in mixed.values())
    assert mixed["self_distillation"] == plain["self_distillation"]  # the classifier is not rounded at all
    assert mixed["loss"].item() == pytest.approx(plain["loss"].item(), rel=0.02)


def test_assign_picks_the_nearest_prototype():
    simgcd = method()
    with torch.no_grad():
        simgcd.classifier.prototypes.copy_(torch.eye(5, 12))
    found = assign(simgcd, torch.eye(5, 12)[[3, 0, 4]] * 7)
    assert found.category.tolist() == [3, 0, 4]
    certain = 1 / (1 + 4 * math.exp(-10))  # cosine 1 against four of 0, at temperature 0.1
    assert found.confidence.tolist() == pytest.approx([certain] * 3)
    assert not found.confidence.requires_grad


def test_settings_without_a_meaning_are_refused():
    with pytest.raises(NewkindsError, match=r"method\.student_temp' must be a number above 0"):
        method(student_temp=0.0)
    with pytest.raises(NewkindsError, match=r"method\.sup_weight' must be a number from 0 to 1"):
        method(sup_weight=1.5)


def test_training_on_separable_features_finds_the_new_category():
    """Two known classes with labels, a third without: the loss alone must give it a prototype of its own."""
    simgcd = method(dim=6, known=2, categories=3)
    optimiser = torch.optim.SGD(simgcd.parameters(), lr=0.1, momentum=0.9)
    truth = torch.arange(3).repeat_interleave(8)
    labels = torch.where((truth < 2) & (torch.arange(24) % 2 == 0), truth, -1)
    for epoch in range(40):
        features = torch.eye(3, 6)[truth.repeat(2)] + 0.1 * torch.randn(48, 6)
        optimiser.zero_grad()
        simgcd.loss(Step(batch(labels.tolist()), Encoded(features), Progress(epoch, 40)))["loss"].backward()
        optimiser.step()
    assert assign(simgcd, torch.eye(3, 6)[truth]).category.tolist() == truth.tolist()
