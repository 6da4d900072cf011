"""Resize, crop, mirror, normalise: as in the published runs; and views that are changed more."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

from newkinds.data.views import Preprocessing, View, ViewPlan, weak_views


@pytest.fixture
def image() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 401, 3), dtype=np.uint8))


@pytest.mark.parametrize("size", [224, 112, 64])
def test_evaluation_view_is_the_published_transform(image: Image.Image, size: int) -> None:
    published = transforms.Compose(
        [
            transforms.Resize(int(size / 0.875), interpolation=transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(size),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    preprocessing = Preprocessing(size)
    ours = preprocessing.normalise(preprocessing.centre_view(preprocessing.resize(image)))
    torch.testing.assert_close(ours, published(image), atol=1e-6, rtol=0)


def test_random_views_are_windows_of_the_image(image: Image.Image) -> None:
    preprocessing = Preprocessing(64)
    resized = preprocessing.resize(image)
    assert resized.shape[1] == 73
    windows = resized.unfold(1, 64, 1).unfold(2, 64, 1)  # (3, tops, lefts, 64, 64)
    views = preprocessing.random_views(resized, ["weak"] * 12, np.random.default_rng(0))
    mirrored = 0
    for view in views:
        as_is = (windows == view[:, None, None]).flatten(3).all(3).all(0).any()
        flipped = (windows == view.flip(-1)[:, None, None]).flatten(3).all(3).all(0).any()
        assert as_is or flipped
        mirrored += int(flipped and not as_is)
    assert 1 <= mirrored <= 11
    assert len({view.numpy().tobytes() for view in views}) > 6


def test_every_window_can_be_drawn() -> None:
    preprocessing = Preprocessing(7, crop_ratio=7 / 8)
    resized = torch.arange(8 * 8, dtype=torch.uint8).reshape(1, 8, 8).repeat(3, 1, 1)
    rng = np.random.default_rng(0)
    corners = {int(v[0].min()) for v in preprocessing.random_views(resized, ["weak"] * 100, rng)}
    assert corners == {0, 1, 8, 9}


# --- views that are changed more ---------------------------------------------------------------------------


def strong(resized: torch.Tensor, kind: View, count: int, size: int = 16, seed: int = 0) -> torch.Tensor:
    return Preprocessing(size).random_views(resized, [kind] * count, np.random.default_rng(seed))


def coordinates(height: int, width: int) -> torch.Tensor:
    """An image whose red is the column and whose green is the row, both from 0 to 240."""
    rows, columns = torch.linspace(0, 240, height)[:, None], torch.linspace(0, 240, width)[None]
    planes = [columns.expand(height, width), rows.expand(height, width), torch.zeros(height, width)]
    return torch.stack(planes).round().to(torch.uint8)


@pytest.mark.parametrize("kind", ["strong", "strong, same colours"])
def test_strong_views_have_the_shape_of_weak_ones_and_the_generator_decides(kind: View, image: Image.Image) -> None:
    resized = Preprocessing(64).resize(image)
    views = strong(resized, kind, 6, size=64)
    assert (views.shape, views.dtype) == ((6, 3, 64, 64), torch.uint8)
    torch.manual_seed(5)  # torch's generator does not matter
    assert torch.equal(views, strong(resized, kind, 6, size=64))
    assert not torch.equal(views, strong(resized, kind, 6, size=64, seed=1))
    assert len({view.numpy().tobytes() for view in views}) == 6


def test_kinds_come_in_the_order_they_were_asked_for() -> None:
    resized = coordinates(18, 18)
    kinds: tuple[View, ...] = ("strong", "weak", "strong, same colours", "weak")
    views = Preprocessing(16).random_views(resized, kinds, np.random.default_rng(3))
    windows = resized.unfold(1, 16, 1).unfold(2, 16, 1)
    for kind, view in zip(kinds, views, strict=True):
        matches = [(windows == v[:, None, None]).flatten(3).all(3).all(0).any() for v in (view, view.flip(-1))]
        assert any(matches) == (kind == "weak")


def test_same_colours_are_the_same_and_others_are_not() -> None:
    colour = torch.tensor([200, 80, 40], dtype=torch.uint8)
    resized = colour[:, None, None].expand(3, 18, 18).contiguous()
    kept = strong(resized, "strong, same colours", 100)
    assert (kept == colour[:, None, None]).all()  # no crop, mirror or blur changes a single colour
    changed = strong(resized, "strong", 300)
    means = changed.float().mean(dim=(2, 3))  # (300, 3)
    assert 0.75 < (means != colour.float()).any(dim=1).float().mean() < 0.95  # 1 - .2 * .8
    grey = ((changed[:, 0] == changed[:, 1]) & (changed[:, 1] == changed[:, 2])).flatten(1).all(dim=1)
    assert 0.12 < grey.float().mean() < 0.28


@pytest.mark.parametrize(("height", "width"), [(60, 60), (60, 120)])
def test_a_strong_view_is_a_window_of_another_area_and_shape(height: int, width: int) -> None:
    """Also of a long image, in which few windows of that area would have such a shape."""
    views = strong(coordinates(height, width), "strong, same colours", 300, size=32).float()
    wide = (views[:, 0].amax(dim=(1, 2)) - views[:, 0].amin(dim=(1, 2))) / 240 * width
    tall = (views[:, 1].amax(dim=(1, 2)) - views[:, 1].amin(dim=(1, 2))) / 240 * height
    area = wide * tall / (height * width)  # blur makes extremes a little less extreme
    assert 0.2 < area.min() < 0.4
    assert area.max() > (0.8 if height == width else 0.5)
    shape = wide / tall
    assert 0.7 < shape.min() < 0.85
    assert 1.25 < shape.max() < 1.4
    mirrored = (views[:, 0, :, 0].mean(dim=1) > views[:, 0, :, -1].mean(dim=1)).float().mean()
    assert 0.4 < mirrored < 0.6


def test_about_half_of_the_strong_views_are_blurred() -> None:
    stripes = (torch.arange(32) // 8 % 2 * 255).to(torch.uint8).expand(3, 32, 32).contiguous()
    views = strong(stripes, "strong, same colours", 200, size=32).float()
    sharp = (views[:, :, :, 1:] - views[:, :, :, :-1]).abs().amax(dim=(1, 2, 3))  # the steepest edge of each
    assert 0.2 < (sharp < 150).float().mean() < 0.6


def test_images_that_are_hardly_larger_than_a_window() -> None:
    for size, (height, width) in [(7, (8, 8)), (8, (9, 300)), (16, (300, 18))]:
        views = strong(coordinates(height, width), "strong", 20, size=size)
        assert views.shape == (20, 3, size, size)


def test_a_plan_names_each_kind_once_and_weak_first() -> None:
    assert ViewPlan().kinds == ("weak",)
    assert ViewPlan(student=("strong",), teacher=("weak",)).kinds == ("weak", "strong")
    assert ViewPlan(student=("strong, same colours", "strong", "strong")).kinds == (
        "weak", "strong, same colours", "strong",
    )  # fmt: skip
    assert weak_views(3).student == ("weak", "weak", "weak")
