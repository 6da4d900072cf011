"""Categories as those of images that clustering has sorted: an image belongs with the most similar one."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from ..cluster import Ward, mean_shift_step
from ..cluster.metrics import match_known
from ..cluster.neighbours import ENTRIES_AT_ONCE
from ..precision import full_precision
from ..settings import AtLeastOne, Share
from .base import ASSIGNERS, Assigner, SizedByState

PUBLISHED_BATCH = 128  # rows that the published mean-shift moves at once


class NearestImage(SizedByState, Assigner):
    """All training images are remembered, each with its category; any other image gets that of the most similar one."""

    most_images = 200_000
    rows: Tensor
    category: Tensor

    def __init__(self, dim: int, known: int, categories: int, /) -> None:
        super().__init__(dim, known, categories)
        self.register_buffer("rows", torch.empty(0, dim))  # (n, P); empty: not sorted yet
        self.register_buffer("category", torch.empty(0, dtype=torch.long))  # (n,)

    def forward(self, embedding: Tensor) -> Tensor:
        """(m, K) for each category the cosine with its most similar image; -inf if it has none."""
        self.require_fitted(len(self.rows) > 0)
        return torch.cat([self.logits(block) for block in embedding.split(max(1, ENTRIES_AT_ONCE // len(self.rows)))])

    def logits(self, embedding: Tensor) -> Tensor:
        with full_precision(embedding) as rows:
            similarity = rows @ self.rows.to(rows.dtype).T  # (m, n)
            logits = similarity.new_full((rows.shape[0], self.categories), -torch.inf)
            return logits.scatter_reduce_(1, self.category.expand(rows.shape[0], -1), similarity, "amax")


@ASSIGNERS.register("ward")
class WardClusters(NearestImage):
    """Ward's clusters of all images, named after known classes; a new image goes with the most similar one."""

    def fit(self, embedding: Tensor, labels: Tensor) -> None:
        self.rows = embedding
        self.category = best_clusters([embedding], labels, self.known, self.categories)


@ASSIGNERS.register("meanshift")
class MeanShift(NearestImage):
    """Images move to their neighbours; of all rounds the Ward clusters that match the labels best (CMS's assigner)."""

    def __init__(
        self,
        dim: int,
        known: int,
        categories: int,
        /,
        shift: Share = 0.5,  # how far an image moves to the mean of its neighbours
        neighbours: AtLeastOne = 8,
        max_rounds: AtLeastOne = 20,
        patience: AtLeastOne = 2,  # rounds without gain on the labelled images before it stops
        as_published: bool = False,  # batches find the rows of earlier batches of the round moved already
    ) -> None:
        super().__init__(dim, known, categories)
        self.shift = shift
        self.neighbours = neighbours
        self.max_rounds = max_rounds
        self.patience = patience
        self.overwrite_every = PUBLISHED_BATCH if as_published else None

    def fit(self, embedding: Tensor, labels: Tensor) -> None:
        # Where batches find each other's rows moved, their order matters: there labelled images come first.
        order = (labels < 0).argsort(stable=True)
        embedding, labels = embedding[order], labels[order]
        neighbours = min(self.neighbours, len(embedding) - 1)
        rounds = mean_shift_rounds(embedding, self.max_rounds, neighbours, self.shift, self.overwrite_every)
        self.rows = embedding
        self.category = best_clusters(rounds, labels, self.known, self.categories, self.patience)


def mean_shift_rounds(
    rows: Tensor, rounds: int, neighbours: int = 8, shift: float = 0.5, overwrite_every: int | None = None
) -> Iterator[Tensor]:
    """Unit rows (n, P) as they are, then after one step of mean-shift, two, …: `rounds` in total."""
    yield rows
    for step in range(1, rounds):
        overwrite = overwrite_every if step > 1 else None  # the first published step still writes to a copy
        rows = mean_shift_step(rows, neighbours, shift, overwrite_every=overwrite)
        yield rows


def best_clusters(rounds: Iterable[Tensor], labels: Tensor, known: int, categories: int, patience: int = 2) -> Tensor:
    """(n,) categories: Ward's clusters in the last of the rounds of mean-shift that serve the labelled images best.

    Rounds end when the accuracy of the labelled images alone (`labels`, -1: none) has not risen for `patience` of them.
    """
    best, waited = -1.0, 0
    for rows in rounds:
        cluster = Ward().fit(rows).labels_at(categories)
        number, accuracy = match_known(cluster, labels.cpu().numpy(), known, categories)
        waited = 0 if accuracy > best else waited + 1
        if accuracy >= best:
            best, category = accuracy, torch.from_numpy(number[cluster]).to(rows.device)
        if waited == patience:
            break
    return category
