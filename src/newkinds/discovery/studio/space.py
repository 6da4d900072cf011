"""Where a run's images lie in its embedding: categories that are near each other, images that are alike, the map."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import NewkindsError
from ...runs.directory import RunDirectory
from ..edits import JUNK, NO_CATEGORY
from ..split import MOST_LINKED, read_embedding, split_rows
from ..tree import Tree, grow_tree


class Space:
    """The embedding of a run's images; it is read when it is first needed.

    `found` (n,) are the categories of the images as they were found, of which some are `known`.
    """

    def __init__(self, run: RunDirectory, found: NDArray[np.int64], known: Sequence[int]) -> None:
        self.problem = ""  # why there is no embedding, and what to do
        self._run, self._found, self._known = run, found, known
        self._rows: NDArray[np.float32] | None = None
        self._places: NDArray[np.float64] | None = None
        self._of = np.full(len(found), JUNK)
        self._centres: dict[int, tuple[NDArray[np.float32], float]] = {}  # of each category: (P,) unit row, its spread
        self._reading, self._mapping, self._counting = threading.Lock(), threading.Lock(), threading.Lock()

    def rows(self) -> NDArray[np.float32]:
        """(n, P) unit rows."""
        with self._reading:
            if self.problem:
                raise NewkindsError(self.problem)
            if self._rows is None:
                try:
                    self._rows = read_embedding(self._run, len(self._found))
                except NewkindsError as error:
                    self.problem = str(error)
                    raise
            return self._rows

    def spread(self, of: NDArray[np.int64]) -> NDArray[np.float64]:
        """(K,) mean cosine distance of a category's images to its centre, by the category's id; NaN if empty."""
        centres = self._centred(of)
        spread = np.full(max(centres, default=-1) + 1, np.nan)
        for number, (_, width) in centres.items():
            spread[number] = width
        return spread

    def nearest(self, category: int, of: NDArray[np.int64], count: int) -> list[tuple[int, float]]:
        """The categories whose centres are most like that of one, best first, with their cosines."""
        centres = self._centred(of)
        others = [number for number in centres if number != category]
        if category not in centres or not others:
            return []
        cosine = np.stack([centres[number][0] for number in others]) @ centres[category][0]
        return [(others[place], float(cosine[place])) for place in np.argsort(-cosine, kind="stable")[:count]]

    def tree(self, of: NDArray[np.int64]) -> Tree:
        """The tree of all categories that have images."""
        return grow_tree({number: centre for number, (centre, _) in self._centred(of).items()})

    def similar(self, vector: NDArray[np.float32], count: int) -> list[tuple[int, float]]:
        """The images most like a unit row (P,), best first, with their cosines."""
        cosine = self.rows() @ vector
        best = np.argpartition(-cosine, min(count, len(cosine) - 1))[:count]
        return [(int(row), float(cosine[row])) for row in best[np.argsort(-cosine[best], kind="stable")]]

    def alike_together(self, rows: Sequence[int]) -> list[int]:
        """Images in an order in which those that are alike stand together: the leaves of a tree of them."""
        from scipy.cluster.hierarchy import leaves_list, linkage

        listed = np.asarray(rows, np.int64)
        if len(listed) < 3 or len(listed) > MOST_LINKED:
            return listed.tolist()
        return listed[leaves_list(linkage(self.rows()[listed], "average", metric="cosine"))].tolist()

    def parts(self, rows: NDArray[np.int64], into: int | None) -> list[list[int]]:
        """Images parted as `Discovery.split` would, the largest part first."""
        part = np.array(split_rows(self.rows()[rows], into))
        return [rows[part == p].tolist() for p in range(int(part.max()) + 1)]

    def places(self) -> NDArray[np.float64]:
        """(n, 2) in [0, 1]: a map of all images. It is made once, so that corrections change colours, not places."""
        from ..relations import relate

        rows = self.rows()
        with self._mapping:
            if self._places is None:
                # the map has places for categories without gaps, known ones first; what is not placed yet is like one
                known = [number for number in self._known if (self._found == number).any()]
                others = [number for number in np.unique(self._found).tolist() if number not in known]
                place = {number: position for position, number in enumerate([*known, *others])}
                of = np.array([place[number] for number in self._found.tolist()], dtype=np.int64)
                self._places = relate(rows, of, len(place), len(known)).places
            return self._places

    def _centred(self, of: NDArray[np.int64]) -> dict[int, tuple[NDArray[np.float32], float]]:
        """Centre and spread of each category; only those that have other images than before are computed again."""
        rows = self.rows()
        with self._counting:
            changed = of != self._of
            made: dict[int, Any] = dict(self._centres)
            for number in np.union1d(of[changed], self._of[changed]).tolist():
                inside = rows[of == number]
                made.pop(number, None)
                if len(inside) and number not in NO_CATEGORY:
                    mean = inside.mean(axis=0)
                    centre = mean / max(float(np.linalg.norm(mean)), 1e-12)
                    made[number] = (centre, float(1 - (inside @ centre).mean()))
            self._of, self._centres = of.copy(), made
            return made
