"""PIM against published numbers, and its objective by loops."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from newkinds.assigners import pim as module
from newkinds.assigners.base import draw_seed
from newkinds.assigners.centres import centres_of_classes
from newkinds.assigners.pim import (
    PIM,
    PUBLISHED_WEIGHTS,
    SCALE,
    Objective,
    descend,
    maximise_information,
    published_start,
)
from newkinds.assigners.start import find_start
from newkinds.cluster import KMeans, SemiSupervisedKMeans
from newkinds.cluster.metrics import clustering_accuracy

NUMBERS = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((NUMBERS / "pim.json").read_text())


@pytest.fixture(scope="module")
def published() -> dict[str, Tensor]:
    with np.load(NUMBERS / "pim.npz") as stored:
        numbers = {name: torch.from_numpy(stored[name]) for name in stored.files}
    for case in ("objective", "search"):
        numbers[f"{case}/given"] = torch.where(numbers[f"{case}/mask_lab"] > 0, numbers[f"{case}/labels"], -1)
    return numbers


@pytest.mark.parametrize("weight", ["0.1", "1"])
def test_objective_and_steps_are_the_published_ones(published: dict[str, Tensor], weight: str) -> None:
    rows, labels, start = (published[f"objective/{name}"] for name in ("features", "given", "W0"))
    for steps, expected in enumerate(EXPECTED["objective"][f"lam{weight}"]["loss_before_each_of_5_steps"]):
        weights = maximise_information(start, rows, labels, float(weight), steps)
        assert by_loops(weights, rows, labels, float(weight)).item() == pytest.approx(expected, abs=1e-10)
    after = maximise_information(start, rows, labels, float(weight), 5)
    torch.testing.assert_close(after, published[f"objective/W_after5_lam{weight}"], rtol=0, atol=1e-10)
    gradient = Objective(rows, labels, float(weight)).gradient(start)
    torch.testing.assert_close(gradient, published[f"objective/grad_at_W0_lam{weight}"], rtol=0, atol=1e-9)


def entropy_by_loops(shares: list[Tensor], alpha: float) -> Tensor:
    if alpha == 1:
        return sum((-p * p.log() for p in shares), torch.zeros(()))
    return (1 - sum((p**alpha for p in shares), torch.zeros(()))) / (alpha - 1)


def by_loops(
    weights: Tensor, rows: Tensor, labels: Tensor, weight: float, learn_labels: bool = True, alpha: float = 1.0
) -> Tensor:
    """The objective, image by image and category by category; autograd can follow it."""
    shares = []
    for row in rows:
        powers = [(SCALE * (row * of_category).sum()).exp() for of_category in weights]
        shares.append([power / sum(powers) for power in powers])
    loss = torch.zeros((), dtype=torch.float64)
    unlabelled = [p for p, label in zip(shares, labels.tolist(), strict=True) if label < 0]
    for p in unlabelled:
        loss = loss + weight * entropy_by_loops(p, alpha) / len(unlabelled)
    mean = [sum(p[k] for p in shares) / len(shares) for k in range(len(weights))]
    loss = loss - entropy_by_loops(mean, alpha)
    known = [(p, label) for p, label in zip(shares, labels.tolist(), strict=True) if label >= 0]
    for p, label in known:
        loss = loss - learn_labels * p[label].log() / len(known)
    return loss


def few_rows() -> tuple[Tensor, Tensor]:
    """Six unit rows and a classifier of three categories."""
    generator = torch.Generator().manual_seed(0)
    rows = F.normalize(torch.randn(6, 4, generator=generator, dtype=torch.float64), dim=1)
    return rows, 0.1 * torch.randn(3, 4, generator=generator, dtype=torch.float64)


def test_steps_are_those_of_adam_to_the_last_bit() -> None:
    start, slope = (torch.randn(5, 7, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    weights = start.clone()
    optimizer = torch.optim.Adam([weights], lr=1e-3, weight_decay=1e-2)
    for _ in range(30):
        weights.grad = slope * weights.sin()
        optimizer.step()
    assert torch.equal(descend(start, lambda at: slope * at.sin(), 30), weights)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("labels", [[0, 1, -1, -1, 1, -1], [-1] * 6, [0, 1, 2, 0, 1, 2]])
@pytest.mark.parametrize("learn_labels", [True, False])
def test_the_gradient_is_that_of_the_objective_by_loops(alpha: float, labels: list[int], learn_labels: bool) -> None:
    rows, weights = few_rows()
    given = torch.tensor(labels)
    weights.requires_grad_()
    by_loops(weights, rows, given, 0.3, learn_labels, alpha).backward()
    found = Objective(rows, given, 0.3, learn_labels, alpha).gradient(weights.detach())
    torch.testing.assert_close(found, weights.grad, rtol=0, atol=1e-12)


def test_an_alpha_next_to_one_is_shannon() -> None:
    """In float32, where a difference of powers that is divided by alpha - 1 would be rounding."""
    rows, weights = (tensor.float() for tensor in few_rows())
    labels = torch.tensor([0, 1, -1, -1, 1, -1])
    shannon, near = (Objective(rows, labels, 0.3, alpha=alpha).gradient(weights) for alpha in (1.0, 1 + 1e-6))
    torch.testing.assert_close(near, shannon, rtol=0, atol=1e-5)


@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_a_category_that_nothing_belongs_to_gives_numbers(alpha: float) -> None:
    rows = F.normalize(torch.ones(4, 3) + torch.eye(4, 3), dim=1)
    far = torch.tensor([[4.0, 4.0, 4.0], [-4.0, -4.0, -4.0]])  # its share underflows to 0
    assert Objective(rows, torch.full((4,), -1), 0.1, alpha=alpha).gradient(far).isfinite().all()


@pytest.mark.parametrize(
    ("as_published", "case"),
    [(True, "released_with_float32_features_chained_start"), (False, "independent_start_per_lambda")],
)
def test_the_search_finds_the_published_weight(
    published: dict[str, Tensor], as_published: bool, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, labels, centres = (published[f"search/{name}"] for name in ("features", "given", "kmeans_centroids"))
    monkeypatch.setattr(module, "WEIGHTS", PUBLISHED_WEIGHTS)
    matches = []

    def spy(*arguments: object) -> tuple[object, float]:
        found = original(*arguments)
        matches.append(100 * found[1])
        return found

    original = module.match_known
    monkeypatch.setattr(module, "match_known", spy)
    pim = PIM(6, 3, EXPECTED["search"]["K"], steps=150, search_steps=150, as_published=as_published)
    assert pim.choose(rows, labels, centres) == pytest.approx(EXPECTED["search"][case]["selected_lambda"])
    assert matches == pytest.approx(EXPECTED["search"][case]["labelled_acc_percent"])


@pytest.mark.parametrize(("as_published", "chosen"), [(True, 0.6), (False, 0.05)])
def test_the_first_weight_may_win_except_as_published(
    as_published: bool, chosen: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    matches = iter(EXPECTED["search"]["selection_only_example"]["acc"])
    monkeypatch.setattr(module, "WEIGHTS", PUBLISHED_WEIGHTS)
    monkeypatch.setattr(module, "match_known", lambda *_: (None, next(matches) / 100))
    rows = F.normalize(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    pim = PIM(3, 1, 2, steps=1, search_steps=1, as_published=as_published)
    assert pim.choose(rows, torch.tensor([0] + [-1] * 7), rows[:2]) == pytest.approx(chosen)


def some_rows() -> tuple[Tensor, Tensor]:
    rows = F.normalize(torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    return rows, torch.tensor([0, 1] * 5 + [-1] * 20)


def test_the_weight_that_was_chosen_is_noted_and_a_given_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = some_rows()
    pim = PIM(3, 2, 4, entropy_weight="auto", steps=2, search_steps=2)
    pim.fit(rows, labels)
    assert "chosen on labelled images" in pim.note
    monkeypatch.setattr(PIM, "choose", lambda *_: pytest.fail("nothing is to be chosen"))
    assert pim.trial(2, 4).entropy_weight == pim.chosen_weight
    pim.trial(2, 4).fit(rows, labels)
    PIM(3, 2, 4, entropy_weight=0.2, steps=2).fit(rows, labels)
    PIM(3, 2, 4, steps=2).fit(rows, labels)  # by default, too


def test_as_published_the_weight_is_searched_from_semi_supervised_k_means() -> None:
    rows, labels = some_rows()
    assert PIM(3, 2, 4, as_published=True).steps == 1000
    pim = PIM(3, 2, 4, steps=20, as_published=True)
    torch.manual_seed(5)
    pim.fit(rows, labels)
    assert pim.chosen_weight in PUBLISHED_WEIGHTS[1:]
    torch.manual_seed(5)
    plain = torch.from_numpy(KMeans(4, 10, draw_seed()).fit(rows).cluster_centers_)
    weight = pim.choose(rows, labels, plain)
    start = published_start(rows, labels, 4, 100, np.random.RandomState(draw_seed()))
    assert weight == pim.chosen_weight
    assert torch.equal(pim.weights, maximise_information(start, rows, labels, weight, 20))


@pytest.mark.parametrize("restarts", [1, 2, 3, 4])
def test_the_published_start_is_that_of_the_least_distances(published: dict[str, Tensor], restarts: int) -> None:
    rows, labels = published["objective/features"], published["objective/given"]
    expected = EXPECTED["start"]
    start = published_start(rows, labels, 5, restarts, np.random.RandomState(expected["seed"]))
    best = int(np.argmin(expected["sum_of_distances"][:restarts]))
    torch.testing.assert_close(start, published[f"start/centres_{best}"], rtol=0, atol=1e-12)
    assert best == expected["best"] or restarts < 3


def start_by_loops(rows: Tensor, labels: Tensor, categories: int, restarts: int, seed: int) -> tuple[Tensor, int, int]:
    """The centres of the best start, its number, and which it would be by squared distances within clusters."""
    random, runs = np.random.RandomState(seed), []
    free = rows[labels < 0]
    for _ in range(restarts):
        centres = [rows[labels == c].mean(dim=0) for c in range(int(labels.max()) + 1)]
        while len(centres) < categories:
            squared = torch.stack([min((row - c).square().sum() for c in centres) for row in free])
            centres.append(free[int((squared.cumsum(0) / squared.sum() >= random.rand()).nonzero()[0])])
        while True:
            away = torch.stack([torch.stack([(row - c).norm() for c in centres]) for row in rows])  # (n, K)
            own = torch.where(labels >= 0, labels, away.argmin(dim=1))
            means = [rows[own == c].mean(dim=0) for c in range(categories)]
            if all(torch.equal(a, b) for a, b in zip(means, centres, strict=True)):
                break
            centres = means
        squares = away.gather(1, own[:, None]).square().sum().item()
        runs.append((away.amin(dim=1).sum().item(), squares, torch.stack(centres)))
    by_distance = min(range(restarts), key=lambda run: runs[run][0])
    return runs[by_distance][2], by_distance, min(range(restarts), key=lambda run: runs[run][1])


def test_the_published_start_by_loops() -> None:
    others = 0
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        rows = F.normalize(torch.randn(24, 3, generator=generator, dtype=torch.float64), dim=1)
        labels = torch.where(torch.arange(24) < 8, torch.arange(24) % 2, -1)
        expected, by_distance, by_squares = start_by_loops(rows, labels, 5, 5, seed)
        found = published_start(rows, labels, 5, 5, np.random.RandomState(seed))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        others += by_distance != by_squares
    assert others  # else squares would do


def stretched(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Unit rows, labels and truth of ten classes, five of them known, that are wide where they do not differ."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(240) % 10
    centres = torch.cat([torch.randn(10, 8, generator=generator), torch.zeros(10, 16)], dim=1)
    spread = torch.tensor([0.2] * 8 + [1.0] * 16)
    rows = centres[truth] + spread * torch.randn(240, 24, generator=generator)
    labels = torch.where((truth < 5) & (torch.arange(240) % 4 < 2), truth, -1)
    return F.normalize(rows, dim=1), labels, truth


@pytest.mark.parametrize("seed", range(2))
def test_the_start_finds_classes_that_are_wide_where_they_do_not_differ(seed: int) -> None:
    rows, labels, truth = stretched(seed)
    hidden = labels < 0

    def accuracy(weights: Tensor) -> float:
        found = (rows @ weights.T).argmax(dim=1)
        return clustering_accuracy(truth[hidden].numpy(), found[hidden].numpy(), known=range(5)).all

    torch.manual_seed(seed)
    pim = PIM(24, 5, 10, restarts=3)
    pim.fit(rows, labels)
    start = centres_of_classes(SemiSupervisedKMeans(10, 3, draw_seed()), rows, labels)
    from_raw_rows = maximise_information(start, rows, labels, 0.1, pim.steps)
    assert accuracy(pim.weights) > 0.9
    assert accuracy(pim.weights) > accuracy(from_raw_rows) + 0.1


@pytest.mark.parametrize("labels", [[0, 1] + [-1] * 28, [-1] * 30])
def test_where_labels_cannot_whiten_the_start_is_found_in_the_rows_as_they_are(labels: list[int]) -> None:
    truth = torch.arange(30) % 3
    rows = F.normalize(
        torch.eye(3, 8)[truth] + 0.1 * torch.randn(30, 8, generator=torch.Generator().manual_seed(0)), dim=1
    )
    start = find_start(rows, torch.tensor(labels), 3, restarts=2)
    assert clustering_accuracy(truth.numpy(), start.numpy(), known=range(2)).all == 1


def test_many_copies_of_one_image_give_numbers() -> None:
    rows = F.normalize(torch.cat([torch.eye(4), torch.ones(60, 4)]), dim=1)
    labels = torch.tensor([0, 1] + [-1] * 62)
    pim = PIM(4, 2, 6, steps=20, restarts=2)
    with pytest.warns(ConvergenceWarning, match="clusters have points"):
        pim.fit(rows, labels)
    assert pim(rows).isfinite().all()
