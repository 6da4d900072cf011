"""PIM against published numbers, and its objective by loops."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from newkinds.assigners import pim as module
from newkinds.assigners.pim import PIM, PUBLISHED_WEIGHTS, SCALE, maximise_information, objective

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
        assert objective(weights, rows, labels, float(weight)).item() == pytest.approx(expected, abs=1e-10)
    after = maximise_information(start, rows, labels, float(weight), 5)
    torch.testing.assert_close(after, published[f"objective/W_after5_lam{weight}"], rtol=0, atol=1e-10)
    start = start.clone().requires_grad_()
    objective(start, rows, labels, float(weight)).backward()
    expected_gradient = published[f"objective/grad_at_W0_lam{weight}"]
    torch.testing.assert_close(start.grad, expected_gradient, rtol=0, atol=1e-9)


def by_loops(weights: Tensor, rows: Tensor, labels: Tensor, weight: float, learn_labels: bool) -> float:
    shares = []
    for row in rows.tolist():
        powers = [math.exp(SCALE * sum(a * b for a, b in zip(row, w, strict=True))) for w in weights.tolist()]
        shares.append([power / sum(powers) for power in powers])
    loss = 0.0
    unlabelled = [p for p, label in zip(shares, labels.tolist(), strict=True) if label < 0]
    if unlabelled:
        loss += weight * sum(-sum(p * math.log(p) for p in row) for row in unlabelled) / len(unlabelled)
    for k in range(len(weights)):
        mean = sum(row[k] for row in shares) / len(shares)
        loss += mean * math.log(mean)
    known = [(p, label) for p, label in zip(shares, labels.tolist(), strict=True) if label >= 0]
    if known and learn_labels:
        loss += sum(-math.log(p[label]) for p, label in known) / len(known)
    return loss


@pytest.mark.parametrize("labels", [[0, 1, -1, -1, 1, -1], [-1] * 6, [0, 1, 2, 0, 1, 2]])
@pytest.mark.parametrize("learn_labels", [True, False])
def test_the_objective_by_loops(labels: list[int], learn_labels: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = F.normalize(torch.randn(6, 4, generator=generator, dtype=torch.float64), dim=1)
    weights = 0.1 * torch.randn(3, 4, generator=generator, dtype=torch.float64)
    found = objective(weights, rows, torch.tensor(labels), 0.3, learn_labels).item()
    assert found == pytest.approx(by_loops(weights, rows, torch.tensor(labels), 0.3, learn_labels), abs=1e-12)


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


def test_the_weight_that_was_chosen_is_noted_and_a_given_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = F.normalize(torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    labels = torch.tensor([0, 1] * 5 + [-1] * 20)
    pim = PIM(3, 2, 4, steps=2, search_steps=2)
    pim.fit(rows, labels)
    assert "chosen on labelled images" in pim.note
    monkeypatch.setattr(PIM, "choose", lambda *_: pytest.fail("nothing is to be chosen"))
    PIM(3, 2, 4, entropy_weight=0.2, steps=2).fit(rows, labels)
