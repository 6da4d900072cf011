"""Losses against the numbers of the published implementations (float64) and against plain loops."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from newkinds import losses

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "simgcd.json").read_text())
TIGHT = {"rtol": 0, "atol": 1e-9}


@pytest.fixture(scope="module")
def arrays():
    with np.load(DATA / "simgcd.npz") as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files}


def value_and_gradient(loss, x):
    x = x.clone().requires_grad_()
    value = loss(x)
    (gradient,) = torch.autograd.grad(value, x)
    return value.item(), gradient


def contrast(z, y, temperature=0.07, similarity="dot"):
    """Class by class, by dot products or by minus the distance."""
    if similarity == "dot":
        return losses.supervised_contrastive(z, y, temperature)
    (distance,) = losses.prefix_distances(z, [z.shape[1]])
    return losses.class_contrast(-distance / temperature, y)


def view_major(samples_views):  # (n, V, d) -> (V·n, d)
    return samples_views.transpose(0, 1).flatten(0, 1)


# --- published numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "gradient", "labelled", "similarity"),
    [
        ("value_labels", "grad", True, "dot"),
        ("value_no_labels", "grad_unsup", False, "dot"),  # every image is its own class
        ("value_selex_cdist", "grad_selex", True, "euclidean"),
    ],
)
def test_supervised_contrastive_published(arrays, value, gradient, labelled, similarity):
    y = arrays["supcon/labels"] if labelled else torch.arange(6)

    def loss(feats):
        z = F.normalize(view_major(feats), dim=1)
        return contrast(z, y.repeat(2), similarity=similarity)

    got, got_gradient = value_and_gradient(loss, arrays["supcon/feats"])
    assert got == pytest.approx(EXPECTED["supcon"][value], abs=1e-9)
    torch.testing.assert_close(got_gradient, arrays[f"supcon/{gradient}"], **TIGHT)


def test_info_nce_published(arrays):
    x = arrays["info_nce/x"]
    got, gradient = value_and_gradient(losses.info_nce, x)
    assert got == pytest.approx(EXPECTED["info_nce"]["loss_T1"], abs=1e-9)
    torch.testing.assert_close(gradient, arrays["info_nce/grad"], **TIGHT)
    assert losses.info_nce(x, 0.5).item() == pytest.approx(EXPECTED["info_nce"]["loss_T0p5"], abs=1e-9)


@pytest.mark.parametrize("epoch", ["0", "10", "29", "30", "199"])
def test_self_distillation_published(arrays, epoch):
    teacher_temp = EXPECTED["distill"]["schedule"].get(epoch, 0.04)
    got, gradient = value_and_gradient(lambda x: losses.self_distillation(x, teacher_temp), arrays["distill_e0/logits"])
    assert got == pytest.approx(EXPECTED["distill"]["loss"][epoch], abs=1e-9)
    if epoch in ("0", "199"):
        torch.testing.assert_close(gradient, arrays[f"distill_e{epoch}/grad_simgcd"], **TIGHT)


def test_mean_entropy_gap_published(arrays):
    got, gradient = value_and_gradient(losses.mean_entropy_gap, arrays["memax/logits"])
    assert got == pytest.approx(EXPECTED["memax"], abs=1e-9)
    torch.testing.assert_close(gradient, arrays["memax/grad"], **TIGHT)


# --- the same formulas, one term at a time ---------------------------------------------------------------


def rows(n, d, seed):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def naive_supervised_contrastive(z, y, temperature, similarity):
    def alike(a, b):
        if similarity == "dot":
            return sum(p * q for p, q in zip(a, b, strict=True)) / temperature
        return -math.sqrt(sum((p - q) ** 2 for p, q in zip(a, b, strict=True))) / temperature

    z, y = z.tolist(), y.tolist()
    per_row = []
    for i in range(len(z)):
        positives = [j for j in range(len(z)) if j != i and y[j] == y[i]]
        if positives:
            everyone_else = sum(math.exp(alike(z[i], z[a])) for a in range(len(z)) if a != i)
            shares = [math.log(math.exp(alike(z[i], z[j])) / everyone_else) for j in positives]
            per_row.append(-sum(shares) / len(shares))
    return sum(per_row) / len(per_row)


def softmax(row, temperature):
    exponentials = [math.exp(v / temperature) for v in row]
    return [e / sum(exponentials) for e in exponentials]


@pytest.mark.parametrize("similarity", ["dot", "euclidean"])
@pytest.mark.parametrize("n", [7, 40])  # 40: where cdist would change to a matrix product
def test_supervised_contrastive_by_loops(similarity, n):
    z = F.normalize(rows(n, 5, seed=n), dim=1)
    y = torch.arange(n) % (n // 2)  # singletons and classes of two or more
    y[-1] = 99  # a row without a positive stays a negative of the others
    got = contrast(z, y, 0.2, similarity).item()
    assert got == pytest.approx(naive_supervised_contrastive(z, y, 0.2, similarity), abs=1e-10)


def test_euclidean_distances_of_near_twins_are_exact_in_float32():
    z = F.normalize(rows(20, 64, seed=7), dim=1)
    twins = torch.cat([z, z + 1e-5]).float()  # 40 rows, whose distances a matrix product would drown
    y = torch.arange(20).repeat(2)
    got = contrast(twins, y, 1, "euclidean")
    exact = contrast(twins.double(), y, 1, "euclidean")
    assert got.item() == pytest.approx(exact.item(), rel=1e-6)


def test_distances_of_parts_and_their_gradients_are_those_of_each_part_alone():
    z, widths = rows(6, 16, seed=3), [16, 8, 4, 1, 1]
    weights = rows(6 * len(widths), 6, seed=4).split(6)  # not symmetric, as the gradients of losses are not

    def apart(x):
        return [torch.cdist(x[:, :w], x[:, :w], compute_mode="donot_use_mm_for_euclid_dist") for w in widths]

    def together(x):
        return losses.prefix_distances(x, widths)

    for got, expected in zip(together(z), apart(z), strict=True):
        torch.testing.assert_close(got, expected, **TIGHT)
    gradients = [
        value_and_gradient(lambda x, f=f: sum((w * d).sum() for w, d in zip(weights, f(x), strict=True)), z)[1]
        for f in (together, apart)
    ]
    torch.testing.assert_close(*gradients, **TIGHT)


def test_supervised_contrastive_does_not_care_for_row_order():
    z, y = F.normalize(rows(12, 5, seed=0), dim=1), torch.arange(12) % 4
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(losses.supervised_contrastive(z, y), losses.supervised_contrastive(z[order], y[order]))


def test_info_nce_by_loops():
    z = rows(10, 4, seed=2)
    unit = [[v / math.sqrt(sum(w * w for w in row)) for v in row] for row in z.tolist()]
    total = 0.0
    for i in range(10):
        alike = {
            j: math.exp(sum(a * b for a, b in zip(unit[i], unit[j], strict=True)) / 0.3) for j in range(10) if j != i
        }
        total -= math.log(alike[(i + 5) % 10] / sum(alike.values())) / 10
    assert losses.info_nce(z, temperature=0.3).item() == pytest.approx(total, abs=1e-10)


def test_labelled_cross_entropy_by_loops():
    logits, y = rows(6, 4, seed=3), torch.tensor([2, -1, 0, 3, -1, 2])
    terms = [
        -math.log(softmax(row, 0.1)[label])
        for row, label in zip(logits.tolist(), y.tolist(), strict=True)
        if label >= 0
    ]
    assert losses.labelled_cross_entropy(logits, y).item() == pytest.approx(sum(terms) / 4, abs=1e-10)


def test_self_distillation_by_loops():
    logits = rows(8, 5, seed=4)
    total = 0.0
    for i in range(4):
        for teacher, student in [(i, i + 4), (i + 4, i)]:
            q, p = softmax(logits[teacher].tolist(), 0.05), softmax(logits[student].tolist(), 0.1)
            total -= 0.5 * sum(a * math.log(b) for a, b in zip(q, p, strict=True)) / 4
    assert losses.self_distillation(logits, teacher_temp=0.05).item() == pytest.approx(total, abs=1e-10)


def test_mean_entropy_gap_by_loops():
    logits = rows(9, 6, seed=5)
    predictions = [softmax(row, 0.1) for row in logits.tolist()]
    mean = [sum(p[k] for p in predictions) / 9 for k in range(6)]
    entropy = -sum(p * math.log(p) for p in mean)
    assert losses.mean_entropy_gap(logits).item() == pytest.approx(math.log(6) - entropy, abs=1e-10)


def test_mean_entropy_gap_is_zero_when_uniform_and_log_k_when_collapsed():
    assert losses.mean_entropy_gap(torch.eye(4) * 100).item() == pytest.approx(0, abs=1e-6)
    assert losses.mean_entropy_gap(torch.tensor([[100.0, 0, 0, 0]] * 3)).item() == pytest.approx(math.log(4))


# --- nothing to compare, and numbers at the edge ---------------------------------------------------------


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: losses.supervised_contrastive(x[:0], torch.zeros(0, dtype=torch.long)),
        lambda x: losses.supervised_contrastive(x[:1], torch.zeros(1, dtype=torch.long)),
        lambda x: losses.supervised_contrastive(x, torch.arange(4)),  # no two rows of a class
        lambda x: contrast(x, torch.arange(4), similarity="euclidean"),
        lambda x: losses.labelled_cross_entropy(x, torch.full((4,), -1)),
        lambda x: losses.labelled_cross_entropy(x[:0], torch.zeros(0, dtype=torch.long)),
        lambda x: losses.info_nce(x[:0]),
        lambda x: losses.self_distillation(x[:0], 0.04),
        lambda x: losses.mean_entropy_gap(x[:0]),
    ],
)
def test_nothing_to_compare_is_zero_with_a_graph(loss):
    value, gradient = value_and_gradient(loss, torch.randn(4, 3, generator=torch.Generator().manual_seed(0)))
    assert value == 0
    assert torch.equal(gradient, torch.zeros(4, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_finite_when_predictions_underflow(dtype):
    logits = torch.tensor([[60.0, 0.0, -60.0], [50.0, 1.0, -50.0]], dtype=dtype)  # exp(-1200) is 0
    for loss in (losses.mean_entropy_gap, lambda x: losses.self_distillation(x, 0.04)):
        value, gradient = value_and_gradient(loss, logits)
        assert math.isfinite(value)
        assert gradient.isfinite().all()


@pytest.mark.parametrize("similarity", ["dot", "euclidean"])
def test_identical_rows_have_a_gradient(similarity):
    z, y = F.normalize(torch.ones(4, 3), dim=1), torch.tensor([0, 0, 1, 1])
    value, gradient = value_and_gradient(lambda x: contrast(x, y, similarity=similarity), z)
    assert value == pytest.approx(math.log(3), abs=1e-5)
    assert gradient.isfinite().all()


def test_autocast_changes_nothing():
    z, y = F.normalize(rows(12, 64, seed=6), dim=1).float(), torch.arange(12) % 3
    plain = losses.supervised_contrastive(z, y), losses.info_nce(z, 0.07)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (z @ z.T).dtype == torch.bfloat16  # what the losses are guarded against
        mixed = losses.supervised_contrastive(z, y), losses.info_nce(z, 0.07)
    assert mixed == plain


def test_wrong_arguments():
    with pytest.raises(ValueError, match="even number"):
        losses.info_nce(torch.ones(3, 2))
    with pytest.raises(ValueError, match="even number"):
        losses.self_distillation(torch.ones(3, 2), 0.04)
