"""Which images show the same picture, by their pixels, their hashes and, in doubt, their embedding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..cluster.neighbours import ENTRIES_AT_ONCE
from ..console import track
from ..data.facts import Facts
from .cells import ALL_PAIRS, Cells

SURE = 0.75  # share of common bits from which two hashes are of one picture; measured in results/checks.md
DOUBTFUL = 0.6  # from here on, the embedding decides
FEWEST_EDGES = 16  # bits; hashes with fewer are compared as if either had so many
SAME_TINT = 24  # of 255 levels that the mean colours may differ in; brightness does not count
PROBED = 16  # cells, if there are very many: of hashes that have nothing else in common, 99 % of copies are found
CANDIDATES = 8  # earlier images that the embedding is asked about
DECIDED_AT_ONCE = 4096  # images, with the embedding of their candidates


@dataclass(frozen=True)
class Copies:
    """Which images are copies of others."""

    of: np.ndarray  # (n,) row of the image that it is a copy of; its own row if it is none
    similarity: np.ndarray  # (n,) with the most similar image among those that would be kept before it; 1: the same

    @property
    def flag(self) -> np.ndarray:
        return self.of != np.arange(len(self.of))


def exact_copies(contents: Sequence[str], order: np.ndarray) -> Copies:
    """The same digest of pixels. Of copies, the first in `order` (n,), all rows, is kept."""
    of = np.empty(len(order), np.int64)
    _, first, group = np.unique(np.array(contents)[order], return_index=True, return_inverse=True)
    of[order] = order[first[group]]
    return Copies(of, (of != np.arange(len(of))).astype(float))


def near_copies(facts: Sequence[Facts], order: np.ndarray, rows: Tensor | None = None, close: float = 1.0) -> Copies:
    """Images of one tint whose hashes share most of their bits, or many if their cosine is at least `close`.

    `rows`: (n, D) unit rows, for the cosine.

    Only the rows in `order` are compared; of copies, the first there is kept. No n × n matrix is ever held, and of very
    many images each is compared with those in `cells` nearby.
    """
    of, similarity, kept = torch.arange(len(facts)), torch.zeros(len(facts)), torch.from_numpy(order)
    edges = as_bytes([facts[row].hash for row in order], bits=True)  # (m, 256)
    red, green, blue = as_bytes([facts[row].colour for row in order]).int().T
    tint = torch.stack([red - green, blue - green], dim=1)  # (m, 2)
    for some, best, earlier in _most_in_common(edges):  # (b,), (b, c), (b, c)
        same = best >= SURE
        if rows is not None:
            cosine = torch.einsum("bd,bcd->bc", rows[kept[some]], rows[kept[earlier]])
            same |= (best >= DOUBTFUL) & (cosine >= close)
        same &= ((tint[some, None] - tint[earlier]).abs() <= SAME_TINT).all(2)
        which = same.float().argmax(1, keepdim=True)  # the most similar of those that are the same
        of[kept[some]] = torch.where(same.any(1), kept[earlier.gather(1, which)[:, 0]], kept[some])
        similarity[kept[some]] = best.gather(1, which)[:, 0]
    return Copies(of.numpy(), similarity.numpy())


def _most_in_common(edges: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Of hashes (m, 256) of 0 and 1, in blocks: some of them, the largest shares of common bits with earlier ones, and
    which these are."""
    count, number = edges.sum(1, dtype=torch.float32), torch.arange(len(edges))
    in_cells = len(edges) > ALL_PAIRS
    bits = edges if in_cells else edges.float()  # as floats, those of a million take a gigabyte

    def shares(some: Tensor, others: Tensor | slice) -> Tensor:  # (b, others)
        common = bits[some].float() @ bits[others].float().T
        either = (count[some, None] + count[others]).sub_(common).clamp_(min=FEWEST_EDGES)
        return common.div_(either).masked_fill_(number[others] >= some[:, None], 0)

    if in_cells:
        best, earlier = Cells.of(F.normalize(edges.float(), dim=1), PROBED).best(CANDIDATES, shares)
        best = best.clamp_(min=0)  # fewer than asked for: nothing in common
        yield from ((some, best[some], earlier[some]) for some in number.split(DECIDED_AT_ONCE))
        return
    size = max(1, ENTRIES_AT_ONCE // max(len(edges), 1))
    blocks = number[1:].split(size) if len(edges) > 1 else ()
    for some in track(blocks, "comparing images", total=len(blocks)):
        before = int(some[-1])  # the last of them is compared with so many
        yield some, *shares(some, slice(before)).topk(min(CANDIDATES, before), dim=1)


def as_bytes(digits: Sequence[str], bits: bool = False) -> Tensor:
    """(n, bytes) uint8 of hexadecimal digits, as many in each; or (n, 8 · bytes), 0 and 1."""
    width = len(digits[0]) // 2 if len(digits) else 0
    values = np.frombuffer(bytearray.fromhex("".join(digits)), np.uint8).reshape(len(digits), width)
    return torch.from_numpy(np.unpackbits(values, axis=1) if bits else values)


def same_picture(exact: Copies, near: Copies) -> np.ndarray:
    """(n,) one row for all images of a picture, through copies of copies."""
    shows = exact.of
    while not np.array_equal(further := near.of[shows], shows):
        shows = further
    return shows
