"""Primitive fields are drawn where they are, in the primitive's colour, and no stronger than they are."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from newkinds.discovery.figures.field_maps import PALETTE, PICTURE_SIDE, field_overlays, fields_figure

GRID = (4, 4)


def an_image(height: int = 64, width: int = 64) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def a_field(primitives: int = 12, sharpness: float = 1.0, seed: int = 0) -> np.ndarray:
    logits = sharpness * np.random.default_rng(seed).normal(size=(GRID[0] * GRID[1], primitives))
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def chroma(picture: np.ndarray) -> np.ndarray:
    """(h, w, 3) → (h, w): 0 where a pixel is grey."""
    return np.ptp(picture.astype(int), axis=2)


def one_corner(primitives: int, winner: int, share: float) -> np.ndarray:
    """Even everywhere but in the top left patch, where `winner` has `share`."""
    field = np.full((GRID[0] * GRID[1], primitives), 1 / primitives)
    field[0] = (1 - share) / (primitives - 1)
    field[0, winner] = share
    return field


@pytest.mark.parametrize(("height", "width"), [(64, 64), (500, 250), (1, 1), (30, 900)])
def test_all_pictures_of_an_image_have_one_bounded_size(height: int, width: int) -> None:
    overlay = field_overlays([an_image(height, width)], [a_field()], GRID).overlays[0]
    for picture in [overlay.image, overlay.winners, *overlay.maps]:
        assert picture.dtype == np.uint8
        assert picture.shape == overlay.image.shape
        assert max(picture.shape[:2]) == PICTURE_SIDE
    assert len(overlay.maps) == 4


def test_colour_lies_on_the_winning_patch_and_nowhere_else() -> None:
    drawn = field_overlays([an_image()], [one_corner(primitives=6, winner=4, share=0.9)], GRID)
    overlay, patch = drawn.overlays[0], PICTURE_SIDE // GRID[0]
    assert chroma(overlay.winners)[: patch - 1, : patch - 1].min() > 60
    assert chroma(overlay.winners)[patch + 1 :, patch + 1 :].max() == 0
    red, green, blue = (int(PALETTE[4][start : start + 2], 16) for start in (1, 3, 5))
    mean = overlay.winners[: patch - 1, : patch - 1].reshape(-1, 3).mean(axis=0)
    assert (np.argsort(mean) == np.argsort([red, green, blue])).all()
    assert [entry.index for entry in drawn.winning] == [4]
    assert overlay.leaders == [(4, 1 / 16)]
    assert drawn.mapped[0].index == 4
    assert chroma(overlay.maps[0])[0, 0] > 60
    assert chroma(overlay.maps[0])[-1, -1] == 0


def test_a_firmer_winner_is_more_opaque() -> None:
    field = one_corner(primitives=6, winner=4, share=0.9)
    field[-1] = one_corner(primitives=6, winner=4, share=0.4)[0]
    winners = field_overlays([an_image()], [field], GRID).overlays[0].winners
    assert chroma(winners)[0, 0] > 1.5 * chroma(winners)[-1, -1] > 0


def test_a_primitive_keeps_its_colour_and_one_scale_serves_all_images() -> None:
    fields = [one_corner(6, winner=4, share=0.9), one_corner(6, winner=2, share=0.3)]
    together = field_overlays([an_image()] * 2, fields, GRID)
    alone = field_overlays([an_image()], fields[1:], GRID)
    assert {entry.index: entry.colour for entry in together.primitives} == {index: PALETTE[index] for index in range(6)}
    weak, strong = together.overlays[1].winners, alone.overlays[0].winners
    assert chroma(weak)[0, 0] < chroma(strong)[0, 0]
    assert together.high == pytest.approx(0.9)
    assert together.overlays[1].high == pytest.approx(0.3)


def test_even_field_is_not_coloured_and_says_so() -> None:
    noise = 1e-5 * np.random.default_rng(0).normal(size=(16, 12))
    drawn = field_overlays([an_image()], [np.full((16, 12), 1 / 12) + noise], GRID)
    overlay = drawn.overlays[0]
    assert drawn.is_even
    assert drawn.winning == []
    assert max(chroma(picture).max() for picture in [overlay.winners, *overlay.maps]) == 0
    assert "1/12 = 0.083" in drawn.describe()
    assert "nothing is coloured" in drawn.describe()


def test_nearly_even_field_states_its_narrow_range() -> None:
    field = np.full((16, 12), 1 / 12)
    field[3, 5], field[3, 6] = 0.0863, 1 / 6 - 0.0863
    text = field_overlays([an_image()], [field], GRID).describe()
    assert "from 0.0804 to 0.0863" in text
    assert "nearly even" in text
    assert "nearly even" not in field_overlays([an_image()], [a_field(sharpness=3)], GRID).describe()


def test_values_that_are_not_finite_leave_their_patches_uncoloured() -> None:
    field = one_corner(6, winner=4, share=0.9)
    field[0, 1] = np.nan
    field[1] = np.inf
    drawn = field_overlays([an_image()], [field], GRID)
    assert chroma(drawn.overlays[0].winners).max() == 0
    assert drawn.broken == 2
    assert "2 patches have no finite value" in drawn.describe()
    assert np.isfinite([drawn.low, drawn.high, drawn.full]).all()


def test_more_primitives_than_colours_and_fewer_than_maps() -> None:
    assert len(field_overlays([an_image()], [a_field(primitives=30)], GRID).primitives) == 30
    assert len(field_overlays([an_image()], [a_field(primitives=2)], GRID).overlays[0].maps) == 2
    assert field_overlays([an_image()], [np.ones((16, 1))], GRID).is_even


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        field_overlays([an_image()], [a_field()], (3, 4))
    with pytest.raises(ValueError, match="2 images and 1 fields"):
        field_overlays([an_image()] * 2, [a_field()], GRID)


# Machado, Oliveira & Fernandes 2009, severity 1: linear RGB as a dichromat sees it.
DICHROMATS = {
    "none": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
LMS = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
OKLAB = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])


@pytest.mark.parametrize("vision", DICHROMATS)
def test_palette_can_be_told_apart(vision: str) -> None:
    rgb = np.array([[int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)] for colour in PALETTE])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.array(DICHROMATS[vision]).T, 0, 1)
    lab = np.cbrt(seen @ LMS.T) @ OKLAB.T
    distance = np.linalg.norm(lab[:, None] - lab[None], axis=2) + np.eye(len(PALETTE))
    # 0.02 in Oklab is about the smallest difference seen between neighbouring areas.
    assert distance.min() > 0.05


def test_figure_is_the_same_each_time() -> None:
    images, fields = [an_image(), an_image(40, 80)], [a_field(), a_field(seed=1)]
    drawn = fields_figure(images, fields, GRID)
    assert fields_figure(images, fields, GRID) == drawn
    pixels = np.asarray(Image.open(io.BytesIO(drawn.png)).convert("RGB"))
    assert pixels.shape[1] > 1000
    assert chroma(pixels).max() > 60
    assert drawn.svg.startswith(b"<?xml")


@pytest.mark.parametrize("primitive", range(len(PALETTE)))
def test_maps_are_read_without_colours(primitive: int) -> None:
    field = np.zeros((16, len(PALETTE)))
    field[:, primitive] = 1
    field[8:] = 1 / len(PALETTE)  # the lower half is even
    lit = field_overlays([np.full((64, 64, 3), 230, np.uint8)], [field], GRID).overlays[0].maps[0]
    grey = np.asarray(Image.fromarray(lit).convert("L")).astype(int)
    assert grey[20].min() > grey[-20].max() + 50
