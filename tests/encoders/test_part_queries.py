"""APL-style parts against plain loops, and what its assignment and losses promise."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from newkinds.encoders.organizers.part_losses import all_min, diversity
from newkinds.encoders.organizers.part_queries import PartQueries, prior_places
from newkinds.encoders.tokens import Encoded, Tokens
from newkinds.errors import NewkindsError

GRID, DIM, PARTS = (3, 4), 8, 6


def build(**settings: object) -> PartQueries:
    torch.manual_seed(0)
    return PartQueries(DIM, **{"count": PARTS, "heads": 2, **settings}).double()


def some_tokens(images: int = 3, grid: tuple[int, int] = GRID) -> Tokens:
    generator = torch.Generator().manual_seed(1)
    patches = torch.randn(images, grid[0] * grid[1], DIM, generator=generator, dtype=torch.float64)
    return Tokens(torch.randn(images, DIM, generator=generator, dtype=torch.float64), patches, grid)


# --- plain loops -----------------------------------------------------------------------------------------


def places_by_loops(cls: Tensor, patches: Tensor, grid: tuple[int, int], count: int) -> list[int]:
    alike = [float(F.cosine_similarity(cls, patch, dim=0)) for patch in patches]
    taken: list[int] = []

    def beside(place: int) -> int:
        row, column = divmod(place, grid[1])
        return sum(abs(row - t // grid[1]) <= 1 and abs(column - t % grid[1]) <= 1 for t in taken)

    while len(taken) < min(count, len(patches)):
        free = [place for place in range(len(patches)) if place not in taken]
        taken.append(min(free, key=lambda place: (beside(place), -alike[place])))
    return taken


@pytest.mark.parametrize("count", [1, 4, 9, 12, 20])
def test_the_prior_by_loops(count: int) -> None:
    """With 12 patches and more than 4 places to take, some lie beside others; there are never more than patches."""
    tokens = some_tokens()
    for image, found in enumerate(prior_places(tokens, count).tolist()):
        assert found == places_by_loops(tokens.cls[image], tokens.patches[image], GRID, count)


def attend(module: torch.nn.Module, queries: Tensor, keys: Tensor) -> Tensor:
    """Multi-head attention of rows to rows, head by head."""
    q, k, v = queries @ module.q.weight.T, keys @ module.k.weight.T, keys @ module.v.weight.T
    width, heads = DIM // module.heads, []
    for h in range(module.heads):
        part = slice(h * width, (h + 1) * width)
        heads.append((q[:, part] @ k[:, part].T / math.sqrt(width)).softmax(dim=1) @ v[:, part])
    return torch.cat(heads, dim=1) @ module.o.weight.T


@torch.no_grad()
def test_feature_and_parts_by_loops() -> None:
    organizer, tokens = build(), some_tokens()
    encoded = organizer.organize(tokens, details=True)
    empty = 0
    for image in range(3):
        x, cls = tokens.patches[image], tokens.cls[image]
        prior = F.layer_norm(x[places_by_loops(cls, x, GRID, PARTS)], (DIM,))
        q = organizer.queries
        q = q + attend(organizer.among, organizer.norms[0](q), organizer.norms[0](q))
        q = q + attend(organizer.to_prior, organizer.norms[1](q), prior)
        q = q + organizer.mlp(organizer.norms[2](q))
        cosines = [[float(F.cosine_similarity(query, patch, dim=0)) for query in q] for patch in x]
        means = [sum(row[k] for row in cosines) / len(cosines) for k in range(PARTS)]
        nearest = [max(range(PARTS), key=lambda k, row=row: row[k] - means[k]) for row in cosines]
        refined = []
        for k in range(PARTS):
            members = [patch for patch, part in zip(x, nearest, strict=True) if part == k]
            assert bool(encoded.filled[image, k]) is bool(members)
            if not members:
                empty += 1
                continue
            part = sum(members) / len(members)
            torch.testing.assert_close(encoded.slots[image, k], part)
            weights = torch.stack([part @ patch / math.sqrt(DIM) for patch in members]).softmax(dim=0)
            refined.append(part + sum(w * patch for w, patch in zip(weights, members, strict=True)))
        torch.testing.assert_close(encoded.feature[image], sum(refined) / len(refined))
        assert encoded.field[image].argmax(dim=1).tolist() == nearest
        torch.testing.assert_close(encoded.field[image].sum(dim=1), torch.ones(12, dtype=torch.float64))
    assert empty > 0, "no part was empty: nothing was tested about that"


def test_the_gradient_of_an_assignment_is_that_of_the_softmax() -> None:
    organizer, tokens = build(), some_tokens()
    queries = torch.randn(3, PARTS, DIM, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 12, PARTS, dtype=torch.float64)
    hard = organizer.assignment(queries, tokens.patches)
    assert set(hard.flatten().tolist()) == {0.0, 1.0}
    cosines = F.cosine_similarity(tokens.patches[:, :, None], queries[:, None], dim=3)
    soft = ((cosines - cosines.mean(dim=1, keepdim=True)) / organizer.temperature).softmax(dim=2)
    torch.testing.assert_close(
        *(torch.autograd.grad((assignment * weight).sum(), queries) for assignment in (hard, soft))
    )


# --- behaviour -------------------------------------------------------------------------------------------


def test_the_class_token_is_dropped_unless_kept() -> None:
    tokens = some_tokens()
    dropped, kept = (build(keep_class=keep).organize(tokens).feature for keep in (False, True))
    torch.testing.assert_close(kept, dropped + tokens.cls)


def test_losses_are_weighted_and_those_of_weight_zero_are_left_out() -> None:
    tokens, labels = some_tokens(images=4), torch.tensor([0, -1])  # two views of two images
    organizer = build(all_min=0.5, diversity=0.25, temperature=0.2, as_published=True)
    encoded = organizer.organize(tokens)
    losses = organizer.loss(encoded, labels, epoch=0)
    assert losses["all_min"] == 0.5 * all_min(encoded.slots, encoded.filled, labels, 0.2, as_published=True)
    assert losses["diversity"] == 0.25 * diversity(encoded.slots, encoded.filled)
    assert losses["all_min"] != build(all_min=0.5, temperature=0.2).loss(encoded, labels, 0)["all_min"]
    assert set(build(all_min=0.0).loss(encoded, labels, 0)) == {"diversity"}
    assert build().eval().loss(Encoded(encoded.feature), labels, 0) == {}


@pytest.mark.parametrize("of", ["feature", "all_min", "diversity"])
def test_gradients_reach_queries_and_tokens(of: str) -> None:
    organizer, tokens = build(), some_tokens(images=4)
    patches = tokens.patches.clone().requires_grad_()
    encoded = organizer.organize(Tokens(tokens.cls, patches, GRID))
    losses = {"feature": encoded.feature.square().sum(), **organizer.loss(encoded, torch.tensor([0, -1]), 0)}
    losses[of].backward()
    assert patches.grad is not None
    for gradient in (patches.grad, *(parameter.grad for parameter in organizer.parameters())):
        assert gradient is not None
        assert gradient.isfinite().all()
        assert gradient.any()


def test_own_losses_fall_if_they_alone_train_the_queries() -> None:
    organizer, tokens = build(), some_tokens(images=16)
    labels, optimizer = torch.tensor([0, 0, 1, 1, -1, -1, -1, -1]), torch.optim.SGD(organizer.parameters(), lr=0.3)
    totals = []
    for _ in range(20):
        total = sum(organizer.loss(organizer.organize(tokens), labels, 0).values())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        totals.append(total.item())
    assert min(totals[-5:]) < totals[0] - 0.01


@pytest.mark.parametrize("grid", [(1, 1), (1, 3), (2, 2), (7, 5)])
def test_any_grid_will_do(grid: tuple[int, int]) -> None:
    organizer, tokens = build(), some_tokens(grid=grid)
    encoded = organizer.organize(tokens, details=True)
    assert encoded.feature.isfinite().all()
    assert encoded.filled.any(dim=1).all()
    assert encoded.field.shape == (3, grid[0] * grid[1], PARTS)


def test_most_parts_are_in_use_at_the_start_and_the_feature_has_the_size_of_tokens() -> None:
    """Tokens of an image have much in common, and one query could win them all."""
    torch.manual_seed(0)
    patches = 3 * torch.randn(4, 1, 384) + torch.randn(4, 196, 384)
    encoded = PartQueries(384).organize(Tokens(torch.randn(4, 384), patches, (14, 14)))
    assert encoded.filled.sum(dim=1).float().mean() > 9
    assert 0.5 < (encoded.feature.norm(dim=1) / patches.norm(dim=2).mean(dim=1)).mean() < 3


def test_slots_are_kept_in_training_only() -> None:
    organizer, tokens = build(), some_tokens()
    assert organizer.organize(tokens).slots is not None
    assert organizer.eval().organize(tokens).slots is None
    assert organizer.organize(tokens).filled is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": 0}, "organizer.count' must be a whole number of at least 1"),
        ({"temperature": 0.0}, "organizer.temperature' must be a number above 0"),
        ({"all_min": -1.0}, "organizer.all_min' must be a number of at least 0"),
        ({"heads": 3}, "parts cannot share 8 features among 3 heads; heads can be 1, 2, 4, 8"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(NewkindsError, match=message):
        build(**settings)
