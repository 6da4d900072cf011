"""Which part of the work is this process's, if several share it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """How many processes there are, and which one this is."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, count: int) -> slice:
        """Which of so many items are this process's."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def shares(self, count: int) -> list[int]:
        """How many of so many items each process has."""
        return [count * (rank + 1) // self.size - count * rank // self.size for rank in range(self.size)]

    def turns(self, items: Sequence[T]) -> Sequence[T]:
        """The items that are this process's if they take turns."""
        return items[self.rank :: self.size]

    def in_turn(self, of_each: Sequence[Sequence[T]]) -> list[T]:
        """All items again in their order, of what each process had by `turns`."""
        longest = max(map(len, of_each))
        return [items[place] for place in range(longest) for items in of_each if place < len(items)]


ALONE = World()


def chunks(count: int, size: int) -> list[range]:
    """So many rows in order, `size` at once.

    >>> chunks(5, 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [range(count)[start : start + size] for start in range(0, count, size)]
