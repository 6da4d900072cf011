"""What a window asks for, in JSON: checked, then done."""

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import NewkindsError
from ..categories import Discovery

Json = dict[str, Any]


def whole(value: Any, what: str) -> int:
    """A whole number, or why it is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise NewkindsError(f"'{what}' must be a whole number.")
    return value


def text(value: Any, what: str = "a name") -> str:
    """A text, or why it is none."""
    if not isinstance(value, str):
        raise NewkindsError(f"{what} must be text.")
    return value


def listed(value: Any) -> list[Any]:
    """A list, or why it is none."""
    if not isinstance(value, list):
        raise NewkindsError("a list is needed.")
    return value


def make_edit(found: Discovery, wanted: Json, seen: int, paths_of: Callable[[Sequence[Any]], list[str]]) -> str:
    """Make an edit of what was seen at revision `seen`; what was done, in words. `paths_of`: images by their rows."""

    def images() -> list[str]:
        return paths_of(listed(wanted.get("rows")))

    kind = wanted.get("edit")
    if kind == "undo":
        return found.undo(whole(wanted["of"], "of") if "of" in wanted else None, seen=seen)
    if kind == "redo":
        return found.redo(seen=seen)
    if kind == "rename":
        return found.rename(whole(wanted.get("category"), "category"), text(wanted.get("name")), seen=seen)
    if kind == "merge":
        categories = [whole(category, "category") for category in listed(wanted.get("categories"))]
        return found.merge(categories, whole(wanted.get("into"), "into"), seen=seen)
    if kind == "split":
        parts = [paths_of(listed(part)) for part in listed(wanted.get("parts"))]
        return found.split(whole(wanted.get("category"), "category"), parts=parts, seen=seen)
    if kind == "move" and "name" in wanted:
        return found.move(images(), text(wanted["name"]), new=True, seen=seen)
    if kind == "move":
        return found.move(images(), whole(wanted.get("to"), "to"), seen=seen)
    if kind in ("junk", "accept"):
        make = found.junk if kind == "junk" else found.accept
        if "category" in wanted:
            return make(category=whole(wanted["category"], "category"), seen=seen)
        return make(images(), seen=seen)
    raise NewkindsError(f"there is no edit {kind!r}.")
