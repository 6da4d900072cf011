"""What people corrected: the edits in force, and what they make of categories and images.

Edits are entries of a log that only grows (`editlog.py`); the assignments that the model made stay as they are. Nothing
here needs torch or numpy."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import NewkindsError
from ..text import CONTROL, plural

JUNK = -1  # the id of what belongs to no category
JUNK_NAME = "(junk)"
POOL = -2  # the id of what belongs to no category yet: images that an update could not place
POOL_NAME = "(not placed yet)"
NO_CATEGORY = {JUNK: JUNK_NAME, POOL: POOL_NAME}  # places of images that are no categories
LONGEST_NAME = 255  # bytes: a name may become that of a folder
Edit = Mapping[str, Any]  # {"edit": "merge", "into": 7, "categories": [9], "n": 3, "at": …}


class EditConflict(NewkindsError):
    """Somebody else has edited the same thing since it was looked at."""


class Corrections:
    """What the edits in force make of the categories that were found.

    `names` are those of all categories by their ids, `found` the category of each image by its path.
    """

    def __init__(
        self, names: Mapping[int, str], found: Mapping[str, int], edits: Iterable[Edit], next_id: int = 0
    ) -> None:
        """`next_id`: below it, ids may have been those of categories that are gone."""
        self.names = dict(names)  # of the categories that there are
        self.earlier_names: dict[str, int] = {}  # what categories were called before they were renamed or merged
        self.became: dict[int, int] = {}  # category → the one it was merged into, or JUNK
        self.place: dict[str, int] = {}  # image → category, if a person (or a split) put it there
        self.status: dict[str, str] = {}  # image → "moved", "accepted" or "junk"
        self.in_force: list[Edit] = []
        self.undone: list[Edit] = []  # what can be redone, the next one last
        self.next_id = max([next_id, *(number + 1 for number in names)])
        self._found = found
        self.made = list(edits)
        made = {number for edit in self.made for number in made_categories(edit)}
        self._adopted = made & names.keys() if next_id else set()  # only updates do that
        for edit in self.made:
            self.next_id = max([self.next_id, *(new + 1 for new in made_categories(edit))])
            if edit["edit"] == "undo" and self.in_force:
                self.undone.append(self.in_force.pop(self._place_of(edit)))
            elif edit["edit"] == "redo" and self.undone:
                self.in_force.append(self.undone.pop())
                self.in_force.sort(key=lambda made: made["n"])  # where it was
            elif edit["edit"] not in ("undo", "redo"):
                self.in_force.append(edit)
                self.undone.clear()
        for edit in self.in_force:
            self.apply(edit)
        # people may also name categories in categories.json, where they do not see the names in the log
        taken: set[str] = set()
        for number, name in sorted(self.names.items()):
            if name in taken:
                self.names[number] = f"{name} (#{number})"
            taken.add(self.names[number])

    def _place_of(self, undo: Edit) -> int:
        """The place, among the edits in force, of the one that is undone; the last one if it is not said."""
        if "of" not in undo:
            return -1
        for place, edit in enumerate(self.in_force):
            if edit["n"] == undo["of"]:
                return place
        raise NewkindsError(
            f"edit {undo.get('n')} in the log undoes edit {undo['of']}, which is not in force: restore edits.jsonl "
            "from a copy, or rename it to set it aside."
        )

    def apply(self, edit: Edit) -> str:
        """Apply one edit, and say what it does."""
        if edit["edit"] == "undo":
            return f"undo: {self.in_force[self._place_of(edit)].get('says', '')}"
        if edit["edit"] == "redo":
            return f"redo: {self.undone[-1].get('says', '')}"
        try:
            return {
                "rename": self._rename, "merge": self._merge, "split": self._split, "move": self._move,
                "junk": self._junk, "accept": self._accept,
            }[edit["edit"]](edit)  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError):  # other kinds of values than we write
            raise NewkindsError(
                f"edit {edit.get('n')} in the log ({edit.get('edit')!r}) does not fit this run: restore edits.jsonl "
                "from a copy, or rename it to set it aside."
            ) from None

    def history(self) -> list[tuple[Edit, bool]]:
        """Every edit, and whether it is in force; undoing and redoing always are."""
        force = {edit["n"] for edit in self.in_force}
        return [(edit, edit["n"] in force or edit["edit"] in ("undo", "redo")) for edit in self.made]

    def _rename(self, edit: Edit) -> str:
        before = self.names[edit["category"]]
        self.names[edit["category"]] = usable_name(edit["name"])
        self.earlier_names[before] = edit["category"]
        return f"renamed '{before}' to '{edit['name']}'"

    def _merge(self, edit: Edit) -> str:
        into = self.names[edit["into"]]
        if edit["into"] in edit["categories"]:
            raise ValueError("merged into itself")
        merged = [self.names.pop(category) for category in edit["categories"]]
        self.earlier_names.update(zip(merged, edit["categories"], strict=True))
        self.became.update(dict.fromkeys(edit["categories"], edit["into"]))
        return f"merged {_quoted(merged)} into '{into}'"

    def _split(self, edit: Edit) -> str:
        before = self.names[edit["category"]]
        for part in edit["parts"]:
            self._give(part["id"], part["name"], known=edit["category"])
            self.place.update(dict.fromkeys(part["images"], part["id"]))
            if part["id"] != edit["category"]:  # what was accepted was the category that they have left
                for path in part["images"]:
                    self.status.pop(path, None)
        parts = [f"'{part['name']}' ({plural(len(part['images']), 'image')})" for part in edit["parts"]]
        return f"split '{before}' into {', '.join(parts)}"

    def _move(self, edit: Edit) -> str:
        if "name" in edit:
            self._give(edit["to"], edit["name"])
        to = self.names[edit["to"]]
        self._put(edit["images"], edit["to"], "moved")
        return f"moved {_images(edit['images'])} to '{to}'"

    def _junk(self, edit: Edit) -> str:
        which = _images(edit["images"])
        if (category := edit.get("category")) is not None:
            name = self.names.pop(category)
            which = f"'{name}' ({which})"
            self.became[category] = JUNK
            self.earlier_names[name] = category
        self._put(edit["images"], JUNK, "junk")
        return f"junked {which}"

    def _accept(self, edit: Edit) -> str:
        self.status.update(dict.fromkeys(edit["images"], "accepted"))
        named = f" of '{self.names[edit['category']]}'" if "category" in edit else ""
        return f"accepted {_images(edit['images'])}{named}"

    def _give(self, number: int, name: str, known: int | None = None) -> None:
        """A category's name; it is new unless it is the `known` one, and an id is never used twice. One that an update
        has put images into is among those that were found, too."""
        if number == known:
            return
        is_taken = number in self.names and number not in self._adopted
        if number < 0 or is_taken or number in self.became:
            raise ValueError("an id that is taken")
        self._adopted.discard(number)
        self.names[number] = usable_name(name, most=None)

    def _put(self, paths: Sequence[str], category: int, status: str) -> None:
        self.place.update(dict.fromkeys(paths, category))
        self.status.update(dict.fromkeys(paths, status))

    def category_of(self, path: str) -> int:
        """Where an image of the run is now; one that edits name and that is gone is nowhere."""
        return self.now(self.place[path] if path in self.place else self._found.get(path, JUNK))

    def now(self, category: int) -> int:
        """What became of a category by merging."""
        while category in self.became:
            category = self.became[category]
        return category

    def reshaping_edits(self) -> Iterator[Edit]:
        """The edits in force that concern images never seen: merges, splits, categories that are junk."""
        for edit in self.in_force:
            if edit["edit"] in ("merge", "split") or (edit["edit"] == "junk" and "category" in edit):
                yield edit


def usable_name(name: str, most: int | None = LONGEST_NAME) -> str:
    """A name that some category may get, of at `most` so many bytes, or why none may."""
    name = name.strip()
    if not name:
        raise NewkindsError("a name must not be empty.")
    if re.search(f"[{CONTROL}]", name):
        raise NewkindsError(f"the name {name!r} has a line break or a character that cannot be shown: leave it out.")
    if most is not None and len(name.encode()) > most:
        raise NewkindsError(f"the name '{name[:40]}…' is longer than {most} bytes: choose a shorter one.")
    if name in NO_CATEGORY.values():
        raise NewkindsError(f"'{name}' means images that are in no category: choose another name.")
    if re.fullmatch(r"#\d+", name):
        raise NewkindsError(f"'{name}' means the category with that id: choose another name.")
    return name


def with_paths(edit: Edit, named: Callable[[str], str]) -> Edit:
    """The same edit, about images that are called otherwise now."""
    changed = dict(edit)
    if "images" in edit:
        changed["images"] = [named(path) for path in edit["images"]]
    if "parts" in edit:
        changed["parts"] = [{**part, "images": [named(path) for path in part["images"]]} for part in edit["parts"]]
    return changed


def reach_of(edit: Edit) -> tuple[set[int], set[str]]:
    """The categories and images that an edit is about."""
    categories = {edit[name] for name in ("category", "into", "to") if name in edit}
    categories |= set(edit.get("categories", ()))
    images = set(edit.get("images", ()))
    for part in edit.get("parts", ()):
        images |= set(part["images"])
    return categories, images


def builds_on(later: Edit, edit: Edit) -> bool:
    """Whether a later edit names what an edit has made, or is about the same, so that it would change without it."""
    categories, images = reach_of(edit)
    theirs, their_images = reach_of(later)
    if images & their_images or theirs & set(made_categories(edit)):
        return True
    if edit["edit"] == "rename":
        return later["edit"] == "rename" and bool(categories & theirs)
    is_reshaped = edit["edit"] in ("merge", "split") and later["edit"] in ("merge", "split", "junk", "accept")
    return is_reshaped and bool(categories & theirs)


def refuse_conflict(edit: Edit, since: Sequence[Edit]) -> None:
    """Refuse an edit of what other edits, made since its maker looked, are about as well."""
    categories, images = reach_of(edit)
    for other in since:
        theirs, their_images = reach_of(other)
        if edit["edit"] in ("undo", "redo") or other["edit"] in ("undo", "redo"):
            clash = True
        else:
            whole = {"merge", "split", "junk", "rename"}  # two people may move different images to one category
            about_both = categories & theirs if edit["edit"] in whole or other["edit"] in whole else set()
            clash = bool(about_both or images & their_images)
        if clash:
            raise EditConflict(
                "somebody else (or another window) has changed this since you looked: it was not changed again. "
                "Look at it as it is now, then decide."
            )


def made_categories(edit: Edit) -> list[int]:
    """The ids that an edit gave to categories that were not there before."""
    parts = [part.get("id") for part in edit.get("parts", ()) if isinstance(part, Mapping)]
    made = [*parts, *([edit.get("to")] if "name" in edit else [])]
    return [number for number in made if isinstance(number, int)]


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _images(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{len(paths):,} images"
