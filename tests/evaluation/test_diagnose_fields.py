"""What is said about fields, against naive loops and fields whose answer is known."""

import math

import pytest
import torch
from torch import Tensor

from newkinds.evaluation.diagnose import field_measures as fields

IMAGES, TOKENS, PRIMITIVES = 3, 7, 4


def random_field(seed: int = 0, sharpness: float = 2.0) -> Tensor:
    made = torch.randn(IMAGES, TOKENS, PRIMITIVES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (sharpness * made).softmax(dim=2)


def naive_entropy(shares: list[float]) -> float:
    return -sum(share * math.log(share) for share in shares if share)


EVEN = torch.full((IMAGES, TOKENS, PRIMITIVES), 1 / PRIMITIVES)
DECIDED = torch.eye(PRIMITIVES)[torch.arange(IMAGES * TOKENS) % PRIMITIVES].unflatten(0, (IMAGES, TOKENS))


def test_entropies_are_those_of_a_naive_loop() -> None:
    field = random_field()
    for n in range(IMAGES):
        for i in range(TOKENS):
            expected = naive_entropy(field[n, i].tolist()) / math.log(PRIMITIVES)
            assert float(fields.token_entropy(field)[n, i]) == pytest.approx(expected)
        for m in range(PRIMITIVES):
            column = field[n, :, m] / field[n, :, m].sum()
            expected = naive_entropy(column.tolist()) / math.log(TOKENS)
            assert float(fields.spread_over_tokens(field)[n, m]) == pytest.approx(expected)
    means = [float(field[:, :, m].mean()) for m in range(PRIMITIVES)]
    assert fields.use_entropy(field) == pytest.approx(naive_entropy(means) / math.log(PRIMITIVES))
    assert fields.token_entropy(EVEN).unique().tolist() == pytest.approx([1.0])
    assert float(fields.token_entropy(DECIDED).max()) == 0
    assert fields.token_entropy(torch.ones(2, 5, 1)).unique().tolist() == [
        1.0
    ]  # a single primitive: as even as it gets


def test_overlap_is_that_of_a_naive_loop() -> None:
    field = random_field()
    pairs = []
    for n in range(IMAGES):
        for m in range(PRIMITIVES):
            for other in range(m):
                one, two = (field[n, :, k] / field[n, :, k].sum() for k in (m, other))
                pairs.append(sum(min(float(a), float(b)) for a, b in zip(one, two, strict=True)))
    assert fields.overlap(field) == pytest.approx(sum(pairs) / len(pairs))
    assert fields.overlap(EVEN) == pytest.approx(1)
    assert fields.overlap(DECIDED) == 0
    assert fields.overlap(torch.ones(2, 5, 1)) is None


def test_a_primitive_that_is_nowhere_has_no_spread_and_no_overlap() -> None:
    """As parts are that no patch of an image belongs to."""
    field = torch.eye(3)[[0, 0, 1, 1]][None]  # (1, 4, 3): the third has no token
    assert fields.spread_over_tokens(field)[0].tolist() == pytest.approx([0.5, 0.5, 0.0])
    assert fields.overlap(field) == 0


def test_disagreement_is_the_mean_jensen_shannon_divergence() -> None:
    one, other = random_field(0), random_field(1)
    found = []
    for p, q in zip(one.flatten(0, 1).tolist(), other.flatten(0, 1).tolist(), strict=True):
        middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
        terms = [sum(a * math.log(a / m) for a, m in zip(x, middle, strict=True)) / 2 for x in (p, q)]
        found.append(sum(terms))
    assert fields.disagreement(one, other) == pytest.approx(sum(found) / len(found) / math.log(2))
    assert fields.disagreement(one, one) == 0
    assert fields.disagreement(DECIDED, DECIDED.roll(1, dims=2)) == pytest.approx(1)  # nothing in common
    columns = one / one.sum(dim=1, keepdim=True)  # like A_prior: columns sum to 1
    assert torch.allclose(fields.over_primitives(columns).sum(dim=2), torch.ones(IMAGES, TOKENS, dtype=torch.float64))


def test_dead_winless_and_duplicate_primitives() -> None:
    field = random_field()
    assert (fields.dead(field), fields.winless(field), fields.duplicate_fields(field)) == (0, 0, 0)
    nearly_none = torch.tensor([1.0, 1.0, 1.0, 1e-3])
    starved = field * nearly_none / (field * nearly_none).sum(dim=2, keepdim=True)
    assert (fields.dead(starved), fields.winless(starved)) == (1, 1)
    # three of four win nowhere, but are not dead: they have nearly an even share
    leader = torch.tensor([0.28, 0.24, 0.24, 0.24]).expand(IMAGES, TOKENS, PRIMITIVES)
    assert (fields.dead(leader), fields.winless(leader)) == (0, 3)
    twice = torch.cat([field, 0.5 * field[:, :, 1:3]], dim=2)
    assert fields.duplicate_fields(twice / twice.sum(dim=2, keepdim=True).mean()) == 2
    assert fields.duplicate_fields(EVEN) == 0  # nothing rises or falls


def test_duplicate_states() -> None:
    states = torch.randn(IMAGES, PRIMITIVES, 16, generator=torch.Generator().manual_seed(0))
    assert fields.duplicate_states(states) == 0
    assert fields.duplicate_states(torch.cat([states, 3 * states[:, :2] + 0.01], dim=1)) == 2
    assert fields.duplicate_states(states[:, :1].expand(IMAGES, PRIMITIVES, 16)) == PRIMITIVES - 1


def test_what_is_the_same_for_all() -> None:
    rows = torch.randn(50, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    centred = rows - rows.mean(dim=0)
    constant = torch.arange(6.0, dtype=torch.float64)
    own = sum(float(value) ** 2 for value in centred.flatten()) / 50
    assert fields.same_for_all(centred + constant) == pytest.approx(55 / (55 + own))  # 0 + 1 + 4 + 9 + 16 + 25 = 55
    assert fields.same_for_all(centred) == pytest.approx(0, abs=1e-12)
    assert fields.same_for_all(constant.expand(4, 6)) == pytest.approx(1)
    assert fields.same_for_all(torch.zeros(4, 6)) is None
