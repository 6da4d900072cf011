"""The embedded data set: what is promised about kinds, drawings and part maps."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from newkinds.data.creatures import drawing as creatures
from newkinds.data.creatures.drawing import FACTORS, PARTS, Kind


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
    assert small.parts.shape == (48, 73, 73)
    assert small.parts.dtype == np.uint8
    assert small.parts.max() < len(PARTS)
    assert small.categories.dtype == np.int64
    assert np.bincount(small.categories).tolist() == [6] * 8
    assert len(small.kinds) == 8


def test_same_seed_same_bytes_another_seed_other_images(small: creatures.Creatures) -> None:
    np.random.seed(0)  # a global state must not matter
    again = creatures.make(categories=8, per_category=6, seed=3)
    assert np.array_equal(again.images, small.images)
    assert np.array_equal(again.parts, small.parts)
    other = creatures.make(categories=8, per_category=6, seed=4)
    assert not np.array_equal(other.images, small.images)


def test_an_image_does_not_depend_on_how_many_are_drawn(small: creatures.Creatures) -> None:
    fewer = creatures.make(categories=8, per_category=2, seed=3)
    assert np.array_equal(fewer.images.reshape(8, 2, -1), small.images.reshape(8, 6, -1)[:, :2])


def test_another_process_draws_the_same() -> None:
    code = (
        "import hashlib; from newkinds.data.creatures import drawing as c; d = c.make(3, 2, seed=5);"
        "print(hashlib.sha256(d.images.tobytes() + d.parts.tobytes()).hexdigest(), [k.name for k in d.kinds])"
    )
    here = creatures.make(3, 2, seed=5)
    digest = hashlib.sha256(here.images.tobytes() + here.parts.tobytes()).hexdigest()
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


@pytest.mark.parametrize("part", ["wings", "tail", "legs", "markings"])
def test_the_part_map_shows_what_the_kind_has(part: str) -> None:
    without = replace(whole_kind(), **{part: FACTORS[part][0]})
    number = PARTS.index(part)
    for seed in range(6):
        assert (creatures.draw_creature(whole_kind(), generator(seed), 73)[1] == number).sum() > 15
        assert not (creatures.draw_creature(without, generator(seed), 73)[1] == number).any()


@pytest.mark.parametrize("factor", list(FACTORS))
def test_every_option_can_be_drawn_and_looks_different(factor: str) -> None:
    drawn = [
        creatures.draw_creature(replace(whole_kind(), **{factor: option}), generator(0), 73)
        for option in FACTORS[factor]
    ]
    assert len({image.tobytes() for image, _ in drawn}) == len(drawn)
    assert all(set(np.unique(parts)) >= {0, 1, 2} for _, parts in drawn)


def test_the_map_is_registered_with_the_image() -> None:
    """Pixels of one part are more alike than pixels at large: a shifted or mirrored map would not be."""
    rng = generator(1)
    inside, shifted = [], []
    for _ in range(20):
        image, parts = creatures.draw_creature(whole_kind(), rng, 73)
        values = image.astype(float)
        inside.append(values[parts == 1].var(axis=0).sum())
        shifted.append(values[np.roll(parts, 20, axis=1) == 1].var(axis=0).sum())
    assert np.mean(inside) < 0.6 * np.mean(shifted)


def test_colour_says_nothing_about_the_kind() -> None:
    """Mean body colours of two kinds come from the same distribution."""
    data = creatures.make(2, 60, seed=2)
    body = np.stack([image[parts == 1].mean(axis=0) for image, parts in zip(data.images, data.parts, strict=True)])
    first, second = body[:60], body[60:]
    error = np.sqrt(first.var(axis=0) / 60 + second.var(axis=0) / 60)
    assert (np.abs(first.mean(axis=0) - second.mean(axis=0)) < 4 * error).all()


def test_other_sizes() -> None:
    image, parts = creatures.draw_creature(whole_kind(), generator(0), 48)
    assert image.shape == (48, 48, 3)
    assert parts.shape == (48, 48)


@pytest.mark.parametrize("grid", [(8, 8), (9, 5), (1, 1)])
def test_patch_parts_is_the_majority(small: creatures.Creatures, grid: tuple[int, int]) -> None:
    found = creatures.patch_parts(small.parts[:4], grid)
    assert found.shape == (4, *grid)
    rows, cols = grid
    for image in range(4):
        for row in range(rows):
            for col in range(cols):
                pixels = [
                    small.parts[image, y, x]
                    for y in range(73)
                    for x in range(73)
                    if y * rows // 73 == row and x * cols // 73 == col
                ]
                assert found[image, row, col] == np.bincount(pixels).argmax()
