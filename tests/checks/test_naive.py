"""The statistics of the checks, held to plain loops."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from newkinds.checks.labels import class_agreement, robust_deviations
from newkinds.checks.same import DOUBTFUL, FEWEST_EDGES, SAME_TINT, SURE, exact_copies, near_copies, same_picture
from newkinds.cluster import neighbours
from newkinds.data.facts import Facts


def some_facts(seed: int, n: int = 60) -> list[Facts]:
    """Hashes of which each third is an earlier one with some bits turned, and a few colours."""
    rng = np.random.default_rng(seed)
    hashes: list[np.ndarray] = []
    for row in range(n):
        bits = rng.random(256) < 0.4
        if row % 3 == 2:
            bits = hashes[int(rng.integers(row))] ^ (rng.random(256) < rng.choice([0.02, 0.08, 0.15]))
        hashes.append(bits)
    colours = [(100, 100, 100), (110, 120, 100), (200, 100, 100)]
    return [
        Facts(50, 50, 9.0, bytes(colours[rng.choice(3, p=[0.6, 0.3, 0.1])]).hex(), np.packbits(bits).tobytes().hex())
        for bits in hashes
    ]


def alike(a: Facts, b: Facts) -> float:
    """Share of the bits of either hash that both have; 0 if their tints differ."""
    one, two = (int(facts.hash, 16) for facts in (a, b))
    red, green, blue = (x - y for x, y in zip(bytes.fromhex(a.colour), bytes.fromhex(b.colour), strict=True))
    if abs(red - green) > SAME_TINT or abs(blue - green) > SAME_TINT:
        return 0.0
    return (one & two).bit_count() / max((one | two).bit_count(), FEWEST_EDGES)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("with_rows", [False, True])
def test_near_copies_are_those_of_plain_loops(seed: int, with_rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("newkinds.checks.same.ENTRIES_AT_ONCE", 500)  # several blocks
    facts = some_facts(seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(60)[:55]
    rows = F.normalize(torch.randn(60, 4, generator=torch.Generator().manual_seed(seed)), dim=1) if with_rows else None
    found = near_copies(facts, order, rows, close=0.3)
    copies = 0
    for place, row in enumerate(order.tolist()):
        same = {
            earlier: share
            for earlier in order[:place].tolist()
            if (share := alike(facts[row], facts[earlier])) >= SURE
            or (rows is not None and share >= DOUBTFUL and float(rows[row] @ rows[earlier]) >= 0.3)
        }
        assert (found.of[row] != row) == bool(same)
        if same:
            copies += 1
            assert same[int(found.of[row])] == max(same.values())
            assert found.similarity[row] == pytest.approx(max(same.values()))
    assert 5 < copies < 30
    assert set(np.flatnonzero(found.flag)) <= set(order.tolist())


def test_copies_of_copies_show_one_picture() -> None:
    order = np.arange(6)
    exact = exact_copies(["a", "b", "a", "c", "c", "d"], order)
    assert exact.of.tolist() == [0, 1, 0, 3, 3, 5]
    facts = some_facts(0, 6)
    near = near_copies([facts[0], facts[1], facts[0], facts[1], facts[1], facts[3]], order[~exact.flag])
    assert near.of.tolist() == [0, 1, 2, 1, 4, 5]
    assert same_picture(exact, near).tolist() == [0, 1, 0, 1, 1, 5]


def test_agreement_with_classes_leaves_the_image_itself_out() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = F.normalize(torch.randn(12, 5, generator=generator, dtype=torch.float64), dim=1)
    target = torch.tensor([0, 0, 0, 1, 1, 1, 1, 3, 3, 0, 1, 4])  # class 2 has no image, class 4 one
    found = class_agreement(rows, target, 5)
    for i in range(12):
        for label in range(5):
            members = [j for j in range(12) if target[j] == label and j != i]
            if not members:
                assert found[i, label] == (0 if target[i] == label else -np.inf)
                continue
            mean = np.mean([rows[j].numpy() for j in members], axis=0)
            assert found[i, label] == pytest.approx(rows[i].numpy() @ mean / np.linalg.norm(mean))


def test_deviations_do_not_depend_on_outliers() -> None:
    usual = np.random.default_rng(0).normal(5, 2, 10_001)
    with_outliers = np.append(usual, [1e6] * 100)
    assert robust_deviations(usual).std() == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(robust_deviations(with_outliers)[:10_001], robust_deviations(usual), atol=0.1)
    assert robust_deviations(np.full(9, 3.0)).tolist() == [0] * 9


def test_no_block_of_the_search_is_larger_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """At any number of images: a block has as many entries as other searches for neighbours may have."""
    sizes: list[int] = []
    topk = torch.Tensor.topk

    def noting(self: torch.Tensor, *how: int, **more: int) -> tuple[torch.Tensor, torch.Tensor]:
        sizes.append(self.numel())
        return topk(self, *how, **more)

    monkeypatch.setattr("newkinds.checks.same.ENTRIES_AT_ONCE", 1000)
    monkeypatch.setattr(torch.Tensor, "topk", noting)
    near_copies(some_facts(1, 200), np.arange(200))
    assert max(sizes) <= 1000 < neighbours.ENTRIES_AT_ONCE
    assert len(sizes) == 40
