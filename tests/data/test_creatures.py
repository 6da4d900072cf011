"""The embedded data set: what is promised about kinds and drawings."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from newkinds.data.creatures import drawing as creatures
from newkinds.data.creatures.drawing import FACTORS, Kind


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


@pytest.fixture(scope="module")
def small() -> creatures.Creatures:
    return creatures.make(categories=8, per_category=6, seed=3)


def whole_kind() -> Kind:
    """A kind with every part."""
    return Kind("round", "horned", "bat", "fan", "4", "spots", "raised", "spread", "up")


def test_shapes_types_and_categories(small: creatures.Creatures) -> None:
    assert small.images.shape == (48, 73, 73, 3)
    assert small.images.dtype == np.uint8
    assert small.categories.dtype == np.int64
    assert np.bincount(small.categories).tolist() == [6] * 8
    assert len(small.kinds) == 8


def test_same_seed_same_bytes_another_seed_other_images(small: creatures.Creatures) -> None:
    np.random.seed(0)  # a global state must not matter
    again = creatures.make(categories=8, per_category=6, seed=3)
    assert np.array_equal(again.images, small.images)
    other = creatures.make(categories=8, per_category=6, seed=4)
    assert not np.array_equal(other.images, small.images)


def test_an_image_does_not_depend_on_how_many_are_drawn(small: creatures.Creatures) -> None:
    fewer = creatures.make(categories=8, per_category=2, seed=3)
    assert np.array_equal(fewer.images.reshape(8, 2, -1), small.images.reshape(8, 6, -1)[:, :2])


def test_another_process_draws_the_same() -> None:
    code = (
        "import hashlib; from newkinds.data.creatures import drawing as c; d = c.make(3, 2, seed=5);"
        "print(hashlib.sha256(d.images.tobytes()).hexdigest(), [k.name for k in d.kinds])"
    )
    here = creatures.make(3, 2, seed=5)
    digest = hashlib.sha256(here.images.tobytes()).hexdigest()
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert there.strip() == f"{digest} {[kind.name for kind in here.kinds]}"


@pytest.mark.parametrize("seed", range(4))
def test_the_two_pools_never_meet(seed: int) -> None:
    evaluated = creatures.kinds(60, seed, "evaluated")
    pretraining = {kind for other in range(4) for kind in creatures.kinds(60, other, "pretraining")}
    assert not pretraining & set(evaluated)
    assert {kind.pool for kind in evaluated} == {"evaluated"}
    assert {kind.pool for kind in pretraining} == {"pretraining"}


def test_kinds_are_different_and_have_relatives() -> None:
    kinds = creatures.kinds(40, 0, "evaluated")
    apart = np.array([[creatures.differences(a, b) for b in kinds] for a in kinds])
    np.fill_diagonal(apart, 99)
    assert apart.min() == creatures.KINSHIP["evaluated"]
    assert (apart.min(axis=1) <= 4).mean() > 0.7


def test_no_part_names_a_kind() -> None:
    """Nearly every kind shares each of its choices with another kind."""
    kinds = creatures.kinds(20, 0, "evaluated")
    for factor in FACTORS:
        chosen = [getattr(kind, factor) for kind in kinds]
        shared = [chosen.count(choice) > 1 for choice in chosen]
        assert np.mean(shared) >= 0.8, factor


def test_names_are_unique_and_safe_as_file_names() -> None:
    kinds = creatures.kinds(300, 1, "pretraining")
    names = [kind.name for kind in kinds]
    assert len(set(names)) == len(kinds)
    assert all(re.fullmatch("[a-z]{8,9}", name) for name in names)


def test_what_is_absent_has_no_place() -> None:
    for kind in creatures.kinds(200, 0, "evaluated"):
        assert kind.wings != "none" or kind.wings_at == "raised"
        assert kind.tail != "none" or kind.tail_at == "up"


@pytest.mark.parametrize("factor", list(FACTORS))
def test_every_option_can_be_drawn_and_looks_different(factor: str) -> None:
    drawn = {
        creatures.draw(replace(whole_kind(), **{factor: option}), generator(0), 73).tobytes()
        for option in FACTORS[factor]
    }
    assert len(drawn) == len(FACTORS[factor])


def test_colour_says_nothing_about_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """All colours are drawn before the kind is looked at: the same random numbers give any two kinds the same."""
    palettes: list[dict[str, object]] = []

    class Recorded(creatures._Palette):
        def __init__(self, rng: np.random.Generator) -> None:
            super().__init__(rng)
            palettes.append({name: value for name, value in vars(self).items() if name != "_rng"})

    monkeypatch.setattr(creatures, "_Palette", Recorded)
    for kind in creatures.kinds(8, 0, "evaluated"):
        creatures.draw(kind, generator(2), 73)
    assert palettes == [palettes[0]] * 8
    assert {"body", "head", "wings", "tail", "legs", "markings", "edge"} <= set(palettes[0])


def test_other_sizes() -> None:
    assert creatures.draw(whole_kind(), generator(0), 48).shape == (48, 48, 3)
