"""Ward's tree of the categories' centres: which categories are similar, and an order in which similar ones are
neighbours. scipy alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .split import unit_means

MOST_IN_GROUP = 8  # categories that one look takes in
MOST_ORDERED = 500  # categories: a best order of more takes seconds, so they stay as the tree joined them
MOST_JOINED = 5000  # categories: the distances of more would take hundreds of megabytes


class Node(NamedTuple):
    """A category, or the place in the tree where two nodes are joined."""

    number: int  # categories first, then joins in the order of their height
    parent: int | None  # None of the root
    height: float  # 0 of a category; of a join, Ward's distance between what it joins
    category: int | None  # the id, of a category


@dataclass(frozen=True)
class Tree:
    """Categories as the leaves of a binary tree.

    >>> tree = grow_tree(centres_of(read_embedding(run, n), of))
    >>> tree.groups()                     # [[4, 17, 9], [0, 12]]: ids, similar categories together
    """

    ids: list[int]  # of the leaves
    joins: NDArray[np.float64]  # (K - 1, 4), as scipy's linkage: two nodes, their distance, how many leaves are below

    @property
    def order(self) -> list[int]:
        """The ids of all categories, similar ones next to each other."""
        return self._below()[-1] if self.ids else []

    def groups(self, most: int = MOST_IN_GROUP) -> list[list[int]]:
        """The largest branches that have at most so many categories, in the tree's order."""
        below = self._below()
        found, left = [], [len(below) - 1] if below else []
        while left:
            node = left.pop()
            if len(below[node]) <= most:
                found.append(below[node])
            else:
                left += reversed(self._parts(node))
        return found

    def neighbours(self, category: int, count: int) -> list[int]:
        """The categories that are joined to one first."""
        below = self._below()
        near: list[int] = []
        for node in range(len(self.ids), len(below)):
            first, second = self._parts(node)
            if category in below[node]:
                near += below[second if category in below[first] else first]
        return near[:count]

    def nodes(self) -> Iterator[Node]:
        """All nodes, each before its parent."""
        leaves = len(self.ids)
        parent = {part: leaves + place for place in range(len(self.joins)) for part in self._parts(leaves + place)}
        for number in range(leaves + len(self.joins)):
            if number < leaves:
                yield Node(number, parent.get(number), 0.0, self.ids[number])
            else:
                yield Node(number, parent.get(number), float(self.joins[number - leaves, 2]), None)

    def _parts(self, node: int) -> tuple[int, int]:
        first, second = self.joins[node - len(self.ids), :2]
        return int(first), int(second)

    def _below(self) -> list[list[int]]:
        """The ids below each node, in the tree's order; the root comes last."""
        below = [[number] for number in self.ids]
        for first, second in self.joins[:, :2].astype(int):
            below.append(below[first] + below[second])
        return below


def centres_of(rows: NDArray[np.float32], of: NDArray[np.int64]) -> dict[int, NDArray[np.float32]]:
    """Category → the mean (P,) of its unit rows (n, P), of length 1; `of` (n,) are ids, negative: in no category."""
    kept = np.flatnonzero(of >= 0)
    ids, sizes = np.unique(of[kept], return_counts=True)
    inside = np.split(kept[np.argsort(of[kept], kind="stable")], np.cumsum(sizes)[:-1])
    return dict(zip(ids.tolist(), unit_means(rows, inside), strict=True)) if len(ids) else {}


def grow_tree(centres: Mapping[int, NDArray[np.float32]]) -> Tree:
    """The tree of categories with these centres (P,); more than MOST_JOINED have none."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist

    ids = sorted(centres)
    if len(ids) < 2 or len(ids) > MOST_JOINED:
        return Tree(ids[:1] if len(ids) < 2 else [], np.empty((0, 4)))
    apart = pdist(np.stack([centres[number] for number in ids]).astype(np.float64))
    return Tree(ids, linkage(apart, "ward", optimal_ordering=len(ids) <= MOST_ORDERED))
