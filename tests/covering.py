"""Covering sets instead of full products: every value of each factor, and each family, without every pair.

What is left out of a product is not lost: it bears the mark `long`, and `pytest -m long` runs it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import cycle
from typing import Any, TypeVar

import pytest

T = TypeVar("T", bound=Hashable)
S = TypeVar("S", bound=Hashable)


def spread(rows: Sequence[T], families: Iterable[Sequence[S]], each: int = 1) -> list[tuple[T, S]]:
    """Pairs in which every row meets `each` members of every family, taken in turns: all members occur in the end.

    >>> spread(["a", "b"], [[1, 2, 3], [9]])
    [('a', 1), ('a', 9), ('b', 2), ('b', 9)]
    """
    turns = [(cycle(family), min(each, len(family))) for family in families]
    return [(row, next(turn)) for row in rows for turn, times in turns for _ in range(times)]


def some_of(product: Iterable[tuple[Any, ...]], covering: Iterable[tuple[Any, ...]]) -> list[Any]:
    """A product for `parametrize`: what is not in the covering set runs with `pytest -m long` only."""
    chosen = set(covering)
    everything = list(product)
    assert chosen <= set(everything)
    return [pytest.param(*case, marks=() if case in chosen else pytest.mark.long) for case in everything]
