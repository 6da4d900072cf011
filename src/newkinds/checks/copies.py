"""Images that are there more than once: the same pixels, nearly the same; and one thing under two labels."""

import numpy as np

from .base import CHECKS, Check, CheckInput, Verdict
from .same import Copies, same_picture


@CHECKS.register("duplicate")
class Duplicate(Check):
    """The same pixels in several files."""

    order = 5

    def look(self, evidence: CheckInput) -> Verdict:
        how, same = (", pixel by pixel", "pixels") if evidence.has_pixels else ("", "numbers")
        said = f"the same as another{how}: delete copies, which count double."
        return _found(evidence, evidence.exact, f"the same {same} as", said)


@CHECKS.register("near-duplicate")
class NearDuplicate(Check):
    """Resized, re-encoded or slightly cropped copies, by a perceptual hash and the embedding."""

    order = 6
    needs_pixels = True

    def look(self, evidence: CheckInput) -> Verdict:
        said = "nearly the same as another: keep one of each, or they count double."
        return _found(evidence, evidence.near, "nearly the same as", said)


def _found(evidence: CheckInput, copies: Copies, relation: str, said: str) -> Verdict:
    paths, group = evidence.table.paths, evidence.table.group_numbers()
    counted = copies.flag & (group != group[copies.of])  # a group counts once anyway
    why = {row: f"{relation} {paths[copies.of[row]]}" for row in np.flatnonzero(counted).tolist()}
    return Verdict.images(copies.similarity, why, "is", said)


@CHECKS.register("two labels")
class TwoLabels(Check):
    """One picture, exactly or nearly, under different labels."""

    order = 2

    def look(self, evidence: CheckInput) -> Verdict:
        table, picture = evidence.table, same_picture(evidence.exact, evidence.near)
        rows_of: dict[int, dict[str | None, list[int]]] = {}  # picture → label → its images
        for row in np.flatnonzero(evidence.targets >= 0).tolist():
            rows_of.setdefault(int(picture[row]), {}).setdefault(table.labels[row], []).append(row)
        why: dict[int, str] = {}
        for of_label in [labels for labels in rows_of.values() if len(labels) > 1]:
            for label, rows in of_label.items():
                other, its_rows = next(pair for pair in of_label.items() if pair[0] != label)
                said = f"labelled '{label}', but the same is labelled '{other}' in {table.paths[its_rows[0]]}"
                why |= dict.fromkeys(rows, said)
        score = np.zeros(len(table))
        score[list(why)] = 1
        return Verdict.images(score, why, "is", "under another label too: decide for one label each.")


@CHECKS.register("group of two kinds")
class GroupOfTwoKinds(Check):
    """Different labels in one group (a burst, a video, a specimen), whose images should be of one kind."""

    order = 2

    def look(self, evidence: CheckInput) -> Verdict:
        table = evidence.table
        rows_of: dict[str, dict[str, list[int]]] = {}  # group → label → its images
        for row, (group, label) in enumerate(zip(table.groups or [], table.labels, strict=False)):
            if group is not None and label is not None:
                rows_of.setdefault(group, {}).setdefault(label, []).append(row)
        why: dict[int, str] = {}
        for group, of_label in rows_of.items():
            for label, rows in of_label.items() if len(of_label) > 1 else ():
                other = next(name for name in of_label if name != label)
                why |= dict.fromkeys(rows, f"labelled '{label}', but '{other}' is in its group '{group}' too")
        score = np.zeros(len(table))
        score[list(why)] = 1
        said = "in a group with another label: correct it, or divide the group. Only equal labels are taken together."
        return Verdict.images(score, why, "is", said)
