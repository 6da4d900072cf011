"""What people decided about a run, by image and by category: what `carry.py` enters into a later assignment."""

from dataclasses import dataclass

from .categories import Discovery
from .edits import JUNK


@dataclass(frozen=True)
class CarriedDecisions:
    """What people decided, by image and by category, as values that no longer depend on the run."""

    shown: dict[str, int]  # image → its category, as people see it
    status: dict[str, str]  # image → "moved", "accepted" or "junk"
    native: set[str]  # images that no edit has put anywhere: they are where the model found them, seen through merges
    # images of a category that was merged into another, and about which nobody has said anything since
    by_merge: set[str]
    by_split: set[str]  # images that a split put where they are, and about which nobody has said anything since
    junk_with_category: set[str]  # images that became junk together with their whole category
    names: dict[int, str]
    given: set[int]  # categories whose name a person gave
    merged: set[int]  # categories into which others were merged
    parts: set[int]  # categories that a split has made or left
    classes: dict[str, int]  # name of a known class → the category that it is now, or JUNK


def decisions_of(found: Discovery) -> CarriedDecisions:
    """What people decided in a run until now."""
    state = found.corrections()
    status = {member.path: member.status for member in found.members if member.status}
    junk_with_category: set[str] = set()
    as_found = found.names_as_found()
    given = {category.id for category in found.found_categories if category.name != as_found[category.id]}
    known = {category.id for category in found.known_as_found()}
    parts: set[int] = set()
    for edit in state.in_force:
        if edit["edit"] == "rename":
            given.add(edit["category"])
        elif edit["edit"] == "move" and "name" in edit:
            given.add(edit["to"])
        elif edit["edit"] == "split":
            made = {part["id"] for part in edit["parts"]}
            parts |= made
            if edit["category"] in given | known:  # the parts are called after it
                given |= made
        elif edit["edit"] == "junk" and "category" in edit:
            junk_with_category.update(edit["images"])
    by_split = {path for path in state.place if path not in status}  # whatever else puts an image somewhere marks it
    classes: dict[str, int] = {}
    for category in found.known_as_found():
        now = state.now(category.id)
        classes[category.name] = now
        classes[as_found[category.id]] = now
    return CarriedDecisions(
        shown={member.path: member.category_id for member in found.members},
        status=status,
        native={member.path for member in found.members if member.path not in state.place},
        by_merge={
            member.path
            for member in found.found_members
            if member.path not in state.place
            and member.path not in status
            and state.now(member.category_id) not in (member.category_id, JUNK)
        },
        by_split=by_split,
        junk_with_category={path for path in junk_with_category if status.get(path) == "junk"},
        names=dict(state.names),
        given=given & state.names.keys(),
        merged={state.now(category) for category in state.became} - {JUNK},
        parts={state.now(part) for part in parts} - {JUNK},
        classes=classes,
    )
