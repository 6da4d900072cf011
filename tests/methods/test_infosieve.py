"""InfoSieve against the numbers of the published code (float64) and against plain loops."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from assigning import assign, fit
from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.tokens import Encoded
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS, Progress, Step
from newkinds.runs.config import resolve

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "infosieve.json").read_text())
InfoSieve = METHODS["infosieve"]
PUBLISHED_NAMES = {
    "infonce_smoothed": "smoothed_info_nce",
    "supcon_labelled": "supervised_contrastive",
    "supcon_all": "clustered_contrastive",
    "infonce_code_smoothed": "code_smoothed_info_nce",
    "supcon_code_labelled": "code_supervised_contrastive",
    "supcon_code_all": "code_clustered_contrastive",
    "L_len": "code_length",
    "L_codecond": "code_condition",
    "L_maskcond": "mask_condition",
    "L_cat": "category",
    "total": "loss",
}


def method(dim=6, known=3, categories=5, **settings):
    torch.manual_seed(0)
    sizes = {"projection_hidden": 16, "projection_dim": 8, "output_dim": 14, "code_length": 10, "code_hidden": 9}
    return InfoSieve(InfoSieve.Config(**{**sizes, **settings}), dim=dim, known=known, categories=categories)


def batch(labels, index=None):
    labels = torch.tensor(labels)
    index = torch.arange(len(labels)) if index is None else torch.tensor(index)
    return Batch(Pixels(torch.empty(0)), labels, index)


@pytest.fixture(scope="module")
def arrays():
    with np.load(DATA / "infosieve.npz") as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files}


def published_method(arrays, **settings):
    """The method with the stored weights of its small networks, and what its loss is given but for the epoch."""
    infosieve = method(**settings).double()
    state = {name.removeprefix("param."): value for name, value in arrays.items() if name.startswith("param.")}
    state = {name.replace("categorizer", "categoriser"): value for name, value in state.items()}
    assert not infosieve.load_state_dict(state, strict=False).unexpected_keys
    features = arrays["features_raw"].clone().requires_grad_()
    labels = arrays["class_labels"].where(arrays["mask_lab"] > 0, -1)
    cluster = labels.where(labels >= 0, arrays["kmeans_labels"])  # of labelled images, the cluster of their class
    return infosieve, features, labels, cluster


# --- published numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.1, 1.0])
@pytest.mark.parametrize("epoch", [0, 100])
def test_a_step_gives_the_published_numbers(arrays, epoch, smoothing):
    infosieve, features, labels, cluster = published_method(arrays, smoothing=smoothing, as_published=True)
    unit = F.normalize(features, dim=1)
    terms = infosieve.loss_of(unit, labels, cluster, Progress(epoch, 200))
    case = f"e{epoch}_s{smoothing:g}"
    expected = {name: EXPECTED[case][published] for published, name in PUBLISHED_NAMES.items()}
    assert {name: value.item() for name, value in terms.items()} == pytest.approx(expected, abs=1e-9)
    code, mask = infosieve.codes(unit, epoch)
    torch.testing.assert_close(code, arrays[f"code_raw_e{epoch}"], rtol=0, atol=1e-12)
    torch.testing.assert_close(mask, arrays[f"mask_e{epoch}"], rtol=0, atol=1e-12)

    networks = {"coder0": infosieve.coder, "masker0": infosieve.masker, "cat0": infosieve.categoriser}
    wanted = [features, *(network[0].weight for network in networks.values())]
    gradients = torch.autograd.grad(terms["loss"], wanted)
    names = ["total_features", *networks][: 4 if smoothing == 0.1 else 1]  # the others are stored for 0.1 only
    for name, gradient in zip(names, gradients, strict=False):
        torch.testing.assert_close(gradient, arrays[f"grad_{name}_{case}"], rtol=0, atol=1e-9)


def test_by_default_distances_of_codes_are_divided_by_the_sum_of_their_own_row(arrays):
    infosieve, features, labels, cluster = published_method(arrays)
    terms = infosieve.loss_of(F.normalize(features, dim=1), labels, cluster, Progress(0, 200))
    assert terms["code_smoothed_info_nce"].item() == pytest.approx(EXPECTED["row_variant_e0_s0.1"], abs=1e-9)
    same = [name for name in PUBLISHED_NAMES.values() if not name.startswith("code_") and name != "loss"]
    published = {name: EXPECTED["e0_s0.1"][by] for by, name in PUBLISHED_NAMES.items() if name in same}
    assert {name: terms[name].item() for name in same} == pytest.approx(published, abs=1e-9)


# --- the same formulas, one row at a time ------------------------------------------------------------------


def network(layers, row):
    """A network's output for one row, in plain numbers."""
    for number, layer in enumerate(layers):
        if isinstance(layer, torch.nn.Linear):
            weights, biases = layer.weight.tolist(), layer.bias.tolist()
            row = [b + sum(w * v for w, v in zip(ws, row, strict=True)) for ws, b in zip(weights, biases, strict=True)]
        else:
            assert number % 2 == 1
            row = [v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in row]
    return row


def unit_row(row):
    return [v / math.hypot(*row) for v in row]


@pytest.mark.parametrize("published", [False, True])
def test_the_loss_by_loops(published):
    epoch, epochs, labels, cluster = 3, 8, [0, -1, 1, 0], [0, 3, 1, 0]
    infosieve = method(smoothing=0.3, info_nce_temp=0.7, sup_con_temp=0.2, sup_weight=0.4, as_published=published)
    infosieve = infosieve.double()
    for parameter in infosieve.parameters():
        parameter.data *= 3  # codes that differ
    generator = torch.Generator().manual_seed(1)
    embedding = F.normalize(torch.randn(8, 14, generator=generator, dtype=torch.float64), dim=1)
    z, labels2, cluster2 = embedding.tolist(), labels * 2, cluster * 2
    age, base = (epoch + 1) / 10, 2 - epoch / epochs
    code = [[math.tanh(age * v) for v in network(infosieve.coder, row)] for row in z]
    mask = [[(1 + math.tanh(v + 1 / (age + 1))) / 2 for v in network(infosieve.masker, row)] for row in z]
    weighted = [[v * base**-i for i, v in enumerate(row)] for row in code]

    def distances(rows, relative):
        away = [[math.dist(a, b) for b in rows] for a in rows]
        if relative:
            sums = [sum(row) for row in away]
            away = [[d / sums[j if published else i] for j, d in enumerate(row)] for i, row in enumerate(away)]
        return away

    def info_nce(away):
        total = 0.0
        for i in range(8):
            everyone_else = sum(math.exp(-away[i][j] / 0.7) for j in range(8) if j != i)
            for j in (j for j in range(8) if j != i):
                target = 0.7 * (j == (i + 4) % 8) + 0.3 / 7
                total -= target * (-away[i][j] / 0.7 - math.log(everyone_else)) / 8
        return total

    def by_class(rows, classes, relative):
        kept = [i for i in range(8) if classes[i] >= 0]
        away, classes = distances([rows[i] for i in kept], relative), [classes[i] for i in kept]
        n, total = len(kept), 0.0
        for i in range(n):
            positives = [j for j in range(n) if j != i and classes[j] == classes[i]]
            everyone_else = sum(math.exp(-away[i][j] / 0.2) for j in range(n) if j != i)
            for j in positives:
                total -= (-away[i][j] / 0.2 - math.log(everyone_else)) / len(positives) / n
        return total

    by_place = [(2 if published else base) ** i for i in range(10)]
    lengths = [sum(w * m for w, m in zip(by_place, row, strict=True)) / sum(by_place) for row in mask]
    means = [sum(row[i] for row in code) / 8 for i in range(10)]
    category = 0.0
    for i in (i for i in range(8) if labels2[i] >= 0):
        logits = network(infosieve.categoriser, [m * v for m, v in zip(mask[i], weighted[i], strict=True)])
        for c, logit in enumerate(logits):
            category -= math.log(1 / (1 + math.exp(-logit if labels2[i] == c else logit))) / (6 * 3)
    expected = {
        "smoothed_info_nce": info_nce(distances(z, relative=False)),
        "supervised_contrastive": by_class(z, labels2, relative=False),
        "clustered_contrastive": by_class(z, cluster2, relative=False),
        "code_smoothed_info_nce": info_nce(distances([unit_row(row) for row in code], relative=True)),
        "code_supervised_contrastive": by_class(weighted, labels2, relative=True),
        "code_clustered_contrastive": by_class(weighted, cluster2, relative=True),
        "code_length": sum(lengths) if published else sum(lengths) / 8,
        "code_condition": sum(1 - v * v for row in code for v in row) / 80 + sum(m * m for m in means) / 10,
        "mask_condition": sum((v * (1 - v)) ** 2 for row in mask for v in row) / 80,
        "category": category,
    }
    loss = 0.0
    for kind in ("", "code_"):
        supervised = expected[f"{kind}supervised_contrastive"] + expected[f"{kind}clustered_contrastive"]
        loss += 0.4 * supervised / 2 + 0.6 * expected[f"{kind}smoothed_info_nce"]
    conditions = expected["code_condition"] + expected["mask_condition"]
    loss += 0.1 * expected["code_length"] + 0.01 * (conditions + expected["category"])
    terms = infosieve.loss_of(embedding, torch.tensor(labels), torch.tensor(cluster), Progress(epoch, epochs))
    assert {name: value.item() for name, value in terms.items()} == pytest.approx({"loss": loss, **expected}, abs=1e-10)


# --- behaviour ---------------------------------------------------------------------------------------------


def test_the_length_does_not_depend_on_the_batch_and_late_places_cost_more():
    infosieve, place = method(code_length=4), torch.arange(4.0)
    one = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    lengths = [infosieve.length(one.repeat(rows, 1), place, base=2.0).item() for rows in (1, 7)]
    assert lengths == pytest.approx([3 / 15] * 2)  # 1 + 2 of 1 + 2 + 4 + 8
    assert infosieve.length(one.flip(1), place, base=2.0).item() == pytest.approx(12 / 15)
    assert infosieve.length(one, place, base=1.5).item() == pytest.approx(2.5 / 8.125)  # as codes are weighted now
    published = method(code_length=4, as_published=True)
    assert published.length(one.repeat(7, 1), place, base=1.5).item() == pytest.approx(7 * 3 / 15)
    long = method(code_length=2000)
    assert long.length(torch.ones(2, 2000), torch.arange(2000.0), base=2.0).item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("smoothing", [0.1, 1.0])
def test_smoothed_by_one_the_other_view_is_no_target(smoothing):
    """Why little is smoothed by default: which rows show the same image then no longer matters."""
    infosieve = method(smoothing=smoothing).double()
    generator = torch.Generator().manual_seed(2)
    z = F.normalize(torch.randn(8, 14, generator=generator, dtype=torch.float64), dim=1)
    twins_swapped = z[[0, 1, 2, 3, 5, 4, 7, 6]]
    nothing, progress = torch.full((4,), -1), Progress(0, 10)
    a, b = (
        infosieve.loss_of(rows, nothing, torch.arange(4), progress)["smoothed_info_nce"].item()
        for rows in (z, twins_swapped)
    )
    assert (a == pytest.approx(b, abs=1e-12)) == (smoothing == 1)


@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [0, 0, 1, 1], [-1, -1, -1, -1], [1], [-1]])
@pytest.mark.parametrize("published", [False, True])
def test_every_batch_has_a_finite_loss_and_gradients(labels, published):
    infosieve = method(as_published=published)
    infosieve.cluster = torch.tensor([0, 1, 3, 3])
    features = torch.randn(2 * len(labels), 6, generator=torch.Generator().manual_seed(3), requires_grad=True)
    terms = infosieve.loss(Step(batch(labels), Encoded(features), Progress(199, 200)))
    terms["loss"].backward()
    assert all(math.isfinite(value.item()) for value in terms.values())
    for parameter in (features, *infosieve.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


def test_codes_that_are_all_the_same_have_a_finite_loss():
    infosieve = method()
    infosieve.cluster = torch.zeros(4, dtype=torch.long)
    for parameter in infosieve.coder.parameters():
        torch.nn.init.zeros_(parameter)
    features = torch.randn(8, 6, generator=torch.Generator().manual_seed(4), requires_grad=True)
    terms = infosieve.loss(Step(batch([0, 1, -1, -1]), Encoded(features), Progress(0, 10)))
    terms["loss"].backward()
    assert all(math.isfinite(value.item()) for value in terms.values())
    assert all(p.grad is None or p.grad.isfinite().all() for p in (features, *infosieve.parameters()))


def blobs(n=60, noise=0.1):
    """Five directions, the first three of known classes of which every other image has a label."""
    truth = torch.arange(n) % 5
    generator = torch.Generator().manual_seed(6)
    features = torch.eye(5, 6)[truth] * 5 + noise * torch.randn(n, 6, generator=generator)
    return features, torch.where((truth < 3) & (torch.arange(n) % 2 == 0), truth, -1), truth


def test_every_epoch_starts_with_clusters_of_view_0_and_a_step_takes_those_of_its_images():
    features, labels, truth = blobs()
    infosieve, asked, found = method(), [], []
    for _ in range(2):
        torch.manual_seed(1)
        infosieve.on_epoch_start(0, lambda views: (asked.append(views), (features[None], labels))[1])
        found.append(infosieve.cluster)
    assert asked == [1, 1]
    assert torch.equal(*found)  # the same seed, the same clusters: a resumed run finds them again
    assert torch.equal(infosieve.cluster[truth < 3], truth[truth < 3])
    assert "cluster" not in infosieve.state_dict()

    index = [4, 8, 12, 31]
    step = Step(batch(labels[index].tolist(), index), Encoded(features[index].repeat(2, 1)), Progress(0, 10))
    wired = infosieve.loss(step)["clustered_contrastive"]
    embedding = infosieve.head(step.encoded.feature)
    direct = infosieve.loss_of(embedding, labels[index], infosieve.cluster[index], step.progress)
    assert wired.item() == direct["clustered_contrastive"].item()


@pytest.mark.parametrize("balanced", [True, False])
def test_categories_are_found_kept_and_predicted(balanced):
    features, labels, truth = blobs()
    infosieve = method(balanced=balanced)
    fit(infosieve, features, labels)
    found = assign(infosieve, features)
    assert torch.equal(found.category[truth < 3], truth[truth < 3])
    assert len(set(zip(truth.tolist(), found.category.tolist(), strict=True))) == 5
    loaded = method()
    loaded.load_state_dict(infosieve.state_dict())
    assert torch.equal(assign(loaded, features).category, found.category)
    assert infosieve.assigner().clustering(5, 1, 0).cluster_size == ("even" if balanced else None)


def test_settings_without_a_meaning_are_refused():
    with pytest.raises(NewkindsError, match=r"method\.smoothing' must be a number from 0 to 1, not 2\.0"):
        method(smoothing=2.0)
    with pytest.raises(NewkindsError, match=r"method\.code_length' must be a whole number of at least 1"):
        method(code_length=0)


def test_the_small_networks_start_small():
    infosieve = method(code_hidden=200, output_dim=100, code_length=90, known=80, categories=90)
    for small in (infosieve.coder, infosieve.masker, infosieve.categoriser):
        for layer in list(small)[::2]:
            assert layer.weight.std().item() == pytest.approx(0.02, rel=0.1)
            assert not layer.bias.any()


@pytest.mark.parametrize("as_published", [False, True])
def test_only_as_published_starts_of_k_means_are_drawn_with_the_mistake(as_published):
    clustering = method(as_published=as_published).classifier.clustering(5, 1, 0)
    assert clustering.init == ("infosieve" if as_published else "k-means++")


def test_defaults_are_the_published_ones_but_for_the_smoothing():
    config = InfoSieve.Config()
    assert (config.code_length, config.code_hidden, config.output_dim, config.smoothing) == (40, 128, 65536, 0.1)
    assert (config.kmeans_restarts, config.kmeans_iterations, config.balanced) == (10, 10, True)
    assert not config.as_published
    shapes = [tuple(layer.weight.shape) for layer in method(code_hidden=12).coder if hasattr(layer, "weight")]
    assert shapes == [(12, 14), (12, 12), (12, 12), (10, 12)]
    resolved = resolve({"data": {"name": "creatures"}, "method": {"name": "infosieve"}})
    train = resolved.train
    assert (train.lr, train.weight_decay, train.decay_biases, train.draw) == (0.1, 1e-4, True, "by_total")
    assert resolved.backbone["train_blocks"] == 2
