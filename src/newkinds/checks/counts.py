"""How many images and labels there are, and what can be promised with so many."""

import numpy as np

from ..data.table import Table
from ..text import plural
from .base import CHECKS, Check, CheckInput, Verdict, some_of

FEWEST_CLASSES = 4  # with two labels: half of them stand in for new ones when settings are chosen
FEWEST_LABELS = 5  # per class
FEWEST_IMAGES = 10  # per category
UNEVEN = 10  # times as many labelled images in the largest class as in the smallest


def labels_per_class(table: Table) -> dict[str, int]:
    """Known class → its labelled images, fewest first."""
    counts = np.bincount(table.targets[table.targets >= 0], minlength=len(table.known))
    return dict(sorted(zip(table.known, counts.tolist(), strict=True), key=lambda pair: pair[1]))


def _spread(counts: list[int]) -> str:
    """Of ascending numbers of images: `1 labelled image`, `4 labelled images` or `4 to 9 labelled images`."""
    if counts[0] == counts[-1]:
        return plural(counts[0], "labelled image")
    return f"{counts[0]:,} to {counts[-1]:,} labelled images"


@CHECKS.register("coverage")
class Coverage(Check):
    """How many images, labels and known classes there are."""

    order = 0

    def look(self, evidence: CheckInput) -> Verdict:
        table, counts = evidence.table, list(labels_per_class(evidence.table).values())
        labelled = sum(counts)
        said = f"{plural(len(table), 'image')}: {labelled:,} labelled and {len(table) - labelled:,} unlabelled"
        if labelled:
            said += f"; {plural(len(counts), 'known class')} with {_spread(counts)}{' each' if len(counts) > 1 else ''}"
        if not labelled:
            said += (
                ". Categories are found, but without labels nothing can be judged, and none has a name. To name known "
                "classes, put some images of each into a folder named after the class"
            )
        elif labelled == len(table):
            said += ". Nothing is left to discover: put images without a label into a folder 'unlabeled'"
        return Verdict.about_all(table, f"{said}.")


@CHECKS.register("few classes")
class FewClasses(Check):
    """Fewer than 4 classes with two labelled images: nothing to choose settings by."""

    order = 20

    def look(self, evidence: CheckInput) -> Verdict:
        counts = labels_per_class(evidence.table).values()
        classes = sum(count > 1 for count in counts)
        have = f"{plural(classes, 'class')} {'has' if classes == 1 else 'have'} two labelled images or more"
        said = (
            f"{have}: with fewer than {FEWEST_CLASSES}, settings cannot be judged, as "
            "half of the classes stand in for new ones. Defaults are used, and the number of categories is a guess. "
            "Label another kind, if only a few images of it."
        )
        return Verdict.about_all(evidence.table, said if any(counts) and classes < FEWEST_CLASSES else "")


@CHECKS.register("few labels")
class FewLabels(Check):
    """Known classes with fewer than 5 labelled images."""

    order = 21

    def look(self, evidence: CheckInput) -> Verdict:
        counts = labels_per_class(evidence.table)
        few = [f"{name} ({count})" for name, count in counts.items() if count < FEWEST_LABELS]
        if not any(counts.values()) or not few:
            return Verdict.about_all(evidence.table, "")
        said = (
            f"{len(few):,} of {plural(len(counts), 'known class')} {'has' if len(few) == 1 else 'have'} fewer than "
            f"{FEWEST_LABELS} labelled images ({some_of(few)}): a wrong label among these can hardly be noticed, and "
            f"settings are judged by few images. Label at least {FEWEST_LABELS} of each."
        )
        return Verdict.about_all(evidence.table, said)


@CHECKS.register("few images")
class FewImages(Check):
    """Fewer than 10 unlabelled images per known class: new kinds may be too small to be seen."""

    order = 22

    def look(self, evidence: CheckInput) -> Verdict:
        unlabelled, classes = int((evidence.targets < 0).sum()), len(evidence.table.known)
        said = (
            f"{plural(unlabelled, 'unlabelled image')} for {plural(classes, 'known class')}: kinds with fewer than "
            f"about {FEWEST_IMAGES} images are found less reliably. Add images, or doubt small categories."
        )
        return Verdict.about_all(evidence.table, said if 0 < unlabelled < FEWEST_IMAGES * classes else "")


@CHECKS.register("imbalance")
class Imbalance(Check):
    """The largest known class has at least 10 times as many labelled images as the smallest."""

    order = 23

    def look(self, evidence: CheckInput) -> Verdict:
        counts = [(count, name) for name, count in labels_per_class(evidence.table).items() if count]
        if not counts or counts[-1][0] < UNEVEN * counts[0][0]:
            return Verdict.about_all(evidence.table, "")
        (few, smallest), (many, largest) = counts[0], counts[-1]
        said = (
            f"'{largest}' has {plural(many, 'labelled image')}, '{smallest}' has {few:,}: if the rest is as uneven, "
            "large kinds are split and small ones joined. Add images of small kinds, and doubt the sizes of categories."
        )
        return Verdict.about_all(evidence.table, said)
