"""Categories and images as they are after people's edits. Without torch and numpy."""

from collections.abc import Sequence
from typing import NamedTuple

from .edits import JUNK, NO_CATEGORY, POOL, Corrections
from .kinds import Category, Member, category_of


class Seen(NamedTuple):
    """Categories and members after so many edits."""

    edits: int
    categories: list[Category]
    members: list[Member]
    numbers: list[int]  # the category of each member
    status: dict[str, str]
    names: dict[int, str]


def look_through(found: Sequence[Category], members: list[Member], state: Corrections, before: Seen) -> Seen:
    """Categories and members as they are after the edits in force; what is as `before` is not made again."""
    known = {category.id for category in found if not category.is_new}  # those that people made are no known classes
    is_new = {number: number not in known for number in state.names}
    now = {number: state.now(number) for number in {POOL, *(c.id for c in found), *state.place.values()}}
    placed = state.place.get
    numbers = [now[placed(member.path, member.category_id)] for member in members]
    names = {**state.names, **NO_CATEGORY}
    renamed = {number for number, name in names.items() if before.names.get(number) != name}
    marked = {path for path, _ in state.status.items() ^ before.status.items()}
    shown = list(before.members)
    changed = renamed | (state.names.keys() - {category.id for category in before.categories})  # not as they were
    for row, (number, earlier) in enumerate(zip(numbers, before.numbers, strict=True)):
        if number != earlier or number in renamed or (marked and members[row].path in marked):
            status = "junk" if number == JUNK else state.status.get(members[row].path, "")
            new = is_new.get(number, False)
            shown[row] = members[row]._replace(category=names[number], is_new=new, category_id=number, status=status)
            changed |= {number, earlier}
    inside: dict[int, list[Member]] = {number: [] for number in changed}
    for number, member in zip(numbers, shown, strict=True):
        if number in changed:
            inside[number].append(member)
    same = {category.id: category for category in before.categories if category.id not in changed}
    categories = [
        same.get(number) or category_of(number, name, is_new[number], inside[number])
        for number, name in sorted(state.names.items(), key=lambda named: (named[0] not in known, named[0]))
    ]
    return Seen(len(state.made), categories, shown, numbers, state.status, names)
