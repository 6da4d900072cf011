"""Primitives and parts: each statistic against a loop over patches."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score

import newkinds
from newkinds.discovery.finished import load
from newkinds.errors import NewkindsError
from newkinds.evaluation import part_agreement as judged
from newkinds.evaluation.part_agreement import (
    CELLS,
    FIELD,
    KMEANS,
    RANDOM,
    SHARES,
    count_patches,
    part_report,
    parts_of,
    scores_of,
)

IMAGES, PATCHES, GROUPS, PARTS, KINDS = 6, 10, 4, 7, 3


@pytest.fixture
def drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups (n, N) that have something to do with the parts (n, N), and the category (n, N)."""
    rng = np.random.default_rng(0)
    parts = rng.integers(PARTS, size=(IMAGES, PATCHES))
    groups = np.where(rng.random(parts.shape) < 0.5, parts % GROUPS, rng.integers(GROUPS, size=parts.shape))
    kinds = np.repeat(np.arange(IMAGES)[:, None] % KINDS, PATCHES, axis=1)
    return groups, parts, kinds


def test_counts_of_groups_and_of_shares(drawn: tuple[np.ndarray, ...]) -> None:
    groups, parts, kinds = drawn
    naive = np.zeros((KINDS, GROUPS, PARTS))
    shares = np.random.default_rng(1).dirichlet(np.ones(GROUPS), size=groups.shape)
    soft = np.zeros_like(naive)
    for i, j in np.ndindex(groups.shape):
        naive[kinds[i, j], groups[i, j], parts[i, j]] += 1
        for m in range(GROUPS):
            soft[kinds[i, j], m, parts[i, j]] += shares[i, j, m]
    np.testing.assert_array_equal(count_patches(groups, parts, kinds, GROUPS), naive)
    np.testing.assert_allclose(count_patches(shares, parts, kinds, GROUPS), soft)


def test_purity_and_information(drawn: tuple[np.ndarray, ...]) -> None:
    groups, parts, kinds = drawn
    table = count_patches(groups, parts, kinds, GROUPS)
    right = 0
    for m in range(GROUPS):
        inside = parts[groups == m].tolist()
        right += max((inside.count(p) for p in range(PARTS)), default=0)
    assert judged.purity(table) == pytest.approx(right / groups.size)
    assert judged.information(table) == pytest.approx(normalized_mutual_info_score(parts.ravel(), groups.ravel()))


def test_consistency_is_that_of_all_pairs_of_patches(drawn: tuple[np.ndarray, ...]) -> None:
    groups, parts, kinds = (some.ravel().tolist() for some in drawn)
    patches = list(zip(groups, parts, kinds, strict=True))

    def agreement(some: list[tuple[int, int, int]]) -> float:
        same = [a[1] == b[1] for a, b in itertools.combinations(some, 2) if a[2] != b[2]]
        return sum(same) / len(same)

    chance = agreement(patches)
    of_groups = [[patch for patch in patches if patch[0] == m] for m in range(GROUPS)]
    observed = sum(len(some) * agreement(some) for some in of_groups) / len(patches)
    found = judged.consistency(count_patches(*(np.array(some) for some in drawn), GROUPS))
    assert found == pytest.approx((observed - chance) / (1 - chance))


def test_what_a_group_tells_beyond_its_place(drawn: tuple[np.ndarray, ...]) -> None:
    groups, parts, _ = drawn
    place = np.tile(np.arange(PATCHES) % 2, (IMAGES, 1))

    def entropy(values: list[object]) -> float:
        shares = [values.count(value) / len(values) for value in set(values)]
        return -sum(share * math.log(share) for share in shares)

    told = unknown = 0.0
    for cell in range(2):
        g, p = groups[place == cell].tolist(), parts[place == cell].tolist()
        told += len(g) * (entropy(g) + entropy(p) - entropy(list(zip(g, p, strict=True))))
        unknown += len(g) * entropy(p)
    assert judged.beyond_place(count_patches(groups, parts, place, GROUPS)) == pytest.approx(told / unknown)


def test_extremes() -> None:
    parts = np.tile(np.arange(PARTS), (IMAGES, 1))
    kinds = np.repeat(np.arange(IMAGES)[:, None] % KINDS, PARTS, axis=1)
    perfect = count_patches(parts, parts, kinds, PARTS)
    scores = scores_of(perfect, perfect)
    assert scores.purity == scores.consistency == scores.purity_creature == 1
    assert scores.information == pytest.approx(1)
    one = count_patches(np.zeros_like(parts), parts, kinds, 1)  # a single group says nothing
    assert judged.information(one) == pytest.approx(0, abs=1e-12)
    assert judged.consistency(one) == pytest.approx(0, abs=1e-12)
    assert judged.consistency(one[:1]) == 0  # of one category there is nothing to compare


def test_cells_cover_the_grid_evenly() -> None:
    for count in (1, 4, 7, 12):
        sizes = np.bincount(judged.cells((8, 8), count), minlength=count)
        assert len(sizes) == count
        assert sizes.min() > 0
        assert sizes.sum() == 64


def test_a_field_that_is_the_parts_beats_all_others() -> None:
    rng = np.random.default_rng(0)
    parts = rng.integers(PARTS, size=(40, 16))
    field = 0.9 * np.eye(PARTS)[parts] + 0.1 / PARTS
    tokens = torch.from_numpy(rng.normal(size=(40, 16, 8))).half()
    report = part_report(field, tokens, parts, np.arange(40) % 4, (4, 4), seed=0)
    assert report.scores[FIELD].information == pytest.approx(1)
    assert 0.5 < report.scores[SHARES].information < 1
    for way in (KMEANS, CELLS, RANDOM):
        assert report.scores[way].information < 0.2
    assert report.counts[FIELD].shape == (PARTS, PARTS)
    again = part_report(field, tokens, parts, np.arange(40) % 4, (4, 4), seed=0)
    assert again.scores == report.scores


def test_attention_on_the_creature() -> None:
    rng = np.random.default_rng(0)
    weights, creature = rng.random((5, 9)), rng.random((5, 9)) < 0.5
    creature[3] = False  # hidden altogether: does not count
    shares, sizes, spreads = [], [], []
    for weight, here in zip(weights, creature, strict=True):
        inside = [w for w, is_here in zip(weight, here, strict=True) if is_here]
        if inside:
            shares.append(sum(inside) / sum(weight))
            sizes.append(len(inside) / 9)
            entropy = -sum(w / sum(inside) * math.log(w / sum(inside)) for w in inside)
            spreads.append(entropy / math.log(len(inside)))
    found = judged.foreground(weights, creature)
    assert found.on_creature == pytest.approx(np.mean(shares))
    assert found.patches == pytest.approx(np.mean(sizes))
    assert found.coverage == pytest.approx(np.mean(spreads))
    assert judged.foreground(np.ones((2, 4)), np.eye(4, dtype=bool)[:2]).on_creature == 0.25


def test_a_trained_run_and_data_without_parts(trained_run: Path, photos: Path, tmp_path: Path) -> None:
    run = load(trained_run)
    report = parts_of(run.model, run.config)
    assert report.images == 32
    assert report.patches == 32 * 64
    assert report.counts[FIELD].sum() == pytest.approx(report.patches)
    assert "k-means on tokens" in report.table()
    looks = judged.foreground_of(run.model.encoder.backbone, run.config, run.model.device)
    assert 0 < looks.patches < looks.on_creature < 1  # drawn creatures stand out, and the backbone knows them
    newkinds.train(photos, tmp_path / "run", k=3, settings={"train": {"epochs": 0}})
    with pytest.raises(NewkindsError, match="true parts of folder are not known"):
        parts_of(run.model, load(tmp_path / "run").config)
