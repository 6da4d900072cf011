"""What every check is given, and what it gives."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from torch import Tensor

from ..data.facts import Facts
from ..data.table import Table
from ..registry import Registry
from ..text import plural
from .cells import nearest_cosines
from .same import Copies, exact_copies, near_copies

NEIGHBOURS = 10  # that an image is compared with


@dataclass(frozen=True, eq=False)
class CheckInput:
    """Images, their labels, what their pixels told when they were opened, and, if available, their embedding."""

    table: Table  # from readable(…, contents=True)
    embedding: Tensor | None = None  # (n, D) unit rows on the CPU

    @property
    def has_pixels(self) -> bool:
        return self.table.vectors is None

    @cached_property
    def facts(self) -> list[Facts]:
        facts = [seen.facts for seen in self.table.seen or [] if seen.facts is not None]
        assert len(facts) == len(self.table), "readable(table, contents=True)"
        return facts

    @cached_property
    def targets(self) -> np.ndarray:
        """(n,) class of each image, -1 if there is no label."""
        return self.table.targets

    @cached_property
    def nearest(self) -> np.ndarray:
        """(n, k) cosines with the nearest other images, best first; k is 10, or less if there are fewer.

        Of very many images some of these neighbours are missed, see `cells`.
        """
        rows = self.embedding
        assert rows is not None, "needs_embedding"
        return nearest_cosines(rows, min(NEIGHBOURS, len(rows) - 1)).numpy()

    @cached_property
    def _to_keep(self) -> np.ndarray:
        """All rows (n,) in the order in which one of several copies is kept: those with a label first."""
        return np.argsort(self.targets < 0, kind="stable")

    @cached_property
    def exact(self) -> Copies:
        """The same pixels."""
        return exact_copies(self.table.contents or [], self._to_keep)

    @cached_property
    def near(self) -> Copies:
        """Nearly the same pixels; exact copies are left out. Vectors have no pixels, and so no such copies."""
        if not self.has_pixels:
            return Copies(np.arange(len(self.table)), np.zeros(len(self.table)))
        order = self._to_keep[~self.exact.flag[self._to_keep]]
        # halfway from the usual neighbour, of which few are copies, to the same image: no cosine suits all backbones
        close = 1.0 if self.embedding is None else (1 + float(np.median(self.nearest[:, -1]))) / 2
        return near_copies(self.facts, order, self.embedding, close)


@dataclass(frozen=True)
class Verdict:
    """What a check found: a score per image (the larger, the worse), a flag per image, and a sentence for people.

    The sentence says what it is and what to do; it is empty if there is nothing to say.
    """

    score: np.ndarray  # (n,)
    flag: np.ndarray  # (n,) bool
    sentence: str = ""
    why: Mapping[int, str] = field(default_factory=dict)  # row of a flagged image → what is wrong with this one
    paths: Sequence[str] | None = None  # what was scored, if it is not the images of the table

    @classmethod
    def images(cls, score: np.ndarray, why: Mapping[int, str], is_or_has: str, said: str) -> "Verdict":
        """The images in `why` are flagged; `said` follows after how many there are: "3 images are …"."""
        flag = np.zeros(len(score), bool)
        flag[list(why)] = True
        verb = is_or_has if len(why) == 1 else {"is": "are", "has": "have"}[is_or_has]
        return cls(score, flag, f"{plural(len(why), 'image')} {verb} {said}" if why else "", why)

    @classmethod
    def about_all(cls, table: Table, sentence: str) -> "Verdict":
        """Something about the data as a whole: no image is flagged."""
        return cls(np.zeros(len(table)), np.zeros(len(table), bool), sentence)


@dataclass(frozen=True)
class CheckResult:
    """What a check found, under its name."""

    check: str
    found: Verdict
    paths: Sequence[str]

    @property
    def flagged(self) -> list[int]:
        """The rows of the flagged images, worst first."""
        rows = np.flatnonzero(self.found.flag)
        return rows[np.argsort(-self.found.score[rows], kind="stable")].tolist()


class Check(ABC):
    """Looks for one kind of fault. One line about it, this docstring, is what `newkinds list checks` shows."""

    order: ClassVar[int] = 50  # checks are shown in this order, the most important first
    needs_embedding: ClassVar[bool] = False
    needs_pixels: ClassVar[bool] = False  # left out if the data are ready-made vectors

    @abstractmethod
    def look(self, evidence: CheckInput) -> Verdict: ...


CHECKS: Registry[type[Check]] = Registry("check")


def some_of(names: Sequence[str], shown: int = 3) -> str:
    """`a, b, c and 4 more`"""
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
