"""SelEx against the numbers of the published code (float64) and against plain loops."""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.exceptions import ConvergenceWarning

from assigning import assign, fit
from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.tokens import Encoded
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS, Progress, Step
from newkinds.methods import selex as module
from newkinds.methods.losses import smoothed_info_nce
from newkinds.runs.config import resolve

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "selex.json").read_text())
STRATEGIES = ["zero_one", "pair_dist", "pair_cluster"]
SelEx = METHODS["selex"]


def method(dim=6, known=4, categories=8, **settings):
    torch.manual_seed(0)
    config = SelEx.Config(projection_hidden=16, projection_dim=8, output_dim=32, **settings)
    return SelEx(config, dim=dim, known=known, categories=categories)


def batch(labels, index=None):
    labels = torch.tensor(labels)
    index = torch.arange(len(labels)) if index is None else torch.tensor(index)
    return Batch(Pixels(torch.empty(0)), labels, index)


@pytest.fixture(scope="module")
def arrays():
    with np.load(DATA / "selex.npz") as stored:
        return {name: stored[name] for name in stored.files}


def case(arrays, name):
    return {key.split("/")[1]: value for key, value in arrays.items() if key.startswith(f"{name}/")}


def published_levels(hierarchy):
    """Stored clusters are in the order of the published loader, `loader_order` says which row is where."""
    levels = []
    for level in range(3):
        cluster = np.empty(112, dtype=np.int64)
        cluster[hierarchy["loader_order"]] = hierarchy[f"preds{level}"]
        levels.append((cluster, hierarchy[f"protos{level}"]))
    return levels


# --- published numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("balanced", [True, False])
def test_the_hierarchy_is_the_published_one(arrays, balanced, monkeypatch):
    name = "balanced" if balanced else "unbalanced"
    hierarchy = case(arrays, f"selex_hierarchy_{name}")
    unit = F.normalize(torch.from_numpy(hierarchy["X"]), dim=1)
    labels = np.where(hierarchy["mask_lab"] == 1, hierarchy["Y"], -1)
    expected = published_levels(hierarchy)

    published = method(balanced=balanced, as_published=True).hierarchy(unit, labels, np.random.RandomState(5))
    for (cluster, centres), (expected_cluster, expected_centres) in zip(published, expected, strict=True):
        np.testing.assert_array_equal(cluster, expected_cluster)
        np.testing.assert_allclose(centres, expected_centres, rtol=0, atol=1e-9)

    # By default clusters are at the places of their own images; in this example they are the same otherwise.
    monkeypatch.setattr(module, "_published_order", lambda cluster, *_: cluster)
    right = method(balanced=balanced, as_published=True).hierarchy(unit, labels, np.random.RandomState(5))
    loader = hierarchy["loader_order"]
    known = right[0][0][loader] < 4
    order = np.r_[np.flatnonzero(known), np.flatnonzero(~known)]
    for level, (cluster, centres) in enumerate(right):
        there = cluster[loader][order] if level else cluster[loader]
        np.testing.assert_array_equal(there, hierarchy[f"preds{level}"])
        np.testing.assert_array_equal(centres, published[level][1])
    assert (order != np.arange(112)).sum() == EXPECTED["selex_hierarchy"][name]["misplaced"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("smoothing", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("scale", ["1.0000", "0.2703"])
def test_a_step_gives_the_published_numbers(arrays, scale, smoothing, strategy):
    step = case(arrays, f"selex_step_scale{scale}_s1.0_{strategy}")  # inputs do not depend on the smoothing
    expected = EXPECTED["selex_step"][f"scale{scale}_s{smoothing}_{strategy}"]
    selex = method(smoothing=smoothing, far=strategy, as_published=True)
    selex.keep_hierarchy(published_levels(case(arrays, "selex_hierarchy_balanced")))
    radius = np.concatenate([step[f"radius{level}"] for level in range(3)])
    np.testing.assert_allclose(selex.radius.numpy(), radius, rtol=0, atol=1e-7)

    features = torch.from_numpy(step["backbone_feats"]).requires_grad_()
    embedding = F.normalize(features @ torch.from_numpy(step["W"]), dim=1)
    cluster = selex.cluster[:, torch.from_numpy(step["uq_idxs"])].repeat(1, 2)
    labels = torch.from_numpy(np.where(step["mask_lab"], step["class_labels"], -1))
    terms = selex.loss_of(embedding, labels, features.detach(), cluster)

    # the published indicators, and the partner's share of the target, are float32
    tolerance = 1e-9 if smoothing == 1 and strategy != "zero_one" else 1e-7
    assert terms["smoothed_info_nce"].item() == pytest.approx(expected["contrastive_loss"], abs=tolerance)
    supervised = terms["supervised_contrastive"] + terms["hierarchical_contrastive"]
    assert supervised.item() == pytest.approx(expected["sup_con_loss"], abs=1e-9)
    assert terms["loss"].item() == pytest.approx(expected["loss_in"], abs=tolerance)
    if smoothing == 1:
        published = torch.from_numpy(step["confusion"]).double()
        torch.testing.assert_close(selex.far_away(features.detach(), cluster), published, rtol=0, atol=tolerance)
        (gradient,) = torch.autograd.grad(terms["loss"], features)
        torch.testing.assert_close(gradient, torch.from_numpy(step["grad_backbone"]), rtol=0, atol=tolerance)


# --- the same formulas, one pair at a time -----------------------------------------------------------------


def some_levels(images=10):
    rng = np.random.default_rng(3)
    return [(rng.integers(0, k, images), rng.normal(size=(k, 6)) / 3) for k in (8, 4, 2)]


def some_rows(n, d, seed):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_targets_by_loops(strategy, published):
    selex = method(far=strategy, as_published=published)
    levels = some_levels()
    selex.keep_hierarchy(levels)
    raw, index = 3 * some_rows(8, 6, seed=1), [5, 0, 9, 2] * 2
    g = raw.tolist() if published else [[v / math.hypot(*row) for v in row] for row in raw.tolist()]
    far = [[0.0] * 8 for _ in range(8)]
    for j, (cluster, centres) in enumerate(levels):
        centres = centres.tolist()
        for a in range(8):
            for b in range(8):
                own = centres[cluster[index[b]]]
                radius = min(math.dist(own, c) for c in centres if c != own) / 2
                value = {
                    "zero_one": float(math.dist(g[a], g[b]) > 2 * radius),
                    "pair_dist": math.dist(g[a], g[b]),
                    "pair_cluster": math.dist(g[a], own),
                }[strategy]
                far[a][b] += value / 2**j
    low, high = min(map(min, far)), max(map(max, far))
    far = [[(v - low) / (high - low + 1e-7) for v in row] for row in far]
    expected = [[far[a][b] / sum(far[b if published else a]) for b in range(8)] for a in range(8)]
    got = selex.far_away(raw, selex.cluster[:, torch.tensor(index)])
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-10)


def test_smoothed_info_nce_by_loops():
    z, smooth = some_rows(8, 5, seed=2), some_rows(8, 8, seed=3).abs()
    total = 0.0
    for a in range(8):
        others = [b for b in range(8) if b != a]
        everyone_else = sum(math.exp(-math.dist(z[a], z[b]) / 0.7) for b in others)
        for b in others:
            target = 0.7 * (b == (a + 4) % 8) + 0.3 * smooth[a, b].item()
            total -= target * (-math.dist(z[a], z[b]) / 0.7 - math.log(everyone_else)) / 8
    got = smoothed_info_nce(torch.cdist(z, z), smooth, share=0.3, temperature=0.7)
    assert got.item() == pytest.approx(total, abs=1e-10)


def test_the_loss_by_loops_coarser_levels_see_a_shorter_part():
    selex = method(sup_con_temp=0.3, info_nce_temp=0.6)
    selex.keep_hierarchy(some_levels())
    z, cluster = F.normalize(some_rows(8, 32, seed=4), dim=1), selex.cluster[:, [0, 1, 2, 3] * 2]
    expected = 0.0
    for j in range(3):
        rows = [row[: 16 // 2**j] for row in z.tolist()]
        of_row = cluster[j].tolist()
        for i in range(8):
            positives = [k for k in range(8) if k != i and of_row[k] == of_row[i]]
            everyone_else = sum(math.exp(-math.dist(rows[i], rows[k]) / 0.3) for k in range(8) if k != i)
            for k in positives:
                log_share = -math.dist(rows[i], rows[k]) / 0.3 - math.log(everyone_else)
                expected -= log_share / len(positives) / 8 / 2 ** (j + 1)
    features = some_rows(8, 6, seed=5)
    terms = selex.loss_of(z, torch.tensor([-1, 0, -1, 1]), features, cluster)
    assert terms["hierarchical_contrastive"].item() == pytest.approx(expected, abs=1e-10)
    supervised = 0.0
    rows = [1, 3, 5, 7]  # both views of images 1 and 3, which are of different classes
    for i in rows:
        everyone_else = sum(math.exp(-math.dist(z[i], z[k]) / 0.3) for k in rows if k != i)
        supervised -= (-math.dist(z[i], z[(i + 4) % 8]) / 0.3 - math.log(everyone_else)) / 4
    assert terms["supervised_contrastive"].item() == pytest.approx(supervised, abs=1e-10)
    smooth = selex.far_away(features, cluster)
    unsupervised = smoothed_info_nce(torch.cdist(z, z), smooth, selex.config.smoothing, temperature=0.6)
    assert terms["smoothed_info_nce"].item() == pytest.approx(unsupervised.item(), abs=1e-12)
    parts = terms["supervised_contrastive"] + terms["hierarchical_contrastive"]
    assert terms["loss"].item() == pytest.approx((0.65 * terms["smoothed_info_nce"] + 0.175 * parts).item())


def test_targets_have_no_gradient_and_clusters_are_those_of_the_images():
    selex = method(far="pair_dist", smoothing=0.5).double()
    selex.keep_hierarchy(some_levels())
    features, labels, index = some_rows(8, 6, seed=7).requires_grad_(), [0, -1, 1, -1], [7, 2, 9, 4]
    step = Step(batch(labels, index), Encoded(features), Progress(0, 10))
    (got,) = torch.autograd.grad(selex.loss(step)["loss"], features)
    cluster = torch.stack([level[index + index] for level in selex.cluster])
    terms = selex.loss_of(selex.head(features), torch.tensor(labels), features.detach().clone(), cluster)
    (expected,) = torch.autograd.grad(terms["loss"], features)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_targets_of_a_row_with_nothing_far_away_stay_finite():
    selex = method()
    selex.keep_hierarchy(some_levels())
    targets = selex.far_away(torch.ones(8, 6), selex.cluster[:, [0, 1, 2, 3] * 2])
    assert torch.equal(targets, torch.zeros(8, 8))


# --- the hierarchy ---------------------------------------------------------------------------------------


def blobs(n=80, noise=0.3):
    """Eight directions, the first four of known classes of which about every third image has a label."""
    generator = torch.Generator().manual_seed(6)
    truth = torch.arange(n) % 8
    features = torch.eye(8, 8)[truth] * 5 + noise * torch.randn(n, 8, generator=generator)
    labels = torch.where((truth < 4) & (torch.arange(n) % 3 == 0), truth, -1)
    return features, labels, truth


def test_levels_halve_until_one_known_group_is_left():
    features, labels, truth = blobs()
    unit = F.normalize(features, dim=1)
    levels = method(dim=8).hierarchy(unit, labels.numpy(), np.random.RandomState(0))
    assert [len(centres) for _, centres in levels] == [8, 4, 2]
    finest = levels[0][0]
    known = truth < 4
    assert (finest[known] == truth[known].numpy()).mean() > 0.9  # known classes first, by their number
    for cluster, centres in levels:
        assert cluster.shape == (80,)
        assert cluster.max() < len(centres)
    groups = [set(levels[1][0][finest == c]) for c in range(4)]
    assert all(len(group) == 1 and group < {0, 1} for group in groups)  # a known one goes into a known group


@pytest.mark.parametrize(("categories", "sizes"), [(4, [4, 2, 1]), (5, [5, 3, 2]), (7, [7, 3, 2])])
def test_new_groups_halve_down_to_one_unless_there_is_none(categories, sizes):
    features, labels, truth = blobs(noise=0.1)
    seen = truth < categories
    unit = F.normalize(features[seen], dim=1)
    selex = method(dim=8, categories=categories)
    levels = selex.hierarchy(unit, labels[seen].numpy(), np.random.RandomState(0))
    assert [len(centres) for _, centres in levels] == sizes
    selex.keep_hierarchy(levels)  # a level of one cluster has nothing that is far away
    assert selex.far_away(unit, selex.cluster).isfinite().all()


def test_images_that_are_all_copies_of_known_ones_leave_no_new_group():
    unit = torch.eye(4, 8).repeat(6, 1)
    labels = np.where(np.arange(24) < 12, np.arange(24) % 4, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        levels = method(dim=8, categories=6, balanced=False).hierarchy(unit, labels, np.random.RandomState(0))
    assert [len(centres) for _, centres in levels] == [6, 2, 1]
    np.testing.assert_array_equal(levels[0][0], np.arange(24) % 4)


@pytest.mark.parametrize("balanced", [True, False])
def test_k_means_is_set_up_as_asked(balanced):
    settings = {"kmeans_restarts": 3, "kmeans_iterations": 7, "as_published": True, "balanced": balanced}
    asked = method(**settings).assigner()
    assert (asked.known, asked.categories, asked.restarts) == (4, 8, 3)
    estimator = asked.clustering(5, 6, 7)
    assert (estimator.n_clusters, estimator.n_init, estimator.random_state, estimator.max_iter) == (5, 6, 7, 7)
    assert estimator.cluster_size == ("even" if balanced else None)
    assert estimator.published_behaviour


def test_every_epoch_starts_with_a_hierarchy_of_view_0():
    features, labels, _ = blobs()
    lengths = torch.logspace(-1, 1, len(features))[:, None]  # which do not matter
    selex, asked = method(dim=8), []

    def embed(views):
        asked.append(views)
        return (features * lengths)[None], labels

    states = []
    for seed in (1, 1):
        torch.manual_seed(seed)
        selex.on_epoch_start(0, embed)
        states.append(selex.cluster)
    assert asked == [1, 1]
    assert torch.equal(*states)  # the same seed, the same hierarchy: a resumed run builds it again
    assert selex.cluster.shape == (3, 80)
    assert selex.centres.shape == (8 + 4 + 2, 8)
    unit = F.normalize(features, dim=1)
    means = torch.stack([unit[selex.cluster[0] == c].mean(dim=0) for c in range(8)])
    torch.testing.assert_close(selex.centres[:8], means)
    assert not {"cluster", "centres", "radius"} & set(selex.state_dict())


@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [0, 0, 1, 1], [-1, -1, -1, -1], [1]])
def test_every_batch_has_a_finite_loss_and_gradients(labels):
    selex = method()
    selex.keep_hierarchy(some_levels())
    features = torch.randn(2 * len(labels), 6, requires_grad=True)
    terms = selex.loss(Step(batch(labels), Encoded(features), Progress(0, 10)))
    terms["loss"].backward()
    assert all(math.isfinite(value.item()) for value in terms.values())
    for parameter in (features, *selex.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("balanced", [True, False])
def test_categories_are_found_kept_and_predicted(balanced):
    features, labels, truth = blobs(noise=0.1)
    selex = method(dim=8, balanced=balanced)
    fit(selex, features, labels)
    found = assign(selex, features)
    old = truth < 4
    assert torch.equal(found.category[old], truth[old])
    assert len(set(zip(truth.tolist(), found.category.tolist(), strict=True))) == 8
    loaded = method(dim=8)
    loaded.load_state_dict(selex.state_dict())
    assert torch.equal(assign(loaded, features).category, found.category)


def test_settings_without_a_meaning_are_refused():
    with pytest.raises(NewkindsError, match=r"method\.smoothing' must be a number from 0 to 1, not 2\.0"):
        method(smoothing=2.0)
    with pytest.raises(NewkindsError, match=r"method\.info_nce_temp' must be a number above 0"):
        method(info_nce_temp=0.0)


def test_defaults_are_the_published_ones_but_for_the_smoothing():
    config = SelEx.Config()
    assert (config.sup_weight, config.info_nce_temp, config.sup_con_temp) == (0.35, 1.0, 0.07)
    assert (config.projection_hidden, config.projection_dim, config.output_dim) == (2048, 256, 65536)
    assert (config.smoothing, config.far, config.balanced) == (0.1, "zero_one", True)
    assert (config.kmeans_iterations, config.kmeans_restarts) == (10, 10)
    assert not config.as_published
    resolved = resolve({"data": {"name": "creatures"}, "method": {"name": "selex"}})
    train = resolved.train
    assert (train.lr, train.min_lr_ratio, train.weight_decay, train.decay_biases) == (0.1, 1e-3, 1e-4, True)
    assert (train.draw, resolved.backbone["train_blocks"]) == ("by_total", 2)
