"""What the hidden images of a split say about a candidate: by that, its answer for all images is calibrated.

A model that was trained on all labels can be asked about none of them any more; those of the trials can."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..assigners.calibration import HeldOutImages
from ..assigners.resplit import Resplit
from ..assigners.whitening import Whitening
from ..errors import NewkindsError
from ..files import csv_text
from ..runs.directory import EVIDENCE
from ..runs.run import Run
from .ways import Way

MOST_IMAGES = 1000  # of a split: a curve of three numbers needs no more
DIGITS = 4  # that are kept, also in memory: a plan that is continued must give the same bits
COLUMNS = ("candidate", "split", "silhouette", "unlike", "correct")


class TrialEvidence:
    """Held-out images of each candidate, one part per split; kept beside the plan."""

    def __init__(self) -> None:
        self._of: dict[str, list[HeldOutImages]] = {}
        self._written = ""

    @classmethod
    def read(cls, run: Run) -> "TrialEvidence":
        """What an earlier command has kept; a plan of an earlier version has nothing."""
        kept = cls()
        if not run.path(EVIDENCE).is_file():
            return kept
        for row in run.read_table(EVIDENCE, COLUMNS):
            try:
                silhouette, unlike, correct = (np.array(row[name].split(), dtype=float) for name in COLUMNS[2:])
            except ValueError as error:
                raise NewkindsError(
                    f"{run.path(EVIDENCE)} is damaged ({error}): delete it; confidence is then calibrated without it."
                ) from None
            part = HeldOutImages(silhouette, correct > 0, unlike)
            kept._of.setdefault(row["candidate"], []).append(part)
        kept._written = kept._text()
        return kept

    def of(self, candidate: str) -> list[HeldOutImages] | None:
        """One part per split, of a candidate by its name; None if nothing is known."""
        return self._of.get(candidate) or None

    def watch(self, source: str, rows: Tensor, number: int) -> Callable[[Way, Resplit, Tensor], None]:
        """Notes what ways make of the rows (m, P) of a split."""
        return partial(self._note, source, rows, number)

    def _note(self, source: str, rows: Tensor, number: int, way: Way, split: Resplit, category: Tensor) -> None:
        whitening = None
        if way.whiten != "none":
            whitening = Whitening(float(way.whiten))
            whitening.fit(rows, torch.from_numpy(split.labels))
        with torch.no_grad():
            found = HeldOutImages.of(rows, category, split, whitening)
        parts = self._of.setdefault(f"{source}, {way}", [])
        if number == 0:
            parts.clear()  # of an attempt that was interrupted
        kept = np.linspace(0, len(found.correct) - 1, min(MOST_IMAGES, len(found.correct))).astype(int)
        silhouette, unlike = (values[kept].round(DIGITS) for values in (found.silhouette, found.unlike))
        parts.append(HeldOutImages(silhouette, found.correct[kept], unlike))

    def write(self, run: Run) -> None:
        """Into the run of the plan, if that has anything else."""
        text = self._text()
        if not self._of and run.path(EVIDENCE).is_file():
            run.remove(EVIDENCE)  # of a plan for other images
        elif text != self._written:
            run.write(EVIDENCE, text)
        self._written = text

    def _text(self) -> str:
        """As a table: one row per candidate and split, with numbers between spaces."""
        if not self._of:
            return ""
        rows = [
            (name, number, _numbers(part.silhouette), _numbers(part.unlike), _numbers(part.correct.astype(int)))
            for name, parts in self._of.items()
            for number, part in enumerate(parts)
        ]
        return csv_text(COLUMNS, rows)


def _numbers(values: NDArray[np.float64] | NDArray[np.int64]) -> str:
    return " ".join(map(repr, values.tolist()))  # every digit
