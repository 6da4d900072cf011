"""Pictures for the tests of data checks."""

from io import BytesIO

import numpy as np
from PIL import Image

SIDE = 96


def scene(seed: int) -> Image.Image:
    """A photograph, as far as pixels go: soft light, a few shapes, some noise."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(30, 220, (6, 6, 3)).astype(np.uint8)
    soft = np.asarray(Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC), dtype=float)
    return Image.fromarray(np.clip(soft + rng.normal(0, 4, soft.shape), 0, 255).astype(np.uint8))


def again(image: Image.Image, how: str) -> Image.Image:
    """The same picture in another file."""
    if how == "re-encoded":
        file = BytesIO()
        image.save(file, "JPEG", quality=40)
        return Image.open(file).convert("RGB")
    if how == "cropped":
        return image.crop((2, 2, image.width - 2, image.height - 2))
    return image.resize((image.width // 2, image.height // 2), Image.Resampling.BICUBIC)
