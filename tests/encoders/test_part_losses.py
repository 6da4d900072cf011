"""All-min and diversity against plain loops, and where there is nothing to compare."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from newkinds.encoders.organizers.part_losses import all_min, diversity

PARTS, DIM = 3, 5
LABELS = [0, -1, 0, 1, -1]  # of five images; the class 1 has one image
TEMPERATURE = 0.3


def some_parts(views: int = 2, images: int = len(LABELS)) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    parts = torch.randn(views * images, PARTS, DIM, generator=generator, dtype=torch.float64)
    filled = torch.rand(views * images, PARTS, generator=generator) < 0.7
    filled[0] = torch.tensor([True, False, False])
    filled[1] = torch.tensor([False, True, True])  # shares no part with row 0
    return parts, filled


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def all_min_by_loops(parts: Tensor, filled: Tensor, labels: list[int], printed: bool) -> float:
    rows, images, found = parts.tolist(), len(labels), []
    for a in range(len(rows)):
        pull, push = 0.0, 0.0
        for b in range(len(rows)):
            common = [t for t in range(PARTS) if filled[a, t] and filled[b, t]]
            if a == b or not common:
                continue
            alike = [cosine(rows[a][t], rows[b][t]) / TEMPERATURE for t in common]
            same_label = labels[a % images] == labels[b % images] >= 0
            if a % images == b % images or same_label:
                pull += sum(map(math.exp, alike))
            else:
                push += math.exp(min(alike))
        if pull and (push or not printed):
            found.append(-math.log(pull / push) if printed else -math.log(pull / (pull + push)))
    assert 0 < len(found) <= len(rows)
    return sum(found) / len(found)


@pytest.mark.parametrize("printed", [False, True], ids=["self-limiting", "as printed"])
@pytest.mark.parametrize("views", [2, 3])
def test_all_min_by_loops(printed: bool, views: int) -> None:
    parts, filled = some_parts(views)
    got = all_min(parts, filled, torch.tensor(LABELS), TEMPERATURE, as_published=printed)
    assert got.item() == pytest.approx(all_min_by_loops(parts, filled, LABELS, printed), abs=1e-12)


def test_diversity_by_loops() -> None:
    parts, filled = some_parts()
    per_image = []
    for row, has in zip(parts.tolist(), filled.tolist(), strict=True):
        pairs = [(k, m) for k in range(PARTS) for m in range(k) if has[k] and has[m]]
        if pairs:
            per_image.append(sum(max(0.0, cosine(row[k], row[m])) for k, m in pairs) / len(pairs))
    assert 0 < len(per_image) < len(parts)
    assert diversity(parts, filled).item() == pytest.approx(sum(per_image) / len(per_image), abs=1e-12)


def test_an_empty_part_changes_nothing() -> None:
    parts, filled = some_parts()
    other = torch.where(filled[..., None], parts, torch.zeros_like(parts))
    labels = torch.tensor(LABELS)
    assert all_min(other, filled, labels) == all_min(parts, filled, labels)
    assert diversity(other, filled) == diversity(parts, filled)
    empty = other.clone().requires_grad_()
    (all_min(empty, filled, labels) + diversity(empty, filled)).backward()
    assert empty.grad is not None
    assert empty.grad.isfinite().all()
    assert not empty.grad[~filled].any()
    assert empty.grad[filled].any()


@pytest.mark.parametrize("printed", [False, True])
@pytest.mark.parametrize(
    ("views", "labels", "full"),
    [(2, [0], True), (1, [-1, -1], True), (1, [0, 0], True), (2, [-1, 0], False), (1, [-1], True)],
    ids=["one image", "no partners", "no others", "all empty", "one row"],
)
def test_without_partners_or_parts_it_is_finite(printed: bool, views: int, labels: list[int], full: bool) -> None:
    parts = torch.randn(views * len(labels), PARTS, DIM, requires_grad=True)
    filled = torch.full(parts.shape[:2], full)
    loss = all_min(parts, filled, torch.tensor(labels), as_published=printed) + diversity(parts, filled)
    loss.backward()
    assert loss.isfinite()
    assert parts.grad is not None
    assert parts.grad.isfinite().all()


def test_only_the_least_similar_part_pushes() -> None:
    """Of two images, one view each but for the first: row 0 has the partner 2, and the other image is row 1 and 3."""
    parts = torch.randn(4, PARTS, DIM, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    parts = torch.nn.functional.normalize(parts, dim=2)
    parts[2], parts[3] = parts[0], parts[1]
    parts.requires_grad_()
    least = int((parts[0] * parts[1]).sum(dim=1).argmin())
    all_min(parts, torch.ones(4, PARTS, dtype=torch.bool), torch.tensor([-1, -1]), TEMPERATURE).backward()
    assert parts.grad is not None
    moved = parts.grad[0].abs().sum(dim=1) > 1e-12  # parts that equal their partner are not pulled
    assert moved.tolist() == [t == least for t in range(PARTS)]


def test_the_printed_form_never_relaxes() -> None:
    """Images that are as far apart as can be: the loss by default ends, the printed one goes on."""
    parts = torch.tensor([[[1.0, 0.02]], [[-1.0, 0.02]], [[1.0, -0.02]], [[-1.0, -0.02]]]).double()
    slopes = {}
    for printed in (False, True):
        leaf = parts.clone().requires_grad_()
        loss = all_min(leaf, torch.ones(4, 1, dtype=torch.bool), torch.tensor([-1, -1]), as_published=printed)
        (slope,) = torch.autograd.grad(loss, leaf)
        slopes[printed] = slope.abs().max().item()
    assert slopes[False] < 1e-9
    assert slopes[True] > 0.01


def test_half_precision_is_left_before_cosines_are_divided() -> None:
    parts, filled = some_parts()
    parts, labels = parts.float(), torch.tensor(LABELS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = all_min(parts, filled, labels), diversity(parts, filled)
    assert inside == (all_min(parts, filled, labels), diversity(parts, filled))
