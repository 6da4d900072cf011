"""Into how many parts a category is split: by the silhouette, which is held to the library's."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import silhouette_score

from newkinds.discovery.split import _silhouette


@pytest.mark.parametrize("sizes", [(8, 8), (2, 9), (1, 2, 7), (5, 1, 1)])
def test_the_silhouette_is_that_of_scikit_learn(sizes: tuple[int, ...]) -> None:
    """Of parts of two images and of one, too."""
    part = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.random.default_rng(sum(sizes)).normal(size=(len(part), 3)) + part[:, None]
    distances = squareform(pdist(rows))
    assert _silhouette(distances, part) == pytest.approx(silhouette_score(distances, part, metric="precomputed"))
