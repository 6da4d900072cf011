"""How categories lie to each other in the embedding: which are close, which may be one, and a map of all images."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..cluster.neighbours import ENTRIES_AT_ONCE, most_similar

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


@torch.inference_mode()
def relate(embedding: Tensor, category: NDArray[np.int64], k: int, known: int) -> Relations:
    """Relations of unit rows (n, P) in categories (n,) of k, of which the first `known` are given by labels.

    >>> relations = relate(model.embedding(features), category, model.k, len(model.known))
    >>> relations.nearest(0), relations.pairs[:1]
    """
    rows, of = F.normalize(embedding.float().cpu(), dim=1), torch.from_numpy(category)
    size = torch.bincount(of, minlength=k)  # (K,)
    centre = F.normalize(torch.zeros(k, rows.shape[1]).index_add_(0, of, rows), dim=1)  # (K, P); zeros if empty
    distance = 1 - (rows * centre[of]).sum(dim=1)  # (n,)
    spread = torch.zeros(k).index_add_(0, of, distance) / size  # 0 / 0 is NaN
    similarity = (centre @ centre.T).double()
    empty = size == 0
    similarity[empty] = similarity[:, empty] = -torch.inf
    similarity.fill_diagonal_(-torch.inf)
    mixing = mixing_of(rows, of, k)
    pairs = may_be_one(mixing, known)
    places, centres = _map(rows, of, centre, empty.numpy())
    return Relations(similarity.numpy(), spread.double().numpy(), pairs, places, centres)


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


def mixing_of(rows: Tensor, category: Tensor, k: int) -> NDArray[np.float64]:
    """(K, K): how freely two categories mix; 0 if they are apart, about 1 if an arbitrary line parts them.

    Of the neighbours that images of i have in i and j, the share that lies in j, divided by the share that chance would
    give; the mean of both directions. It compares counts, hence needs no scale and works in any number of dimensions.
    """
    step = max(1, -(-len(rows) // MOST_COMPARED))
    rows, category = rows[::step], category[::step]
    size = torch.bincount(category, minlength=k).double()
    count = min(NEIGHBOURS, len(rows) - 1)
    if count < 1:
        return np.zeros((k, k))
    neighbours = category[most_similar(rows, rows, count, itself=torch.arange(len(rows)))]  # (n, count)
    # at most half of a category's other images count: more neighbours would have to lie elsewhere
    counted = torch.arange(count) < ((size[category] - 1) / 2)[:, None].clamp(min=1)
    pair = (category[:, None] * k + neighbours)[counted]
    links = torch.bincount(pair, minlength=k * k).reshape(k, k).double()  # from i to j
    share = links / (links.diagonal()[:, None] + links).clamp(min=1)
    by_chance = size[None, :] / (size[:, None] + size[None, :] - 1).clamp(min=1)
    relative = share / by_chance.clamp(min=1e-9)
    mixing = (relative + relative.T) / 2
    few = size < FEWEST_COMPARED
    mixing[few] = mixing[:, few] = 0
    return mixing.fill_diagonal_(0).numpy()


def _map(
    rows: Tensor, of: Tensor, centre: Tensor, empty: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Places (n, 2) of all images and (K, 2) of the categories, in [0, 1].

    Categories are placed by t-SNE of their centres (unless there are very many). An image lies near its own, drawn
    towards the other centre that it resembles most, so that doubtful images lie at the border.
    Costs K² and n·K, not n².
    """
    centres = np.full((len(centre), 2), np.nan)
    if not len(rows):
        return np.empty((0, 2)), centres
    filled = np.flatnonzero(~empty)
    centres[filled] = _spread_out(centre[filled].double().numpy())
    at = torch.from_numpy(np.nan_to_num(centres)).float()  # (K, 2)
    apart = torch.cdist(at[filled], at[filled]).fill_diagonal_(torch.inf).min(dim=1).values.clamp(max=1)
    radius = torch.zeros(len(centre))
    radius[filled] = torch.where(apart.isfinite(), apart, 1.0).clamp(min=float(apart.quantile(0.25))) * 0.42

    # the more an image resembles a second centre, the further it leans towards that one, up to almost half the way
    likeness, rival = _second_centre(rows, of, centre[filled], filled)
    own = (rows * centre[of]).sum(dim=1)
    less = own - likeness  # (n,); infinite if there is no second centre
    usual = less.median().clamp(min=1e-3) if len(filled) > 1 else torch.tensor(1.0)
    lean = (-2 * less / usual).exp().clamp(max=1) * 0.45
    towards = at[rival] - at[of]

    # the two main directions in which images differ from their centre, in units of a usual difference
    residual = rows - centre[of]
    directions = torch.linalg.eigh(residual.T @ residual).eigenvectors[:, -2:]  # (P, ≤ 2)
    offset = F.pad(residual @ directions, (0, 2 - directions.shape[1]))
    offset /= offset.square().mean(dim=0).sqrt().clamp(min=1e-9) * 2
    offset /= (1 + offset.square().sum(dim=1, keepdim=True)).sqrt()  # nothing leaves the disc
    places = (at[of] + lean[:, None] * towards + radius[of][:, None] * offset).double().numpy()
    low, high = places.min(axis=0), places.max(axis=0)
    scale = np.maximum(high - low, 1e-9)
    return (places - low) / scale, (centres - low) / scale


def _second_centre(rows: Tensor, of: Tensor, centre: Tensor, filled: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Of each row, the largest cosine (n,) with the centre (c, P) of a category of `filled` (c,) that is not its own,
    and that category (n,)."""
    numbers = torch.from_numpy(filled)
    cosines, rivals = [], []
    size = max(1, ENTRIES_AT_ONCE // len(centre))
    for block, own in zip(rows.split(size), of.split(size), strict=True):
        best = (block @ centre.T).masked_fill_(numbers == own[:, None], -torch.inf).max(dim=1)
        cosines.append(best.values)
        rivals.append(numbers[best.indices])
    return torch.cat(cosines), torch.cat(rivals)


def _spread_out(centre: NDArray[np.float64]) -> NDArray[np.float64]:
    """(c, P) centres → (c, 2), neighbours near each other; the same input gives the same places."""
    from sklearn.manifold import TSNE  # slow to import

    middle = centre - centre.mean(axis=0)
    main = np.linalg.svd(middle, full_matrices=False)
    places = np.zeros((len(centre), 2))
    flat = main.U[:, :2] * main.S[:2]
    places[:, : flat.shape[1]] = flat * np.where(main.Vh[:2].sum(axis=1) < 0, -1, 1)  # signs are arbitrary: fix them
    if len(centre) in TSNE_CATEGORIES:
        start = places / max(places[:, 0].std(), 1e-9) * 1e-4
        perplexity = min(15, (len(centre) - 1) / 3)
        places = TSNE(metric="cosine", init=start, perplexity=perplexity, random_state=0).fit_transform(centre)
        axes = np.linalg.svd(places - places.mean(axis=0), full_matrices=False).Vh
        places = places @ axes.T  # the long side of the map lies along the long axis
    # half by value, half by rank: one far category must not squeeze all others into a corner
    ranks = places.argsort(axis=0).argsort(axis=0) / max(len(places) - 1, 1)
    low, high = places.min(axis=0), places.max(axis=0)
    return ((places - low) / np.maximum(high - low, 1e-9) + ranks) / 2
