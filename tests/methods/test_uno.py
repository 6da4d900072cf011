"""UNO+: Sinkhorn against the numbers of the published code (float64), the loss against plain loops."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import newkinds
from assigning import assign
from conftest import TINY_TRAINING
from newkinds import losses
from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.tokens import Encoded
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS, Progress, Step
from newkinds.runs.config import resolve

NUMBERS = Path(__file__).parents[1] / "numbers" / "uno.npz"
TIGHT = {"rtol": 0, "atol": 1e-9}
UNO = METHODS["uno"]


def method(dim=12, known=2, categories=5, **settings):
    torch.manual_seed(0)
    config = UNO.Config(**{"heads": 3, "projection_hidden": 16, "projection_dim": 8, **settings})
    return UNO(config, dim, known, categories)


def step(labels, features, *progress):
    batch = Batch(Pixels(torch.empty(0)), torch.tensor(labels), torch.arange(len(labels)))
    return Step(batch, Encoded(features), Progress(*progress or (0, 10)))


def cosines(n, categories, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, categories, generator=generator, dtype=torch.float64) * 2 - 1


def of_views(head, features):
    """Cosines of both views, each computed alone."""
    return torch.cat([head(view) for view in features.chunk(2)])


@pytest.fixture(scope="module")
def arrays():
    with np.load(NUMBERS) as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files}


# --- Sinkhorn ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("iterations", "epsilon"), [(3, 0.05), (1, 0.05), (3, 0.1), (50, 0.05)])
def test_sinkhorn_published(arrays, iterations, epsilon):
    targets = losses.sinkhorn(arrays["logits"], iterations, epsilon)
    torch.testing.assert_close(targets, arrays[f"targets_it{iterations}_eps{epsilon}"], **TIGHT)


def test_sinkhorn_of_large_logits_published(arrays):
    targets = losses.sinkhorn(arrays["logits_div_by_T0p1"])
    torch.testing.assert_close(targets, arrays["targets_div_by_T0p1"], **TIGHT)


def test_sinkhorn_by_loops():
    logits = cosines(7, 4, seed=1)
    shares = [[math.exp(v / 0.2) for v in row] for row in logits.tolist()]
    for _ in range(2):
        for k in range(4):
            total = sum(row[k] for row in shares)
            for row in shares:
                row[k] /= 4 * total
        for row in shares:
            total = sum(row)
            row[:] = [v / (7 * total) for v in row]
    expected = torch.tensor(shares, dtype=torch.float64) * 7
    torch.testing.assert_close(losses.sinkhorn(logits, 2, 0.2), expected, **TIGHT)


def test_sinkhorn_uses_all_categories_alike_in_the_end():
    logits = cosines(30, 5, seed=2) + torch.tensor([0.5, 0, 0, 0, 0])  # most like the first category best
    targets = losses.sinkhorn(logits, 200, 0.05)
    torch.testing.assert_close(targets.sum(dim=0), torch.full((5,), 6.0, dtype=torch.float64), rtol=0, atol=1e-3)
    torch.testing.assert_close(targets.sum(dim=1), torch.ones(30, dtype=torch.float64))


def test_sinkhorn_of_extreme_logits_and_of_none_is_finite():
    assert losses.sinkhorn(torch.tensor([[1e4, -1e4], [1e4, -1e4]])).isfinite().all()
    assert losses.sinkhorn(torch.zeros(1, 3, dtype=torch.bfloat16)).tolist() == [[pytest.approx(1 / 3)] * 3]
    assert losses.sinkhorn(torch.zeros(0, 3)).shape == (0, 3)
    assert not losses.sinkhorn(torch.zeros(2, 3, requires_grad=True)).requires_grad


# --- the loss ----------------------------------------------------------------------------------------------


def test_the_loss_of_a_head_by_loops():
    uno = method(student_temp=0.2, sinkhorn_epsilon=0.1, sinkhorn_iterations=4)
    logits, labels = cosines(10, 5, seed=3).requires_grad_(), [0, -1, -1, 1, -1]
    free = [1, 2, 4]
    total = 0.0
    for view in (0, 1):
        mine, other = logits[5 * view : 5 * view + 5], logits[5 * (1 - view) :][:5]
        spread = losses.sinkhorn(other[free], 4, 0.1)  # of the view, unlabelled images alone
        for i, label in enumerate(labels):
            target = spread[free.index(i)] if label < 0 else torch.eye(5)[label]
            total = total - (target * (mine[i] / 0.2).log_softmax(dim=0)).sum() / 10
    loss = uno.loss_of(logits, torch.tensor(labels))
    assert loss.item() == pytest.approx(total.item(), abs=1e-10)
    torch.testing.assert_close(torch.autograd.grad(loss, logits), torch.autograd.grad(total, logits), **TIGHT)


def test_the_loss_is_the_mean_of_all_heads():
    uno, features, labels = method(), torch.randn(8, 12), [0, 1, -1, -1]
    terms = uno.loss(step(labels, features))
    both = (*uno.heads, *uno.finer_heads)
    of_heads = [uno.loss_of(of_views(head, features), torch.tensor(labels)).item() for head in both]
    assert terms["clustering"].item() == pytest.approx(sum(of_heads[:3]) / 3)
    assert terms["overclustering"].item() == pytest.approx(sum(of_heads[3:]) / 3)
    assert terms["loss"].item() == pytest.approx(sum(of_heads) / 6)
    assert len(set(of_heads)) == 6  # each starts elsewhere


def test_a_head_by_loops_in_training_and_after():
    """Linear, BatchNorm of the rows at hand, ReLU, linear; then cosines with the prototypes."""
    head = method(known=2, categories=4).double().heads[0]
    features = torch.randn(5, 12, dtype=torch.float64)
    first, norm, last = (head.projection[place] for place in (0, 1, 3))
    with torch.no_grad():
        norm.weight.uniform_(0.5, 1.5)
        norm.bias.uniform_(-1, 1)
        for training in (True, False):
            hidden = [first.weight @ row + first.bias for row in features]
            mean = sum(hidden) / 5 if training else norm.running_mean
            variance = sum((row - mean) ** 2 for row in hidden) / 5 if training else norm.running_var
            expected = []
            for row in hidden:
                positive = ((row - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias).clamp(min=0)
                point = last.weight @ positive + last.bias
                lengths = head.classifier.prototypes.norm(dim=1) * point.norm()
                expected.append(head.classifier.prototypes @ point / lengths)
            torch.testing.assert_close(head.train(training)(features), torch.stack(expected), **TIGHT)


def test_the_embedding_of_an_image_depends_on_no_other_while_heads_train():
    uno, features = method().train(), torch.randn(6, 12)
    before = {name: value.clone() for name, value in uno.state_dict().items()}
    torch.testing.assert_close(uno.embedding(features)[:2], uno.embedding(features[:2]))
    assert all(torch.equal(value, before[name]) for name, value in uno.state_dict().items())
    assert uno.best.training


def test_over_clustering_heads_have_more_prototypes_for_what_is_new():
    assert [head.classifier.categories for head in method(overclustering=4).finer_heads] == [2 + 4 * 3] * 3
    without = method(overclustering=0)
    assert len(without.finer_heads) == 0
    assert set(without.loss(step([0, -1], torch.randn(4, 12)))) == {"loss", "clustering"}
    assert method(categories=2).loss(step([0, -1], torch.randn(4, 12)))["loss"].isfinite()  # nothing is new


# --- the best head -----------------------------------------------------------------------------------------


def test_the_best_head_is_the_one_with_the_lowest_loss_of_an_epoch():
    uno, features, labels = method(), torch.randn(8, 12), [0, 1, -1, -1]
    uno.eval().loss(step(labels, features))
    assert not uno.running.any()
    uno.train()
    sums = torch.zeros(3)
    for number in range(3):
        features = torch.randn(8, 12)
        cosines_of_heads = [of_views(head, features).detach() for head in uno.heads]
        sums += torch.stack([uno.loss_of(logits, torch.tensor(labels)) for logits in cosines_of_heads])
        uno.loss(step(labels, features, 4, 10, number, 3))
    torch.testing.assert_close(uno.running, sums)
    assert uno.best is uno.heads[int(sums.argmin())]
    uno.loss(step(labels, features, 5, 10, 0, 3))  # the next epoch starts anew
    assert (uno.running < sums / 2).all()
    assert "running" in uno.state_dict()


@pytest.mark.parametrize("best", [0, 2])
def test_embedding_and_assigner_are_those_of_the_best_head(best):
    uno, features = method().eval(), torch.randn(6, 12)
    uno.running[:] = 2
    uno.running[best] = 1
    embedding = uno.embedding(features)
    assert embedding.shape == (6, uno.embedding_dim)
    torch.testing.assert_close(embedding.norm(dim=1), torch.ones(6))
    torch.testing.assert_close(uno.assigner()(embedding), uno.heads[best](features))
    assert torch.equal(assign(uno, features).category, uno.heads[best](features).argmax(dim=1))


def test_a_finished_run_keeps_its_best_head_and_takes_another_assigner(tmp_path):
    settings = [TINY_TRAINING, {"method": {"heads": 3, "projection_hidden": 16}}]
    newkinds.train("creatures", tmp_path / "run", method="uno", settings=settings)
    loaded = newkinds.load(tmp_path / "run").model
    running = loaded.method.running
    assert (running > 0).all()
    assert loaded.method.best is loaded.method.heads[int(running.argmin())]
    assert loaded.chosen_assigner is loaded.method.best.classifier
    newkinds.assign(tmp_path / "run", assigner="sskmeans", whiten=True, out=tmp_path / "other")
    other = newkinds.load(tmp_path / "other").model
    assert other.embedding(torch.randn(3, other.encoder.dim)).shape == (3, 256)
    assert other.assign(torch.randn(3, other.encoder.dim)).category.max() < other.k


def test_training_on_separable_features_finds_the_new_category():
    """Two known classes with labels, a third without: the loss alone must give it a prototype of its own."""
    uno = method(dim=6, known=2, categories=3)
    optimiser = torch.optim.SGD(uno.parameters(), lr=0.2, momentum=0.9)
    truth = torch.arange(3).repeat_interleave(8)
    labels = torch.where((truth < 2) & (torch.arange(24) % 2 == 0), truth, -1)
    for epoch in range(60):
        features = torch.eye(3, 6)[truth.repeat(2)] + 0.1 * torch.randn(48, 6)
        optimiser.zero_grad()
        uno.loss(step(labels.tolist(), features, epoch, 60))["loss"].backward()
        optimiser.step()
    assert assign(uno, torch.eye(3, 6)[truth]).category.tolist() == truth.tolist()


# --- every batch, and settings -----------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [0, 0, 1, 1], [-1, -1, -1, -1], [1], [-1]])
def test_every_batch_has_a_finite_loss_and_gradients(labels):
    uno, features = method(), torch.randn(2 * len(labels), 12, requires_grad=True)
    terms = uno.loss(step(labels, features))
    terms["loss"].backward()
    assert all(math.isfinite(value.item()) for value in terms.values())
    assert all(p.grad is not None and p.grad.isfinite().all() for p in (features, *uno.parameters()))


def test_mixed_precision_keeps_the_loss_in_float32():
    uno, features = method(), torch.randn(8, 12)
    plain = uno.loss(step([0, 1, -1, -1], features))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = uno.loss(step([0, 1, -1, -1], features))
    assert all(value.dtype == torch.float32 for value in mixed.values())
    assert mixed["loss"].item() == pytest.approx(plain["loss"].item(), rel=0.02)


def test_settings():
    config = UNO.Config()
    assert (config.heads, config.overclustering, config.student_temp) == (5, 3, 0.1)
    assert (config.sinkhorn_iterations, config.sinkhorn_epsilon) == (3, 0.05)
    train = resolve({"data": {"name": "creatures"}, "method": {"name": "uno"}}).train
    assert (train.weight_decay, train.lr, train.decay_biases) == (1.5e-4, 0.1, True)
    with pytest.raises(NewkindsError, match=r"method\.sinkhorn_epsilon' must be a number above 0"):
        method(sinkhorn_epsilon=0.0)
    with pytest.raises(NewkindsError, match=r"method\.heads' must be a whole number"):
        method(heads=0)
