"""What deserves a look: the images that came last, what to ask next, where else a doubtful image may belong."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...runs.changes import UpdateHistory, UpdateRecord
from ...runs.directory import UPDATES, RunDirectory
from ..categories import Discovery
from ..edits import POOL
from ..kinds import Member
from ..relations import Rivals
from .wanted import Json

DOUBTFUL = 0.5  # confidence below which an image may as well belong elsewhere
MOST_NEW = 5000  # images that came last and are shown
ASKED = 20  # questions at once


def second_best(member: Member, row: int, rivals: Rivals) -> int | None:
    """The category where an image may belong as well, if that is doubtful and nobody has decided."""
    is_doubtful = member.category_id == POOL or member.is_unlike or rivals.own[row] < rivals.other[row]
    if member.given_label is None:
        is_doubtful = is_doubtful or member.confidence < DOUBTFUL
    other = int(rivals.other_id[row])
    return other if is_doubtful and not member.status and other >= 0 else None


def last_update(run: RunDirectory) -> UpdateRecord | None:
    """The update that is in force and came last."""
    return UpdateHistory.of(run).last if run.path(UPDATES).is_file() else None


def describe_update(update: UpdateRecord) -> Json:
    """An update as a page tells of it."""
    return {
        "number": update.number, "at": update.at, "came": update.came, "opened": [made.id for made in update.opened],
        "gone": len(update.gone), "changed": len(update.changed), "renamed": len(update.renamed),
        "copies": len(update.copies), "skipped": update.skipped,
    }  # fmt: skip


def groups_of_new(members: Sequence[Member], update: UpdateRecord) -> list[tuple[int, list[int]]]:
    """The images that came with an update, by category, least certain first: categories that it opened come first,
    then what is not placed yet, then those that got most images."""
    groups: dict[int, list[int]] = {}
    came = [row for row, member in enumerate(members) if member.since == update.number]
    for row in sorted(came, key=lambda row: (bool(members[row].status), members[row].confidence)):
        groups.setdefault(members[row].category_id, []).append(row)
    opened = {made.id for made in update.opened}
    return sorted(groups.items(), key=lambda group: (group[0] not in opened, group[0] != POOL, -len(group[1])))


def questions_of(
    run: Path, rows: NDArray[np.float32], number: int, images: Callable[[Sequence[str]], list[Json]]
) -> list[Json]:
    """What to ask next; `images`: those with these paths, as a page shows them."""
    from ..questions import next_questions

    if not len(rows):
        return []
    asked = []
    for question in next_questions(Discovery.read(run), rows, number):
        one: Json = {
            "kind": question.kind, "asks": question.asks, "reason": question.says_why, "of": question.category_id,
            "images": images(question.paths),
        }  # fmt: skip
        if question.other_id is not None:
            one["other"] = question.other_id
        asked.append(one)
    return asked
