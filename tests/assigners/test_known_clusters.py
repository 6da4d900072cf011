"""Which clusters are known classes: the rule against a naive one, and every assigner on classes of uneven sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from newkinds.assigners import ASSIGNERS
from newkinds.assigners.known_clusters import Naming, clusters_of_categories, clusters_of_classes, name_categories
from newkinds.cluster.metrics import accuracy_by_name, clustering_accuracy
from newkinds.encoders.backbones import VECTORS
from newkinds.encoders.encoder import frozen_encoder
from newkinds.methods import METHODS
from newkinds.training.model import Model
from uneven import CLASSES, DIM, KNOWN, uneven


def named_naively(cluster: list[int], labels: list[int], known: int, clusters: int) -> list[int | None]:
    """The cluster of each class by counting images one by one."""
    found: list[int | None] = []
    for of_class in range(known):
        of_all = labels.count(of_class)
        best, most = None, 0
        for place in range(clusters):
            here = [label for c, label in zip(cluster, labels, strict=True) if c == place and label >= 0]
            own = here.count(of_class)
            others = len(here) - own
            if own > others and own >= min(2, of_all) and own / of_all >= 1 / 4 and own > most:
                best, most = place, own
        found.append(best)
    return found


@pytest.mark.parametrize("seed", range(10))
def test_the_rule_against_counting_one_by_one(seed: int) -> None:
    random = np.random.RandomState(seed)
    labels = random.randint(-1, 4, size=25)
    cluster = np.where(random.rand(25) < 0.5, labels + 1, random.randint(6, size=25))
    found = clusters_of_classes(cluster, labels, known=5, clusters=6)  # class 4 has no labels
    assert [None if c < 0 else c for c in found.tolist()] == named_naively(cluster.tolist(), labels.tolist(), 5, 6)
    assert found[4] == -1


@pytest.mark.parametrize("seed", range(10))
def test_every_cluster_is_one_category_and_new_ones_keep_their_numbers(seed: int) -> None:
    random = np.random.RandomState(seed)
    of_classes = np.where(random.rand(3) < 0.3, -1, random.permutation(7)[:3])
    found = clusters_of_categories(of_classes, clusters=7).tolist()
    assert found[:3] == of_classes.tolist()
    assert sorted(c for c in found if c >= 0) == list(range(7))
    assert -1 not in found[3:]
    assert all(found[c] == c for c in range(3, 7) if c not in of_classes)  # ids of new categories are stable
    assert len(found) == 7 + (of_classes < 0).sum()


def test_scores_go_where_their_category_is() -> None:
    naming, logits = Naming(), torch.arange(8.0).view(2, 4)
    assert naming(logits) is logits  # nothing was found yet
    naming.fit(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1]), known=2, clusters=4)
    assert naming(logits) is logits
    assert naming.categories(4) == 4
    naming.fit(torch.tensor([3, 3, 3]), torch.tensor([0, 0, 1]), known=2, clusters=4)
    nowhere = -torch.inf
    assert naming(logits).tolist() == [[3, nowhere, 2, 0, 1], [7, nowhere, 6, 4, 5]]
    assert naming.categories(4) == 5
    nothing_new = Naming()
    nothing_new.fit(torch.tensor([1, 1]), torch.tensor([0, 0]), known=4, clusters=4)
    assert nothing_new(logits) is logits
    again = Naming()
    again.load_state_dict(naming.state_dict())
    assert torch.equal(again(logits), naming(logits))


def found_by(assigner: str, embedding: torch.Tensor, labels: torch.Tensor, seed: int) -> Model:
    method = METHODS["frozen"]
    quick = {"steps": 30} if assigner == "pim" else {}
    quick |= {"restarts": 2} if assigner in ("kmeans", "sskmeans", "balanced", "pim") else {}
    names = [f"flower{c:03d}" for c in range(KNOWN)]
    encoder = frozen_encoder(name=VECTORS, width=DIM)
    model = Model(encoder, method(method.Config(), DIM, KNOWN, CLASSES), names, CLASSES)
    model.frozen = True
    model.assigner = ASSIGNERS[assigner](DIM, KNOWN, CLASSES, **quick)
    model.find_categories(embedding, labels, seed)
    return model.eval()


@pytest.mark.parametrize("assigner", [name for name in ASSIGNERS if not ASSIGNERS[name].learnt])
def test_no_category_has_the_name_of_a_class_that_it_does_not_contain(assigner: str) -> None:
    """24 classes of 4 to 40 images, half of them with 2 to 13 labels; several draws."""
    renamed = 0
    for seed in range(4):
        embedding, truth, labels = uneven(seed)
        model = found_by(assigner, embedding, labels, seed)
        alone = model.assign(embedding)
        answer = model.keep_labels(alone, embedding, labels)
        labelled = labels >= 0
        assert torch.equal(answer.category[labelled], labels[labelled])
        assert torch.equal(answer.category[~labelled], alone.category[~labelled])
        # a category with a known name holds labelled images of that class, also by the model alone, or nothing else
        for of_class in range(KNOWN):
            inside = labels[labelled & (alone.category == of_class)]
            others = int((answer.category == of_class).sum() - (labels == of_class).sum())
            own = int((inside == of_class).sum())
            assert (2 * own > len(inside) and own >= 2) if len(inside) or others else True, (seed, of_class)
        # what Hungarian matching says does not change: names are only taken from where they do not belong
        clusters = model.chosen_assigner(embedding).argmax(dim=1)
        named = name_categories(clusters.numpy(), labels.numpy(), KNOWN, CLASSES)
        assert np.array_equal(named, alone.category.numpy())  # the same without a model
        renamed += int((clusters != alone.category).any())
        known, hidden = list(range(KNOWN)), (~labelled).numpy()
        matched, before = (
            clustering_accuracy(truth[hidden], found.numpy()[hidden], known) for found in (alone.category, clusters)
        )
        assert matched == before
        by_name = accuracy_by_name(truth[hidden], answer.category.numpy()[hidden], known)
        was = accuracy_by_name(truth[hidden], clusters.numpy()[hidden], known)
        assert by_name.precision >= was.precision - 0.02
        assert 0.3 < by_name.old <= 1
    assert renamed or assigner in ("balanced", "continued", "em", "pim")  # these follow labels closely
