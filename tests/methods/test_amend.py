"""AMEND against the numbers of the published code, mended so that it runs (float64), and against plain loops."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from newkinds import losses
from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.tokens import Encoded
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS, Progress, Step
from newkinds.methods.amend import neighbourhood_nce, repulsion

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "amend.json").read_text())
TIGHT = {"rtol": 0, "atol": 1e-9}
AMEND = METHODS["amend"]


def method(dim=12, known=2, categories=5, **settings):
    torch.manual_seed(0)
    config = AMEND.Config(**{"projection_hidden": 16, "projection_dim": 8, "bank": 50, **settings})
    return AMEND(config, dim, known, categories)


def step(labels, features, epoch=0):
    batch = Batch(Pixels(torch.empty(0)), torch.tensor(labels), torch.arange(len(labels)))
    return Step(batch, Encoded(features), Progress(epoch, 200))


def unit_rows(n, dim, seed):
    rows = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return F.normalize(rows, dim=1)


@pytest.fixture(scope="module")
def arrays():
    with np.load(DATA / "amend.npz") as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files}


# --- published numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(3, 3), (2, 3), (3, 2)])
@pytest.mark.parametrize(
    ("published", "value", "gradient"),
    [
        (True, "loss_crash_fix_only", "grad_crash_fix_only"),  # only made to run
        (False, "loss_spec_intended_ours", "grad_intended"),
    ],
)
def test_neighbourhood_nce_published(arrays, sizes, published, value, gradient):
    case = "N{}_M{}".format(*sizes)
    z = arrays["proj_raw"].clone().requires_grad_()
    loss = neighbourhood_nce(z, arrays["bank"], *sizes, published=published)
    assert loss.item() == pytest.approx(EXPECTED["expanded_nce"][case][value], abs=1e-9)
    torch.testing.assert_close(torch.autograd.grad(loss, z)[0], arrays[f"{gradient}_{case}"], **TIGHT)


@pytest.mark.parametrize(("as_published", "earlier"), [(False, slice(6, 36)), (True, slice(0, 36))])
def test_the_bank_of_a_step_has_its_first_views(arrays, as_published, earlier):
    """The published bank holds the first views of the batch already, before the loss is computed: in their slot."""
    bank = arrays["bank"][earlier].clone()
    amend = method(neighbours=3, expansion=2, bank=len(bank), as_published=as_published).double()
    if as_published:
        bank[:6] = unit_rows(6, 8, seed=11)  # of an earlier epoch
    amend.queue.push(bank)
    expected = EXPECTED["expanded_nce"]["N3_M2"]["loss_crash_fix_only" if as_published else "loss_spec_intended_ours"]
    loss = amend.info_nce(arrays["proj_raw"], Progress(3, 200, step=0, steps=9))
    assert loss.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("hinge", "value", "gradient"),
    [(False, "released", "grad_released"), (True, "hinge_variant_ours", "grad_hinge_ours")],
)
def test_repulsion_published(arrays, hinge, value, gradient):
    prototypes = arrays["regulariser/prototypes_raw"].clone().requires_grad_()
    loss = repulsion(prototypes, hinge)
    assert loss.item() == pytest.approx(EXPECTED["margin_regulariser"][value], abs=1e-9)
    torch.testing.assert_close(torch.autograd.grad(loss, prototypes)[0], arrays[f"regulariser/{gradient}"], **TIGHT)


# --- the same formulas, one term at a time ---------------------------------------------------------------


def test_neighbourhood_nce_by_loops():
    z, bank = 3 * unit_rows(8, 4, seed=1), unit_rows(11, 4, seed=2)
    unit = F.normalize(z, dim=1)

    def nearest(row, count):
        return sorted(range(11), key=lambda j: -float(row @ bank[j]))[2 : 2 + count]

    total = 0.0
    for i in range(8):
        twin = (i + 4) % 8
        near = nearest(unit[i], 2)
        expanded = [k for j in near for k in nearest(bank[j], 3)]
        positives = [(1.0, unit[twin])] + [(1.0, bank[j]) for j in near] + [(0.3, bank[k]) for k in expanded]
        candidates = [row for _, row in positives] + [unit[j] for j in range(8) if j not in (i, twin)]
        everything = math.log(sum(math.exp(float(unit[i] @ row) / 0.5) for row in candidates))
        weighted = sum(weight * (everything - float(unit[i] @ row) / 0.5) for weight, row in positives)
        total += weighted / (1 + 2 + 0.3 * 6) / 8
    assert neighbourhood_nce(z, bank, 2, 3, 0.3, 0.5).item() == pytest.approx(total, abs=1e-10)


def released_by_loops(z, bank, neighbours, expansion, weight, masked):
    """The released loss, mended so that it runs. What is in the neighbourhood has a similarity of `masked`."""
    unit, total = F.normalize(z, dim=1), 0.0
    for row in unit:
        to_bank = [float(row @ other) for other in bank]
        near = sorted(range(len(bank)), key=lambda j: -to_bank[j])[2 : 2 + neighbours]
        expanded = []
        for j in near:
            of_near = [float(bank[j] @ other) for other in bank]
            order = sorted(range(len(bank)), key=lambda k: -of_near[k])[2 : 2 + expansion]
            expanded += [(k, of_near[k]) for k in order]
        hidden = {*near, *(k for k, _ in expanded)}
        positive = sorted((masked if j in hidden else to_bank[j] for j in range(len(bank))), reverse=True)[1]
        negatives = sorted((float(row @ other) for other in unit), reverse=True)[2 + neighbours :]
        logits = [positive, *(to_bank[j] for j in near), *(value for _, value in expanded), *negatives]
        everything = math.log(sum(math.exp(value) for value in logits))
        counted = [1.0] * (1 + neighbours) + [weight] * neighbours**2
        of_row = sum(w * (everything - value) for w, value in zip(counted, logits, strict=False))
        total += of_row / (1 + neighbours + weight * neighbours**2) / len(unit)
    return total


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("rows", "negative"), [(30, False), (9, True)])
def test_the_released_form_by_loops(rows, negative, seed):
    """In a small bank only negative similarities may be left for the positive: they are not taken for 0."""
    z, bank = 2 * unit_rows(8, 4, seed=20 + seed), unit_rows(rows, 4, seed=30 + seed)
    loss = neighbourhood_nce(z, bank, 2, 3, 0.3, published=True).item()
    assert loss == pytest.approx(released_by_loops(z, bank, 2, 3, 0.3, masked=-1), abs=1e-10)
    assert (abs(loss - released_by_loops(z, bank, 2, 3, 0.3, masked=0)) > 1e-4) is negative


def test_repulsion_by_loops():
    rows = unit_rows(6, 4, seed=3) * torch.arange(1, 7)[:, None]
    unit = F.normalize(rows, dim=1)
    pairs = [(unit[i], unit[j]) for i in range(6) for j in range(i + 1, 6)]
    distances = [float((a - b).square().sum()) for a, b in pairs]
    mean = sum(distances) / 15
    margins = [mean - distance for distance in distances]
    cosines = [float(a @ b) for a, b in pairs]
    as_released = sum(m + c for m, c in zip(margins, cosines, strict=True)) / 6
    with_hinge = sum(max(m, 0) + c for m, c in zip(margins, cosines, strict=True)) / 6
    assert repulsion(rows).item() == pytest.approx(as_released, abs=1e-10)
    assert repulsion(rows, hinge=True).item() == pytest.approx(with_hinge, abs=1e-10)
    assert as_released == pytest.approx(sum(cosines) / 6, abs=1e-10)  # the margin has cancelled out
    assert with_hinge > as_released + 0.1


def test_in_the_released_form_a_view_learns_nothing_of_the_other():
    bank, views, others = unit_rows(9, 4, seed=8), unit_rows(2, 4, seed=9), unit_rows(2, 4, seed=10)

    def gradient(second, published):  # of the first view of the only image
        z = torch.stack([views[0], second]).requires_grad_()
        return torch.autograd.grad(neighbourhood_nce(z, bank, 2, 2, published=published), z)[0][0]

    assert torch.equal(gradient(views[1], published=True), gradient(others[1], published=True))
    assert not torch.allclose(gradient(views[1], published=False), gradient(others[1], published=False))


def test_the_terms_and_their_weights():
    amend = method(regulariser_weight=0.7, hinge=True, memax_weight=1.3).double()
    logits, projections, labels = unit_rows(8, 5, seed=4), unit_rows(8, 8, seed=5), torch.tensor([0, -1, 1, -1])
    terms = amend.loss_of(logits, projections, labels, Progress(3, 200))
    assert terms["regulariser"] == repulsion(amend.classifier.prototypes, hinge=True)
    assert terms["info_nce"] != losses.info_nce(projections)
    rest = 0.35 * (terms["labelled_cross_entropy"] + terms["supervised_contrastive"])
    rest = rest + 0.65 * (terms["self_distillation"] + 1.3 * terms["mean_entropy_gap"] + terms["info_nce"])
    assert terms["loss"].item() == pytest.approx((rest + 0.7 * terms["regulariser"]).item(), abs=1e-12)


# --- the queue ---------------------------------------------------------------------------------------------


def test_the_queue_keeps_first_views_only_in_training():
    amend, features = method(), torch.randn(8, 12)
    first = amend.eval().loss(step([0, 1, -1, -1], features))
    assert len(amend.queue) == 0
    assert amend.train().loss(step([0, 1, -1, -1], features))["loss"] == first["loss"]
    torch.testing.assert_close(amend.queue.rows, F.normalize(amend.projection(features[:4]), dim=1))
    assert not amend.queue.rows.requires_grad
    assert "queue.ring" in amend.state_dict()  # a resumed run goes on with it
    assert amend.loss(step([0, 1, -1, -1], features))["info_nce"] != first["info_nce"]


@pytest.mark.parametrize("as_published", [False, True])
def test_the_queue_is_full_before_the_first_step_and_then_goes_on(as_published):
    amend, features = method(bank=7, as_published=as_published), torch.randn(1, 20, 12)
    amend.on_epoch_start(0, lambda views: (features[:views], torch.full((20,), -1)))
    of_images = F.normalize(amend.projection(features[0]), dim=1)
    same = (amend.queue.rows @ of_images.T > 1 - 1e-6).nonzero()
    assert len(amend.queue) == len(same[:, 1].unique()) == 7  # each of another image
    assert same[:, 1].tolist() != list(range(7))  # a table may be in the order of its classes
    before = amend.queue.rows.clone()

    def embed(views):
        raise AssertionError("a later epoch, resumed or not, goes on with what is there")

    amend.on_epoch_start(1, embed)
    assert torch.equal(amend.queue.rows, before)


def test_rows_of_a_step_replace_the_oldest_or_as_published_their_slot():
    """Two slots of three rows in a ring of seven; epochs of three steps."""
    for as_published in (False, True):
        amend = method(bank=7, as_published=as_published)
        amend.queue.push(torch.eye(7, 8))
        expected, oldest = [*torch.eye(7, 8)], 0
        for taken in range(7):
            features, number = torch.randn(6, 12), taken % 3
            with torch.no_grad():
                first = F.normalize(amend.projection(features[:3]), dim=1)
            progress = Progress(taken // 3, 3, number, 3)
            places = [3 * (number % 2) + i if as_published else (oldest + i) % 7 for i in range(3)]
            oldest += 3
            replaced = list(expected)
            for place, row in zip(places, first, strict=True):
                replaced[place] = row
            bank = replaced if as_published else [*first, *expected]
            torch.testing.assert_close(amend.bank(amend.projection(features), progress), torch.stack(bank))
            amend.loss(Step(step([0, 1, -1], features).batch, Encoded(features), progress))
            expected = replaced
            torch.testing.assert_close(amend.queue.rows, torch.stack(expected))


def test_the_queue_is_no_larger_than_the_data(capsys):
    amend = method(bank=2048)
    amend.begin(torch.full((30,), -1))
    assert len(amend.queue.ring) == 30
    assert "larger than the 30 training images" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("as_published", [False, True])
def test_a_small_bank_gives_fewer_neighbours_and_an_empty_one_plain_contrast(as_published):
    z, bank = unit_rows(12, 6, seed=6), unit_rows(20, 6, seed=7)
    for rows in (0, 1, 2):
        assert neighbourhood_nce(z, bank[:rows], 5, 4, published=as_published) == losses.info_nce(z)
    for rows in (3, 4, 6):
        there = rows - 2
        small = neighbourhood_nce(z, bank[:rows], 5, 4, published=as_published)
        assert small == neighbourhood_nce(z, bank[:rows], min(5, there), min(4, there), published=as_published)
        assert small.isfinite()
        assert small != losses.info_nce(z)


# --- every batch, and settings -----------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"as_published": True}, {"hinge": True}])
@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [0, 0, 1, 1], [-1, -1, -1, -1], [1]])
def test_every_batch_has_a_finite_loss_and_gradients(labels, settings):
    amend = method(**settings)
    for _ in range(4):  # with a queue that fills
        features = torch.randn(2 * len(labels), 12, requires_grad=True)
        amend.zero_grad()
        terms = amend.loss(step(labels, features))
        terms["loss"].backward()
        assert all(math.isfinite(value.item()) for value in terms.values())
        assert all(p.grad is not None and p.grad.isfinite().all() for p in (features, *amend.parameters()))


def test_one_category_has_no_pairs():
    assert repulsion(torch.randn(1, 4), hinge=True) == repulsion(torch.randn(1, 4)) == 0


def test_mixed_precision_keeps_the_loss_in_float32():
    amend, features = method(), torch.randn(8, 12)
    plain = amend.eval().loss(step([0, 1, -1, -1], features))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = amend.loss(step([0, 1, -1, -1], features))
        assert amend.train().loss(step([0, 1, -1, -1], features))["loss"].isfinite()
    assert all(value.dtype == torch.float32 for value in mixed.values())
    assert mixed["loss"].item() == pytest.approx(plain["loss"].item(), rel=0.02)


def test_settings():
    config = AMEND.Config()
    assert (config.memax_weight, config.regulariser_weight, config.expansion_weight, config.bank) == (2, 1, 0.1, 2048)
    assert not config.hinge
    assert not config.as_published
    with pytest.raises(NewkindsError, match=r"method\.neighbours' must be a whole number"):
        method(neighbours=0)
    with pytest.raises(NewkindsError, match=r"method\.bank' must be a whole number"):
        method(bank=0)
