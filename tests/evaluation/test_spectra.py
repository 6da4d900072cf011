"""Entropy and ranks of features, against closed forms and a naive loop."""

import math

import numpy as np
import pytest
import torch

import newkinds
from newkinds.diagnose import effective_rank, rank_at, von_neumann_entropy
from newkinds.errors import NewkindsError
from newkinds.evaluation.diagnose.spectra import Pooled, ranks_at, spectra, spectrum


def naive_shares(rows: np.ndarray) -> list[float]:
    """Eigenvalues of the mean of ẑẑᵀ, one row after the other, always D × D; largest first."""
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for row in rows:
        unit = row / math.sqrt(sum(value * value for value in row))
        total += np.outer(unit, unit)
    return sorted((max(value, 0.0) for value in np.linalg.eigvals(total / len(rows)).real), reverse=True)


def naive_entropy(rows: np.ndarray) -> float:
    return -sum(share * math.log(share) for share in naive_shares(rows) if share > 1e-15)


def naive_rank(rows: np.ndarray, share: float) -> int:
    reached, rank = 0.0, 0
    while reached < share:
        reached += naive_shares(rows)[rank]
        rank += 1
    return rank


@pytest.mark.parametrize("shape", [(40, 7), (5, 12), (9, 9), (1, 4)], ids=str)
def test_entropy_and_ranks_are_those_of_a_naive_loop(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(0).normal(size=shape) * np.arange(1, shape[1] + 1)
    assert von_neumann_entropy(rows) == pytest.approx(naive_entropy(rows))
    assert effective_rank(rows) == pytest.approx(math.exp(naive_entropy(rows)))
    for share in (0.5, 0.9, 0.99):
        assert rank_at(rows, share) == naive_rank(rows, share)
    assert rank_at(rows) == naive_rank(rows, 0.99)


@pytest.mark.parametrize("dim", [1, 3, 100])
def test_all_directions_alike(dim: int) -> None:
    rows = np.concatenate([np.eye(dim), -np.eye(dim)]) * np.arange(1, 2 * dim + 1)[:, None]  # lengths do not count
    assert von_neumann_entropy(rows) == pytest.approx(math.log(dim))
    assert effective_rank(rows) == pytest.approx(dim)
    assert rank_at(rows, 1.0) == dim
    assert rank_at(rows, 0.99) == math.ceil(0.99 * dim)  # 99 of 100, not 100 because of rounding


def test_one_direction_and_two() -> None:
    one = np.outer([1.0, -2.0, 3.0], [0.3, 0.4, 0.5, 0.6])
    assert von_neumann_entropy(one) == pytest.approx(0, abs=1e-12)
    assert (rank_at(one), rank_at(one, 1.0), effective_rank(one)) == (1, 1, pytest.approx(1))
    halves = np.array([[1.0, 1.0, 0, 0]] * 5 + [[0, 0, 1.0, -1.0]] * 5)
    assert von_neumann_entropy(halves) == pytest.approx(math.log(2))
    assert rank_at(halves) == 2


def test_the_smaller_gram_matrix_has_the_same_eigenvalues() -> None:
    rows = np.random.default_rng(1).normal(size=(6, 30))
    assert spectrum(rows).numpy() == pytest.approx(naive_shares(rows)[:6])
    assert spectrum(np.concatenate([rows] * 6)).numpy()[:6] == pytest.approx(naive_shares(rows)[:6])


def test_tensors_arrays_lists_and_half_precision() -> None:
    rows = torch.randn(20, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    expected = naive_entropy(rows.detach().numpy().astype(float))
    for given in (rows, rows.detach().numpy(), rows.tolist(), rows.double()):
        assert von_neumann_entropy(given) == pytest.approx(expected, rel=1e-5)
    assert von_neumann_entropy(rows.bfloat16()) == pytest.approx(expected, rel=1e-2)
    assert von_neumann_entropy(np.array([[1, 0], [0, 3]])) == pytest.approx(math.log(2))  # whole numbers
    assert von_neumann_entropy(rows.detach().double() * 1e200) == pytest.approx(expected)


def test_many_matrices_at_once_and_rows_in_pieces() -> None:
    matrices = torch.randn(3, 10, 4, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(spectra(matrices), torch.stack([spectrum(matrix) for matrix in matrices]))
    pooled = Pooled(4)
    for piece in matrices.split([1, 2]):
        pooled.add(piece)
    assert torch.allclose(pooled.spectrum(), spectrum(matrices.flatten(0, 1)))
    few = Pooled(4)
    few.add(matrices[0, :2])
    assert torch.allclose(few.spectrum(), spectrum(matrices[0, :2]))
    assert ranks_at(spectra(matrices), 1.0).tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (np.zeros((0, 3)), r"at least one row and column is needed, not one of shape \(0, 3\)"),
        (np.zeros((3, 0)), "at least one row"),
        (np.ones(3), r"shape \(3,\)"),
        (np.array([[1.0, 2.0], [0.0, 0.0]]), "all zeros"),
        (np.array([[1.0, np.nan]]), "NaN or infinite"),
        (np.array([[1.0, np.inf]]), "NaN or infinite"),
        (np.array([[1j, 1]]), "real numbers"),
    ],
)
def test_what_has_no_entropy_is_refused(rows: np.ndarray, said: str) -> None:
    for measure in (von_neumann_entropy, effective_rank, rank_at):
        with pytest.raises(NewkindsError, match=said):
            measure(rows)


@pytest.mark.parametrize("share", [0, -0.5, 1.01, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(NewkindsError, match="above 0 and up to 1"):
        rank_at(np.eye(2), share)


def test_the_short_name() -> None:
    assert newkinds.diagnose.von_neumann_entropy is von_neumann_entropy
    assert "diagnose" in dir(newkinds)
