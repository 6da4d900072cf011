"""DCCL against the numbers of the published code (float64) and against plain loops."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import newkinds
from assigning import assign, fit
from conftest import TINY_TRAINING
from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.backbones import build_backbone
from newkinds.encoders.tokens import Encoded
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS, Progress, Step
from newkinds.methods.dccl import concept_contrast, follow, mean_directions
from newkinds.methods.schedules import linear_then_constant
from newkinds.runs.config import resolve
from newkinds.runs.run import Run

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "dccl.json").read_text())["memory"]
DCCL = METHODS["dccl"]


def method(dim=8, known=4, categories=8, **settings):
    torch.manual_seed(0)
    config = DCCL.Config(projection_hidden=16, projection_dim=8, output_dim=32, **settings)
    return DCCL(config, dim=dim, known=known, categories=categories)


def step(features, labels, index, epoch=0):
    batch = Batch(Pixels(torch.empty(0)), torch.tensor(labels), torch.tensor(index))
    return Step(batch, Encoded(features), Progress(epoch, 200))


def some_rows(n, d, seed):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def published():
    with np.load(DATA / "dccl.npz") as stored:
        return {key.split("/")[1]: torch.from_numpy(stored[key]) for key in stored.files if key.startswith("memory/")}


# --- published numbers -----------------------------------------------------------------------------------


def test_a_step_gives_the_published_numbers(published):
    rows, community = published["inputs_raw"].clone().requires_grad_(), published["targets"]
    unit = F.normalize(rows, dim=1)
    loss = concept_contrast(unit, community, published["memory_before"], temperature=0.05)
    assert loss.item() == pytest.approx(EXPECTED["loss"], abs=1e-9)
    after = follow(published["memory_before"], unit.detach(), community, momentum=0.1)
    torch.testing.assert_close(after, published["memory_after_default"], rtol=0, atol=1e-9)
    (gradient,) = torch.autograd.grad(loss, rows)  # from the memory as it was
    torch.testing.assert_close(gradient, published["grad_default"], rtol=0, atol=1e-9)


def test_memories_start_as_the_published_ones_from_raw_features(published):
    raw, community = published["init_features_raw"], published["init_pseudo"]
    torch.testing.assert_close(mean_directions(raw, community), published["init_memory"], rtol=0, atol=1e-9)
    unit = mean_directions(F.normalize(raw, dim=1), community)
    expected = published["init_memory_if_features_were_normalised_first"]
    torch.testing.assert_close(unit, expected, rtol=0, atol=1e-9)
    assert (unit - published["init_memory"]).abs().max() > 1e-3


def test_the_weight_follows_the_published_schedule():
    config = DCCL.Config()
    for epoch, weight in EXPECTED["weight_schedule"].items():
        warmup = (config.start_concept_weight, config.concept_weight, config.concept_warmup_epochs)
        assert linear_then_constant(int(epoch), *warmup) == pytest.approx(weight, abs=1e-12)


# --- the same formulas, one row at a time ------------------------------------------------------------------


def blobs(n=96, noise=0.15):
    """Eight directions, the first four of known classes of which about every third image has a label."""
    generator = torch.Generator().manual_seed(6)
    truth = torch.arange(n) % 8
    features = 5 * torch.eye(8)[truth] + 5 * noise * torch.randn(n, 8, generator=generator)
    features = features * torch.logspace(-1, 1, n)[torch.randperm(n, generator=generator), None]  # of any length
    labels = torch.where((truth < 4) & (torch.arange(n) % 3 == 0), truth, -1)
    return features, labels, truth


def unit_of(row):
    length = math.hypot(*row)
    return [value / length for value in row]


def test_the_memory_by_loops_in_the_order_of_the_rows():
    memory, unit = F.normalize(some_rows(4, 6, seed=1), dim=1), F.normalize(some_rows(20, 6, seed=2), dim=1)
    community = torch.tensor([0, 3, 0, -1, 3, 3, 0, 1, -1, 3] * 2)  # nobody of 2
    expected = memory.tolist()
    for row, c in zip(unit.tolist(), community.tolist(), strict=True):
        if c >= 0:
            expected[c] = unit_of([0.3 * m + 0.7 * v for m, v in zip(expected[c], row, strict=True)])
    before = memory.clone()
    got = follow(memory, unit, community, momentum=0.3)
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
    assert torch.equal(memory, before)
    assert torch.equal(got[2], memory[2])


@pytest.mark.parametrize(("epoch", "weight"), [(0, 0.04), (50, 0.04 + 0.36 * 50 / 99), (150, 0.4)])
def test_the_loss_by_loops(epoch, weight):
    features, labels, _ = blobs()
    dccl = method().double()
    dccl.find_concepts(features.double(), labels, np.random.RandomState(0))
    index = [3, 17, 40, 41, 90]
    dccl.community[40] = -1
    views, memory = some_rows(10, 8, seed=5), dccl.memory.tolist()
    total, rows = 0.0, 0
    for row, image in zip(views.tolist(), index * 2, strict=True):
        own = int(dccl.community[image])
        if own >= 0:
            logits = [sum(a * b for a, b in zip(unit_of(row), m, strict=True)) / 0.05 for m in memory]
            total += math.log(sum(map(math.exp, logits))) - logits[own]
            rows += 1
    assert rows == 8
    batch_labels = [0, -1, -1, 1, -1]
    terms = dccl.eval().loss(step(views, batch_labels, index, epoch))
    assert terms["concept_contrast"].item() == pytest.approx(total / rows, abs=1e-10)
    host = dccl.loss_of(dccl.head(views), torch.tensor(batch_labels))
    assert terms["loss"].item() == pytest.approx(host["loss"].item() + weight * total / rows, abs=1e-10)
    assert {name: terms[name] for name in host if name != "loss"} == {n: v for n, v in host.items() if n != "loss"}


def test_a_step_is_compared_with_the_memory_before_it_and_only_training_moves_it():
    features, labels, _ = blobs()
    dccl = method()
    dccl.find_concepts(features, labels, np.random.RandomState(0))
    before, index = dccl.memory, [0, 1, 2, 8]
    rows = torch.randn(8, 8, requires_grad=True)
    still = dccl.eval().loss(step(rows, [-1] * 4, index))
    assert dccl.memory is before
    trained = dccl.train().loss(step(rows, [-1] * 4, index))
    trained["loss"].backward()  # the memory that it was computed from has not been written to
    assert torch.equal(trained["concept_contrast"], still["concept_contrast"])
    moved = (dccl.memory != before).any(dim=1)
    assert set(moved.nonzero()[:, 0].tolist()) == set(dccl.community[index].tolist())
    assert not dccl.memory.requires_grad
    torch.testing.assert_close(dccl.memory.norm(dim=1), torch.ones(len(before)))


# --- concepts --------------------------------------------------------------------------------------------


def test_every_epoch_starts_with_the_communities_of_the_middle_of_images():
    features, labels, truth = blobs()
    dccl, asked = method(), []

    def embed(views):
        asked.append(views)
        return features[None], labels

    states = []
    for _ in range(2):
        torch.manual_seed(1)
        dccl.on_epoch_start(0, embed)
        states.append(dccl.community)
    assert asked == ["centre", "centre"]
    assert torch.equal(*states)  # the same seed, the same communities: a resumed run finds them again
    assert len(dccl.memory) == 8
    assert len(set(zip(truth.tolist(), dccl.community.tolist(), strict=True))) == 8
    unit = F.normalize(features, dim=1)
    means = torch.stack([unit[dccl.community == c].mean(dim=0) for c in range(8)])
    torch.testing.assert_close(dccl.memory, F.normalize(means, dim=1))
    assert not {"community", "memory"} & set(dccl.state_dict())
    terms = dccl.loss(step(torch.randn(4, 8), [0, -1], [5, 6]))
    assert terms["communities"].item() == 8


def test_as_published_labels_are_read_at_the_rank_and_long_features_weigh_more(monkeypatch):
    features, labels, _ = blobs()
    given = {}

    def graph_of(unit, y, neighbours, min_similarity, by_rank):
        given.update(y=y, by_rank=by_rank, settings=(neighbours, min_similarity))
        return original(unit, y, neighbours, min_similarity, by_rank=by_rank)

    original = sys.modules[DCCL.__module__].neighbour_graph
    monkeypatch.setattr(sys.modules[DCCL.__module__], "neighbour_graph", graph_of)
    dccl = method(as_published=True, neighbours=9, min_similarity=0.5)
    dccl.find_concepts(features, labels, np.random.RandomState(0))
    assert given["settings"] == (9, 0.5)
    first = [label for label in labels.tolist() if label >= 0]  # in the published data set, and all that may be seen
    assert given["by_rank"].tolist() == first + [-1] * (96 - len(first))
    raw = torch.stack([features[dccl.community == c].mean(dim=0) for c in range(len(dccl.memory))])
    torch.testing.assert_close(dccl.memory, F.normalize(raw, dim=1))
    method().find_concepts(features, labels, np.random.RandomState(0))
    assert given["by_rank"] is None


@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [0, 0, 1, 1], [-1, -1, -1, -1], [1]])
@pytest.mark.parametrize("smallest", [5, 1000])  # 1000: there is no community at all
def test_every_batch_has_a_finite_loss_and_gradients(labels, smallest):
    features, given, _ = blobs()
    dccl = method(smallest_community=smallest)
    dccl.find_concepts(features, given, np.random.RandomState(0))
    assert len(dccl.memory) == (8 if smallest == 5 else 0)
    rows = torch.randn(2 * len(labels), 8, requires_grad=True)
    terms = dccl.loss(step(rows, labels, list(range(len(labels)))))
    terms["loss"].backward()
    assert all(math.isfinite(value.item()) for value in terms.values())
    for parameter in (rows, *dccl.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


def test_images_outside_of_communities_have_no_concept():
    features, given, _ = blobs()
    dccl = method()
    dccl.find_concepts(features, given, np.random.RandomState(0))
    dccl.community[:4] = -1
    before = dccl.memory
    terms = dccl.loss(step(torch.randn(8, 8), [-1] * 4, [0, 1, 2, 3]))
    assert terms["concept_contrast"].item() == 0
    assert torch.equal(dccl.memory, before)


def test_no_community_at_all_is_said_once(capsys):
    dccl = method(dim=16)
    for epoch in range(2):
        dccl.on_epoch_start(epoch, lambda views: (torch.eye(16)[None], torch.full((16,), -1)))
    heard = " ".join("".join(capsys.readouterr()).split())
    assert heard.count("the epoch trains GCD alone: lower method.min_similarity (0.6)") == 1


def test_categories_are_found_kept_and_predicted():
    features, labels, truth = blobs(noise=0.05)
    dccl = method()
    fit(dccl, features, labels)
    found = assign(dccl, features)
    assert torch.equal(found.category[truth < 4], truth[truth < 4])
    assert len(set(zip(truth.tolist(), found.category.tolist(), strict=True))) == 8
    loaded = method()
    loaded.load_state_dict(dccl.state_dict())
    assert torch.equal(assign(loaded, features).category, found.category)


# --- settings and the extra --------------------------------------------------------------------------------


def test_metrics_show_the_number_of_communities(tmp_path):
    small = {"method": {"output_dim": 64, "neighbours": 5, "smallest_community": 2}}
    newkinds.train("creatures", tmp_path / "run", method="dccl", settings=[TINY_TRAINING, small])
    rows = Run(tmp_path / "run").metrics()
    assert all(row["communities"] == int(row["communities"]) > 0 for row in rows)


def test_the_final_norm_trains_too(tmp_path):
    small = {"method": {"output_dim": 64}, "train": {"epochs": 1}}
    moved = {}
    for name in ("dccl", "gcd"):
        newkinds.train("creatures", tmp_path / name, method=name, settings=[TINY_TRAINING, small])
        norm = newkinds.load(tmp_path / name).model.encoder.backbone.network.norm
        moved[name] = not torch.equal(norm.weight, build_backbone("tiny").network.norm.weight)
    assert moved == {"dccl": True, "gcd": False}


def test_infomap_without_its_extra_is_refused_before_training_but_not_when_a_run_is_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "infomap", None)
    dccl = method(partition="infomap")  # as when a finished run is loaded
    with pytest.raises(NewkindsError, match=r"pip install 'newkinds\[infomap\]'"):
        dccl.begin(torch.tensor([0, -1]))
    method().begin(torch.tensor([0, -1]))


def test_infomap_finds_the_concepts():
    pytest.importorskip("infomap", reason="Infomap is an extra: pip install 'newkinds[infomap]'")
    features, labels, truth = blobs()
    dccl = method(partition="infomap")
    dccl.begin(labels)
    dccl.find_concepts(features, labels, np.random.RandomState(0))
    assert len(set(zip(truth.tolist(), dccl.community.tolist(), strict=True))) == 8


def test_settings_without_a_meaning_are_refused():
    with pytest.raises(NewkindsError, match=r"method\.neighbours' must be a whole number of at least 2, not 1"):
        method(neighbours=1)
    with pytest.raises(NewkindsError, match=r"method\.min_similarity' must be a number from -1 to 1, not 1\.5"):
        method(min_similarity=1.5)
    with pytest.raises(NewkindsError, match=r"method\.partition.*infomap"):
        method(partition="louvain")


def test_defaults_are_the_published_ones_but_for_the_partition():
    config = DCCL.Config()
    assert (config.sup_weight, config.info_nce_temp, config.sup_con_temp) == (0.35, 1.0, 0.07)
    assert (config.projection_hidden, config.projection_dim, config.output_dim) == (2048, 256, 65536)
    assert (config.neighbours, config.min_similarity, config.smallest_community) == (15, 0.6, 5)
    assert (config.concept_temp, config.memory_momentum, config.partition) == (0.05, 0.1, "map_equation")
    assert not config.as_published
    train = resolve({"data": {"name": "creatures"}, "method": {"name": "dccl"}}).train
    assert (train.lr, train.min_lr_ratio, train.weight_decay) == (0.1, 1e-3, 5e-5)
