"""Graphs of neighbours against the published numbers and plain loops; communities against the map equation itself."""

import json
import math
import sys
import tracemalloc
import types
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.sparse import coo_array, csr_array, kron
from sklearn.metrics import adjusted_mutual_info_score
from torch.utils._python_dispatch import TorchDispatchMode

from blobs import blobs, same_partition
from newkinds.cluster import communities as module
from newkinds.cluster.communities import communities, neighbour_graph
from newkinds.cluster.neighbours import most_similar, nearest_others
from newkinds.errors import NewkindsError

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "dccl.json").read_text())["edges"]
BOTH = pytest.mark.parametrize("partition", ["map_equation", "infomap"])


def needs(partition):
    if partition == "infomap":
        pytest.importorskip("infomap", reason="Infomap is an extra: pip install 'newkinds[infomap]'")


# --- the graph -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["released", "intended_both_labelled"])
@pytest.mark.parametrize(("boost", "boosted_to"), [("maxsim", None), ("const", 0.999999999)])
def test_the_graph_is_the_published_one(rule, boost, boosted_to):
    with np.load(DATA / "dccl.npz") as stored:
        case = {key.split("/")[1]: stored[key] for key in stored.files if key.startswith("edges/")}
    unit, labels = torch.from_numpy(case["features"]), np.where(case["if_labeled"] == 1, case["labels"], -1)
    # The published code has the true labels of unlabelled images at hand; a method never gets them.
    by_rank = case["labels"] if rule == "released" else None
    graph = neighbour_graph(unit, labels, neighbours=8, boosted_to=boosted_to, by_rank=by_rank)
    expected = EXPECTED[f"{boost}_{rule}"]
    np.testing.assert_allclose(graph.toarray(), case[f"W_{boost}_{rule}"], rtol=0, atol=1e-9)
    assert graph.nnz == expected["n_edges"]
    assert graph.sum() == pytest.approx(expected["sum_weights"], abs=1e-9)
    links = graph + graph.T
    assert np.flatnonzero(np.diff(links.indptr) == 0).tolist() == expected["isolated"]


@pytest.mark.parametrize("by_rank", [False, True])
def test_the_graph_by_loops(by_rank):
    unit = F.normalize(torch.from_numpy(blobs(n=40, clusters=3, dim=4, spread=0.8)[0]), dim=1)
    labels = [0, 1, -1, 2, 1, -1, 0, 0, -1, 1] * 4
    expected = np.zeros((40, 40))
    boosted = 0
    for i in range(40):
        cosines = {j: sum(a * b for a, b in zip(unit[i].tolist(), unit[j].tolist(), strict=True)) for j in range(40)}
        ranked = sorted((j for j in range(40) if j != i), key=lambda j: -cosines[j])[:5]
        for rank, j in enumerate(ranked, start=1):
            same = labels[i] >= 0 and labels[i] == labels[rank if by_rank else j]
            if cosines[j] >= 0.5:
                expected[i, j] = cosines[ranked[0]] if same else cosines[j]
                boosted += same and rank > 1
    got = neighbour_graph(unit, labels, 6, 0.5, by_rank=labels if by_rank else None)
    np.testing.assert_allclose(got.toarray(), expected, rtol=0, atol=1e-12)
    assert boosted > 5
    assert 0 < got.nnz < 40 * 5  # the threshold drops some


def test_graphs_of_few_points_and_of_copies():
    assert neighbour_graph(torch.ones(1, 3)).shape == (1, 1)
    assert neighbour_graph(torch.eye(3)).nnz == 0
    copies = neighbour_graph(F.normalize(torch.ones(4, 3), dim=1), neighbours=15)  # a copy is a neighbour
    np.testing.assert_allclose(copies.toarray(), 1 - np.eye(4), atol=1e-6)
    with pytest.raises(NewkindsError, match="neighbours is a whole number of at least 2, not 1"):
        neighbour_graph(torch.eye(3), neighbours=1)


def test_nearest_others_come_with_their_products(monkeypatch):
    rows = torch.from_numpy(blobs(n=50)[0])
    products = (rows @ rows.T).fill_diagonal_(-math.inf).topk(4, dim=1)
    monkeypatch.setattr("newkinds.cluster.neighbours.ENTRIES_AT_ONCE", 7 * 50)
    monkeypatch.setattr("newkinds.cluster.neighbours.GATHERED_AT_ONCE", 9)
    near, similarity = nearest_others(rows, 4)
    assert torch.equal(near, products.indices)
    torch.testing.assert_close(similarity, products.values)


class Products(TorchDispatchMode):
    """Keeps all results of matrix products, so that none can be where another was."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        if "mm" in str(function):
            self.kept.append(result)
        return result


def test_products_of_many_points_share_one_block_of_memory(monkeypatch):
    """Else small results between them keep the allocator from giving memory back: 10 GB for 50,000 points."""
    monkeypatch.setattr("newkinds.cluster.neighbours.QUERIES_AT_ONCE", 50)
    monkeypatch.setattr("newkinds.cluster.neighbours.ENTRIES_AT_ONCE", 50 * 120)
    rows, bank = torch.randn(90, 8), torch.randn(200, 8)
    with Products() as products:
        found = most_similar(rows, bank, 14)
    assert [tuple(product.shape) for product in products.kept] == [(50, 120), (50, 80), (40, 120), (40, 80)]
    assert found.equal((rows @ bank.T).topk(14, dim=1).indices)
    assert len({product.data_ptr() for product in products.kept}) == 1


# --- the map equation ------------------------------------------------------------------------------------


def planted(sizes, degree=8, mixing=0.2, seed=0):
    """Random links, most of them between points of one group."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    graph = np.zeros((len(truth), len(truth)))
    for i, group in enumerate(truth):
        own = np.flatnonzero(truth == group)
        for _ in range(degree):
            j = rng.integers(len(truth)) if rng.random() < mixing else rng.choice(own)
            graph[i, j] += (i != j) * rng.uniform(0.5, 1)
    return csr_array(graph), truth


def described(graph, community):
    """Bits per step of a random walk: entropies of the index and of each community's codes, by their definition."""
    flow = graph.toarray() + graph.toarray().T
    flow /= flow.sum()

    def entropy(uses):
        total = sum(uses)
        return -sum(use * math.log2(use / total) for use in uses if use > 0)  # times total

    exits, within = [], 0.0
    for group in set(community.tolist()):
        inside = community == group
        exits.append(flow[inside][:, ~inside].sum())
        within += entropy([exits[-1], *flow[inside].sum(axis=1)])
    return entropy(exits) + within


def test_what_a_move_saves_is_the_difference_of_two_descriptions():
    graph, _ = planted([6, 5, 4])
    community = np.random.default_rng(1).integers(0, 4, 15)
    flow = csr_array((graph + graph.T) / (2 * graph.sum()))
    visits = flow @ np.ones(15)
    point, other, saved, length = module._moves(flow, community, visits, visits)
    now = described(graph, community)
    by_points = sum(visit * math.log2(visit) for visit in visits)  # which no community changes
    assert length == pytest.approx(now + by_points, abs=1e-12)
    assert len(saved) > 15
    for a, there, bits in zip(point, other, saved, strict=True):
        moved = community.copy()
        moved[a] = there
        assert bits == pytest.approx(now - described(graph, moved), abs=1e-12)


def partitions(n, groups=()):
    if len(groups) == n:
        yield np.array(groups)
        return
    for group in range(max(groups, default=-1) + 2):
        yield from partitions(n, (*groups, group))


@pytest.mark.parametrize("seed", range(3))
def test_no_partition_of_a_small_graph_is_described_shorter(seed):
    graph, _ = planted([4, 3], degree=3, seed=seed)
    found = module.by_map_equation(graph, np.random.RandomState(seed))
    shortest = min(described(graph, community) for community in partitions(7))
    assert described(graph, found) == pytest.approx(shortest, abs=1e-9)


@BOTH
@pytest.mark.parametrize("sizes", [[30] * 20, [10] * 40, [5, 10, 20, 40, 80, 160]])
def test_planted_communities_are_found_large_and_small(sizes, partition):
    needs(partition)
    graph, truth = planted(sizes)
    found = communities(graph, np.random.RandomState(0), partition)
    assert adjusted_mutual_info_score(truth, found) > 0.97
    assert abs(found.max() + 1 - len(sizes)) <= 1


@BOTH
def test_the_same_seed_finds_the_same(partition):
    needs(partition)
    graph, _ = planted([8] * 12, mixing=0.6)
    found = [communities(graph, np.random.RandomState(seed), partition, smallest=1) for seed in (3, 3, 4)]
    np.testing.assert_array_equal(found[0], found[1])
    shares = {round(described(graph, one), 1) for one in found}
    assert len(shares) == 1  # another seed: about as good


@BOTH
def test_small_communities_and_points_without_links_are_dropped(partition):
    needs(partition)
    groups = [np.arange(0, 6), np.arange(6, 10), np.arange(10, 15)]  # 15, 16: alone
    graph = np.zeros((17, 17))
    for group in groups:
        graph[np.ix_(group, group)] = 1 - np.eye(len(group))
    shuffled = np.random.default_rng(0).permutation(17)
    graph = csr_array(graph[np.ix_(shuffled, shuffled)])
    found = communities(graph, np.random.RandomState(0), partition)
    groups_found = np.array([0] * 6 + [-1] * 4 + [1] * 5 + [-1] * 2)[shuffled]
    assert same_partition(found, groups_found)
    np.testing.assert_array_equal(found == -1, groups_found == -1)
    kept = found[found >= 0]
    assert kept[0] == 0  # numbered by their first points
    assert kept.max() == 1
    assert communities(graph, np.random.RandomState(0), partition, smallest=1).max() == 4
    nothing = communities(csr_array((3, 3)), np.random.RandomState(0), partition)
    np.testing.assert_array_equal(nothing, [-1, -1, -1])


def test_many_small_communities_take_little_memory():
    cliques = kron(np.eye(1000), np.ones((6, 6)) - np.eye(6), format="coo")
    ring = coo_array((np.full(1000, 0.5), (np.arange(0, 6000, 6), np.arange(9, 6009, 6) % 6000)), shape=(6000, 6000))
    tracemalloc.start()
    found = communities(csr_array(cliques + ring), np.random.RandomState(0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(found, np.arange(6000) // 6)  # modularity would be larger with neighbours joined
    assert peak < 6000 * 6000  # bytes: less than one for each pair


# --- the extra -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("returns_result", [False, True])
def test_infomap_is_asked_for_two_levels_with_directions(monkeypatch, returns_result):
    """A stand-in, as releases before and from 2.14 on answer."""
    asked = {}

    class Infomap:
        def __init__(self, **settings):
            asked.update(settings)

        def add_links(self, links):
            asked["links"] = links

        def run(self):
            return types.SimpleNamespace(modules=self.get_modules) if returns_result else None

        def get_modules(self):
            return {0: 1, 2: 2, 1: 1}

    monkeypatch.setitem(sys.modules, "infomap", types.SimpleNamespace(Infomap=Infomap))
    graph = csr_array(([0.5, 0.75], ([0, 2], [1, 0])), shape=(4, 4))
    found = communities(graph, np.random.RandomState(0), "infomap", smallest=1)
    np.testing.assert_array_equal(found, [0, 0, 1, 2])
    assert (asked["two_level"], asked["directed"], asked["seed"] > 0) == (True, True, True)
    assert asked["links"] == [(0, 1, 0.5), (2, 0, 0.75)]


def test_without_the_extra_a_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "infomap", None)
    with pytest.raises(NewkindsError, match=r"pip install 'newkinds\[infomap\]', or .*method\.partition=map_equation"):
        communities(planted([5, 5])[0], np.random.RandomState(0), "infomap")
