"""Affinities against the numbers of the published code (float64) and against plain loops."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from newkinds.cluster.affinity import consensus, diffuse, strong_from
from newkinds.cluster.neighbours import most_similar

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "promptcal.json").read_text())
TIGHT = {"rtol": 0, "atol": 1e-9}


@pytest.fixture(scope="module")
def published():
    with np.load(DATA / "promptcal.npz") as stored:
        return {name.split("/")[1]: torch.from_numpy(stored[name]) for name in stored.files if "affinity/" in name}


def random_lists(n, k, seed):
    return most_similar(rows := random_rows(n, seed), rows, k, itself=torch.arange(n))


def random_rows(n, seed):
    return torch.randn(n, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def transition_of(near):
    counts = consensus(near, torch.float64)
    return counts / counts.sum(dim=1, keepdim=True)


def test_lists_consensus_and_diffusion_are_the_published_ones(published):
    rows = torch.cat([published["teacher"].roll(6, dims=0), published["bank"]])
    near = most_similar(rows, rows, 4, itself=torch.arange(36))
    assert torch.equal(near, published["knn_lists"])
    assert torch.equal(consensus(near, torch.float64), published["consensus"])
    torch.testing.assert_close(transition_of(near), published["transition"], **TIGHT)
    torch.testing.assert_close(diffuse(transition_of(near)), published["diffused"], **TIGHT)


def test_two_steps_are_the_published_ones(published):
    twice = diffuse(published["transition"], steps=2)
    assert twice.sum().item() == pytest.approx(EXPECTED["diffusion_two_steps"]["sum"], abs=1e-9)
    assert twice.trace().item() == pytest.approx(EXPECTED["diffusion_two_steps"]["trace"], abs=1e-9)


@pytest.mark.parametrize("quantile", [0.5, 0.8])
def test_the_threshold_is_the_published_one(published, quantile):
    expected = EXPECTED["affinity_and_cal"][f"q{quantile}"]
    found = strong_from(published["diffused"], quantile)
    assert found.item() == pytest.approx(expected["quantile_threshold"], abs=1e-9)
    assert int((published["diffused"] > 0).sum()) == expected["n_nonzero"]


def test_consensus_by_loops():
    near = random_lists(15, 3, seed=1)
    lists = [set(row) for row in near.tolist()]
    found = consensus(near)
    for i in range(15):
        for j in range(15):
            shared = sum({i, j} <= members for members in lists)
            expected = shared + (j in lists[i]) + (i in lists[j]) if i != j else 0
            assert found[i, j] == expected


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_diffusion_by_loops(steps):
    p = transition_of(random_lists(12, 2, seed=2)).tolist()
    q = [list(row) for row in p]
    every = range(12)
    for _ in range(steps):
        left = [[sum(p[i][k] * q[k][j] for k in every) for j in every] for i in every]
        q = [[sum(left[i][k] * p[j][k] for k in every) + (i == j) for j in every] for i in every]
    torch.testing.assert_close(diffuse(torch.tensor(p).double(), steps), torch.tensor(q).double())


def test_pairs_without_a_path_stay_exactly_zero():
    """Two groups that are no neighbours: the mean of what is above zero would see any rounding error."""
    near = torch.cat([random_lists(20, 3, seed=3), random_lists(30, 3, seed=4) + 20])
    found = diffuse(transition_of(near).float())
    assert not found[:20, 20:].any()
    assert not found[20:, :20].any()
    exact = diffuse(transition_of(near))
    assert torch.equal(found > 0, exact > 0)
    torch.testing.assert_close(found, exact.float())


@pytest.mark.parametrize("quantile", [0.0, 0.37, 1.0])
def test_the_threshold_by_loops(quantile):
    affinity = diffuse(transition_of(random_lists(14, 2, seed=5)))
    values = sorted(value for value in affinity.flatten().tolist() if value > 0)
    above = [value for value in values if value > sum(values) / len(values)]
    place = quantile * (len(above) - 1)
    low, high = above[math.floor(place)], above[math.ceil(place)]
    expected = low + (high - low) * (place - math.floor(place))
    assert strong_from(affinity, quantile).item() == pytest.approx(expected, abs=1e-12)


def test_more_values_than_torch_takes_have_a_quantile():
    values = torch.linspace(1, 1.05, 4600**2).reshape(4600, 4600)
    values[:460] = 1e-3  # so that the others are all above the mean
    above = values[460:].flatten()
    assert len(above) > 2**24
    assert strong_from(values, 0.5).item() == pytest.approx(above[len(above) // 2].item(), abs=1e-6)


def test_equal_values_have_a_threshold_that_none_exceeds():
    for values in (torch.ones(3, 3), torch.zeros(2, 2)):
        assert not (values > strong_from(values, 0.8)).any()
    two = diffuse(transition_of(torch.tensor([[1], [0]])))  # two rows, each the only neighbour of the other
    assert torch.equal(two, torch.ones(2, 2, dtype=torch.float64))
    assert not (two > strong_from(two, 0.5)).any()
