"""The best of many pairs without a look at all of them: of very many rows, each is compared with those in cells nearby.

All pairs of a million images are 10¹². Cells are those of a quick k-means; a row is compared with the rows of the
few cells whose centres are nearest to it, as an inverted file does (Jégou et al., PAMI 2011), so that time grows
with n^1.5. What is very similar shares a cell; of neighbours that are far anyway some are missed.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from typing_extensions import Self

from ..cluster import KMeans
from ..cluster.neighbours import ENTRIES_AT_ONCE, most_similar, nearest_others

ALL_PAIRS = 50_000  # rows up to which all are compared: docs/scale.md says what that costs
PROBED = 8  # cells that a row is compared with, unless more are asked for
SAMPLE, ROUNDS = 16, 3  # rows a cell, and iterations, from which cells are learnt
FULLEST = 32  # times the mean number of rows, of which no more are compared in a cell

Score = Callable[[Tensor, Tensor], Tensor]  # numbers of rows (q,) and of others (m,) → how similar they are (q, m)


@dataclass(frozen=True, eq=False)
class Cells:
    """Rows in cells, and the cells near each row.

    >>> values, others = Cells.of(rows).best(10, lambda some, others: rows[some] @ rows[others].T)
    """

    near: Tensor  # (n, p) of each row, its own cell first
    count: int

    @classmethod
    def of(cls, rows: Tensor, probed: int = PROBED) -> Self:
        """Cells of unit rows (n, D), or of rows of zeros, which are similar to nothing."""
        count = min(len(rows), math.ceil(math.sqrt(probed * len(rows))))
        random = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
        sample = rows[random[: SAMPLE * count]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of copies of one row some cells stay empty
            learnt = KMeans(count, init=sample[:count].numpy(), max_iter=ROUNDS, tol=0.0).fit(sample)
        centres = F.normalize(torch.from_numpy(learnt.cluster_centers_).to(rows), dim=1)
        return cls(most_similar(rows, centres, min(probed, count)), count)

    def best(self, k: int, score: Score) -> tuple[Tensor, Tensor]:
        """The k largest scores of each row, largest first, and of which rows they are: (n, k); -inf: none."""
        values = torch.full((len(self.near), k), -torch.inf)
        others = torch.zeros(len(self.near), k, dtype=torch.long)
        most = FULLEST * math.ceil(len(self.near) / self.count)
        inside, looking = _grouped(self.near[:, :1], self.count), _grouped(self.near, self.count)
        for members, queries in zip(inside, looking, strict=True):
            if not len(members):
                continue
            members = members[:: -(-len(members) // most)]  # so many alike: some of them will do
            for some in queries.split(max(1, ENTRIES_AT_ONCE // len(members))):
                found = score(some, members).topk(min(k, len(members)), dim=1)  # (q, ≤ k)
                best = torch.cat([values[some], found.values], dim=1).topk(k, dim=1)
                others[some] = torch.cat([others[some], members[found.indices]], dim=1).gather(1, best.indices)
                values[some] = best.values
        return values, others


def _grouped(cells: Tensor, count: int) -> tuple[Tensor, ...]:
    """The rows that have each of `count` cells among theirs (n, p), ascending."""
    order = cells.flatten().argsort(stable=True)
    return (order // cells.shape[1]).split(cells.flatten().bincount(minlength=count).tolist())


def nearest_cosines(rows: Tensor, k: int) -> Tensor:
    """(n, k) cosines of each of the unit rows (n, D) with its nearest others, best first.

    Of up to ALL_PAIRS rows they are exact, of more they are those with the nearest that cells show.
    """
    if len(rows) <= ALL_PAIRS:
        return nearest_others(rows, k)[1]

    def cosine(some: Tensor, others: Tensor) -> Tensor:
        return (rows[some] @ rows[others].T).masked_fill_(some[:, None] == others, -torch.inf)

    values, _ = Cells.of(rows).best(k, cosine)
    if len(lonely := values[:, -1].isneginf().nonzero()[:, 0]):  # few lie near: they are compared with all
        found = most_similar(rows[lonely], rows, k, itself=lonely)
        values[lonely] = torch.einsum("nd,nkd->nk", rows[lonely], rows[found])
    return values
