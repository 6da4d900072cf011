"""What was discovered: the categories, their members, and how sure each assignment is; read back from a run and
corrected. Nothing here needs torch or numpy, so that an edit on the command line is made at once."""

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NewkindsError, Skipped, nearest
from ..files import stamp_of
from ..runs.directory import EDITS, UPDATES, RunDirectory
from ..text import escaped, unescaped
from .assignment_tables import AssignmentRows, read_categories, read_skipped, write_tables
from .editlog import EditLog, fingerprint
from .edits import (
    JUNK,
    NO_CATEGORY,
    POOL,
    Corrections,
    Edit,
    EditConflict,
    builds_on,
    reach_of,
    refuse_conflict,
    usable_name,
)  # fmt: skip
from .kinds import Category, Member
from .seen import Seen, look_through

if TYPE_CHECKING:
    from .tree import Tree


class Discovery:
    """The result of `newkinds.discover`, or of `Discovery.read`; it shows what people corrected.

    >>> found = newkinds.Discovery.read("runs/photos")
    >>> [(c.name, c.size) for c in found.new]
    >>> found.rename("new-06", "shiba inu")
    >>> found.merge(["new-07", "new-09"], into="shiba inu")
    >>> found.undo()
    """

    def __init__(
        self,
        run: str | Path,
        categories: list[Category],
        members: list[Member] | AssignmentRows,
        skipped: list[Skipped],
        next_id: int = 0,
    ) -> None:
        """Categories and members as they were found; what people corrected is read from the run's log.

        `next_id`: below it, ids may have been those of categories that are gone.
        """
        self.run = Path(run)
        self.found_categories, self._found_members, self.skipped = categories, members, skipped
        self._rows = members if isinstance(members, AssignmentRows) else None
        found = members.places() if isinstance(members, AssignmentRows) else [(m.path, m.category_id) for m in members]
        self._found = dict(found)
        self._log = EditLog(self.run / EDITS, fingerprint(found))
        self._next_id = next_id
        self._state: Corrections | None = None
        self._seen: Seen | None = None
        self.last_edit = 0  # the number of the edit that was made last by way of this object
        # which table that was: another one has other categories
        self._read_from = stamp_of(self.run / "assignments.csv") if isinstance(members, AssignmentRows) else None

    @classmethod
    def read(cls, run: str | Path) -> "Discovery":
        """What a finished run found, with all corrections."""
        directory = RunDirectory(run)
        if not directory.path("assignments.csv").is_file():
            begun = directory.path("config.yaml").is_file()
            why = "has not assigned its images yet" if begun else "is not a run directory"
            raise NewkindsError(f"{directory.folder} {why}: it has no assignments.csv (newkinds discover makes one).")
        directory.require_format()
        categories = read_categories(directory)
        rows = AssignmentRows(directory, categories)
        return cls(run, categories, rows, read_skipped(directory), _next_id(directory))

    def write(self) -> None:
        """Write the tables of what the model found into the run; what people correct stays in the log."""
        if (aside := self.set_other_edits_aside()) is not None:
            from ..console import warn

            warn(f"other categories were found than before: what was corrected in those is kept in {aside}.")
        write_tables(self.found_categories, self.found_members, self.skipped, RunDirectory(self.run))

    @property
    def found_members(self) -> list[Member]:
        """All images as the model assigned them."""
        if isinstance(self._found_members, AssignmentRows):
            self._found_members = self._found_members.members()
        return self._found_members

    def known_as_found(self) -> list[Category]:
        """The categories of known classes, as the model found them."""
        return [category for category in self.found_categories if not category.is_new]

    def class_ids(self, known: Sequence[str]) -> dict[str, int]:
        """Class, as labels name it → the id of its category as found. `known`: the classes that the model knows, in its
        order; others came with labels since, and their labelled images are in their categories."""
        ids = {name: self.found_categories[place].id for place, name in enumerate(known)}
        for member in self.found_members:
            if member.given_label is not None:
                ids.setdefault(member.given_label, member.category_id)
        return ids

    def names_as_found(self) -> dict[int, str]:
        """What the categories were called when they were found: people may have changed `categories.json` since."""
        names = {category.id: category.name for category in self.found_categories}
        if self._rows is not None:
            names.update(self._rows.names())
        return names

    def is_same_assignment(self, other: "Discovery") -> bool:
        """Whether the two share one log of edits: the same images in the same categories of the same run."""
        return self._log.of == other._log.of and self.run.resolve() == other.run.resolve()

    # -- what it shows --------------------------------------------------------------------------------------

    @property
    def members(self) -> list[Member]:
        """All images, junk too (their status is "junk"), and the pool."""
        return self._shown().members

    @property
    def categories(self) -> list[Category]:
        """Known ones first, then new ones, in the order of their ids; empty ones too."""
        return self._shown().categories

    @property
    def pool(self) -> list[Member]:
        """Images that are in no category yet: an update found them unlike every one."""
        return [member for member in self.members if member.category_id == POOL]

    @property
    def new(self) -> list[Category]:
        """Categories without a label that have members, largest first."""
        return sorted((c for c in self.categories if c.is_new and c.size), key=lambda c: -c.size)

    @property
    def known(self) -> list[Category]:
        return [c for c in self.categories if not c.is_new]

    @property
    def revision(self) -> int:
        """How many edits were ever made; undoing is one."""
        return len(self._log.edits())

    def corrections(self) -> Corrections:
        """What the edits in force make of the categories that were found."""
        edits = self._log.edits()
        if self._state is None or len(self._state.made) != len(edits):
            self._state = self._corrections(edits)
        return self._state

    def log(self) -> list[tuple[Edit, bool]]:
        """Every edit ever made, and whether it is still in force."""
        return self.corrections().history()

    def begin_log(self, edits: Sequence[Edit]) -> None:
        """Let the log, which must not be there yet, begin with these edits of the same images and categories."""
        self._log.begin_with(edits)

    def set_edits_aside(self) -> Path | None:
        """Rename the log, whatever it belongs to, so that editing begins anew; where to, or None if there is none."""
        return self._log.set_aside()

    def set_other_edits_aside(self) -> Path | None:
        """Rename a log of other categories than these; where to, or None if there is none."""
        return self._log.set_other_aside()

    def category(self, which: str | int) -> Category:
        """A category by its name or id."""
        number = self._resolve(which, self.corrections())
        return next(category for category in self.categories if category.id == number)

    def _corrections(self, edits: Iterable[Edit]) -> Corrections:
        return Corrections({c.id: c.name for c in self.found_categories}, self._found, edits, self._next_id)

    def _shown(self) -> "Seen":
        state = self.corrections()
        if self._seen is None or self._seen.edits != len(state.made):
            members = self.found_members
            names = {category.id: category.name for category in self.found_categories}
            as_found = Seen(0, [], members, [member.category_id for member in members], {}, names)
            self._seen = look_through(self.found_categories, members, state, self._seen or as_found)
        return self._seen

    # -- what people correct -----------------------------------------------------------------------------------
    # `seen` is the revision that was looked at: an edit of what others have changed since is refused.

    def rename(self, category: str | int, name: str, *, seen: int | None = None) -> str:
        """Give a category another name; returns what was done, in words, as all edits do."""

        def change(state: Corrections) -> Edit:
            number = self._resolve(category, state)
            return {"edit": "rename", "category": number, "name": _free_name(name, state, besides=number)}

        return self._edit(change, seen)

    def merge(self, categories: Sequence[str | int], into: str | int | None = None, *, seen: int | None = None) -> str:
        """Make several categories one: `into`, or the first known one among them, or the first."""

        def change(state: Corrections) -> Edit:
            numbers = list(dict.fromkeys(self._resolve(which, state) for which in categories))
            known = {category.id for category in self.known_as_found()}
            known_first = sorted(numbers, key=lambda number: number not in known)
            target = next(iter(known_first), None) if into is None else self._resolve(into, state)
            others = [number for number in numbers if number != target]
            if target is None or not others:
                similar = "" if target is None else self._similar(target, state)
                raise NewkindsError(f"name at least two different categories to merge.{similar}")
            return {"edit": "merge", "into": target, "categories": others}

        return self._edit(change, seen)

    def _similar(self, category: int, state: Corrections) -> str:
        """What may be merged with a category, in words."""
        try:
            near = [f"'{state.names[number]}' (#{number})" for number in self.tree().neighbours(category, 3)]
        except NewkindsError:  # it has no embedding
            return ""
        return f" In the tree of categories '{state.names[category]}' is next to {', '.join(near)}." if near else ""

    def tree(self) -> "Tree":
        """Ward's tree of the categories that have images: which are similar, and in which order they lie together."""
        import numpy as np

        from .split import read_embedding
        from .tree import centres_of, grow_tree

        rows = read_embedding(RunDirectory(self.run), len(self.members))
        return grow_tree(centres_of(rows, np.array([member.category_id for member in self.members])))

    def parts(self, category: str | int, into: int | None = None) -> list[list[str]]:
        """How `split` would part a category: the images of each part, the largest part first. Nothing is changed.

        `into`: how many parts; None: as many as the images seem to be.
        """
        from .split import read_embedding, split_rows

        number = self._resolve(category, self.corrections())
        rows = [row for row, member in enumerate(self.members) if member.category_id == number]
        part = split_rows(read_embedding(RunDirectory(self.run), len(self.members))[rows], into)
        paths = [self.members[row].path for row in rows]
        return [[path for path, of in zip(paths, part, strict=True) if of == p] for p in range(max(part) + 1)]

    def split(
        self, category: str | int, into: int | None = None, *, parts: Sequence[Sequence[str]] | None = None,
        seen: int | None = None,
    ) -> str:  # fmt: skip
        """Part a category by clustering its images again, `into` so many or by an estimate; or into given `parts`.

        The first part keeps the category's id and name.
        """
        if parts is None:
            seen = self.revision if seen is None else seen  # nobody else may change it while it is clustered
            parts = self.parts(category, into)

        def change(state: Corrections) -> Edit:
            number = self._resolve(category, state)
            here = {path for path in self._found if state.category_of(path) == number}
            listed = [path for part in parts for path in part]
            if len(parts) < 2 or not all(parts):
                raise NewkindsError(f"'{state.names[number]}' looks like one kind: say into how many to split it.")
            if len(set(listed)) < len(listed) or set(listed) != here:
                raise NewkindsError(f"the parts are not exactly the {len(here)} images of '{state.names[number]}'.")
            made, names = [], set(state.names.values())
            for place, part in enumerate(parts):
                name = state.names[number] if place == 0 else next_name(state.names[number], names)
                names.add(name)
                identity = number if place == 0 else state.next_id + place - 1
                made.append({"id": identity, "name": name, "images": list(part)})
            return {"edit": "split", "category": number, "parts": made}

        return self._edit(change, seen)

    def move(self, images: Sequence[str], to: str | int, *, new: bool = False, seen: int | None = None) -> str:
        """Put images into another category; with `new`, into one that is made for them and called `to`."""

        def change(state: Corrections) -> Edit:
            paths = self._paths(images)
            if new:
                return {"edit": "move", "images": paths, "to": state.next_id, "name": _free_name(str(to), state)}
            return {"edit": "move", "images": paths, "to": self._resolve(to, state, or_new=True)}

        return self._edit(change, seen)

    def junk(self, images: Sequence[str] = (), *, category: str | int | None = None, seen: int | None = None) -> str:
        """Make images junk, or a whole category with all its images: they belong to no category."""

        def change(state: Corrections) -> Edit:
            if category is None:
                return {"edit": "junk", "images": self._paths(images)}
            number = self._resolve(category, state)
            return {"edit": "junk", "category": number, "images": self._inside(number, state)}

        return self._edit(change, seen)

    def accept(self, images: Sequence[str] = (), *, category: str | int | None = None, seen: int | None = None) -> str:
        """Accept that images are where they belong, or that all images of a category are: they become labels."""

        def change(state: Corrections) -> Edit:
            if category is not None:
                number = self._resolve(category, state)
                inside = self._inside(number, state)
                if not inside:
                    raise NewkindsError(f"'{state.names[number]}' has no images to accept.")
                return {"edit": "accept", "category": number, "images": inside}
            paths = self._paths(images)
            for path in paths:
                if (place := state.category_of(path)) in NO_CATEGORY:
                    is_there = "is junk" if place == JUNK else "is not placed yet, so there is nothing to accept"
                    raise NewkindsError(f"{path} {is_there}: move it to a category first.")
            return {"edit": "accept", "images": paths}

        return self._edit(change, seen)

    def undo(self, of: int | None = None, *, seen: int | None = None) -> str:
        """Take the last edit that is in force back, or the one with the number `of` if no later one builds on it."""

        def change(state: Corrections) -> Edit:
            if not state.in_force:
                raise NewkindsError("there is nothing to undo.")
            if of is None:
                return {"edit": "undo", "of": state.in_force[-1]["n"]}
            place = next((place for place, edit in enumerate(state.in_force) if edit["n"] == of), None)
            if place is None:
                raise NewkindsError(f"edit {of} is not in force: it was undone already, or there is none.")
            self._refuse_built_on(state, place)
            return {"edit": "undo", "of": of}

        return self._edit(change, seen)

    def redo(self, *, seen: int | None = None) -> str:
        """Make the edit again that was undone last."""

        def change(state: Corrections) -> Edit:
            if not state.undone:
                raise NewkindsError("there is nothing to redo.")
            return {"edit": "redo", "of": state.undone[-1]["n"]}

        return self._edit(change, seen)

    def _refuse_built_on(self, state: Corrections, place: int) -> None:
        """Refuse to undo an edit alone if a later one builds on it, or has decided about images that would move."""
        edit, later = state.in_force[place], state.in_force[place + 1 :]
        building = next((other for other in later if builds_on(other, edit)), None)
        if building is None:
            without = self._corrections([other for other in state.in_force if other is not edit])
            building = next((other for other in later if _moves_any(reach_of(other)[1], state, without)), None)
        if building is not None:
            raise NewkindsError(
                f"edit {edit['n']} ({edit.get('says', '')}) cannot be undone alone: edit {building['n']} "
                f"({building.get('says', '')}) builds on it. Undo that first."
            )

    def _resolve(self, which: str | int, state: Corrections, or_new: bool = False) -> int:
        """The id of a category that is named by its id, by "#" and its id, or by its name; or what became of it."""
        number = which if isinstance(which, int) else None
        if number is None:
            number = next((n for n, name in state.names.items() if name == which), None)
        if isinstance(which, str) and number is None and re.fullmatch(r"#[0-9]{1,9}", which):
            number = int(which[1:])
        if number in state.names:
            return int(number)
        if number is not None and state.now(number) == JUNK and number != JUNK:
            raise NewkindsError(f"the category {which} is junk: undo that first.")
        if number is not None and number in state.became:
            raise NewkindsError(f"the category {which} is part of '{state.names[state.now(number)]}' now.")
        earlier = state.earlier_names.get(str(which))
        if earlier is not None:
            now = state.now(earlier)
            if now == JUNK:
                raise NewkindsError(f"the category '{which}' is junk: undo that first.")
            became = "is called" if now == earlier else "is part of"
            raise NewkindsError(f"the category '{which}' {became} '{state.names[now]}' now.")
        hint = nearest(str(which), state.names.values())
        make = " To make a new one, say so (--new)." if or_new else ""
        name = f"newkinds name {shlex.quote(str(self.run))}"
        raise NewkindsError(f"there is no category '{which}'.{hint}{make} `{name}` lists all of them.")

    def _edit(self, change: Callable[[Corrections], Edit], seen: int | None) -> str:
        def make(edits: list[dict[str, Any]]) -> Edit:
            state = self._corrections(edits)
            edit = change(state)
            if seen is not None:
                if not 0 <= seen <= len(edits):
                    raise EditConflict(f"there is no revision {seen}: the last one is {len(edits)}. Look again.")
                refuse_conflict(edit, edits[seen:])
            return {**edit, "says": state.apply(edit)}

        if self._read_from is not None and self._read_from != (now := stamp_of(self.run / "assignments.csv")):
            if Discovery.read(self.run)._log.of != self._log.of:
                raise EditConflict(f"the categories of {self.run} were found again since you looked: look again.")
            self._read_from = now
        made = self._log.append(make)
        self.last_edit = int(made["n"])
        return str(made["says"])

    def _inside(self, number: int, state: Corrections) -> list[str]:
        return [path for path in self._found if state.category_of(path) == number]

    def _paths(self, images: Sequence[str]) -> list[str]:
        """Paths as the run has them; a file's name is enough if only one image has it."""
        if not images:
            raise NewkindsError("no image is named.")
        return list(dict.fromkeys(self.path_of(str(image)) for image in images))

    def path_of(self, image: str) -> str:
        """The path, as the run has it, of an image that was named by it, by its file or by the end of its path."""
        for named in (image, unescaped(image)):  # as the file is called, or as our tables spell it
            if named in self._found:
                return named
        ending = image.replace("\\", "/").removeprefix("./")
        found = [path for path in self._found if f"/{ending}".endswith(f"/{path}") or f"/{path}".endswith(f"/{ending}")]
        if len(found) == 1:
            return found[0]
        if found:
            raise NewkindsError(f"several images are called {image}, such as {found[0]} and {found[1]}: say which.")
        raise NewkindsError(f"{self.run} has no image {image}: name it as its assignments.csv does.")


def _next_id(run: RunDirectory) -> int:
    """Below it, ids may have been those of categories that an update had opened, or a better model has merged."""
    if not run.path(UPDATES).is_file():
        return 0
    from ..runs.changes import UpdateHistory  # slow to import, and most runs have none

    return max((update.next_id for update in UpdateHistory.read(run).updates), default=0)


def _moves_any(paths: Iterable[str], state: Corrections, other: Corrections) -> bool:
    return any(state.category_of(path) != other.category_of(path) for path in paths)


def _free_name(name: str, state: Corrections, besides: int | None = None) -> str:
    """A name that no other category has."""
    name = usable_name(name)
    if any(other == name and number != besides for number, other in state.names.items()):
        raise NewkindsError(f"there is a category '{name}' already: choose another name, or merge the two.")
    return name


def next_name(name: str, taken: set[str]) -> str:
    """NAME-2, NAME-3 …, the first that is free; a class may be called after a folder whose name cannot be shown."""
    name, number = escaped(name), 2
    while (made := f"{name}-{number}") in taken:
        number += 1
    return made
