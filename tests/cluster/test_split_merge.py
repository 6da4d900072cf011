"""Splits and merges of clusters against the numbers of the published code (float64), and otherwise derived."""

import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_t

from newkinds.cluster.split_merge import Prior, SplitMerge, halves, halves_of_ten

DATA = Path(__file__).parents[1] / "numbers"
EXPECTED = json.loads((DATA / "gpc.json").read_text())["split_merge"]


@pytest.fixture(scope="module")
def arrays():
    with np.load(DATA / "gpc.npz") as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files}


@pytest.fixture
def published():
    return SplitMerge(Prior(1e-4, 5, 0.005), smallest=6, published=True)


@pytest.mark.parametrize("cluster", EXPECTED["split"])
def test_splits_are_judged_as_published(arrays, published, cluster):
    points = (arrays["features"] - arrays["prior_mean"])[arrays["labels"] == int(cluster)]
    side, expected = arrays[f"sub_assign_{cluster}"], EXPECTED["split"][cluster]
    first, second = points[side == 0], points[side == 1]
    assert (len(first), len(second)) == (expected["n1"], expected["n2"])
    prior = published.prior
    marginals = [prior.log_marginal(points, prior.posterior_mean(points)), *map(prior.log_marginal, (first, second))]
    assert marginals == pytest.approx([expected[f"log_ml{side}"] for side in ("", "_1", "_2")], abs=1e-9)
    apart = sum(math.lgamma(len(x)) + prior.log_marginal(x, prior.posterior_mean(x)) for x in (first, second))
    ratio = apart - math.lgamma(len(points)) - marginals[0]  # all around posterior means
    assert published.split_ratio(first, second) == pytest.approx(ratio, abs=1e-10)
    assert ratio == pytest.approx(expected["H_split"], abs=2e-6)  # that has the sides around their plain means
    for draw, decision in expected["released_decision_for_uniform_draw"].items():
        made = published.accept([expected["H_split"]], torch.tensor([float(draw.removeprefix("uniform="))]))
        assert (bool(made) and min(len(first), len(second)) >= published.smallest) == decision


@pytest.mark.parametrize("pair", EXPECTED["merge"])
def test_merges_are_judged_as_published(arrays, published, pair):
    points, expected = arrays["features"] - arrays["prior_mean"], EXPECTED["merge"][pair]
    ratio = published.merge_ratio(*(points[arrays["labels"] == int(c)] for c in pair.split("_")))
    assert ratio == pytest.approx(expected["H_merge"], abs=1e-9)
    for draw, decision in expected["released_decision_for_uniform_draw"].items():
        assert bool(published.accept([ratio], torch.tensor([float(draw.removeprefix("uniform="))]))) == decision


def test_the_marginal_is_the_product_of_predictions_one_point_after_the_other():
    prior, d = Prior(0.3, 6.5, 0.8), 3
    points = np.random.default_rng(0).normal(size=(7, d))
    kappa, nu, mean, scatter, total = prior.kappa, prior.nu, np.zeros(d), prior.scale * np.eye(d), 0.0
    for x in points:
        degrees = nu - d + 1
        total += multivariate_t(mean, scatter * (kappa + 1) / (kappa * degrees), df=degrees).logpdf(x)
        scatter = scatter + kappa / (kappa + 1) * np.outer(x - mean, x - mean)
        mean, kappa, nu = (kappa * mean + x) / (kappa + 1), kappa + 1, nu + 1
    rows = torch.from_numpy(points)
    assert prior.log_marginal(rows) == pytest.approx(total, abs=1e-10)
    np.testing.assert_allclose(prior.posterior_mean(rows), mean, atol=1e-12)


def as_sets(groups):
    return [set(torch.cat(group).tolist()) for group in groups]


def test_known_classes_neither_split_nor_merge_with_each_other():
    eager = SplitMerge(Prior(1.0, 4.0, 1.0))
    generator = torch.Generator().manual_seed(2)
    points = torch.randn(80, 2, generator=generator, dtype=torch.float64)
    points[:20, 0] += torch.tensor([50.0, -50.0]).repeat(10)  # cluster 0 is two, 1 and 2 are one
    cluster = torch.arange(4).repeat_interleave(20)
    points[60:] += 200  # and 3 is far
    groups = as_sets(eager(points, cluster, known=3, fewest=4, most=40))
    assert groups == [set(range(start, start + 20)) for start in (0, 20, 40, 60)]
    as_new = as_sets(eager(points, cluster, known=0, fewest=1, most=40))
    assert set(range(20, 60)) in as_new
    assert set(range(20)) not in as_new


@pytest.mark.parametrize(("fewest", "most"), [(1, 90), (5, 90), (1, 7), (6, 6)])
def test_the_number_stays_within_its_bounds(fewest, most):
    points = torch.randn(90, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    cluster = torch.arange(90) % 6
    prior = Prior(1.0, 4.0, 1.0)
    splitting, merging = SplitMerge(prior, alpha=1e300, smallest=1), SplitMerge(prior, alpha=1e-300)
    assert len(splitting(points, cluster, 0, fewest, most)) == min(12, most)
    merged = len(merging(points, cluster, 0, fewest, most))
    assert max(fewest, 3) <= merged < 6 or merged == fewest == 6
    published = SplitMerge(prior, alpha=1e-300, smallest=10, published=True)
    assert len(published(points, cluster, 0, fewest, most)) == min(12, most)  # each of six proposes, none leaves


def test_chances_are_those_of_the_ratio():
    ratios, draws = [2.0, -1.0, -1.0, -50.0], torch.tensor([0.99, 0.3, 0.4, 0.05])
    assert SplitMerge(Prior(1, 4, 1)).accept(ratios, draws) == [0, 1]  # e⁻¹ is 0.37
    assert SplitMerge(Prior(1, 4, 1), published=True).accept(ratios, draws) == [0, 3]


def test_sides_need_enough_images():
    one, other = torch.randn(5, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64), 100.0
    points, cluster = torch.cat([one, one + other]), torch.zeros(10, dtype=torch.long)
    prior = Prior(0.01, 4.0, 1.0)
    assert [sorted(side.tolist()) for side in halves(points, torch.arange(10))] == [[*range(5)], [*range(5, 10)]]
    assert len(SplitMerge(prior, smallest=5)(points, cluster, 0, 1, 10)) == 2
    assert len(SplitMerge(prior, smallest=6)(points, cluster, 0, 1, 10)) == 1


# --- as published, by loops ----------------------------------------------------------------------------------


def inertia(points, sides):
    return sum(float((points[side] - points[side].mean(dim=0)).square().sum()) for side in sides if len(side))


def test_published_halves_are_the_best_of_all():
    missed = 0
    for seed in range(12):
        torch.manual_seed(seed)
        points = torch.randn(8, 3, dtype=torch.float64)
        ways = (torch.tensor((True, *rest)) for rest in product([True, False], repeat=7))
        best = min(((w.nonzero()[:, 0], (~w).nonzero()[:, 0]) for w in ways), key=lambda both: inertia(points, both))
        found = halves_of_ten(points, torch.arange(8))
        assert [side.tolist() for side in found] == [side.tolist() for side in best]
        missed += inertia(points, halves(points, torch.arange(8))) > inertia(points, best) + 1e-9
    assert missed  # from the longest axis alone


@pytest.mark.parametrize("seed", range(6))
def test_a_published_round_by_loops(seed, monkeypatch):
    """Only new clusters that do not split merge, each with the nearest of these; all of them stay."""
    generator = torch.Generator().manual_seed(seed)
    centres = 0.4 * torch.randn(9, 2, generator=generator, dtype=torch.float64)
    cluster = torch.arange(9).repeat_interleave(14)
    points = centres[cluster] + 0.2 * torch.randn(126, 2, generator=generator, dtype=torch.float64)
    points[-14::2] += 2  # the last one is two
    published = SplitMerge(Prior(1e-4, 3, 0.005), smallest=6, published=True)
    monkeypatch.setattr(torch, "rand", lambda n, dtype: torch.full((n,), 0.5, dtype=dtype))  # above the flat chance
    rows = [(cluster == c).nonzero()[:, 0] for c in range(9)]
    torch.manual_seed(seed)
    found = [tuple(part.tolist() for part in group) for group in published(points, cluster, 4, 5, 126)]

    torch.manual_seed(seed)
    sides = {c: halves_of_ten(points[rows[c]], rows[c]) for c in range(4, 9)}
    split = [
        c for c, (a, b) in sides.items() if min(len(a), len(b)) >= 6 and published.split_ratio(points[a], points[b]) > 0
    ]
    assert 8 in split
    stay = [c for c in range(9) if c not in split]
    new = [c for c in stay if c >= 4]
    pairs = []
    for c in new:
        away = {d: math.dist(points[rows[c]].mean(dim=0), points[rows[d]].mean(dim=0)) for d in new if d != c}
        pair = sorted((c, min(away, key=away.get)))
        if published.merge_ratio(*(points[rows[d]] for d in pair)) > 0:
            pairs.append(tuple(rows[d].tolist() for d in pair))
    expected = [(rows[c].tolist(),) for c in stay] + [(side.tolist(),) for c in split for side in sides[c]] + pairs
    assert sorted(found) == sorted(expected)
    assert found[:4] == expected[:4]  # known classes are the first, under their numbers
