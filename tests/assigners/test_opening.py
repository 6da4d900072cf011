"""When a group of images opens a category: the rule, and what hidden classes say about it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from newkinds.assigners.calibration import Calibration, centres_of
from newkinds.assigners.centres import LabelledKMeans
from newkinds.assigners.extension import Extension
from newkinds.assigners.opening import (
    OpeningRule,
    choose_rule,
    group_silhouettes,
    unconfirmed_rule,
    usual_distance,
)

DIM = 16


def draw(kinds: Tensor, of: list[int], spread: float = 0.1, seed: int = 0) -> Tensor:
    """Unit rows around directions."""
    noise = torch.randn(len(of), DIM, generator=torch.Generator().manual_seed(seed))
    return F.normalize(kinds[of] + spread * noise, dim=1)


@pytest.fixture
def kinds() -> Tensor:
    return F.normalize(torch.randn(12, DIM, generator=torch.Generator().manual_seed(1)), dim=1)


def repeated(kinds: range, each: int) -> list[int]:
    return [kind for kind in kinds for _ in range(each)]


def test_silhouettes_are_those_of_plain_loops() -> None:
    random = np.random.default_rng(0)
    points = random.normal(size=(20, 5)).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    group, away = np.repeat([0, 1, 2, 3], [8, 6, 4, 2]), random.uniform(0, 1, 20).astype(np.float32)
    sizes, found = group_silhouettes(points, group, away, smallest=4)
    assert sizes.tolist() == [8, 6, 4, 2]

    def centre(rows: np.ndarray) -> np.ndarray:
        total = rows.sum(axis=0)
        return total / np.linalg.norm(total)

    for number in range(4):
        wanted = []
        for row in np.flatnonzero(group == number):
            others = [i for i in np.flatnonzero(group == number) if i != row]
            a = 1 - points[row] @ centre(points[others])
            large = [other for other in (0, 1, 2) if other != number]
            b = min([away[row], *(1 - points[row] @ centre(points[group == other]) for other in large)])
            wanted.append((b - a) / max(a, b))
        assert found[number] == pytest.approx(np.mean(wanted), abs=1e-5)


def test_the_usual_distance_is_between_two_images_of_a_class() -> None:
    points = F.normalize(torch.randn(9, 6, generator=torch.Generator().manual_seed(3)), dim=1).numpy()
    classes = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3])
    pairs = [
        np.mean([1 - points[i] @ points[j] for i in rows for j in rows if i != j])
        for rows in ([0, 1, 2], [3, 4], [6, 7, 8])
    ]
    assert usual_distance(points, classes) == pytest.approx(np.median(pairs), abs=1e-6)


def test_a_rule_finds_kinds_that_were_never_seen_and_no_others(kinds: Tensor) -> None:
    of = repeated(range(10), 12)
    rows = draw(kinds, of)
    labels, sizes = torch.tensor(of), torch.full((10,), 12)
    centres = centres_of(rows, labels, 10)
    rule = choose_rule(rows, labels, centres, sizes)
    assert rule.false <= 0.05 * rule.openings
    assert rule.found >= 0.9 * rule.hidden == 27
    came = repeated(range(10), 6) + [10] * 9 + [11] * 7
    groups = rule.groups_that_stand(draw(kinds, came, seed=5), centres)
    assert sorted({came[row] for row in group.tolist()} for group in groups) == [{10}, {11}]
    assert sorted(len(group) for group in groups) in ([7, 9], [6, 9], [7, 8], [6, 8])
    assert not rule.groups_that_stand(draw(kinds, repeated(range(10), 6), seed=6), centres)
    assert not rule.groups_that_stand(draw(kinds, [10] * 4, seed=7), centres)  # too few
    assert "times a known class was hidden for a moment" in rule.sentence


def test_where_classes_cannot_be_told_apart_nothing_is_opened() -> None:
    rows = F.normalize(torch.randn(120, DIM, generator=torch.Generator().manual_seed(2)), dim=1)
    labels = torch.arange(120) % 10
    centres = centres_of(rows, labels, 10)
    rule = choose_rule(rows, labels, centres, torch.full((10,), 12))
    assert rule.false <= 0.05 * max(rule.openings, 1)
    assert not rule.groups_that_stand(rows.flip(1), centres)


def test_too_few_labels_confirm_nothing(kinds: Tensor) -> None:
    of = repeated(range(3), 12)
    rows, labels = draw(kinds, of), torch.tensor(of)
    centres = centres_of(rows, labels, 3)
    assert choose_rule(rows, labels, centres, torch.full((3,), 12)).hidden == 0
    rule = unconfirmed_rule(rows, labels)
    assert (rule.threshold, rule.hidden) == (OpeningRule(1.0).threshold, 0)
    assert "too few labelled images" in rule.sentence
    [group] = rule.groups_that_stand(draw(kinds, [0] * 6 + [5] * 9, seed=4), centres)
    assert set(group.tolist()) <= set(range(6, 15))


def test_an_extension_takes_what_is_nearer_to_it(kinds: Tensor) -> None:
    of = repeated(range(4), 10)
    rows, labels = draw(kinds, of), torch.tensor(of)
    calibration, assigner = Calibration(), LabelledKMeans(DIM, 4, 4)
    assigner.fit(rows, labels)
    calibration.fit(rows, labels, labels, assigner)
    came = draw(kinds, [0, 1, 7, 7], seed=8)
    from newkinds.assigners.base import Assignment

    alone = calibration(came, Assignment(assigner(came).argmax(dim=1), torch.zeros(4)))
    with_it = Extension(calibration, kinds[7][None])(came, alone, calibration)
    assert with_it.category.tolist() == [0, 1, 4, 4]
    assert with_it.unlike is not None
    assert alone.unlike is not None
    assert (with_it.unlike[2:] < 1).all()
    assert (alone.unlike[2:] > 1).all()
    without = Extension(calibration, kinds[:0])(came, alone, calibration)
    assert torch.equal(without.category, alone.category)
    assert torch.equal(without.confidence, alone.confidence)
    empty = Extension(calibration, torch.zeros(1, DIM))(came, alone, calibration)
    assert torch.equal(empty.category, alone.category)
