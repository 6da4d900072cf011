"""From an opened image to the views a network sees: resize, crop, flip, as in the published runs; some methods also
want views that are changed more."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

# weak: a window, mirrored or not. strong: a smaller one of another shape, in other colours, grey or blurred.
# centre: the middle, as in evaluation.
View = Literal["weak", "strong", "strong, same colours", "centre"]
Gathered = (
    int | Literal["centre"]
)  # in how many weak views a method sees all images before an epoch, or in the middle one


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


def views_to_gather(views: Gathered) -> ViewPlan:
    return ViewPlan(("centre",)) if views == "centre" else weak_views(views)


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
        height, width = self._resized_shape(image.height, image.width)
        resized = image.resize((width, height), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(resized)).permute(2, 0, 1)

    def centre_view(self, resized: Tensor) -> Tensor:
        """(3, h, w) → (3, size, size), the middle."""
        top, left = (round((side - self.size) / 2) for side in resized.shape[1:])
        return resized[:, top : top + self.size, left : left + self.size]

    def centre_of_maps(self, maps: Tensor) -> Tensor:
        """What `centre_view` shows, of maps with a number for each pixel of an image: (n, h, w) → (n, size, size).

        Numbers name something, so none is made up between two others.
        """
        shape = self._resized_shape(*maps.shape[1:])
        resized = interpolate(maps[None].float(), shape, mode="nearest-exact")[0]  # (n, h', w')
        return self.centre_view(resized.to(maps.dtype))

    def _resized_shape(self, height: int, width: int) -> tuple[int, int]:
        """Height and width when the shorter side is at int(size / crop_ratio)."""
        shorter = int(self.size / self.crop_ratio)
        longer = int(shorter * max(height, width) / min(height, width))
        return (shorter, longer) if height < width else (longer, shorter)

    def random_views(self, resized: Tensor, kinds: Sequence[View], rng: np.random.Generator) -> Tensor:
        """(3, h, w) → (V, 3, size, size): independent random views of these kinds, each mirrored half of the time."""
        return torch.stack([self._random_view(resized, kind, rng) for kind in kinds])

    def _random_view(self, resized: Tensor, kind: View, rng: np.random.Generator) -> Tensor:
        if kind == "centre":
            return self.centre_view(resized)
        if kind == "weak":
            return _mirror_at_random(self._window(resized, rng), rng)
        from . import strong_views  # torchvision is slow to import, and few methods want such views

        view = _mirror_at_random(strong_views.shaped_window(resized, self.size, rng), rng)
        if kind == "strong":
            view = strong_views.recolour(view, rng)
        return strong_views.blur(view, rng)

    def _window(self, resized: Tensor, rng: np.random.Generator) -> Tensor:
        top = int(rng.integers(resized.shape[1] - self.size + 1))
        left = int(rng.integers(resized.shape[2] - self.size + 1))
        return resized[:, top : top + self.size, left : left + self.size]

    def normalise(self, views: Tensor) -> Tensor:
        """uint8 (…, 3, size, size) → float32, zero mean and unit deviation by the backbone's statistics."""
        mean = torch.tensor(self.mean, device=views.device).view(3, 1, 1)
        std = torch.tensor(self.std, device=views.device).view(3, 1, 1)
        return (views.float() / 255 - mean) / std


def _mirror_at_random(view: Tensor, rng: np.random.Generator) -> Tensor:
    """Half of the time."""
    return view.flip(-1) if rng.random() < 0.5 else view
