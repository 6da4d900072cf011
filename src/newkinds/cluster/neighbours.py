"""Nearest-neighbour searches in blocks of rows: no n × n matrix is ever held."""

from typing import TypeVar

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..errors import NewkindsError
from .points import as_features, squared_norms, whole_number
from .rows import NUMBERS_AT_ONCE, Rows

ArrayOrTensor = TypeVar("ArrayOrTensor", NDArray, Tensor)
ENTRIES_AT_ONCE = 2**23  # of a block of the matrix: 32 MB in float32
QUERIES_AT_ONCE = 1024  # of a search: thinner blocks take longer
GATHERED_AT_ONCE = 1024  # rows whose neighbours are looked up: k × D numbers each


def nearest_centre(points: Tensor | Rows, centres: Tensor, squares: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The nearest of `centres` (K, D) to each of `points` (n, D), of ‖x‖² `squares`, and its squared distance: (n,)."""
    squares_of_centres = squared_norms(centres)  # (K,)
    labels = torch.empty(len(points), dtype=torch.long, device=points.device)
    squared = torch.empty(len(points), dtype=points.dtype, device=points.device)
    rows = max(1, min(ENTRIES_AT_ONCE // len(centres), NUMBERS_AT_ONCE // points.shape[1]))
    for block, label, distance in zip(points.split(rows), labels.split(rows), squared.split(rows), strict=True):
        # ‖x - c‖² without its ‖x‖², which is the same for every centre
        torch.min(torch.addmm(squares_of_centres, block, centres.T, alpha=-2), dim=1, out=(distance, label))
        if squares is None:
            distance += squared_norms(block)
    if squares is not None:
        squared += squares
    return labels, squared.clamp_(min=0)  # rounding may have gone below


@torch.no_grad()
def most_similar(queries: Tensor, bank: Tensor, k: int, itself: Tensor | None = None) -> Tensor:
    """Rows (q, k) of `bank` (n, D) with the largest products with `queries` (q, D), best first, none `itself` (q,)."""
    found = []
    columns = min(len(bank), max(k, ENTRIES_AT_ONCE // QUERIES_AT_ONCE))
    # One block of memory for all: small results between large blocks keep the allocator from using these again.
    block = queries.new_empty(QUERIES_AT_ONCE * columns)
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        some = queries[start : start + QUERIES_AT_ONCE]
        values, places = [], []
        for first in range(0, len(bank), columns):
            part = bank[first : first + columns]
            similarities = torch.mm(some, part.T, out=block[: len(some) * len(part)].view(len(some), len(part)))
            if itself is not None:
                own = itself[start : start + QUERIES_AT_ONCE] - first
                inside = ((own >= 0) & (own < len(part))).nonzero()[:, 0]
                similarities[inside, own[inside]] = -torch.inf
            best = similarities.topk(min(k, len(part)), dim=1)
            values.append(best.values)
            places.append(best.indices + first)
        every = torch.cat(places, dim=1)
        found.append(every if len(places) == 1 else every.gather(1, torch.cat(values, dim=1).topk(k, dim=1).indices))
    return torch.cat(found)


def nearest_others(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k rows most similar to each of `rows` (n, D) other than itself, best first, and their products: (n, k)."""
    every = torch.arange(len(rows), device=rows.device)
    near = most_similar(rows, rows, k, itself=every)  # (n, k)
    parts = every.split(GATHERED_AT_ONCE)
    return near, torch.cat([torch.einsum("nd,nkd->nk", rows[some], rows[near[some]]) for some in parts])


def mean_shift_step(
    X: ArrayOrTensor, k: int = 8, alpha: float = 0.5, *, overwrite_every: int | None = None
) -> ArrayOrTensor:
    """Move unit rows (n, D) towards the mean of their k most similar others, by `alpha`; unit rows again.

    All rows move at once. The published code (from its second step on) writes into the rows it still reads from: later
    batches find those of earlier ones moved but not normalised. `overwrite_every` is the batch size to get its numbers.
    """
    rows = as_features(X)
    n = len(rows)
    if whole_number("k", k) >= n:
        raise NewkindsError(f"a mean-shift step over {k} neighbours needs more than {k} points, not {n}.")
    if not 0 <= alpha <= 1:
        raise NewkindsError(f"alpha, the share of the way to the neighbours, lies between 0 and 1, not at {alpha}.")
    moved = rows.clone()
    source = rows if overwrite_every is None else moved
    for batch in torch.arange(n, device=rows.device).split(overwrite_every or GATHERED_AT_ONCE):
        neighbours = most_similar(source[batch], source, k, itself=batch)  # (batch, k)
        moved[batch] = torch.lerp(source[batch], source[neighbours].mean(dim=1), alpha)
    moved = F.normalize(moved, dim=1)
    return moved if isinstance(X, Tensor) else moved.numpy()
