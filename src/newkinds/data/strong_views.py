"""Views that are changed more than by a window: of another shape, in other colours, blurred."""

import numpy as np
from torch import Tensor
from torchvision.transforms import functional

AREA, SHAPE = (0.3, 1.0), (3 / 4, 4 / 3)  # share of the image, width over height


def shaped_window(resized: Tensor, size: int, rng: np.random.Generator) -> Tensor:
    """(3, h, w) → (3, size, size), a window of another area and shape; of a long image a smaller one, rather than
    distorted more."""
    _, height, width = resized.shape
    area, shape = rng.uniform(*AREA) * height * width, np.exp(rng.uniform(*np.log(SHAPE)))
    area = min(area, height**2 * shape, width**2 / shape)
    tall, wide = max(round(np.sqrt(area / shape)), 1), max(round(np.sqrt(area * shape)), 1)
    top, left = int(rng.integers(height - tall + 1)), int(rng.integers(width - wide + 1))
    bicubic = functional.InterpolationMode.BICUBIC
    return functional.resized_crop(resized, top, left, tall, wide, [size, size], bicubic)


def recolour(view: Tensor, rng: np.random.Generator) -> Tensor:
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


def blur(view: Tensor, rng: np.random.Generator) -> Tensor:
    """Half of the time."""
    kernel = max(view.shape[-1] // 20 * 2 + 1, 3)  # a tenth of the image, odd
    return functional.gaussian_blur(view, [kernel, kernel], [rng.uniform(0.1, 2.0)]) if rng.random() < 0.5 else view
