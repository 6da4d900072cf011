"""How many directions a set of vectors uses. Of the rows of Z (n, D), scaled to unit length, R = ZᵀZ/n has eigenvalues
that sum to 1: the share of each direction. Few rows or few columns, the smaller Gram matrix has the same ones."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import NewkindsError

ROUNDING = 1e-9  # of sums of shares: 99 of 100 equal shares are 0.99, whatever order they are added in


def von_neumann_entropy(Z: Any) -> float:
    """−Σ λ ln λ over the eigenvalues λ of R (natural logarithm): 0 for one direction, ln D if all D are used alike.

    `Z` (n, D) is an array or a tensor, one vector per row.

    >>> von_neumann_entropy(np.eye(4))    # ln 4
    1.3862943611198906
    """
    return float(entropies(spectrum(Z)))


def effective_rank(Z: Any) -> float:
    """exp(von Neumann entropy): how many directions there are, if all were used alike.

    >>> effective_rank(np.eye(4))
    4.0
    """
    return float(entropies(spectrum(Z)).exp())


def rank_at(Z: Any, share: float = 0.99) -> int:
    """The smallest number of directions that hold this share of R's eigenvalues.

    >>> rank_at(np.eye(4), 0.5)
    2
    """
    return int(ranks_at(spectrum(Z), share))


def spectrum(Z: Any) -> Tensor:
    """The eigenvalues of R, largest first: (min(n, D),), sum 1."""
    rows = torch.as_tensor(Z if isinstance(Z, Tensor) else np.asarray(Z))
    if rows.ndim != 2 or not rows.numel():
        raise NewkindsError(f"a matrix of at least one row and column is needed, not one of shape {tuple(rows.shape)}.")
    if rows.is_complex() or rows.dtype == torch.bool:
        raise NewkindsError(f"the matrix must hold real numbers, not {rows.dtype}.")
    return spectra(rows[None])[0]


def spectra(matrices: Tensor) -> Tensor:
    """`spectrum` of each of many matrices (B, n, D) → (B, min(n, D)); float64 on the CPU."""
    rows = unit_rows(matrices)
    n, dim = rows.shape[1:]
    gram = rows @ rows.transpose(1, 2) if n < dim else rows.transpose(1, 2) @ rows
    return _shares(gram / n)


def unit_rows(matrices: Tensor) -> Tensor:
    """(…, D) with rows of length 1, in float64 on the CPU."""
    rows = matrices.detach().to("cpu", torch.float64)
    if not bool(rows.isfinite().all()):
        raise NewkindsError("the matrix has values that are NaN or infinite, so its entropy and rank are not defined.")
    rows = rows / rows.abs().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)  # squares stay finite
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    if not bool(lengths.all()):
        raise NewkindsError("a row of the matrix is all zeros and has no direction: leave such rows out.")
    return rows / lengths


class Pooled:
    """The spectrum of more rows than fit into memory, which are added batch by batch."""

    def __init__(self, dim: int) -> None:
        self.sum = torch.zeros(dim, dim, dtype=torch.float64)  # Σ ẑẑᵀ
        self.rows = 0

    def add(self, rows: Tensor) -> None:
        """Rows (…, D)."""
        flat = unit_rows(rows).flatten(0, -2)  # (rows, D)
        self.sum += flat.T @ flat
        self.rows += len(flat)

    def spectrum(self) -> Tensor:
        return _shares(self.sum / self.rows)[: self.rows]


def entropies(shares: Tensor) -> Tensor:
    """Of distributions (…, r): (…), in nats."""
    return torch.special.entr(shares).sum(dim=-1).clamp(min=0.0)


def ranks_at(shares: Tensor, share: float = 0.99) -> Tensor:
    """Of spectra (…, r), largest first: how many eigenvalues it takes to reach `share` (…)."""
    if not 0 < share <= 1:
        raise NewkindsError(f"the share of a rank lies above 0 and up to 1; {share} does not.")
    return (shares.cumsum(dim=-1) < share - ROUNDING).sum(dim=-1) + 1


def _shares(symmetric: Tensor) -> Tensor:
    """Eigenvalues (…, r), largest first, without the rounding below zero, and scaled to the sum 1."""
    values = torch.linalg.eigvalsh(symmetric).flip(-1).clamp(min=0.0)
    return values / values.sum(dim=-1, keepdim=True)
