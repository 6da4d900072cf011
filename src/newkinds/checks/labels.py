"""Labels that the images themselves contradict."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .base import CHECKS, Check, CheckInput, Verdict

UNUSUAL = 3.0  # robust standard deviations by which another class fits better than another class usually does
SMALLEST_DEVIATION = 1e-3  # of cosines and of angles


@CHECKS.register("wrong label")
class WrongLabel(Check):
    """Labelled images that look much more like another class than like the rest of their own."""

    order = 3
    needs_embedding = True

    def look(self, evidence: CheckInput) -> Verdict:
        assert evidence.embedding is not None
        table, score = evidence.table, np.zeros(len(evidence.table))
        labelled = np.flatnonzero(evidence.targets >= 0)
        target = evidence.targets[labelled]
        size = np.bincount(target, minlength=len(table.known))  # (C,) labelled images
        judged = size[target] > 1  # an only image has nothing to agree with
        if not judged.any() or (size > 0).sum() < 2:
            return Verdict.about_all(table, "")
        centred = F.normalize(evidence.embedding - evidence.embedding.mean(0), dim=1)
        fit = class_agreement(centred[labelled], torch.from_numpy(target), len(size))[judged]  # (j, C)
        labelled, target, place = labelled[judged], target[judged], np.arange(judged.sum())
        own = fit[place, target]
        fit[place, target] = -np.inf
        better, other = fit.max(1) - own, fit.argmax(1)  # (j,) by how much another class fits better: mostly below 0
        score[labelled] = better
        wrong = (better > 0) & (robust_deviations(better) > UNUSUAL)
        why = {
            row: f"labelled '{table.labels[row]}', but looks like '{table.known[seems]}'"
            for row, seems in zip(labelled[wrong].tolist(), other[wrong].tolist(), strict=True)
        }
        return Verdict.images(score, why, "has", "perhaps a wrong label: look, the worst first, and correct it.")


def class_agreement(rows: Tensor, target: Tensor, classes: int) -> np.ndarray:
    """(n, C) cosine of each of the unit rows (n, D) with the mean of each class; with its own, as if it were not in it.

    -inf for classes without images; 0 for its own if it is the only one there.
    """
    sums = torch.zeros(classes, rows.shape[1], dtype=rows.dtype).index_add_(0, target, rows)  # (C, D)
    fit = rows @ F.normalize(sums, dim=1).T  # (n, C)
    fit[:, torch.bincount(target, minlength=classes) == 0] = -torch.inf
    others = sums[target] - rows  # (n, D)
    fit[torch.arange(len(rows)), target] = (rows * F.normalize(others, dim=1)).sum(1)
    return fit.numpy()


def robust_deviations(values: np.ndarray) -> np.ndarray:
    """How far each value lies above the median, in standard deviations that outliers do not change."""
    return (values - np.median(values)) / robust_deviation(values)


def robust_deviation(values: np.ndarray) -> float:
    """A standard deviation that outliers do not change."""
    away = np.abs(values - np.median(values))
    # 1.4826: for normally distributed values it is the standard deviation; the floor keeps rounding errors small
    return max(1.4826 * float(np.median(away)), SMALLEST_DEVIATION)
