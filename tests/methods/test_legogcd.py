"""LegoGCD against the numbers of the published code (float64) and against plain loops."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from newkinds import losses
from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.tokens import Encoded
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS, Progress, Step
from newkinds.methods.legogcd import view_divergence
from newkinds.runs.config import resolve

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "legogcd.json").read_text())
TIGHT = {"rtol": 0, "atol": 1e-9}
LegoGCD = METHODS["legogcd"]


def method(dim=12, known=4, categories=10, **settings):
    torch.manual_seed(0)
    config = LegoGCD.Config(projection_hidden=16, projection_dim=8, **settings)
    return LegoGCD(config, dim=dim, known=known, categories=categories)


def batch(labels):
    labels = torch.tensor(labels)
    return Batch(Pixels(torch.empty(0)), labels, torch.arange(len(labels)))


@pytest.fixture(scope="module")
def arrays():
    with np.load(DATA / "legogcd.npz") as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files}


# --- published numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", ["0", "10", "29", "30", "199"])
def test_distillation_with_divergence_published(arrays, epoch):
    expected = EXPECTED["distill"]
    logits = arrays["distill_e0/logits"].clone().requires_grad_()
    distillation = losses.self_distillation(logits, expected["schedule"][epoch])
    loss = distillation + view_divergence(logits, published=True)
    assert loss.item() == pytest.approx(expected["loss"][epoch], abs=1e-9)
    if epoch in ("0", "199"):
        (gradient,) = torch.autograd.grad(loss, logits)
        torch.testing.assert_close(gradient, arrays[f"distill_e{epoch}/grad_lego"], **TIGHT)


def test_the_default_is_the_divergence_and_not_the_published_one(arrays):
    expected, logits = EXPECTED["distill"], arrays["distill_e0/logits"]
    assert view_divergence(logits).item() == pytest.approx(expected["divergence"], abs=1e-9)
    published = view_divergence(logits, published=True).item()
    assert published == pytest.approx(expected["published_divergence"], abs=1e-9)
    assert not LegoGCD.Config().as_published


@pytest.mark.parametrize("threshold", ["0.5", "0.7", "0.9"])
def test_a_step_gives_the_published_numbers(arrays, threshold):
    step = {name.split("/")[1]: value for name, value in arrays.items() if name.startswith("lego_step/")}
    expected = EXPECTED["lego_step"][threshold]
    lego = method(memax_weight=2, known_threshold=float(threshold), as_published=True).double()
    lego.mean_prediction.copy_(step["qhat"][0])
    labels = step["class_labels"].where(step["mask_lab"], torch.tensor(-1))
    logits, projections = step["logits"].clone().requires_grad_(), step["proj"].clone().requires_grad_()

    terms = lego.loss_of(logits, projections, labels, Progress(15, epochs=200))

    cluster = terms["self_distillation"] + 2 * terms["mean_entropy_gap"] + terms["view_divergence"]
    for got, name in [
        (terms["labelled_cross_entropy"], "cls_loss"),
        (cluster, "cluster_loss"),
        (terms["info_nce"], "contrastive_loss"),
        (terms["supervised_contrastive"], "sup_con_loss"),
        (terms["known_entropy"], "ler_mean"),
        (terms["loss"], "loss"),
    ]:
        assert got.item() == pytest.approx(expected[name], abs=1e-9), name
    rows = lego.known_entropy(logits, labels.repeat(2) < 0)
    assert rows.tolist() == pytest.approx(expected["ler_per_sample"], abs=1e-9)
    if threshold == "0.7":
        gradients = torch.autograd.grad(terms["loss"], (logits, projections))
        torch.testing.assert_close(gradients[0], step["grad_logits"], **TIGHT)
        torch.testing.assert_close(gradients[1], step["grad_proj"], **TIGHT)
    lego.follow(logits.detach())
    assert lego.mean_prediction.tolist() == pytest.approx(expected["qhat_after"], abs=1e-9)


# --- the same formulas, one term at a time ---------------------------------------------------------------


def softmax(row):
    exponentials = [math.exp(v) for v in row]
    return [e / sum(exponentials) for e in exponentials]


def cosine_logits(n, seed):
    return torch.rand(n, 10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def test_view_divergence_by_loops():
    logits = cosine_logits(8, seed=1)
    total = 0.0
    for i in range(4):
        p, q = (softmax([v / 0.2 for v in logits[row].tolist()]) for row in (i, i + 4))
        total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)) / 4
    assert view_divergence(logits, temperature=0.2).item() == pytest.approx(total, abs=1e-10)
    assert view_divergence(torch.cat([logits, logits])[[0, 1, 8, 9]]).item() == pytest.approx(0, abs=1e-12)


def test_known_entropy_by_loops():
    lego = method(known_threshold=0.4, entropy_temp=0.06, margin=0.3).double()
    lego.mean_prediction.copy_(torch.linspace(1, 2, 10, dtype=torch.float64).softmax(dim=0))
    logits, mean = cosine_logits(40, seed=2), lego.mean_prediction.tolist()
    unlabelled = torch.arange(40) % 3 > 0
    expected = []
    for row, free in zip(logits.tolist(), unlabelled.tolist(), strict=True):
        prediction = softmax([v / 0.1 for v in row])
        highest = max(range(10), key=lambda k: prediction[k])
        if not free or prediction[highest] < 0.4 or highest >= 4:
            expected.append(0.0)
            continue
        target = softmax([v / 0.06 for v in row])
        other = softmax([v / 0.06 + 0.3 * math.log(mean[k]) for k, v in enumerate(row)])
        expected.append(-sum(t * math.log(o) for t, o in zip(target, other, strict=True)))
    assert 0 < sum(value > 0 for value in expected) < 40
    assert lego.known_entropy(logits, unlabelled).tolist() == pytest.approx(expected, abs=1e-10)


def test_the_new_terms_and_their_weights_by_default():
    """With the divergence of the paper, at temperatures that differ from each other."""
    lego = method(student_temp=0.2, sup_weight=0.3, entropy_weight=1.5, known_threshold=0.2).double()
    logits, projections, labels = cosine_logits(8, seed=3), cosine_logits(8, seed=4), torch.tensor([0, -1, 3, -1])
    torch.testing.assert_close(lego.mean_prediction, torch.full((10,), 0.1, dtype=torch.float64))
    terms = lego.loss_of(logits, projections, labels, Progress(15, epochs=200))
    assert terms["view_divergence"] == view_divergence(logits, temperature=0.2)
    assert terms["known_entropy"] == lego.known_entropy(logits, torch.tensor([False, True] * 4)).mean() > 0
    simgcd = METHODS["simgcd"].loss_of(lego, logits, projections, labels, Progress(15, epochs=200))["loss"]
    added = 0.7 * terms["view_divergence"] + 1.5 * terms["known_entropy"]
    assert terms["loss"].item() == pytest.approx((simgcd + added).item(), abs=1e-12)


def test_a_view_at_the_threshold_is_surely_known():
    logits = torch.zeros(2, 10, dtype=torch.float64)  # every category has exactly the probability 1/10
    lego = method(known_threshold=logits.softmax(dim=1)[0, 0].item()).double()
    assert (lego.known_entropy(logits, torch.tensor([True, True])) > 0).all()


def test_the_mean_prediction_follows_only_in_training():
    lego, features = method(), torch.randn(8, 12)
    before = lego.mean_prediction.clone()
    first = lego.eval().loss(Step(batch([0, 1, -1, -1]), Encoded(features), Progress(0, 10)))
    assert torch.equal(lego.mean_prediction, before)
    again = lego.train().loss(Step(batch([0, 1, -1, -1]), Encoded(features), Progress(0, 10)))
    assert again["loss"] == first["loss"]  # the mean before the step is used
    expected = 0.999 * before + 0.001 * lego.classifier(features).softmax(dim=1).mean(dim=0)
    torch.testing.assert_close(lego.mean_prediction, expected)
    assert "mean_prediction" in lego.state_dict()  # a resumed run goes on with it


# --- every batch, and settings -----------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [0, 0, 1, 1], [-1, -1, -1, -1], [1]])
def test_every_batch_has_a_finite_loss_and_gradients(labels):
    lego = method(known_threshold=0.1)
    features = torch.randn(2 * len(labels), 12, requires_grad=True)
    terms = lego.loss(Step(batch(labels), Encoded(features), Progress(0, 10)))
    terms["loss"].backward()
    assert all(math.isfinite(value.item()) for value in terms.values())
    for parameter in (features, *lego.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


def test_settings_without_a_meaning_are_refused():
    with pytest.raises(NewkindsError, match=r"method\.entropy_temp' must be a number above 0"):
        method(entropy_temp=0.0)
    with pytest.raises(NewkindsError, match=r"method\.known_threshold' must be a number from 0 to 1"):
        method(known_threshold=1.5)


def test_defaults_are_the_published_ones():
    config = LegoGCD.Config()
    assert (config.known_threshold, config.entropy_weight, config.entropy_temp) == (0.7, 2.0, 0.05)
    assert (config.margin, config.mean_momentum, config.sup_weight, config.student_temp) == (0.4, 0.999, 0.35, 0.1)
    train = resolve({"data": {"name": "creatures"}, "method": {"name": "legogcd"}}).train
    assert (train.lr, train.min_lr_ratio, train.weight_decay, train.decay_biases) == (0.1, 1e-3, 5e-5, False)
