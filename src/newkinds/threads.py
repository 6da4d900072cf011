"""How many threads a computation is worth."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# numbers in a matrix up to which one thread takes less processor time than several that wait for each other, and on a
# machine that others use, less time (benchmarks/start.py)
SMALL = 1 << 21


@contextmanager
def threads_for(numbers: int) -> Iterator[None]:
    """While it is open, torch computes in one thread if matrices have no more than a few numbers.

    >>> with threads_for(features.numel()):
    ...     cluster(features)
    """
    before = torch.get_num_threads()
    if numbers > SMALL or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
