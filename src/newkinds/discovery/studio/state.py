"""What the studio shows and changes. Everything is read from the run and seen through its log of edits, which other
windows and commands may add to at any time."""

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import NewkindsError
from ...files import stamp_of
from ...runs.directory import RunDirectory
from ...text import plural
from ..categories import Discovery
from ..described import known_classes
from ..edits import JUNK, NO_CATEGORY, POOL, EditConflict
from ..kinds import Category, Member, is_unlike
from ..marks import marks_of
from ..relations import Rivals, rivals_of
from .added import can_grow, keep_image
from .attention import MOST_NEW, describe_update, groups_of_new, last_update, questions_of, second_best
from .jobs import Jobs
from .pictures import Pictures
from .searching import Query
from .sight import Sight
from .space import Space
from .wanted import Json, listed, make_edit, whole

FACES = 6  # pictures of a category on the wall
NEAREST = 8
SIMILAR = 120
MOST_HITS = 500  # images that a search shows
MARK_AFTER = 0.7  # s without an edit


class Outdated(NewkindsError):
    """The window shows categories that the run no longer has."""


@dataclass
class Shown:
    """All that is there after so many edits."""

    revision: int
    members: list[Member]
    categories: list[Category]
    of: NDArray[np.int64]  # (n,) the category of each image
    undo: str | None  # what would be undone, in words
    redo: str | None
    cards: dict[int, Json] = field(default_factory=dict)  # of each category, as the wall shows it

    def rows_of(self, category: int) -> NDArray[np.int64]:
        """Its images, least certain first; those that a person decided about come last, being certain."""
        rows = np.flatnonzero(self.of == category)
        sure = np.array([self.members[row].confidence for row in rows])
        decided = np.array([bool(self.members[row].status) for row in rows])
        return rows[np.lexsort((sure, decided))]


class Studio:
    """One run, looked at and corrected by any number of windows.

    >>> studio = Studio("runs/photos")
    >>> studio.edit({"edit": "rename", "category": 7, "name": "shiba inu", "seen": 0, "found": studio.found})
    """

    def __init__(self, run: str | Path, images: str | Path | None = None) -> None:
        self.run = RunDirectory(run)
        self._images = None if images is None else Path(images)
        self._lock = threading.RLock()
        self._marking: threading.Timer | None = None
        self.jobs = Jobs(self.run.folder, self._images)
        self._open()

    def _open(self) -> None:
        stamp = self._stamp()
        discovery = Discovery.read(self.run.folder)
        members = discovery.found_members  # what is damaged is told before anything here is changed
        self.found = stamp  # says which assignment this is: row numbers mean nothing in another one
        self._discovery = discovery
        self._row_of = {member.path: row for row, member in enumerate(members)}
        self._lowered = [member.path.casefold() for member in members]
        self.pictures = Pictures(self.run, members, self._images)
        of = np.fromiter((member.category_id for member in members), np.int64, len(members))
        self.space = Space(self.run, of, [c.id for c in self._discovery.known_as_found()])
        self.sight = Sight(self.run)
        self._shown: Shown | None = None
        self._update = last_update(self.run)
        self._grows = self.sight.has_model and can_grow(self.run)
        self._rivals: Rivals | None = None  # of each image, as they were when categories were marked
        self._marks: tuple[int, dict[int, list[str]]] = (-1, {})  # of which revision, and of each category
        self._groups: list[list[int]] = []  # of similar categories, as they were when they were marked
        self.prepared = 0  # grows when something is ready that was not there when a window asked

    def _stamp(self) -> str:
        try:
            seen = [stamp_of(self.run.path(name)) for name in ("assignments.csv", "categories.json")]
        except OSError:
            return ""
        return "-".join(".".join(f"{part:x}" for part in stamp) for stamp in seen)

    def prepare(self) -> None:
        """What need not be there for the first page: which images there are, and the marks of categories."""
        with suppress(NewkindsError):  # told where it is asked for
            self.pictures.look()
            self.mark()
            self.pictures.tidy()

    def mark(self) -> None:
        """Find out which categories deserve a look and which are alike, as they are now. An edit does not wait for
        that."""
        from ..report.edit_history import present_labels  # with the page's parts, which need not be there at the start

        shown, discovery = self.shown(), self._discovery
        marks: dict[int, list[str]] = {}
        groups: list[list[int]] = []
        with suppress(NewkindsError):  # said where the embedding is needed
            widths = self.space.spread(shown.of)
            groups = self.space.tree(shown.of).groups()
            self._rivals = rivals_of(self.space.rows(), shown.of)
            spread = np.array([widths[c.id] if c.id < len(widths) else np.nan for c in shown.categories])
            with self._lock:
                names = discovery.names_as_found()
                known = known_classes(self.run) or [names[category.id] for category in discovery.known_as_found()]
                labels = present_labels(discovery, known)
            by_name = marks_of(shown.categories, shown.members, labels, spread)
            marks = {c.id: list(by_name[c.name]) for c in shown.categories if c.size}
        with self._lock:
            self._marks, self._groups = (shown.revision, marks), groups
            self.prepared += 1

    def _mark_later(self) -> None:
        """Once nothing was changed for a moment."""
        if self._marking is not None:
            self._marking.cancel()
        self._marking = threading.Timer(MARK_AFTER, self._mark_quietly)
        self._marking.daemon = True
        self._marking.start()

    def _mark_quietly(self) -> None:
        with suppress(NewkindsError):  # told where it is asked for
            self.mark()

    # -- what it shows ------------------------------------------------------------------------------------------

    def version(self) -> Json:
        """Changes whenever a window should ask again."""
        with self._lock:
            if not self.run.folder.is_dir():
                raise NewkindsError(
                    f"{self.run.folder} is not there any more: it was moved, renamed or deleted. Put it back, or stop "
                    "the studio and start it with its new place. All corrections are in that folder."
                )
            if self._stamp() not in ("", self.found):  # discovered again
                self._open()
                threading.Thread(target=self.prepare, daemon=True).start()
            return {
                "found": self.found,
                "revision": self._discovery.revision,
                "prepared": self.prepared,
                "job": self.jobs.stamp,
            }

    def shown(self) -> Shown:
        """What is there now."""
        with self._lock:
            self.version()
            revision = self._discovery.revision
            while self._shown is None or self._shown.revision != revision:
                discovery = self._discovery
                members, categories, state = discovery.members, discovery.categories, discovery.corrections()
                if discovery.revision == revision:  # nobody has edited meanwhile
                    of = np.fromiter((member.category_id for member in members), np.int64, len(members))
                    last, undone = state.in_force[-1:], state.undone[-1:]
                    says = [edits[0].get("says", edits[0]["edit"]) if edits else None for edits in (last, undone)]
                    self._shown = Shown(revision, members, categories, of, says[0], says[1])
                    self._shown.cards = self._cards(self._shown)
                revision = discovery.revision
            return self._shown

    def _cards(self, shown: Shown) -> dict[int, Json]:
        """The categories as the wall shows them."""
        decided = Counter(member.category_id for member in shown.members if member.status)
        unlike = Counter(member.category_id for member in shown.members if member.is_unlike)
        cards = {}
        for category in shown.categories:
            faces = [self._row_of[path] for path in category.exemplars[:FACES]]
            cards[category.id] = {
                "id": category.id, "name": category.name, "new": category.is_new, "size": category.size,
                "confidence": category.confidence, "faces": faces,
                "decided": decided[category.id], "unlike": unlike[category.id],
            }  # fmt: skip
        return cards

    def state(self) -> Json:
        """The wall, and all that a window needs to know."""
        shown = self.shown()
        versions, problem = self.pictures.versions, self.pictures.problem
        missing = versions.count("") if self.pictures.has_any else 0
        if missing and not problem:
            problem = (
                f"{missing:,} of {plural(len(versions), 'image')} cannot be found: each is shown as a grey tile with "
                "its name. If they have moved, stop the studio and start it with --images FOLDER."
            )
        revision, marks = self._marks
        cards = [
            {**card, "faces": [[row, versions[row]] for row in card["faces"]], "marks": marks.get(number, [])}
            for number, card in shown.cards.items()
        ]
        return {
            "run": self.run.folder.resolve().name, "folder": str(self.run.folder.resolve()), **self.version(),
            "revision": shown.revision, "images": len(shown.members), "junk": int((shown.of == JUNK).sum()),
            "pool": int((shown.of == POOL).sum()), "fresh": self._count_fresh(shown),
            "update": None if self._update is None else describe_update(self._update),
            "skipped": len(self._discovery.skipped), "categories": cards, "undo": shown.undo, "redo": shown.redo,
            "marked": revision == shown.revision, "problem": problem, "fields": self.sight.has_fields,
            "model": self.sight.has_model, "groups": self._groups,
            "growable": self._grows,
        }  # fmt: skip

    def _count_fresh(self, shown: Shown) -> int:
        """How many images came with the last update, and nobody has looked at."""
        last = 0 if self._update is None else self._update.number
        return sum(member.since == last and not member.status for member in shown.members) if last else 0

    def news(self) -> Json:
        """The images that came with the last update, by category."""
        shown = self.shown()
        groups = [] if self._update is None else groups_of_new(shown.members, self._update)
        some, left = list[Json](), MOST_NEW
        for number, rows in groups:
            if left > 0:
                images = self._some_images(shown, rows[:left], left)["images"]
                some.append({"id": number, "images": images, "total": len(rows)})
                left -= len(rows)
        return {"revision": shown.revision, "groups": some, "total": sum(len(rows) for _, rows in groups)}

    def next(self, number: int) -> Json:
        """What to look at next, with the reasons. Edits do not wait for that."""

        def images(paths: Sequence[str]) -> list[Json]:
            return self._some_images(shown, [self._row_of[path] for path in paths])["images"]

        shown = self.shown()
        return {"questions": questions_of(self.run.folder, self.space.rows(), number, images)}

    def members(self, category: int) -> Json:
        """All images of a category (JUNK, POOL: what is in none), least certain first."""
        shown = self.shown()
        if category not in NO_CATEGORY and category not in shown.cards:
            raise NewkindsError("this category is no longer there: it was merged or is junk.")
        rows = shown.rows_of(category).tolist()
        if category == POOL:
            with suppress(NewkindsError):  # said where the embedding is needed
                rows = self.space.alike_together(rows)
        self.pictures.look(rows)
        return {"revision": shown.revision, "images": self._images_of(shown, rows), "prepared": self.prepared}

    def _images_of(self, shown: Shown, rows: Sequence[int], scores: Sequence[float] | None = None) -> list[Json]:
        made = []
        for place, row in enumerate(rows):
            member = shown.members[row]
            image: Json = {
                "row": row, "path": member.path, "of": member.category_id, "sure": member.confidence,
                "v": self.pictures.versions[row],
            }  # fmt: skip
            if member.status:
                image["status"] = member.status
            if member.given_label is not None:
                image["label"] = member.given_label
            if member.is_unlike:
                image["unlike"] = member.unlike
            if self._rivals is not None and (other := second_best(member, row, self._rivals)) in shown.cards:
                image["second"] = other
            if scores is not None:
                image["score"] = round(scores[place], 4)
            made.append(image)
        return made

    def nearest(self, category: int) -> Json:
        """The categories that are most like one."""
        shown = self.shown()
        found = self.space.nearest(category, shown.of, NEAREST)
        return {"revision": shown.revision, "nearest": [{"id": n, "cosine": round(c, 4)} for n, c in found]}

    def similar(self, row: int) -> Json:
        """The images that are most like one of the run's own, itself first."""
        self._check_rows([row])
        self.version()
        return self._alike(self.space.rows()[row])

    def _alike(self, vector: NDArray[np.float32]) -> Json:
        found = self.space.similar(vector, SIMILAR)
        rows = [row for row, _ in found]
        self.pictures.look(rows)
        shown = self.shown()
        return {"revision": shown.revision, "images": self._images_of(shown, rows, [cosine for _, cosine in found])}

    def look(self, image: Path) -> Json:
        """What the model makes of an image that the run may never have seen, and the run's images most like it."""
        prediction, vector = self.sight.look(image)
        return {
            "category": prediction.category_id, "name": prediction.category, "sure": prediction.confidence,
            "unlike": prediction.unlike if is_unlike(prediction.unlike) else 0, **self._alike(vector),
        }  # fmt: skip

    def add(self, image: Path, called: str) -> Json:
        """Let an image that was looked at belong to the run: its file is kept, and an update begins."""
        self.jobs.require_none()
        file, more = keep_image(self.run, image, called)
        return {"file": str(file), **self.jobs.start({"job": "update"}, more)}

    def search(self, text: str) -> Json:
        """The categories and images that fit what was typed."""
        shown, search = self.shown(), Query.of(text)
        rows = search.rows(shown.members, self._lowered)
        return {**self._some_images(shown, rows), "categories": search.categories(shown.categories)}

    def images(self, rows: Any) -> Json:
        """Images by their rows."""
        return self._some_images(self.shown(), self._check_rows(listed(rows)))

    def _some_images(self, shown: Shown, rows: Sequence[int], most: int = MOST_HITS) -> Json:
        some = rows[:most]
        self.pictures.look(some)
        return {"revision": shown.revision, "total": len(rows), "images": self._images_of(shown, some)}

    def parts(self, category: int, into: int | None) -> Json:
        """How a category would be split."""
        shown = self.shown()
        rows = np.sort(shown.rows_of(category))
        parts = self.space.parts(rows, into)
        sure = [member.confidence for member in shown.members]
        typical = [sorted(part, key=lambda row: -sure[row]) for part in parts]
        return {"revision": shown.revision, "parts": [self._images_of(shown, part) for part in typical]}

    def map(self) -> Json:
        """Places of all images, in thousandths, and their categories now."""
        shown = self.shown()
        places = self.space.places()
        flat = np.round(places * 4000).astype(int).ravel().tolist()
        return {"revision": shown.revision, "places": flat, "of": shown.of.tolist(), "v": self.pictures.versions}

    def image(self, row: int) -> Json:
        """One image."""
        self._check_rows([row])
        self.pictures.look([row])
        return self._images_of(self.shown(), [row])[0]

    def log(self) -> Json:
        """Every edit, the last one first."""
        with self._lock:
            self.version()
            history = self._discovery.log()
        edits = [{"n": e["n"], "at": e["at"], "says": e.get("says", e["edit"]), "in_force": ok} for e, ok in history]
        return {"edits": edits[::-1]}

    # -- what people change ----------------------------------------------------------------------------------------

    def edit(self, wanted: Json) -> Json:
        """Make one edit of what a window has seen; it is in the log, on the disk, before this returns."""
        with self._lock:
            self.version()
            if wanted.get("found") != self.found:
                raise Outdated("the categories were found again since this window was opened: it shows them now.")
            seen = whole(wanted.get("seen"), "seen")
            try:
                says = make_edit(self._discovery, wanted, seen, self._named)
            except EditConflict:
                raise
            except NewkindsError:
                if self._discovery.revision != seen:  # it fitted what the window showed, perhaps
                    self._shown = None
                raise
            self._mark_later()
            return {"says": says, "n": self._discovery.last_edit, "state": self.state()}

    def _named(self, rows: Sequence[Any]) -> list[str]:
        return [self._discovery.found_members[row].path for row in self._check_rows(rows)]

    def _check_rows(self, rows: Sequence[Any]) -> list[int]:
        numbers = [whole(row, "row") for row in rows]
        if any(not 0 <= row < len(self._row_of) for row in numbers):
            raise NewkindsError(f"images have the numbers 0 to {len(self._row_of) - 1}.")
        return numbers
