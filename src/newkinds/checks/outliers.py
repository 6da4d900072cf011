"""Images that do not belong to the others."""

import numpy as np

from .base import CHECKS, NEIGHBOURS, Check, CheckInput, Verdict
from .labels import robust_deviations

UNUSUAL = 3.5  # robust standard deviations; hardly a photograph of CUB is beyond
FEWEST = 3 * NEIGHBOURS  # images; among fewer nobody can say what is usual


@CHECKS.register("outlier")
class Outlier(Check):
    """Images far from all others: something else, or of a kind with very few images."""

    order = 8
    needs_embedding = True

    def look(self, evidence: CheckInput) -> Verdict:
        distance = np.arccos(evidence.nearest.clip(-1, 1)).mean(1)  # angles: less skewed than cosines
        away = robust_deviations(distance)
        far = np.flatnonzero(away > UNUSUAL).tolist() if len(away) >= FEWEST else []
        why = {row: f"its nearest images are {away[row]:.1f} deviations further away than usual" for row in far}
        said = "far from all others: remove what does not belong; of a rare kind add more images."
        return Verdict.images(distance, why, "is", said)
