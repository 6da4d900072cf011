"""GCD: its head against published weights and outputs, its loss against plain loops."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from assigning import assign, fit
from newkinds.assigners.centres import LabelledKMeans
from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.tokens import Encoded
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS, Progress, Step
from newkinds.methods.heads import UnitProjectionHead
from newkinds.runs.config import resolve

DATA = Path(__file__).parents[1] / "numbers"
GCD = METHODS["gcd"]


def method(dim=12, known=2, categories=4, **settings):
    torch.manual_seed(0)
    config = GCD.Config(projection_hidden=16, projection_dim=8, output_dim=32, **settings)
    return GCD(config, dim=dim, known=known, categories=categories)


def batch(labels):
    labels = torch.tensor(labels)
    return Batch(Pixels(torch.empty(0)), labels, torch.arange(len(labels)))


def test_published_weights_give_published_outputs():
    """mlp.* is the projection, last_layer.weight_v the directions; weight_g is one everywhere."""
    with np.load(DATA / "gcd.npz") as stored:
        published = {name.removeprefix("gcd_head/"): torch.from_numpy(stored[name]) for name in stored.files}
    state = {k.removeprefix("param."): v for k, v in published.items() if k.startswith("param.")}
    assert torch.equal(state.pop("last_layer.weight_g"), torch.ones(12, 1, dtype=torch.float64))
    head = UnitProjectionHead(16, hidden=32, bottleneck=8, out=12).double()
    state["directions.prototypes"] = state.pop("last_layer.weight_v")
    head.load_state_dict({name.replace("mlp.", "projection."): value for name, value in state.items()})
    # the published training loop normalises what comes out of the published head
    cosines = head.directions(head.projection(published["x"]))
    torch.testing.assert_close(cosines, published["out"], rtol=0, atol=1e-9)
    torch.testing.assert_close(head(published["x"]), F.normalize(published["out"], dim=1), rtol=0, atol=1e-9)


def test_the_loss_by_loops():
    gcd = method(sup_weight=0.3, info_nce_temp=0.7, sup_con_temp=0.2).double()
    generator = torch.Generator().manual_seed(1)
    embedding = F.normalize(torch.randn(8, 5, generator=generator, dtype=torch.float64), dim=1)
    labels = [0, -1, 1, 0]
    z = embedding.tolist()

    def alike(i, j, temperature):
        return sum(a * b for a, b in zip(z[i], z[j], strict=True)) / temperature

    unsupervised = 0.0
    for i in range(8):
        everyone_else = sum(math.exp(alike(i, a, 0.7)) for a in range(8) if a != i)
        unsupervised -= (alike(i, (i + 4) % 8, 0.7) - math.log(everyone_else)) / 8
    rows = [i for i in range(8) if labels[i % 4] >= 0]
    supervised = 0.0
    for i in rows:
        positives = [j for j in rows if j != i and labels[j % 4] == labels[i % 4]]
        everyone_else = sum(math.exp(alike(i, a, 0.2)) for a in rows if a != i)
        terms = [alike(i, j, 0.2) - math.log(everyone_else) for j in positives]
        supervised -= sum(terms) / len(terms) / len(rows)

    terms = gcd.loss_of(embedding, torch.tensor(labels))
    assert terms["info_nce"].item() == pytest.approx(unsupervised, abs=1e-10)
    assert terms["supervised_contrastive"].item() == pytest.approx(supervised, abs=1e-10)
    assert terms["loss"].item() == pytest.approx(0.3 * supervised + 0.7 * unsupervised, abs=1e-10)


def test_nothing_of_the_loss_is_detached():
    gcd = method()
    embedding = F.normalize(torch.randn(8, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64), dim=1)
    labels = torch.tensor([0, -1, 1, 0])
    for term in ("info_nce", "supervised_contrastive"):
        assert torch.autograd.gradcheck(lambda z, term=term: gcd.loss_of(z, labels)[term], embedding.requires_grad_())


@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [0, 0, 1, 1], [-1, -1, -1, -1], [1]])
def test_every_batch_has_a_finite_loss_and_gradients(labels):
    gcd = method()
    features = torch.randn(2 * len(labels), 12, requires_grad=True)
    terms = gcd.loss(Step(batch(labels), Encoded(features), Progress(0, 10)))
    terms["loss"].backward()
    assert all(math.isfinite(value.item()) for value in terms.values())
    for parameter in (features, *gcd.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


def blobs(n=60, noise=0.1):
    """Four directions, the first two of known classes of which every third image has a label."""
    generator = torch.Generator().manual_seed(2)
    truth = torch.arange(n) % 4
    features = torch.eye(4, 12)[truth] * 5 + noise * torch.randn(n, 12, generator=generator)
    labels = torch.where((truth < 2) & (torch.arange(n) % 3 == 0), truth, -1)
    return features, labels, truth


def test_categories_are_clusters_with_known_classes_first():
    features, labels, truth = blobs()
    gcd = method()
    with pytest.raises(NewkindsError, match="after the last epoch"):
        assign(gcd, features)
    lengths = torch.logspace(-2, 2, len(features))[:, None]  # which do not matter
    fit(gcd, features * lengths, labels)
    found = assign(gcd, features / lengths)
    old = truth < 2
    assert torch.equal(found.category[old], truth[old])
    new = found.category[~old]
    assert set(zip(truth[~old].tolist(), new.tolist(), strict=True)) in ({(2, 2), (3, 3)}, {(2, 3), (3, 2)})
    assert ((found.confidence > 0.9) & (found.confidence <= 1)).all()

    loaded = method()
    loaded.load_state_dict(gcd.state_dict())
    assert torch.equal(assign(loaded, features).category, found.category)


def test_a_known_class_without_labels_does_not_move_the_others():
    features, labels, truth = blobs()
    gcd = method(known=3)
    fit(gcd, features, torch.where(labels >= 0, labels + 1, -1))  # of class 0 there is none
    category = assign(gcd, features).category
    assert (category[truth == 0] == 1).all()
    assert (category[truth == 1] == 2).all()
    assert set(category[truth > 1].tolist()) == {0, 3}


def test_k_means_is_set_up_as_asked():
    asked = method(kmeans_restarts=3, kmeans_iterations=7, as_published=True).assigner()
    assert (asked.known, asked.categories, asked.restarts, asked.iterations, asked.as_published) == (2, 4, 3, 7, True)
    estimator = asked.clustering(5, 6, 7)
    assert (estimator.n_clusters, estimator.n_init, estimator.random_state, estimator.max_iter) == (5, 6, 7, 7)
    assert estimator.published_behaviour
    assert not method().assigner().clustering(5, 6, 7).published_behaviour


def test_the_same_seed_finds_the_same_centres():
    features, labels, _ = blobs(noise=3)
    centres = []
    for seed in (7, 7):
        gcd = method()
        torch.manual_seed(seed)
        fit(gcd, features, labels)
        centres.append(gcd.classifier.centres)
    assert torch.equal(*centres)


def test_the_nearest_centre_wins_by_loops():
    generator = torch.Generator().manual_seed(3)
    classifier = LabelledKMeans(5, 2, 6)
    centres, x = torch.randn(6, 5, generator=generator), torch.randn(20, 5, generator=generator)
    classifier.centres.copy_(centres)
    nearest = [min(range(6), key=lambda k: math.dist(row, centres[k].tolist())) for row in x.tolist()]
    assert classifier(x).argmax(dim=1).tolist() == nearest

    centres[2] = torch.nan  # a cluster without points, as the published k-means leaves it
    classifier.centres.copy_(centres)
    among = [k for k in range(6) if k != 2]
    nearest = [min(among, key=lambda k: math.dist(row, centres[k].tolist())) for row in x.tolist()]
    assert classifier(x).argmax(dim=1).tolist() == nearest


def test_settings_without_a_meaning_are_refused():
    with pytest.raises(NewkindsError, match=r"method\.info_nce_temp' must be a number above 0"):
        method(info_nce_temp=0.0)
    with pytest.raises(NewkindsError, match=r"method\.sup_weight' must be a number from 0 to 1"):
        method(sup_weight=-1)
    with pytest.raises(NewkindsError, match=r"method\.kmeans_restarts' must be a whole number of at least 1"):
        method(kmeans_restarts=0)


def test_defaults_are_the_published_ones():
    config = GCD.Config()
    assert (config.sup_weight, config.info_nce_temp, config.sup_con_temp) == (0.35, 1.0, 0.07)
    assert (config.projection_hidden, config.projection_dim, config.output_dim) == (2048, 256, 65536)
    train = resolve({"data": {"name": "creatures"}, "method": {"name": "gcd"}}).train
    assert (train.lr, train.min_lr_ratio, train.weight_decay, train.decay_biases) == (0.1, 1e-3, 5e-5, True)
    assert train.draw == "half_labelled"
