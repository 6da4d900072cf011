"""Images that show nothing: unreadable, tiny, blank."""

from dataclasses import replace

import numpy as np

from ..data.images import SMALLEST_SIDE
from .base import CHECKS, Check, CheckInput, Verdict

TINY = 32  # px; below that, kinds can hardly be told apart
BLANK = 3.0  # standard deviation of colours, of 255 levels; the flattest photograph of CUB has 11


@CHECKS.register("unreadable")
class Unreadable(Check):
    """Files that cannot be opened as images; they are skipped."""

    order = 1

    def look(self, evidence: CheckInput) -> Verdict:
        skipped = evidence.table.skipped
        why = {row: image.reason for row, image in enumerate(skipped)}
        found = Verdict.images(np.ones(len(skipped)), why, "is", "skipped: repair or delete what cannot be read.")
        return replace(found, paths=[image.path for image in skipped])


@CHECKS.register("blank")
class Blank(Check):
    """Images of nearly one colour: a lens cap, an empty scan, a failed download."""

    order = 4
    needs_pixels = True

    def look(self, evidence: CheckInput) -> Verdict:
        spread = np.array([facts.spread for facts in evidence.facts])
        blank = np.flatnonzero(spread < BLANK).tolist()
        why = {row: f"nearly one colour (contrast {spread[row]:.1f} of 255)" for row in blank}
        return Verdict.images(
            1 - np.minimum(spread / 128, 1), why, "is", "nearly of one colour: delete what shows nothing."
        )


@CHECKS.register("tiny")
class Tiny(Check):
    """Images with a side of less than 32 pixels."""

    order = 7
    needs_pixels = True

    def look(self, evidence: CheckInput) -> Verdict:
        sizes = np.array([(facts.width, facts.height) for facts in evidence.facts])  # (n, 2)
        shorter = sizes.min(1)
        why = {row: "only {}×{} pixels".format(*sizes[row]) for row in np.flatnonzero(shorter < TINY).tolist()}
        said = f"a side below {TINY} pixels: use the originals instead of thumbnails."
        return Verdict.images(SMALLEST_SIDE / shorter, why, "has", said)
