"""What people corrected, as a log that only grows: `edits.jsonl` in the run directory.

A line is one edit, with its number and a checksum. Nothing is ever rewritten: undoing is an edit as well, and the
assignments that the model made stay as they are. Several processes may write without a lock: whoever appends edit
number n first has made it, and a later line with the same number never happened; its writer looks again and retries.
Half a line, left by a crash, is an edit that never happened either. Nothing here needs torch or numpy."""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..errors import NewkindsError
from ..files import sync_folder

VERSION = 1
JUNK = -1  # the id of what belongs to no category
JUNK_NAME = "(junk)"
Edit = Mapping[str, Any]  # {"edit": "merge", "into": 7, "categories": [9], "n": 3, "at": …}


class EditConflict(NewkindsError):
    """Somebody else has edited the same thing since it was looked at."""


class EditLog:
    """The edits of one assignment of images; `of` is that assignment's fingerprint.

    >>> log = EditLog(Path("runs/photos/edits.jsonl"), of)
    >>> log.append(lambda edits: {"edit": "rename", "category": 7, "name": "shiba inu"})
    """

    def __init__(self, file: Path, of: str) -> None:
        self.file, self.of = file, of
        self._forget()

    def _forget(self) -> None:
        self._known: list[dict[str, Any]] = []  # header and edits that were read already
        self._inode, self._offset, self._line = -1, 0, 1  # of what, and up to where
        self._warned = False

    def edits(self) -> list[dict[str, Any]]:
        """All edits, the first one first. Those of another assignment are not these."""
        return self._entries()[1:]

    def is_own(self) -> bool:
        """Whether the log, if there is one, belongs to this assignment."""
        return all(header["of"] == self.of for header in self._entries(of_any=True)[:1])

    def require_own(self) -> None:
        """Refuse to add to a log that belongs to another assignment."""
        if not self.is_own():
            aside = self.file.with_name(f"{self.file.stem}-earlier{self.file.suffix}")
            raise NewkindsError(
                f"{self.file} belongs to other categories than this run has now (they were found again since): rename "
                f"it, e.g. to {aside.name}, and edit anew."
            )

    def append(self, make: Callable[[list[dict[str, Any]]], Edit]) -> dict[str, Any]:
        """Add the edit that `make` gives for all edits so far; if another process was faster, it is asked again."""
        self.require_own()
        while True:
            entries = self._entries()
            if not entries:
                self._write({"n": 0, "edits": VERSION, "of": self.of})
                continue
            made = {"n": len(entries), "at": _now(), **make(entries[1:]), "id": secrets.token_hex(4)}
            self._write(made)
            entries = self._entries()
            if len(entries) > made["n"] and entries[made["n"]]["id"] == made["id"]:
                return entries[made["n"]]

    def _write(self, entry: Edit) -> None:
        """One write of one line, at the end; the line break comes first, so that half a line spoils no other."""
        line = _canonical(entry)
        whole = f'\n{line[:-1]},"check":"{_check(line)}"}}'.encode()
        try:
            is_new = not self.file.exists()
            file = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
            try:
                if os.write(file, whole) < len(whole):
                    raise OSError(28, "no space left on the disk")
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise NewkindsError(
                f"cannot write {self.file}: {error.strerror or error}. The edit was not made; earlier ones are safe."
            ) from None
        if is_new:
            sync_folder(self.file.parent)

    def _entries(self, of_any: bool = False) -> list[dict[str, Any]]:
        """The header and all edits; empty if there are none, or if they are of another assignment."""
        try:
            if not self._read_on():
                time.sleep(0.02)  # another process may be in the middle of writing the last line
                if not self._read_on():
                    self._warn(
                        f"{self.file} line {self._line} is not whole: that edit was interrupted and does not count."
                    )
        except FileNotFoundError:
            self._forget()
        except OSError as error:
            raise NewkindsError(f"cannot read {self.file}: {error.strerror or error}.") from None
        if self._known and self._known[0]["of"] != self.of and not of_any:
            self._warn(f"{self.file} belongs to categories that the run no longer has: its edits are not shown.")
            return []
        return list(self._known)

    def _read_on(self) -> bool:
        """Read what was added since; whether the last line is whole."""
        with open(self.file, "rb") as file:
            seen = os.fstat(file.fileno())
            if seen.st_ino != self._inode or seen.st_size < self._offset:
                self._forget()
                self._inode = seen.st_ino
            if seen.st_size == self._offset:
                return True
            file.seek(self._offset)  # an edit among thousands reads the last line only
            return self._take(file.read())

    def _take(self, content: bytes) -> bool:
        """Add the lines that count. One that is not whole matters only if a later one shows that an edit is missing."""
        *before, last = content.split(b"\n")
        for line in before:
            self._add(line)
            self._offset += len(line) + 1
            self._line += 1
        whole = self._add(last)
        if whole:  # else it is looked at again
            self._offset += len(last)
        return whole

    def _add(self, line: bytes) -> bool:
        """Whether a line is whole (or empty); one that lost the race for its number is, and does not count."""
        if not line.strip():
            return True
        entry = _entry(line)
        if entry is None:
            return False
        if entry["n"] > len(self._known):
            raise NewkindsError(
                f"{self.file} is damaged before line {self._line}: edit {len(self._known)} is missing. Restore it from "
                "a copy, or delete its lines from there on to lose only the edits in them."
            )
        if entry["n"] == len(self._known):
            if not self._known and not self._readable(entry):
                raise NewkindsError(
                    f"{self.file} was written by a newer version of newkinds (format {entry.get('edits')}; this one "
                    f"reads {VERSION}): update newkinds."
                )
            self._known.append(entry)
        return True

    def _warn(self, message: str) -> None:
        if not self._warned:
            from ..console import warn  # slow to import

            warn(message)
        self._warned = True

    @staticmethod
    def _readable(header: Edit) -> bool:
        return header.get("edits") == VERSION and isinstance(header.get("of"), str)


def set_aside(file: Path) -> Path | None:
    """Rename a log whose categories are being found anew, so that nothing is lost; None if there is none."""
    if not file.is_file():
        return None
    number = 1
    while (aside := file.with_name(f"{file.stem}-{number}{file.suffix}")).exists():
        number += 1
    file.rename(aside)
    sync_folder(file.parent)
    return aside


class Corrections:
    """What the edits in force make of the categories that were found.

    `names` are those of all categories by their ids, `found` the category of each image by its path.
    """

    def __init__(self, names: Mapping[int, str], found: Mapping[str, int], edits: Iterable[Edit]) -> None:
        self.names = dict(names)  # of the categories that there are
        self.became: dict[int, int] = {}  # category → the one it was merged into, or JUNK
        self.place: dict[str, int] = {}  # image → category, if a person (or a split) put it there
        self.status: dict[str, str] = {}  # image → "moved", "accepted" or "junk"
        self.in_force: list[Edit] = []
        self.undone: list[Edit] = []  # what can be redone, the next one last
        self.next_id = max(names, default=-1) + 1
        self._found = found
        self.made = list(edits)
        for edit in self.made:
            self.next_id = max([self.next_id, *(new + 1 for new in _made_categories(edit))])
            if edit["edit"] == "undo" and self.in_force:
                self.undone.append(self.in_force.pop())
            elif edit["edit"] == "redo" and self.undone:
                self.in_force.append(self.undone.pop())
            elif edit["edit"] not in ("undo", "redo"):
                self.in_force.append(edit)
                self.undone.clear()
        for edit in self.in_force:
            self.apply(edit)

    def apply(self, edit: Edit) -> str:
        """Apply one edit, and say what it does."""
        if edit["edit"] in ("undo", "redo"):
            return f"{edit['edit']}: {(self.in_force if edit['edit'] == 'undo' else self.undone)[-1].get('says', '')}"
        try:
            return {
                "rename": self._rename, "merge": self._merge, "split": self._split, "move": self._move,
                "junk": self._junk, "accept": self._accept,
            }[edit["edit"]](edit)  # fmt: skip
        except (KeyError, TypeError):
            raise NewkindsError(
                f"edit {edit.get('n')} in the log ({edit.get('edit')!r}) does not fit this run: restore edits.jsonl "
                "from a copy, or rename it to set it aside."
            ) from None

    def history(self) -> list[tuple[Edit, bool]]:
        """Every edit, and whether it is in force; undoing and redoing always are."""
        force = {edit["n"] for edit in self.in_force}
        return [(edit, edit["n"] in force or edit["edit"] in ("undo", "redo")) for edit in self.made]

    def _rename(self, edit: Edit) -> str:
        before, self.names[edit["category"]] = self.names[edit["category"]], edit["name"]
        return f"renamed '{before}' to '{edit['name']}'"

    def _merge(self, edit: Edit) -> str:
        into = self.names[edit["into"]]
        merged = [self.names.pop(category) for category in edit["categories"]]
        self.became.update(dict.fromkeys(edit["categories"], edit["into"]))
        return f"merged {_quoted(merged)} into '{into}'"

    def _split(self, edit: Edit) -> str:
        before = self.names[edit["category"]]
        for part in edit["parts"]:
            self.names[part["id"]] = part["name"]
            self.place.update(dict.fromkeys(part["images"], part["id"]))
            if part["id"] != edit["category"]:  # what was accepted was the category that they have left
                for path in part["images"]:
                    self.status.pop(path, None)
        return f"split '{before}' into {_quoted([part['name'] for part in edit['parts']])}"

    def _move(self, edit: Edit) -> str:
        if "name" in edit:
            self.names[edit["to"]] = edit["name"]
        to = self.names[edit["to"]]
        self._put(edit["images"], edit["to"], "moved")
        return f"moved {_images(edit['images'])} to '{to}'"

    def _junk(self, edit: Edit) -> str:
        which = _images(edit["images"])
        if (category := edit.get("category")) is not None:
            which = f"'{self.names.pop(category)}' ({which})"
            self.became[category] = JUNK
        self._put(edit["images"], JUNK, "junk")
        return f"threw out {which}"

    def _accept(self, edit: Edit) -> str:
        self.status.update(dict.fromkeys(edit["images"], "accepted"))
        named = f" of '{self.names[edit['category']]}'" if "category" in edit else ""
        return f"accepted {_images(edit['images'])}{named}"

    def _put(self, paths: Sequence[str], category: int, status: str) -> None:
        self.place.update(dict.fromkeys(paths, category))
        self.status.update(dict.fromkeys(paths, status))

    def category_of(self, path: str) -> int:
        """Where an image of the run is now."""
        return self.now(self.place[path] if path in self.place else self._found[path])

    def now(self, category: int) -> int:
        """What became of a category by merging."""
        while category in self.became:
            category = self.became[category]
        return category

    def reshaped(self) -> Iterator[Edit]:
        """The edits in force that concern images never seen: merges, splits, categories thrown out."""
        for edit in self.in_force:
            if edit["edit"] in ("merge", "split") or (edit["edit"] == "junk" and "category" in edit):
                yield edit


def touched(edit: Edit) -> tuple[set[int], set[str]]:
    """The categories and images that an edit is about."""
    categories = {edit[name] for name in ("category", "into", "to") if name in edit}
    categories |= set(edit.get("categories", ()))
    images = set(edit.get("images", ()))
    for part in edit.get("parts", ()):
        images |= set(part["images"])
    return categories, images


def refuse_conflict(edit: Edit, since: Sequence[Edit]) -> None:
    """Refuse an edit of what other edits, made since its maker looked, are about as well."""
    categories, images = touched(edit)
    for other in since:
        theirs, their_images = touched(other)
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


def fingerprint(found: Iterable[tuple[str, int]]) -> str:
    """Of an assignment: paths and the ids of their categories, in order."""
    digest = hashlib.sha256()
    for path, category in found:
        digest.update(f"{path}\0{category}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def _made_categories(edit: Edit) -> list[int]:
    """The ids that an edit gave to categories that were not there before."""
    parts = [part["id"] for part in edit.get("parts", ()) if isinstance(part, Mapping) and "id" in part]
    return [*parts, *([edit["to"]] if "name" in edit and "to" in edit else [])]


def _entry(line: bytes) -> dict[str, Any] | None:
    """A line of the log, or None if it is not whole or its checksum is wrong."""
    with suppress(ValueError, TypeError, RecursionError):
        entry = json.loads(line)
        if isinstance(entry, dict) and isinstance(entry.get("n"), int):
            check = entry.pop("check", None)
            if check == _check(_canonical(entry)) and ("edit" in entry or entry["n"] == 0):
                return entry
    return None


def _canonical(entry: Edit) -> str:
    return json.dumps(entry, separators=(",", ":"), sort_keys=True)  # ASCII: names of any bytes survive


def _check(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:8]


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _images(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{len(paths):,} images"
