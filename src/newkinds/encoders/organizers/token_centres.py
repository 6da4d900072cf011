"""Where primitives and queries may begin: at kinds of patches that occur in the images."""

import numpy as np
import torch
from torch import Tensor

TOKENS_AT_START = 20_000  # on which k-means runs


def centres_of_tokens(x: Tensor, count: int) -> Tensor:
    """Centres of k-means over a sample of the tokens (B, N, D) → (at most `count`, D); fewer if fewer differ.

    The sample is drawn by torch's generator, which whoever starts a training has seeded.
    """
    from sklearn.cluster import KMeans  # slow to import

    every = x.flatten(0, 1)  # (B·N, D)
    some = every[torch.randperm(len(every))[:TOKENS_AT_START].to(every.device)].float().cpu().numpy()
    clusters = min(count, len(np.unique(some, axis=0)))
    found = KMeans(clusters, n_init=1, max_iter=30, random_state=0).fit(some).cluster_centers_  # (M, D)
    return torch.from_numpy(found).to(x)
