"""From an opened image to the views a network sees: resize, crop, flip, as in the published runs; some methods also
want views that are changed more."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import functional

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

# weak: a window, mirrored or not. strong: a smaller one of another shape, in other colours, grey or blurred.
View = Literal["weak", "strong", "strong, same colours"]
STRONG_AREA, STRONG_SHAPE = (0.3, 1.0), (3 / 4, 4 / 3)  # share of the image, width over height


class ViewPlan(NamedTuple):
    """The random views of each image in a step."""

    student: tuple[View, ...] = ("weak", "weak")  # that the loss learns from
    teacher: tuple[View, ...] = ()  # further ones, for the averaged model alone; none: it sees the student's

    @property
    def kinds(self) -> tuple[View, ...]:
        """Each kind once, "weak" first: what a method gathers before an epoch are weak views."""
        return tuple(dict.fromkeys(("weak", *self.student, *self.teacher)))


def weak_views(count: int) -> ViewPlan:
    weak: View = "weak"
    return ViewPlan((weak,) * count)


TWO_CROPS = weak_views(2)


@dataclass(frozen=True)
class Preprocessing:
    """How a backbone wants its images; travels with the weights.

    The shorter side is resized to int(size / crop_ratio), then a size × size window is cropped:
    the centre one for evaluation, random ones (and random mirroring) for training.
    """

    size: int = 224
    crop_ratio: float = 0.875
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def resize(self, image: Image.Image) -> Tensor:
        """RGB image → (3, h, w) uint8 with the shorter side at int(size / crop_ratio), bicubic."""
        shorter = int(self.size / self.crop_ratio)
        resized = functional.resize(image, [shorter], interpolation=functional.InterpolationMode.BICUBIC)
        return functional.pil_to_tensor(resized)

    def centre_view(self, resized: Tensor) -> Tensor:
        """(3, h, w) → (3, size, size), the middle."""
        return functional.center_crop(resized, [self.size])

    def centre_of_maps(self, maps: Tensor) -> Tensor:
        """What `centre_view` shows, of maps with a number for each pixel of an image: (n, h, w) → (n, size, size).

        Numbers name something, so none is made up between two others.
        """
        shorter = int(self.size / self.crop_ratio)
        resized = functional.resize(maps, [shorter], interpolation=functional.InterpolationMode.NEAREST_EXACT)
        return functional.center_crop(resized, [self.size])

    def random_views(self, resized: Tensor, kinds: Sequence[View], rng: np.random.Generator) -> Tensor:
        """(3, h, w) → (V, 3, size, size): independent random views of these kinds, each mirrored half of the time."""
        views = []
        for kind in kinds:
            view = self._window(resized, rng) if kind == "weak" else self._shaped_window(resized, rng)
            view = view.flip(-1) if rng.random() < 0.5 else view
            if kind == "strong":
                view = _recolour(view, rng)
            views.append(view if kind == "weak" else _blur(view, rng))
        return torch.stack(views)

    def _window(self, resized: Tensor, rng: np.random.Generator) -> Tensor:
        top = int(rng.integers(resized.shape[1] - self.size + 1))
        left = int(rng.integers(resized.shape[2] - self.size + 1))
        return resized[:, top : top + self.size, left : left + self.size]

    def _shaped_window(self, resized: Tensor, rng: np.random.Generator) -> Tensor:
        """A window of another area and shape, resized; of a long image smaller ones, rather than distorted more."""
        _, height, width = resized.shape
        area, shape = rng.uniform(*STRONG_AREA) * height * width, np.exp(rng.uniform(*np.log(STRONG_SHAPE)))
        area = min(area, height**2 * shape, width**2 / shape)
        tall, wide = max(round(np.sqrt(area / shape)), 1), max(round(np.sqrt(area * shape)), 1)
        top, left = int(rng.integers(height - tall + 1)), int(rng.integers(width - wide + 1))
        bicubic = functional.InterpolationMode.BICUBIC
        return functional.resized_crop(resized, top, left, tall, wide, [self.size, self.size], bicubic)

    def normalise(self, views: Tensor) -> Tensor:
        """uint8 (…, 3, size, size) → float32, zero mean and unit deviation by the backbone's statistics."""
        mean = torch.tensor(self.mean, device=views.device).view(3, 1, 1)
        std = torch.tensor(self.std, device=views.device).view(3, 1, 1)
        return (views.float() / 255 - mean) / std


def _recolour(view: Tensor, rng: np.random.Generator) -> Tensor:
    """Other brightness, contrast, saturation and hue (80 % of the time), then perhaps grey (20 %)."""
    changes = (
        lambda image: functional.adjust_brightness(image, rng.uniform(0.6, 1.4)),
        lambda image: functional.adjust_contrast(image, rng.uniform(0.6, 1.4)),
        lambda image: functional.adjust_saturation(image, rng.uniform(0.6, 1.4)),
        lambda image: functional.adjust_hue(image, rng.uniform(-0.1, 0.1)),
    )
    if rng.random() < 0.8:
        for number in rng.permutation(len(changes)):
            view = changes[number](view)
    return functional.rgb_to_grayscale(view, 3) if rng.random() < 0.2 else view


def _blur(view: Tensor, rng: np.random.Generator) -> Tensor:
    """Half of the time."""
    kernel = max(view.shape[-1] // 20 * 2 + 1, 3)  # a tenth of the image, odd
    return functional.gaussian_blur(view, [kernel, kernel], [rng.uniform(0.1, 2.0)]) if rng.random() < 0.5 else view
