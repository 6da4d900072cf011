"""CMS against the numbers of the published code (float64) and against plain loops."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from assigning import assign, fit
from newkinds import losses, metrics
from newkinds.assigners import nearest_images as module
from newkinds.assigners.nearest_images import best_clusters, mean_shift_rounds
from newkinds.cluster.metrics import match_known
from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.tokens import Encoded
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS, Progress, Step
from newkinds.methods.cms import decoupled_contrastive
from newkinds.runs.config import resolve

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "cms.json").read_text())
TIGHT = {"rtol": 0, "atol": 1e-9}
CMS = METHODS["cms"]


def method(dim=12, known=2, categories=4, output_dim=6, **settings):
    torch.manual_seed(0)
    config = CMS.Config(projection_hidden=16, projection_dim=8, output_dim=output_dim, **settings)
    return CMS(config, dim=dim, known=known, categories=categories)


def batch(labels, index=None):
    labels = torch.tensor(labels)
    index = torch.arange(len(labels)) if index is None else torch.tensor(index)
    return Batch(Pixels(torch.empty(0)), labels, index)


def unit_rows(n, d, seed):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n, d, generator=generator, dtype=torch.float64), dim=1)


@pytest.fixture(scope="module")
def arrays():
    with np.load(DATA / "cms.npz") as stored:
        return {name: stored[name] for name in stored.files}


# --- published numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("shift", "temp", "neighbours"), [(0.5, 0.25, 8), (0.5, 0.3, 8), (0.2, 0.5, 3)])
def test_a_step_gives_the_published_numbers(arrays, shift, temp, neighbours):
    case = f"alpha{shift}_T{temp}_k{neighbours}"
    prefix = f"cms_step_{case}/"
    names = [name for name in arrays if name.startswith(prefix)]
    step = {name.removeprefix(prefix): torch.from_numpy(arrays[name]) for name in names}
    cms = method(output_dim=5, shift=shift, shifted_temp=temp, neighbours=neighbours, as_published=True)
    cms.bank = step["bank"]
    labels = step["class_labels"].where(step["mask_lab"], torch.tensor(-1))
    embedding = step["features"].clone().requires_grad_()

    nearest = cms.neighbours(embedding, torch.arange(6))
    assert torch.equal(nearest, step["knn_indices"])
    torch.testing.assert_close(cms.bank[nearest].mean(dim=1), step["knn_emb"], **TIGHT)
    terms = cms.loss_of(embedding, labels, cms.bank[nearest])

    for name, published in [
        ("shifted_contrastive", "unsup_con_loss"),
        ("supervised_contrastive", "sup_con_loss"),
        ("loss", "loss"),
    ]:
        assert terms[name].item() == pytest.approx(EXPECTED["cms_step"][case][published], abs=1e-9), name
    (gradient,) = torch.autograd.grad(terms["loss"], embedding)
    torch.testing.assert_close(gradient, step["grad"], **TIGHT)


@pytest.mark.parametrize("batch_size", [200, 32])  # 200: all rows at once
def test_the_rounds_of_mean_shift_are_the_published_ones(arrays, batch_size):
    case = {name.split("/")[1]: arrays[name] for name in arrays if name.startswith("cms_meanshift_bs200/")}
    published = EXPECTED["cms_meanshift"][f"bs{batch_size}"]["accs_sequence_all_old_new"]
    order = case["loader_order"]
    x, truth, labelled = torch.from_numpy(case["X"][order]), case["Y"][order], case["mask_lab"][order] == 1
    labels = torch.from_numpy(np.where(labelled, truth, -1))
    rounds = list(mean_shift_rounds(x, rounds=3, overwrite_every=None if batch_size == 200 else batch_size))
    for past, embedding in enumerate(rounds):
        expected = torch.from_numpy(arrays[f"cms_meanshift_bs{batch_size}/feats_epoch{past}"][order])
        torch.testing.assert_close(embedding.double(), expected, rtol=0, atol=1e-6)
        for categories, accuracy in zip((8, 7), published[2 * past : 2 * past + 2], strict=True):
            found = best_clusters([embedding], labels, known=4, categories=categories)
            got = metrics.clustering_accuracy(truth[~labelled], found[~labelled], known=[0, 1, 2, 3])
            assert list(got) == pytest.approx(accuracy, abs=1e-9)

    # The labelled images prefer round 0, and two rounds that are not better end the search.
    drawn = iter(mean_shift_rounds(x, rounds=20))
    found = best_clusters(drawn, labels, known=4, categories=8)
    assert torch.equal(found, best_clusters(rounds[:1], labels, known=4, categories=8))
    assert sum(1 for _ in drawn) == 20 - 3


# --- the same, one row at a time ---------------------------------------------------------------------------


def test_neighbours_by_loops_leave_out_the_image_itself():
    cms = method(neighbours=3)
    cms.bank = unit_rows(20, 6, seed=1)  # two views of ten images
    index, embedding = [4, 0, 9], unit_rows(6, 6, seed=2)
    embedding[0] = cms.bank[14]  # the nearest row of the bank is image 4 itself
    got = cms.neighbours(embedding, torch.tensor(index))
    for row in range(6):
        others = [b for b in range(20) if b % 10 != index[row % 3]]
        others.sort(key=lambda b: -float(embedding[row] @ cms.bank[b]))
        assert got[row].tolist() == others[:3]


def test_decoupled_contrastive_by_loops():
    z = unit_rows(8, 5, seed=3)
    total = 0.0
    for i in range(8):
        partner = (i + 4) % 8
        others = sum(math.exp(float(z[i] @ z[a]) / 0.4) for a in range(8) if a not in (i, partner))
        total -= (float(z[i] @ z[partner]) / 0.4 - math.log(others)) / 8
    assert decoupled_contrastive(z, 0.4).item() == pytest.approx(total, abs=1e-10)


def test_the_shift_by_loops():
    cms = method(shift=0.3, sup_weight=0.0)
    embedding, neighbours = unit_rows(6, 6, seed=4), unit_rows(12, 6, seed=5).reshape(6, 2, 6)
    shifted = []
    for row, near in zip(embedding.tolist(), neighbours.tolist(), strict=True):
        moved = [0.7 * v + 0.3 * (a + b) / 2 for v, a, b in zip(row, *near, strict=True)]
        shifted.append([v / math.hypot(*moved) for v in moved])
    expected = decoupled_contrastive(torch.tensor(shifted, dtype=torch.float64), 0.25)
    got = cms.loss_of(embedding, torch.full((3,), -1), neighbours)["loss"]
    assert got.item() == pytest.approx(expected.item(), abs=1e-10)


def test_the_bank_holds_both_views_of_every_image():
    cms, features = method(), torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(6))
    asked = []

    def embed(views):
        asked.append(views)
        return features, torch.tensor([0, 1, -1, -1, -1])

    cms.on_epoch_start(0, embed)
    assert asked == [2]
    torch.testing.assert_close(cms.bank, cms.head(torch.cat([features[0], features[1]])).detach())
    assert not cms.bank.requires_grad
    assert "bank" not in cms.state_dict()  # gathered again by a resumed run


def test_clusters_are_named_after_the_classes_they_match():
    cluster = np.array([3, 3, 3, 0, 0, 1, 1, 1, 2, 2, 3])
    labels = np.array([0, 0, 1, 1, 1, -1, -1, -1, -1, -1, -1])
    number, accuracy = match_known(cluster, labels, known=2, categories=4)
    category = number[cluster]
    assert category.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 0]  # the larger of the new ones comes first
    assert accuracy == pytest.approx(4 / 5)


def test_a_step_is_the_sum_of_its_parts():
    """From features on: neighbours of the embedding in the bank, the shift, both contrasts and their weights."""
    cms = method(sup_weight=0.3, shifted_temp=0.4, sup_con_temp=0.2, neighbours=2).double()
    cms.bank = unit_rows(10, 6, seed=10)  # two views of five images
    features = torch.randn(6, 12, generator=torch.Generator().manual_seed(11), dtype=torch.float64)
    embedding = cms.head(features)
    near = cms.bank[cms.neighbours(embedding, torch.tensor([4, 0, 2]))].mean(dim=1)
    unsupervised = decoupled_contrastive(F.normalize((embedding + near) / 2, dim=1), 0.4)
    supervised = losses.supervised_contrastive(embedding[[0, 2, 3, 5]], torch.tensor([1, 0, 1, 0]), 0.2)
    loss = cms.loss(Step(batch([1, -1, 0], [4, 0, 2]), Encoded(features), Progress(0, 10)))["loss"]
    assert loss.item() == pytest.approx((0.3 * supervised + 0.7 * unsupervised).item(), abs=1e-10)


@pytest.mark.parametrize("published", [False, True])
def test_all_training_images_move_in_the_end_as_asked(monkeypatch, published):
    cms = method(max_rounds=4, patience=3, shift=0.3, neighbours=2, as_published=published)
    features = torch.randn(200, 12, generator=torch.Generator().manual_seed(12))
    labels = torch.where(torch.arange(200) % 2 == 0, -1, torch.arange(200) % 4 // 2)
    seen = {}

    def spy(rounds, labels, known, categories, patience):
        seen.update(rounds=list(rounds), labels=labels, settings=(known, categories, patience))
        return torch.arange(200) % 4

    monkeypatch.setattr(module, "best_clusters", spy)
    fit(cms, features, labels)

    order = torch.cat([(labels >= 0).nonzero()[:, 0], (labels < 0).nonzero()[:, 0]])
    assert torch.equal(seen["labels"], labels[order])
    assert seen["settings"] == (2, 4, 3)
    assert torch.equal(cms.classifier.rows, seen["rounds"][0])
    assert torch.equal(cms.classifier.category, torch.arange(200) % 4)
    rows = cms.head(features[order]).detach()
    for step, found in enumerate(seen["rounds"]):
        torch.testing.assert_close(found, F.normalize(rows, dim=1), rtol=0, atol=1e-5)
        before, moved = F.normalize(rows, dim=1), F.normalize(rows, dim=1)
        for start, end in ((0, 128), (128, 200)):
            source = (moved if published and step > 0 else before).clone()  # the first step writes to a copy
            for row in range(start, end):
                others = [other for other in range(200) if other != row]
                similarity = source[others] @ source[row]
                nearest = [others[i] for i in similarity.topk(2).indices.tolist()]
                moved[row] = 0.7 * source[row] + 0.3 * source[nearest].mean(dim=0)
        rows = moved
    assert len(seen["rounds"]) == 4


def test_the_last_of_the_best_rounds_counts_until_patience_ends():
    labels = torch.tensor([0, 0, 1, 1, -1])
    mixed = torch.tensor([[0.0], [10.0], [0.1], [10.1], [0.2]])  # clusters that hold one image of each class
    with_0 = torch.tensor([[0.0], [0.1], [10.0], [10.1], [0.2]])
    with_1 = torch.tensor([[0.0], [0.1], [10.0], [10.1], [10.2]])
    rounds = iter([mixed, with_0, with_1, mixed, with_0, with_0])
    assert best_clusters(rounds, labels, known=2, categories=2, patience=2).tolist() == [0, 0, 1, 1, 1]
    assert sum(1 for _ in rounds) == 2
    rounds = iter([mixed, with_0, with_1, mixed, with_0])
    assert best_clusters(rounds, labels, known=2, categories=2, patience=3).tolist() == [0, 0, 1, 1, 0]
    # Rounds that go on to the end have a result as well.
    assert best_clusters([mixed, with_0], labels, known=2, categories=2).tolist() == [0, 0, 1, 1, 0]


# --- every batch, small data, and settings -----------------------------------------------------------------


@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [0, 0, 1, 1], [-1, -1, -1, -1], [1]])
def test_every_batch_has_a_finite_loss_and_gradients(labels):
    cms = method()
    cms.bank = unit_rows(12, 6, seed=7).float()
    features = torch.randn(2 * len(labels), 12, requires_grad=True)
    terms = cms.loss(Step(batch(labels), Encoded(features), Progress(0, 10)))
    terms["loss"].backward()
    assert all(math.isfinite(value.item()) for value in terms.values())
    for parameter in (features, *cms.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


def test_more_neighbours_than_images_are_as_many_as_there_are():
    cms = method(neighbours=8)
    cms.bank = unit_rows(6, 6, seed=8).float()
    assert cms.neighbours(unit_rows(4, 6, seed=9).float(), torch.tensor([0, 1])).shape == (4, 4)


def test_a_step_before_the_bank_is_filled_says_so():
    with pytest.raises(RuntimeError, match="on_epoch_start"):
        method().loss(Step(batch([0, -1]), Encoded(torch.randn(4, 12)), Progress(0, 10)))


def test_categories_are_found_kept_and_predicted():
    generator = torch.Generator().manual_seed(2)
    truth = torch.arange(60) % 4
    features = torch.eye(4, 12)[truth] * 5 + 0.05 * torch.randn(60, 12, generator=generator)
    labels = torch.where((truth < 2) & (torch.arange(60) % 3 == 0), truth, -1)
    cms = method()
    with torch.no_grad():
        for weight in cms.head.projection.parameters():
            weight.mul_(20)  # away from the start, where all features look alike
    with pytest.raises(NewkindsError, match="after the last epoch"):
        assign(cms, features)
    fit(cms, features, labels)
    found = assign(cms, features)
    old = truth < 2
    assert torch.equal(found.category[old], truth[old])
    new = set(zip(truth[~old].tolist(), found.category[~old].tolist(), strict=True))
    assert new in ({(2, 2), (3, 3)}, {(2, 3), (3, 2)})
    loaded = method()
    loaded.load_state_dict(cms.state_dict())
    assert torch.equal(assign(loaded, features).category, found.category)


def test_settings_without_a_meaning_are_refused():
    with pytest.raises(NewkindsError, match=r"method\.shifted_temp' must be a number above 0"):
        method(shifted_temp=0.0)
    with pytest.raises(NewkindsError, match=r"method\.shift' must be a number from 0 to 1"):
        method(shift=1.5)
    with pytest.raises(NewkindsError, match=r"method\.neighbours' must be a whole number of at least 1"):
        method(neighbours=0)


def test_defaults_are_the_published_ones():
    config = CMS.Config()
    assert (config.sup_weight, config.shift, config.neighbours) == (0.35, 0.5, 8)
    assert (config.shifted_temp, config.sup_con_temp) == (0.25, 0.07)
    assert (config.projection_hidden, config.projection_dim, config.output_dim) == (2048, 256, 768)
    assert (config.max_rounds, config.patience) == (20, 2)
    assert not config.as_published
    train = resolve({"data": {"name": "creatures"}, "method": {"name": "cms"}}).train
    assert (train.lr, train.min_lr_ratio, train.weight_decay, train.decay_biases) == (0.05, 5e-3, 5e-5, True)
