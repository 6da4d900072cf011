"""From an opened image to the views a network sees: resize, crop, flip; nothing else, as in the published runs."""

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import functional

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


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

    def random_views(self, resized: Tensor, count: int, rng: np.random.Generator) -> Tensor:
        """(3, h, w) → (count, 3, size, size): independent random windows, each mirrored half of the time."""
        views = []
        for _ in range(count):
            top = int(rng.integers(resized.shape[1] - self.size + 1))
            left = int(rng.integers(resized.shape[2] - self.size + 1))
            view = resized[:, top : top + self.size, left : left + self.size]
            views.append(view.flip(-1) if rng.random() < 0.5 else view)
        return torch.stack(views)

    def normalise(self, views: Tensor) -> Tensor:
        """uint8 (…, 3, size, size) → float32, zero mean and unit deviation by the backbone's statistics."""
        mean = torch.tensor(self.mean, device=views.device).view(3, 1, 1)
        std = torch.tensor(self.std, device=views.device).view(3, 1, 1)
        return (views.float() / 255 - mean) / std
