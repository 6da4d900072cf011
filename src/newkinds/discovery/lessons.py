"""What people said about the images of a run, as something to learn from: `corrections.csv` of a refined run; and what
became of it: their decisions are kept, and it is said what changed."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..data.corrections import NOWHERE, Correction
from ..errors import NewkindsError
from ..runs.changes import CategoryChange, CategoryCounts, ImageChange, LabelCounts, RefinedRecord
from ..text import text_table
from .categories import Discovery
from .edits import JUNK, NO_CATEGORY
from .kinds import Member, is_numbered
from .lens import Lens

SHOWN = 20  # images that changed their category and are named, the surest first


def require_corrections(found: Discovery) -> None:
    """Refuse a run in which nobody has said anything that could be learnt."""
    edits = {edit["edit"] for edit in found.corrections().in_force}
    if edits - {"rename"}:
        return
    why = "only names were given, which the run shows already" if edits else "nothing was corrected"
    raise NewkindsError(
        f"{found.run}: {why}, so there is nothing to learn from. Move, accept, merge, split or junk some images "
        f"first (newkinds accept {found.run} …, or newkinds studio {found.run}), then refine."
    )


def corrections_of(
    found: Discovery, known: Sequence[str], pieces: Sequence[int], embedding: Callable[[], NDArray[np.float32]]
) -> tuple[list[Correction], dict[int, int]]:
    """Every image as people see it now, and the ids of the categories there: id in the run → id in the refined one.

    What was accepted or moved is a label, and so is what the data said, seen through merges and splits: of a class that
    was split, an image that the model did not put there gets the part that it is nearest to. A category exists if it
    has an image or a label; those with labels come first. `known`: the classes of the data in the order of the model,
    `pieces` (n,): the cluster of each image, `embedding`: (n, P), asked only if something was split.
    """
    label = _labels(found, known, embedding)
    labelled = sorted({number for number in label if number != JUNK})
    seen = {member.category_id for member in found.members if member.category_id not in NO_CATEGORY}
    new_id = {old: new for new, old in enumerate([*labelled, *sorted(seen - set(labelled))])}
    names: dict[int, str | None] = {category.id: category.name for category in found.categories}
    return [
        Correction(m.path, names.get(of), m.status, m.category, new_id.get(m.category_id, NOWHERE), piece)
        for m, of, piece in zip(found.members, label, pieces, strict=True)
    ], new_id


def _labels(found: Discovery, known: Sequence[str], embedding: Callable[[], NDArray[np.float32]]) -> list[int]:
    """The category that each image is taken to be; JUNK: nobody says."""
    number = found.class_ids(known)
    given = np.array([JUNK if m.given_label is None else number[m.given_label] for m in found.members], dtype=np.int64)
    lens = Lens(found, embedding)
    through = lens.shown(given, embedding() if lens.compares else None)

    def label(member: Member, as_found: Member, given: int, through: int) -> int:
        if member.status:  # a person has said it of this image (of junk: nothing)
            return member.category_id
        if given == JUNK:
            return JUNK
        # where the model and the label agree, people have seen it there and have left it where it is now
        return member.category_id if as_found.category_id == given else through

    rows = zip(found.members, found.found_members, given.tolist(), through.tolist(), strict=True)
    return [label(*row) for row in rows]


def keep_decisions(found: Discovery, said: Iterable[Correction]) -> None:
    """Whatever the model finds, an image that a person has put somewhere is there: as edits of the new run."""
    found.set_other_edits_aside()  # of an attempt that was interrupted
    is_at = {member.path: member for member in found.members}
    wrong: dict[int, list[str]] = {}
    right: list[str] = []
    for c in said:
        if c.is_decided and not is_at[c.path].status:
            if is_at[c.path].category_id == c.category_id:
                right.append(c.path)
            else:
                wrong.setdefault(c.category_id, []).append(c.path)
    enter_decisions(found, right, wrong)


def enter_decisions(
    found: Discovery, accepted: Sequence[str], moved: Mapping[int, Sequence[str]], junk: Sequence[str] = ()
) -> None:
    """Decisions about images as edits: accepted where they are, moved to a category, or junk."""
    if accepted:
        found.accept(accepted)
    for category, paths in sorted(moved.items()):
        found.move(paths, category)
    if junk:
        found.junk(junk)


# -- what changed ----------------------------------------------------------------------------------------------------


def changes(
    before: Discovery, after: Discovery, said: Sequence[Correction], new_id: Mapping[int, int]
) -> RefinedRecord:
    """What refining changed, as a record: labels, categories, sizes, images that are elsewhere now."""
    state = before.corrections()
    was = {c.path: c for c in said}
    statuses = Counter(c.status for c in said)
    moved = [(was[m.path], m) for m in after.members if m.category_id != was[m.path].category_id]
    moved.sort(key=lambda pair: -pair[1].confidence)
    sizes = Counter(c.category_id for c in said)
    kept = Counter(m.category_id for m in after.members if m.category_id == was[m.path].category_id)
    labels = Counter(c.label for c in said if c.label is not None)
    old_id = {new: old for old, new in new_id.items()}
    every_id = sorted({*(c.id for c in before.found_categories), *state.names, *state.became})
    return RefinedRecord(
        source=str(before.run.resolve()),
        edits=len(state.in_force),
        labels=LabelCounts(sum(m.given_label is not None for m in before.members), sum(labels.values())),
        decided={status: statuses[status] for status in ("accepted", "moved", "junk")},
        categories=CategoryCounts(
            before=len(before.found_categories),
            after=len(after.found_categories),
            known_before=sum(not c.is_new for c in before.found_categories),
            known_after=len(after.known),
        ),
        ids={str(old): new_id.get(state.now(old)) for old in every_id},
        sizes=[
            CategoryChange(c.id, old_id.get(c.id), c.name, c.is_new, labels[c.name], sizes[c.id], c.size, kept[c.id])
            for c in after.categories
        ],
        changed=len(moved),
        surest_changes=[ImageChange(m.path, c.category, m.category, m.confidence) for c, m in moved[:SHOWN]],
    )


def changes_text(record: RefinedRecord, run: Path) -> str:
    """What `refined.json` says, for the terminal."""
    labels, decided, categories = record.labels, record.decided, record.categories
    rows = [
        [c.name, "new" if c.is_new else "known", *map(str, (c.labels, c.before, c.after, c.kept))] for c in record.sizes
    ]
    by_hand = f"{decided['accepted']} accepted, {decided['moved']} moved, {decided['junk']} junk"
    lines = [
        text_table(["category", "kind", "labels", "before", "after", "in both"], rows),
        "",
        f"labels      {labels.before} → {labels.after} ({by_hand})",
        f"categories  {categories.before} → {categories.after}, known ones {categories.known_before} → "
        f"{categories.known_after}",
        f"images      {record.changed} of {sum(c.after for c in record.sizes)} changed their category",
        *(f"            {c.path}: {c.was} → {c.now} ({c.confidence:.2f})" for c in record.surest_changes[:5]),
        *[f"learnt      {sentence}" for sentence in record.learnt],
    ]
    if unnamed := [c.name for c in record.sizes if not c.is_new and is_numbered(c.name)]:
        lines.append(
            f"to name     {', '.join(unnamed)}: labelled by you, and so known from here on, but without a name of "
            f"their own (newkinds name {shlex.quote(str(run))} {unnamed[0]}=…)"
        )
    if drifted := [c.name for c in record.sizes if 2 * c.kept < c.before]:
        lines.append(f"look at     {', '.join(drifted)}: fewer than half of the images are still there")
    return "\n".join(lines)
