"""ProtoGCD against the numbers of the published code (float64) and against plain loops."""

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
from newkinds.methods.protogcd import harden, separation
from newkinds.methods.schedules import linear_then_constant

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "protogcd.json").read_text())
TIGHT = {"rtol": 0, "atol": 1e-9}
ProtoGCD = METHODS["protogcd"]


def method(dim=12, known=4, categories=8, **settings):
    torch.manual_seed(0)
    return ProtoGCD(ProtoGCD.Config(projection_hidden=16, projection_dim=8, **settings), dim, known, categories)


@pytest.fixture(scope="module")
def arrays():
    with np.load(DATA / "protogcd.npz") as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files}


# --- published numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "name"), [(0.0, "ratio_schedule_init0"), (0.2, "ratio_schedule_init0.2")])
def test_the_share_of_hard_targets_is_the_published_one(start, name):
    for epoch, share in EXPECTED["dapl"][name].items():
        assert linear_then_constant(int(epoch), start, 1.0, 100) == pytest.approx(share, abs=1e-12), epoch


@pytest.mark.parametrize("epoch", ["0", "50", "75", "150"])
def test_hard_and_soft_targets_published(arrays, epoch):
    expected, progress = EXPECTED["dapl"], Progress(int(epoch), epochs=200)
    logits = arrays["step/logits"].clone().requires_grad_()
    loss = method().self_distillation(logits, progress)
    assert loss.item() == pytest.approx(expected["loss"][epoch], abs=1e-9)
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, arrays[f"dapl/grad_e{epoch}"], **TIGHT)
    late_start = method(hard_share=0.2).self_distillation(logits, progress)
    assert late_start.item() == pytest.approx(expected["loss_init0.2"][epoch], abs=1e-9)

    targets = (arrays["step/logits"] / 0.05).softmax(dim=1)
    is_hard = (harden(targets, expected["ratio_schedule_init0"][epoch]).amax(dim=1) == 1).view(2, 10)
    assert [view.nonzero().flatten().tolist() for view in is_hard] == expected["hard_rows"][epoch]


def test_separation_published(arrays):
    prototypes = arrays["step/prototypes_raw"].clone().requires_grad_()
    value, expected = separation(prototypes), EXPECTED["proto_sep"]
    assert value.item() == pytest.approx(expected["value_T0.1"], abs=1e-9)
    torch.testing.assert_close(torch.autograd.grad(value, prototypes)[0], arrays["proto_sep/grad_raw"], **TIGHT)
    assert separation(prototypes, 0.05).item() == pytest.approx(expected["value_T0.05_base0.1"], abs=1e-9)


@pytest.mark.parametrize("epoch", [0, 50, 150])
@pytest.mark.parametrize("weight", ["0.1", "1"])
def test_a_step_gives_the_published_numbers(arrays, weight, epoch):
    step = {name.split("/")[1]: value for name, value in arrays.items() if name.startswith("step/")}
    protogcd = method(separation_weight=float(weight)).double()
    protogcd.classifier.prototypes.data.copy_(step["prototypes_raw"])
    labels = step["class_labels"].where(step["mask_lab"] > 0, -1)
    logits, projections = step["logits"].clone().requires_grad_(), step["proj"].clone().requires_grad_()

    terms = protogcd.loss_of(logits, projections, labels, Progress(epoch, epochs=200))

    expected = EXPECTED["total_step"][f"wsep{weight}_epoch{epoch}"]
    for name, published in [
        ("labelled_cross_entropy", "cls_loss"),
        ("self_distillation", "distill"),
        ("mean_entropy_gap", "entropy_reg"),
        ("separation", "proto_sep"),
        ("info_nce", "contrastive"),
        ("supervised_contrastive", "sup_con"),
        ("loss", "loss"),
    ]:
        assert terms[name].item() == pytest.approx(expected[published], abs=1e-9), name
    leaves = {"out": logits, "proj": projections, "praw": protogcd.classifier.prototypes}
    gradients = dict(zip(leaves, torch.autograd.grad(terms["loss"], list(leaves.values())), strict=True))
    stored = {name for name in leaves if f"grad_{name}_w{weight}_e{epoch}" in step}
    for name in stored:
        torch.testing.assert_close(gradients[name], step[f"grad_{name}_w{weight}_e{epoch}"], **TIGHT)
    assert stored == (set(leaves) if weight == "0.1" else {"praw"} if epoch == 50 else set())


# --- the same formulas, one term at a time ---------------------------------------------------------------


def test_hardened_by_loops():
    targets = torch.rand(14, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64).softmax(dim=1)
    for share in (0.0, 0.3, 0.5, 0.99, 1.0):
        expected = []
        for view in (targets[:7].tolist(), targets[7:].tolist()):
            certainty = [sorted(row)[-1] / (sorted(row)[-2] + 1e-6) for row in view]
            surest = sorted(range(7), key=lambda i: -certainty[i])[: math.floor(7 * share)]
            for i, row in enumerate(view):
                expected.append([float(p == max(row)) for p in row] if i in surest else row)
        torch.testing.assert_close(harden(targets, share), torch.tensor(expected, dtype=torch.float64), **TIGHT)


def test_separation_by_loops():
    rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    total = 0.0
    for i, a in enumerate(rows):
        cosines = [float(a @ b / a.norm() / b.norm()) for j, b in enumerate(rows) if i != j]
        total += math.log(sum(math.exp(c / 0.2) for c in cosines) / 4) / 5 * 0.2 / 0.1
    assert separation(rows, 0.2).item() == pytest.approx(total, abs=1e-10)


def test_without_hard_targets_and_separation_it_is_simgcd():
    settings = {"memax_weight": 1.5, "teacher_temp": 0.03, "warmup_teacher_temp": 0.06, "warmup_teacher_epochs": 9}
    protogcd = method(separation_weight=0, **settings).double()
    logits, projections = (torch.randn(8, n, dtype=torch.float64) for n in (8, 8))
    arguments = (logits, projections, torch.tensor([0, -1, 3, -1]))
    simgcd = METHODS["simgcd"](METHODS["simgcd"].Config(**settings), 12, 4, 8)
    assert protogcd.loss_of(*arguments, Progress(0, 9))["loss"] == simgcd.loss_of(*arguments, Progress(0, 9))["loss"]
    assert protogcd.self_distillation(logits, Progress(60, 9)) != simgcd.self_distillation(logits, Progress(60, 9))


def test_the_separation_drives_prototypes_apart():
    prototypes = torch.randn(4, 3, generator=torch.Generator().manual_seed(3)).add(2).requires_grad_()
    optimiser = torch.optim.SGD([prototypes], lr=1.0)
    for _ in range(300):
        optimiser.zero_grad()
        separation(prototypes).backward()
        optimiser.step()
    unit = torch.nn.functional.normalize(prototypes.detach(), dim=1)
    cosines = (unit @ unit.T)[~torch.eye(4, dtype=torch.bool)]
    torch.testing.assert_close(cosines, torch.full((12,), -1 / 3), rtol=0, atol=0.01)  # the corners of a tetrahedron


# --- every batch, and settings -----------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [0, 60, 150])
@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [0, 0, 1, 1], [-1, -1, -1, -1], [1]])
def test_every_batch_has_a_finite_loss_and_gradients(labels, epoch):
    protogcd, features = method(), torch.randn(2 * len(labels), 12, requires_grad=True)
    batch = Batch(Pixels(torch.empty(0)), torch.tensor(labels), torch.arange(len(labels)))
    terms = protogcd.loss(Step(batch, Encoded(features), Progress(epoch, 200)))
    terms["loss"].backward()
    assert all(math.isfinite(value.item()) for value in terms.values())
    assert all(p.grad is not None and p.grad.isfinite().all() for p in (features, *protogcd.parameters()))


def test_a_single_category_has_nothing_to_separate_and_no_batch_nothing_to_learn():
    assert separation(torch.randn(1, 3)) == 0
    assert torch.equal(harden(torch.ones(4, 1), 0.5), torch.ones(4, 1))
    assert method().self_distillation(torch.zeros(0, 8), Progress(50, 200)) == 0


def test_sure_rows_stay_finite_in_float32():
    logits = torch.tensor([[1.0, -1.0, -1.0], [0.2, 0.1, 0.0]] * 2) * 30  # probabilities of 0
    loss = method(categories=3).self_distillation(logits.requires_grad_(), Progress(50, 200))
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


def test_settings():
    config = ProtoGCD.Config()
    assert (config.memax_weight, config.separation_weight, config.separation_temp) == (2, 0.1, 0.1)
    assert [method().teacher_temp(Progress(epoch, 200)) for epoch in (0, 15, 199)] == [0.05] * 3
    assert (config.hard_share, config.hard_epochs, config.sup_weight) == (0.0, 100, 0.35)
    with pytest.raises(NewkindsError, match=r"method\.hard_share' must be a number from 0 to 1"):
        method(hard_share=1.5)
    with pytest.raises(NewkindsError, match=r"method\.separation_temp' must be a number above 0"):
        method(separation_temp=0)


def test_swapped_targets_go_to_the_other_view():
    targets = torch.eye(3, dtype=torch.float64)[[0, 1, 2, 0]]  # of views 1 and 2 of two images
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    expected = sum(-(logits[i] / 0.5).log_softmax(0)[k].item() for i, k in enumerate([2, 0, 0, 1])) / 4
    assert losses.swapped_cross_entropy(logits, targets, 0.5).item() == pytest.approx(expected, abs=1e-12)
