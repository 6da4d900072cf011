"""Classes of very uneven sizes, as people have them: where names of known classes went astray."""

import numpy as np
import torch
import torch.nn.functional as F

CLASSES, KNOWN, DIM = 24, 12, 32


def uneven(seed: int, noise: float = 1.4) -> tuple[torch.Tensor, np.ndarray, torch.Tensor]:
    """Unit rows (n, DIM) of 24 classes of 4 to 40 images, their truth (n,), and labels (n,; -1: none): 2 to 13 images
    of each of the first twelve classes have one."""
    random = np.random.RandomState(seed)
    centres = random.randn(CLASSES, DIM)
    rows, truth, labels = [], [], []
    for of_class, size in enumerate(random.randint(4, 41, size=CLASSES)):
        spread = noise * random.uniform(0.7, 1.4)
        rows.append(centres[of_class] + spread * random.randn(size, DIM))
        truth.append(np.full(size, of_class))
        given = np.full(size, -1)
        if of_class < KNOWN:
            given[: np.clip(round(size / 3), 2, 13)] = of_class
        labels.append(given)
    embedding = F.normalize(torch.from_numpy(np.concatenate(rows)).float(), dim=1)
    return embedding, np.concatenate(truth), torch.from_numpy(np.concatenate(labels))
