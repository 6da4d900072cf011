"""Resize, crop, mirror, normalise: as in the published runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

from newkinds.data.views import Preprocessing


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
