"""How many categories there are: one file for each idea.

>>> count = COUNTERS["combined"](features, y)  # y (n,): the class of labelled images, -1 for the others
>>> count.answer, count.low, count.high, count.new
"""

from ...category_count import count_text, how_sure, plot
from .base import COUNTERS, Count
from .combination import by_shape, combined
from .published import binary, brent, brent_maximum, halving_maximum, ward

__all__ = [
    "COUNTERS",
    "Count",
    "binary",
    "brent",
    "brent_maximum",
    "by_shape",
    "combined",
    "count_text",
    "halving_maximum",
    "how_sure",
    "plot",
    "ward",
]  # fmt: skip
