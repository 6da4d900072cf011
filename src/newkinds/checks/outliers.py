"""Images that do not belong to the others."""

import numpy as np

from .base import CHECKS, NEIGHBOURS, Check, CheckInput, Verdict
from .labels import robust_deviation

UNUSUAL = 3.5  # robust standard deviations; hardly a photograph of CUB is beyond
FEWEST = 3 * NEIGHBOURS  # images; among fewer nobody can say what is usual


@CHECKS.register("outlier")
class Outlier(Check):
    """Images far from all others: something else, or of a kind with very few images."""

    order = 8
    needs_embedding = True

    def look(self, evidence: CheckInput) -> Verdict:
        distance = np.arccos(evidence.nearest.clip(-1, 1)).mean(1)  # angles: less skewed than cosines
        # on the scale of `unlike` in a run: multiples of a limit that few images exceed
        # copies of an image lie in one point: many of them would make every other image unusual
        usual = distance[~evidence.exact.flag]
        unlike = distance / (np.median(usual) + UNUSUAL * robust_deviation(usual))
        far = np.flatnonzero(unlike > 1).tolist() if len(unlike) >= FEWEST else []
        why = {row: f"{unlike[row]:.2f} × the limit of how far its nearest images may be" for row in far}
        said = "unlike all others: remove what does not belong; of a rare kind add more images."
        return Verdict.images(unlike, why, "is", said)
