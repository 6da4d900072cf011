"""Communities of a graph of nearest neighbours: groups of points in which a random walk stays long."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array, csr_array
from torch import Tensor

from ..errors import NewkindsError
from .neighbours import nearest_others
from .points import UNLABELLED, as_features, as_labels, whole_number

Partition = Literal["map_equation", "infomap"]
SAVED = 1e-9  # bits of the description below which nothing was saved
PATIENCE = 3  # rounds without saving before points come to rest


def neighbour_graph(
    X: Tensor,
    y: ArrayLike | Tensor | None = None,
    neighbours: int = 15,
    min_similarity: float = 0.6,
    *,
    boosted_to: float | None = None,
    by_rank: ArrayLike | Tensor | None = None,
) -> csr_array:
    """Each of the unit rows X (n, D) linked to its most similar others, weighted by their cosines: (n, n), directed.

    `neighbours` counts the point itself. Links between points of the same label (y, -1: none) weigh as much as the best
    link of their first point, or `boosted_to`. `by_rank` (n,): the label of a neighbour is taken from there, at its
    rank in place of its number, as in the published code of DCCL.
    """
    rows = as_features(X)
    n, links = len(rows), min(whole_number("neighbours", neighbours, least=2), len(rows)) - 1
    if not links:
        return csr_array((n, n))
    near, similarity = (found.cpu().numpy() for found in nearest_others(rows, links))  # (n, links), best first
    labels = as_labels(y, n)
    of_other = labels[near] if by_rank is None else as_labels(by_rank, n)[None, 1 : links + 1]
    same = (labels[:, None] == of_other) & (labels[:, None] != UNLABELLED)
    weight = np.where(same, similarity[:, :1] if boosted_to is None else boosted_to, similarity).astype(np.float64)
    kept = similarity >= min_similarity
    return csr_array((weight[kept], (np.nonzero(kept)[0], near[kept])), shape=(n, n))


def communities(
    graph: csr_array, random: np.random.RandomState, by: Partition = "map_equation", smallest: int = 5
) -> NDArray[np.int64]:
    """The community (n,) of each point of a graph (n, n), from 0 on; -1 in a community with fewer than `smallest`.

    "map_equation" is built in: it shortens the description of a random walk (Rosvall and Bergstrom, PNAS 2008) on the
    graph without directions, as Louvain (Blondel et al., 2008) does for modularity, which would join small communities
    of a large graph. "infomap" is the program of the former's authors, on the graph with directions.

    >>> graph = csr_array(np.kron(np.eye(2), np.ones((5, 5)) - np.eye(5)))  # two groups of five
    >>> communities(graph, np.random.RandomState(0))
    array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    """
    find = {"map_equation": by_map_equation, "infomap": with_infomap}[by]
    found = find(graph, random) if graph.nnz else np.arange(graph.shape[0])
    _, first, found, sizes = np.unique(found, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(np.where(sizes >= smallest, first, len(found)))  # by first points; those dropped come last
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return np.where(sizes >= smallest, number, UNLABELLED)[found]


def by_map_equation(graph: csr_array, random: np.random.RandomState) -> NDArray[np.int64]:
    """Points move, then whole communities, then points again, as long as the walk's description gets shorter.

    Time grows with the number of links. All points look for a better community at once.
    """
    flow = csr_array(graph + graph.T)
    flow = flow / flow.sum()  # how often a walk takes each link
    community, found, shortest = np.arange(flow.shape[0]), np.arange(flow.shape[0]), np.inf
    while True:
        community, length = _settle(flow, community, random)
        while True:
            member = _membership(community)
            joined, shorter = _settle(csr_array(member.T @ flow @ member), np.arange(member.shape[1]), random)
            if shorter > length - SAVED:
                break
            community, length = joined[community], shorter
        if length > shortest - SAVED:
            return found
        found, shortest = community, length


def _settle(flow: csr_array, community: NDArray, random: np.random.RandomState) -> tuple[NDArray, float]:
    """The best communities (n,) met while points move, and the length of their description in bits.

    In each round half of those that would gain move, at random: if all did, two neighbours would change places.
    """
    links = coo_array(flow)
    apart = links.row != links.col  # what was a community before has links to itself
    outside = csr_array((links.data[apart], (links.row[apart], links.col[apart])), shape=flow.shape)
    visits, leaves = flow @ np.ones(len(community)), outside @ np.ones(len(community))  # (n,) each
    best, shortest, idle = community, np.inf, 0
    while idle < PATIENCE:
        point, target, saved, length = _moves(outside, community, visits, leaves)
        best, shortest, idle = (community, length, 0) if length < shortest - SAVED else (best, shortest, idle + 1)
        gains = np.flatnonzero(saved > SAVED)
        gains = gains[np.lexsort((-saved[gains], point[gains]))]
        gains = gains[np.unique(point[gains], return_index=True)[1]]  # the best of each point
        if not len(gains):
            break
        some = random.permutation(gains)[: (len(gains) + 1) // 2]
        moved = community.copy()
        moved[point[some]] = target[some]
        community = np.unique(moved, return_inverse=True)[1]
    return best, shortest


def _moves(
    outside: csr_array, community: NDArray, visits: NDArray, leaves: NDArray
) -> tuple[NDArray, NDArray, NDArray, float]:
    """Every point beside every other community that it has links to, the bits that moving there alone would save,
    and the length of the description as it is, except for the part that no community changes.

    A walk visits a community and exits it so often; its description has the length
    plogp(sum of exits) - 2 sum plogp(exits) + sum plogp(exits + visits).
    """
    links = coo_array(outside @ _membership(community))  # (n, communities)
    point, other, weight = links.row, links.col, links.data
    own = other == community[point]
    within = np.bincount(point[own], weight[own], len(community))  # (n,) between a point and its own community
    visited = np.bincount(community, visits)
    exits = np.bincount(community, leaves - within)
    total = exits.sum()

    def length(exits: NDArray, visited: NDArray) -> NDArray:  # of one community
        return _plogp(exits + visited) - 2 * _plogp(exits)

    now = length(exits, visited)
    exits_without = exits[community] - leaves + 2 * within  # (n,) of its own community
    without = length(exits_without, visited[community] - visits) - now[community]
    point, other, weight = point[~own], other[~own], weight[~own]
    exits_with = exits[other] + leaves[point] - 2 * weight  # of another community
    together = length(exits_with, visited[other] + visits[point]) - now[other]
    total_then = total + (exits_without - exits[community])[point] + exits_with - exits[other]
    saved = _plogp(total) - _plogp(total_then) - without[point] - together
    return point, other, saved, float(_plogp(total) + now.sum())


def _membership(community: NDArray) -> csr_array:  # (n, communities), 1 where a point belongs
    n = len(community)
    return csr_array((np.ones(n), community, np.arange(n + 1)), shape=(n, int(community.max()) + 1))


def _plogp(p: Any) -> Any:
    p = np.maximum(p, 1e-300)  # rounding may have gone below 0, where the limit is 0
    return p * np.log2(p)


def with_infomap(graph: csr_array, random: np.random.RandomState) -> NDArray[np.int64]:
    """Two levels and directions, as in the published code of DCCL; a point without links is alone."""
    program = require_infomap().Infomap(two_level=True, directed=True, silent=True, seed=random.randint(1, 2**31))
    links = coo_array(graph)
    program.add_links(list(zip(links.row.tolist(), links.col.tolist(), links.data.tolist(), strict=True)))
    result = program.run()
    modules = program.get_modules() if result is None else result.modules()  # before 2.14, and from there on
    found = -1 - np.arange(graph.shape[0])
    found[list(modules.keys())] = list(modules.values())
    return found


def require_infomap() -> Any:
    """The extra, or a sentence that says how to go on."""
    try:
        import infomap
    except ImportError:
        raise NewkindsError(
            "Infomap is not installed: pip install 'newkinds[infomap]', or take the communities that are built in "
            "(--set method.partition=map_equation)."
        ) from None
    return infomap
