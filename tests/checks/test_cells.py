"""Of very many images, each is compared with those in cells nearby: what that finds, against all pairs."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from newkinds.checks import cells
from newkinds.checks.cells import Cells, nearest_cosines
from newkinds.checks.same import near_copies
from newkinds.cluster.neighbours import nearest_others
from newkinds.data.facts import Facts


def rows_around(centres: int, n: int, noise: float, dim: int = 16) -> Tensor:
    random = torch.Generator().manual_seed(0)
    middle = torch.randn(centres, dim, generator=random)
    return F.normalize(middle[torch.arange(n) % centres] + noise * torch.randn(n, dim, generator=random), dim=1)


def facts_with_copies(n: int, seed: int = 0) -> tuple[list[Facts], np.ndarray]:
    """Random hashes, of which every fifth is that of the picture before with a few bits turned; and which these are."""
    random = np.random.default_rng(seed)
    bits = random.random((n, 256)) < 0.4
    copies = np.arange(4, n, 5)
    bits[copies] = bits[copies - 1] ^ (random.random((len(copies), 256)) < 0.03)
    return [Facts(50, 50, 9.0, "808080", np.packbits(row).tobytes().hex()) for row in bits], copies


def test_cells_that_are_all_looked_into_give_the_exact_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_around(5, 300, 0.5)
    monkeypatch.setattr(cells, "FULLEST", 300)
    monkeypatch.setattr(cells, "ENTRIES_AT_ONCE", 500)  # several blocks
    every = torch.arange(300)

    def cosine(some: Tensor, others: Tensor) -> Tensor:
        return (rows[some] @ rows[others].T).masked_fill(some[:, None] == others, -torch.inf)

    values, others = Cells.of(rows, probed=300).best(7, cosine)
    near, exact = nearest_others(rows, 7)
    torch.testing.assert_close(values, exact)
    assert torch.equal(others, near)
    assert not (others == every[:, None]).any()


def test_most_neighbours_are_found_and_their_cosines_are_close(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_around(40, 6000, 0.7)
    exact = nearest_cosines(rows, 10)
    torch.testing.assert_close(exact, nearest_others(rows, 10)[1], rtol=0, atol=0)  # so few: all pairs
    monkeypatch.setattr(cells, "ALL_PAIRS", 5000)
    found = nearest_cosines(rows, 10)
    assert (found <= exact + 1e-6).all(), "no cosine is larger than that of the nearest"
    share = torch.isclose(found, exact, atol=1e-6).float().mean()
    assert 0.7 < share < 1, "most are exact; if all were, nothing was left out"
    angle, true = (values.clamp(-1, 1).arccos().mean(1) for values in (found, exact))
    assert ((angle - true) / true).quantile(0.99) < 0.1
    assert np.corrcoef(angle, true)[0, 1] > 0.97


def test_a_row_with_few_others_near_is_compared_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = F.normalize(torch.randn(60, 8, generator=torch.Generator().manual_seed(1)), dim=1)
    monkeypatch.setattr(cells, "ALL_PAIRS", 10)
    found, exact = nearest_cosines(rows, 50), nearest_others(rows, 50)[1]  # so many are not in eight of 22 cells
    torch.testing.assert_close(found, exact)
    assert found.isfinite().all()


@pytest.mark.parametrize("n", [4000])
def test_near_copies_are_found_among_many(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, copies = facts_with_copies(n)
    order = np.random.default_rng(1).permutation(n)
    exact = near_copies(facts, order)
    monkeypatch.setattr("newkinds.checks.same.ALL_PAIRS", 1000)
    found = near_copies(facts, order)
    assert exact.flag.sum() == len(copies)
    assert (found.flag & ~exact.flag).sum() == 0
    assert (found.of == exact.of).mean() > 0.999
    assert found.similarity[found.flag].min() >= 0.75
    assert (found.similarity <= exact.similarity + 1e-6).all()


def test_rows_that_are_all_alike_do_not_make_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = F.normalize(torch.ones(3000, 4), dim=1)
    monkeypatch.setattr(cells, "ALL_PAIRS", 100)
    monkeypatch.setattr(cells, "FULLEST", 2)
    pairs = 0
    of = Cells.of(rows)

    def noting(some: Tensor, others: Tensor) -> Tensor:
        nonlocal pairs
        pairs += len(some) * len(others)
        return rows[some] @ rows[others].T

    values, _ = of.best(5, noting)
    assert pairs < 3000 * 3000 / 3
    torch.testing.assert_close(values, torch.ones(3000, 5))
