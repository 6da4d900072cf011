"""How categories lie to each other in the embedding: which are close, which may be one, and a map of all images.

Nothing here needs torch: a page is made, and a studio opened, from the files of a run."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ENTRIES_AT_ONCE = 2**23  # of a block of a matrix: 32 MB in float32; no n × n matrix is ever held
NEIGHBOURS = 10  # of an image, by which two categories are compared
MOST_COMPARED = 10_000  # images; of more, an even sample is
FEWEST_COMPARED = 4  # images of a category, below which its neighbours say nothing
MAY_BE_ONE = 0.5  # mixing from which two categories are suggested to be one; halves of one cluster have 0.6 to 1
FEWEST_KNOWN = 5  # classes, by which it is judged how freely different classes mix
TSNE_CATEGORIES = range(8, 601)  # fewer, and more (for it takes a minute), are placed by their two main directions


@dataclass(frozen=True)
class Pair:
    """Two categories that may be one."""

    first: int
    second: int
    mixing: float  # 0: no image has a neighbour in the other one, 1: the border between them is arbitrary


@dataclass(frozen=True)
class Relations:
    """What the embedding says about K categories and their n images."""

    similarity: NDArray[np.float64]  # (K, K) cosine of the categories' centres; -inf to itself and to empty ones
    spread: NDArray[np.float64]  # (K,) mean cosine distance of a category's images to its centre; NaN if empty
    pairs: list[Pair]  # categories that may be one, most mixed first
    places: NDArray[np.float64]  # (n, 2) in [0, 1]: a map of all images
    centres: NDArray[np.float64]  # (K, 2) on that map; NaN if empty

    def nearest(self, category: int, count: int = 3) -> list[int]:
        """The categories most similar to one, best first; empty ones are left out."""
        order = np.argsort(-self.similarity[category], kind="stable")[:count]
        return [int(other) for other in order if np.isfinite(self.similarity[category, other])]


@dataclass(frozen=True)
class Rivals:
    """How much each of n images is like its own category, and like the one that comes next."""

    own: NDArray[np.float32]  # (n,) cosine with the centre of the other images of its category; 0 if there are none
    other: NDArray[np.float32]  # (n,) largest cosine with the centre of another category; -1 if there is none
    other_id: NDArray[np.int64]  # (n,) that category; -1 if there is none

    @property
    def margin(self) -> NDArray[np.float32]:
        """(n,) how much more an image is like its own category; below 0, it is more like the other one."""
        return self.own - self.other


def rivals_of(rows: NDArray[np.float32], of: NDArray[np.int64]) -> Rivals:
    """The second-best category of each image: of unit rows (n, P) in categories (n,), negative if they are in none.

    An image does not count for the centre that it is compared with: small categories are not like themselves.

    >>> rivals = rivals_of(read_embedding(run, n), of)
    >>> doubtful = rivals.margin.argsort()[:20]
    """
    filled, place = np.unique(of, return_inverse=True)  # negative ids come first
    none = int(np.count_nonzero(filled < 0))
    sums = _sums(rows, place, len(filled))  # (c, P)
    size = np.bincount(place, minlength=len(filled))
    inside = place >= none
    own = np.zeros(len(rows), np.float32)
    together = np.einsum("np,np->n", rows, sums[place]) - np.einsum("np,np->n", rows, rows)  # with all others, summed
    squared = np.einsum("cp,cp->c", sums, sums)[place] - 2 * together - 1  # length of the others' sum
    own[inside] = (together / np.sqrt(np.maximum(squared, 1e-6)))[inside]
    own[size[place] < 2] = 0
    if not len(filled) - none:
        nothing = np.full(len(rows), -1)
        return Rivals(own, nothing.astype(np.float32), nothing)
    own_column = np.where(inside, place - none, -1)
    other, column = _second_centre(rows, own_column, _unit(sums[none:]))
    found = np.isfinite(other)
    return Rivals(own, np.where(found, other, -1).astype(np.float32), np.where(found, filled[none:][column], -1))


def relate(embedding: NDArray[np.floating], category: NDArray[np.int64], k: int, known: int) -> Relations:
    """Relations of unit rows (n, P) in categories (n,) of k, of which the first `known` are given by labels.

    Categories are positions 0..k-1, without gaps: whoever has ids gives each its position, and leaves junk out.

    >>> relations = relate(read_embedding(run, n), category, k, known)
    >>> relations.nearest(0), relations.pairs[:1]
    """
    rows, of = _unit(embedding.astype(np.float32)), category
    size = np.bincount(of, minlength=k)  # (K,)
    centre = _unit(_sums(rows, of, k))  # (K, P); zeros if empty
    own = np.einsum("np,np->n", rows, centre[of])  # (n,) cosine of each image with its centre
    empty = size == 0
    spread = np.full(k, np.nan)
    spread[~empty] = (np.bincount(of, weights=1.0 - own, minlength=k) / np.maximum(size, 1))[~empty]
    similarity = (centre @ centre.T).astype(np.float64)
    similarity[empty] = similarity[:, empty] = -np.inf
    np.fill_diagonal(similarity, -np.inf)
    pairs = may_be_one(mixing_of(rows, of, k), known)
    places, centres = _map(rows, of, centre, own, np.flatnonzero(~empty))
    return Relations(similarity, spread, pairs, places, centres)


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _sums(rows: NDArray[np.float32], of: NDArray[np.int64], k: int) -> NDArray[np.float32]:
    """(K, P): the sum of each category's rows."""
    from scipy.sparse import csr_matrix

    n = len(rows)
    return csr_matrix((np.ones(n, np.float32), (of, np.arange(n))), shape=(k, n)) @ rows


def may_be_one(mixing: NDArray[np.float64], known: int) -> list[Pair]:
    """The pairs of categories that mix (K, K) like one. Two known classes are two: the labels say so.

    Where known classes mix that freely themselves, mixing says little: a pair must exceed 95 % of them, too.
    """
    limit = MAY_BE_ONE
    if known >= FEWEST_KNOWN:
        limit = max(limit, float(np.quantile(mixing[:known, :known].max(axis=1), 0.95)))
    mixed = np.argwhere(np.triu(mixing >= limit, 1))  # (pairs, 2), the larger number second
    found = [Pair(int(a), int(b), float(mixing[a, b])) for a, b in mixed if b >= known]
    return sorted(found, key=lambda pair: -pair.mixing)


def mixing_of(rows: NDArray[np.float32], category: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """(K, K): how freely two categories mix; 0 if they are apart, about 1 if an arbitrary line parts them.

    Of the neighbours that images of i have in i and j, the share that lies in j, divided by the share that chance would
    give; the mean of both directions. It compares counts, hence needs no scale and works in any number of dimensions.
    """
    step = max(1, -(-len(rows) // MOST_COMPARED))
    rows, category = rows[::step], category[::step]
    size = np.bincount(category, minlength=k).astype(np.float64)
    count = min(NEIGHBOURS, len(rows) - 1)
    if count < 1:
        return np.zeros((k, k))
    neighbours = category[nearest_neighbours(rows, count)]  # (n, count)
    # at most half of a category's other images count: more neighbours would have to lie elsewhere
    counted = np.arange(count) < np.maximum((size[category] - 1) / 2, 1)[:, None]
    pair = (category[:, None] * k + neighbours)[counted]
    links = np.bincount(pair, minlength=k * k).reshape(k, k).astype(np.float64)  # from i to j
    share = links / np.maximum(links.diagonal()[:, None] + links, 1)
    by_chance = size[None, :] / np.maximum(size[:, None] + size[None, :] - 1, 1)
    relative = share / np.maximum(by_chance, 1e-9)
    mixing: NDArray[np.float64] = (relative + relative.T) / 2
    few = size < FEWEST_COMPARED
    mixing[few] = mixing[:, few] = 0
    np.fill_diagonal(mixing, 0)
    return mixing


def nearest_neighbours(rows: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """The numbers (n, count) of the rows with the largest products with each of `rows` (n, P), best first, besides
    itself."""
    n = len(rows)
    found = np.empty((n, count), np.int64)
    at_once = max(1, ENTRIES_AT_ONCE // n)
    block = np.empty((min(at_once, n), n), np.float32)  # one for all blocks
    for start in range(0, n, at_once):
        some = rows[start : start + at_once]
        products = np.matmul(some, rows.T, out=block[: len(some)])
        products[np.arange(len(some)), np.arange(start, start + len(some))] = -np.inf
        found[start : start + at_once] = _largest(products, count)
    return found


def _largest(values: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """The columns (rows, count) of the largest of `values` (rows, n), largest first.

    The count-th largest of the maxima of groups of columns is at most the count-th largest of all: only what reaches
    it is sorted, which is many times faster than partitioning every row.
    """
    rows, n = values.shape
    width = max(1, min(64, n // (4 * count)))  # columns in a group
    maxima = values[:, : n // width * width].reshape(rows, width, -1).max(axis=1)  # (rows, groups ≥ count)
    bound = np.partition(maxima, -count, axis=1)[:, -count]
    reach = np.flatnonzero(values >= bound[:, None])
    row, column = np.divmod(reach, n)
    order = np.lexsort((-values.ravel()[reach], row))
    first = np.searchsorted(row, np.arange(rows))  # `row` is sorted, and stays so
    return column[order][first[:, None] + np.arange(count)]


def _map(
    rows: NDArray[np.float32], of: NDArray[np.int64], centre: NDArray[np.float32], own: NDArray[np.float32],
    filled: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
    """Places (n, 2) of all images and (K, 2) of the categories, in [0, 1]; `own` (n,) is an image's cosine with the
    centre of its category, `filled` are the categories that have images.

    Categories are placed by t-SNE of their centres (unless there are very many). An image lies near its own, drawn
    towards the other centre that it resembles most, so that doubtful images lie at the border.
    Costs K² and n·K, not n².
    """
    from scipy.spatial import KDTree

    centres = np.full((len(centre), 2), np.nan)
    if not len(rows):
        return np.empty((0, 2)), centres
    centres[filled] = _spread_out(centre[filled].astype(np.float64))
    at = np.nan_to_num(centres)  # (K, 2)
    apart = np.minimum(KDTree(at[filled]).query(at[filled], k=2)[0][:, 1], 1)  # infinite if there is no other
    radius = np.zeros(len(centre))
    radius[filled] = np.maximum(apart, np.quantile(apart, 0.25)) * 0.42

    # the more an image resembles a second centre, the further it leans towards that one, up to almost half the way
    likeness, second = _second_centre(rows, np.searchsorted(filled, of), centre[filled])
    less = own - likeness  # (n,); infinite if there is no second centre
    usual = max(float(np.quantile(less, 0.5, method="lower")), 1e-3) if len(filled) > 1 else 1.0
    lean = np.exp(np.minimum(-2 * less / usual, 0)) * 0.45
    towards = at[filled[second]] - at[of]

    # the two main directions in which images differ from their centre, in units of a usual difference
    residual = rows - centre[of]
    directions = np.linalg.eigh(residual.T @ residual)[1][:, -2:]  # (P, ≤ 2)
    directions = directions * np.where(directions.sum(axis=0) < 0, -1, 1)  # signs are arbitrary: fix them
    offset = np.zeros((len(rows), 2))
    offset[:, : directions.shape[1]] = residual @ directions
    offset /= np.maximum(np.sqrt(np.square(offset).mean(axis=0)), 1e-9) * 2
    offset /= np.sqrt(1 + np.square(offset).sum(axis=1, keepdims=True))  # nothing leaves the disc
    places = at[of] + lean[:, None] * towards + radius[of][:, None] * offset
    low, high = places.min(axis=0), places.max(axis=0)
    scale = np.maximum(high - low, 1e-9)
    return (places - low) / scale, (centres - low) / scale


def _second_centre(
    rows: NDArray[np.float32], own: NDArray[np.int64], centre: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Of each row, the largest cosine (n,) with a centre of (c, P) that is not its `own` (-1: it has none), and which
    that is (n,); -inf if there is no other."""
    cosine, best = np.empty(len(rows), np.float32), np.empty(len(rows), np.int64)
    at_once = max(1, ENTRIES_AT_ONCE // len(centre))
    for start in range(0, len(rows), at_once):
        some = slice(start, start + at_once)
        products = rows[some] @ centre.T
        has_own = np.flatnonzero(own[some] >= 0)
        products[has_own, own[some][has_own]] = -np.inf
        best[some] = products.argmax(axis=1)
        cosine[some] = products[np.arange(len(products)), best[some]]
    return cosine, best


def _spread_out(centre: NDArray[np.float64]) -> NDArray[np.float64]:
    """(c, P) centres → (c, 2), neighbours near each other; the same input gives the same places."""
    from sklearn.manifold import TSNE  # slow to import

    middle = centre - centre.mean(axis=0)
    left, sizes, axes = np.linalg.svd(middle, full_matrices=False)
    places = np.zeros((len(centre), 2))
    flat = left[:, :2] * sizes[:2]
    places[:, : flat.shape[1]] = flat * np.where(axes[:2].sum(axis=1) < 0, -1, 1)  # signs are arbitrary: fix them
    if len(centre) in TSNE_CATEGORIES:
        start = places / max(places[:, 0].std(), 1e-9) * 1e-4
        perplexity = min(15, (len(centre) - 1) / 3)
        places = TSNE(metric="cosine", init=start, perplexity=perplexity, random_state=0).fit_transform(centre)
        axes = np.linalg.svd(places - places.mean(axis=0), full_matrices=False)[2]
        places = places @ axes.T  # the long side of the map lies along the long axis
    # half by value, half by rank: one far category must not squeeze all others into a corner
    ranks = places.argsort(axis=0).argsort(axis=0) / max(len(places) - 1, 1)
    low, high = places.min(axis=0), places.max(axis=0)
    return ((places - low) / np.maximum(high - low, 1e-9) + ranks) / 2
