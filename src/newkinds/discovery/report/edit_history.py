"""What people corrected and what came later, as the page tells it."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ...runs.changes import UpdateHistory
from ...runs.directory import RunDirectory
from ..categories import Discovery
from ..edits import JUNK, Corrections
from ..history import came_text, note_text
from ..kinds import Category, Member
from . import ByHand, LogLine, UpdateLine
from .page_images import PageImages

SAID = {"moved": "moved", "accepted": "accepted", "junk": "junk"}  # of images


def by_hand(discovery: Discovery, pictures: PageImages, limit: int) -> ByHand | None:
    """The section about corrections; None if nothing was ever corrected. Of junk, `limit` are shown."""
    state = discovery.corrections()
    log = [
        LogLine(int(edit["n"]), str(edit.get("at", "")).replace("T", " ")[:16], str(edit.get("says", "")), in_force)
        for edit, in_force in reversed(discovery.log())
    ]
    if not log:
        return None
    statuses = Counter(member.status for member in discovery.members if member.status)
    reasons = _reasons(state)
    junk = [
        (pictures.image_at(place), reasons.get(pictures.members[place].path, "")) for place in pictures.junk[:limit]
    ]
    counts = [(f"images {said}", statuses[status]) for status, said in SAID.items()]
    return ByHand(len(state.in_force), counts, log, junk, len(pictures.junk))


def update_lines(run: RunDirectory) -> list[UpdateLine]:
    """What came later, the latest first."""
    return [
        UpdateLine(
            update.number, update.at.replace("T", " ")[:16], came_text(update), sum(update.placed.values()),
            [opened.name for opened in update.opened], update.pool, note_text(update), update.undone,
        )
        for update in reversed(UpdateHistory.of(run).updates)
    ]  # fmt: skip


def _reasons(state: Corrections) -> dict[str, str]:
    """Image → what made it junk, in words."""
    reasons: dict[str, str] = {}
    for edit in state.in_force:
        if edit["edit"] == "junk":
            reasons.update(dict.fromkeys(edit["images"], f"edit {edit['n']}: {edit.get('says', '')}"))
    return reasons


def histories(discovery: Discovery) -> dict[int, str]:
    """Category → what people made of it, if they did: another name, others merged into it, made by hand."""
    state = discovery.corrections()
    found = {category.id: category.name for category in discovery.found_categories}
    merged: dict[int, list[str]] = {}
    for category in state.became:
        if (now := state.now(category)) != JUNK:
            merged.setdefault(now, []).append(f"“{found[category]}”" if category in found else f"#{category}")
    told = {}
    for number, name in state.names.items():
        facts = []
        if number not in found:
            facts.append("made by hand")
        elif found[number] != name:
            facts.append(f"found as “{found[number]}”")
        if number in merged:
            facts.append(f"with {', '.join(merged[number])} merged into it")
        if facts:
            told[number] = "; ".join(facts)
    return told


def present_labels(discovery: Discovery, known: Sequence[str]) -> list[int | None]:
    """The category that each member's label stands for now; None if it has no label, or no category stands for it.

    Of a class that was renamed or merged, that is the category it became; of one that was split, whichever part the
    image is in.
    """
    state = discovery.corrections()
    number_of = discovery.class_ids(known)
    whole = {
        part["id"]: edit["category"]
        for edit in state.in_force
        if edit["edit"] == "split"
        for part in edit["parts"]
        if part["id"] != edit["category"]
    }
    labels: list[int | None] = []
    for member in discovery.members:
        own = None if member.given_label is None else number_of.get(member.given_label)
        labels.append(None if own is None else _part_here(member.category_id, state.now(own), whole, state))
    return labels


def _part_here(here: int, label: int, whole: Mapping[int, int], state: Corrections) -> int:
    """`here`, if that category is `label` or a part of it; else `label`."""
    of = here
    while of != label and of in whole:
        of = state.now(whole[of])
    return here if of == label else label


def positions(categories: Sequence[Category], members: Sequence[Member]) -> list[int]:
    """The place of each member's category among these, or JUNK or POOL: ids have gaps once categories were merged."""
    place_of = {category.id: place for place, category in enumerate(categories)}
    return [place_of.get(member.category_id, member.category_id) for member in members]
