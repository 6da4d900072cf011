"""What people decided about a run, entered into a later assignment of its images. Decisions belong to images: whatever
was computed since, they are looked up by image and made again. Nothing here needs torch; numpy only to share new images
out among the parts of a split."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .carried_decisions import CarriedDecisions, decisions_of
from .categories import Discovery, next_name
from .edits import JUNK, NO_CATEGORY, POOL, Edit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DECIDED = ("moved", "accepted")  # by a person, of this very image
NAMED = 3  # images that a sentence names


def carry_over(
    before: Discovery,
    after: Discovery,
    *,
    was: Mapping[str, str] | None = None,
    embedding: "Callable[[], NDArray[np.float32]] | None" = None,
) -> list[str]:
    """Enter into `after` what people decided in `before`; returns what cannot be carried over, one sentence each.

    - Junk stays junk, and what was moved or accepted is where its category is now. If nothing corresponds to that
      category, one is made for these images.
    - Images that a split has put apart are apart.
    - Categories whose images lie mostly in a merged one are merged; what was merged and lies elsewhere is moved there.
    - A name goes to the category that holds most of its images; known classes correspond by the name of their class.

    `was`: path now → path before, of images that were renamed. `embedding` gives (n, P) of the members of `after`, in
    their order; it is asked for if images that were not there before lie in a category that is split, and they join
    the nearest part. Edits that `after` may have in its log already are set aside.

    >>> carry_over(Discovery.read("runs/photos"), found)
    ["the name 'shiba inu' is not carried over: its 4 images are in several categories now."]
    """
    if after.is_same_assignment(before):
        return []
    decisions = decisions_of(before)  # first: its log may be the one that is set aside
    after.set_edits_aside()
    return _Carrying(decisions, after, was or {}, embedding).carry()


def match_renamed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Path now → path before of images that have another name now, by the digests of their content (path → digest).

    >>> match_renamed({"a.jpg": "11", "b.jpg": "22"}, {"a.jpg": "11", "cat/b.jpg": "22", "c.jpg": "33"})
    {'cat/b.jpg': 'b.jpg'}
    """
    gone = {path: content for path, content in before.items() if path not in after}
    copies = Counter(gone.values())
    path_of = {content: path for path, content in gone.items() if content and copies[content] == 1}
    fresh = {path: content for path, content in after.items() if path not in before}
    copies = Counter(fresh.values())
    return {path: path_of[content] for path, content in fresh.items() if content in path_of and copies[content] == 1}


@dataclass
class _Carrying:
    """Carries decisions into one assignment. An old category is one of `decisions`, a category one of `after`."""

    decisions: CarriedDecisions
    after: Discovery
    was: Mapping[str, str]
    embedding: "Callable[[], NDArray[np.float32]] | None"
    home: dict[int, int] = field(default_factory=dict)  # old category → the category that corresponds to it
    joins: dict[int, list[int]] = field(default_factory=dict)  # old category → other categories to be merged into that
    taken: set[int] = field(default_factory=set)  # categories that correspond to an old one, or join one
    sentences: list[str] = field(default_factory=list)
    old_path: dict[str, str] = field(init=False)  # path now → path before, of images that were there
    inside: dict[int, list[str]] = field(init=False)  # category → its images, as it was found
    is_known: dict[int, bool] = field(init=False)

    def __post_init__(self) -> None:
        self.old_path = {}
        self.inside = {category.id: [] for category in self.after.found_categories}
        self.is_known = {category.id: not category.is_new for category in self.after.found_categories}
        for member in self.after.found_members:
            path = self.was.get(member.path, member.path)
            if path in self.decisions.shown:
                self.old_path[member.path] = path
            self.inside.setdefault(member.category_id, []).append(member.path)
        self.inside.pop(POOL, None)  # what is not placed yet corresponds to nothing

    def carry(self) -> list[str]:
        """Make the edits, in an order in which each finds what it needs; returns what could not be carried over."""
        self._match_classes()
        self._match_merged()
        self._match_majorities(self.decisions.native, untouched={})
        self._match_majorities(self.decisions.shown, untouched=self._untouched())
        stranded = self._split_apart()
        for number, others in sorted(self.joins.items()):
            if others:
                self.after.merge(others, into=self.home[number])
        self._junk()
        self._name()
        self._place(stranded)
        self._tell_rest()
        return self.sentences

    # -- which category corresponds to which -------------------------------------------------------------------

    def _match_classes(self) -> None:
        """Known classes correspond by name: also to a category that people had called so before it was labelled."""
        number_of = {name: number for number, name in self.decisions.names.items()}
        for category in self.after.known_as_found():
            if category.name in self.decisions.classes:
                old = self.decisions.classes[category.name]
            elif category.name in number_of:
                old = number_of[category.name]
            else:
                continue
            self.taken.add(category.id)
            if old == JUNK:
                continue
            is_its_own_class = self.decisions.names[old] == category.name
            if old not in self.home:
                self.home[old] = category.id
            elif is_its_own_class:
                self.joins.setdefault(old, []).append(self.home[old])
                self.home[old] = category.id
            else:
                self.joins.setdefault(old, []).append(category.id)

    def _match_merged(self) -> None:
        """Of a merged category: all categories whose images lie mostly in it."""
        counts = self._counts(self.decisions.native)
        total = self._untouched()
        for (old, category), count in _largest_first(counts):
            if old in self.decisions.merged and category not in self.taken and 2 * count > total[category]:
                self._take(old, category)

    def _match_majorities(self, images: Iterable[str], untouched: Mapping[int, int]) -> None:
        """An old category corresponds to the one that holds most of these `images` of it.

        They must be more than the `untouched` images of that category, which would come along.
        """
        counts = self._counts(set(images))
        of_old: Counter[int] = Counter()
        for (old, _), count in counts.items():
            of_old[old] += count
        for (old, category), count in _largest_first(counts):
            is_free = old not in self.home and category not in self.taken
            if is_free and 2 * count > of_old[old] and count > untouched.get(category, 0):
                self.home[old] = category
                self.taken.add(category)

    def _counts(self, images: set[str]) -> Counter[tuple[int, int]]:
        """How many of these images (by their paths before) are in an old category and in a category."""
        counts: Counter[tuple[int, int]] = Counter()
        for category, paths in self.inside.items():
            for path in paths:
                before = self.old_path.get(path)
                if before in images and self.decisions.shown[before] not in NO_CATEGORY:
                    counts[self.decisions.shown[before], category] += 1
        return counts

    def _untouched(self) -> Counter[int]:
        """How many images of each category nobody had put anywhere."""
        total: Counter[int] = Counter()
        for (_, category), count in self._counts(self.decisions.native).items():
            total[category] += count
        return total

    # -- edits -------------------------------------------------------------------------------------------------

    def _split_apart(self) -> dict[int, list[str]]:
        """Split what a person had split and the new assignment has joined.

        Returns images, by old category, that fill a known class which is not theirs: they cannot be split off.
        """
        stranded: dict[int, list[str]] = {}
        for category, paths in self.inside.items():
            cells: dict[int, list[str]] = {}  # old category → its images that are to leave
            for path in paths:
                before = self.old_path.get(path)
                if before in self.decisions.by_split:
                    old = self.decisions.shown[before]
                    if self.home.get(old) != category and category not in self.joins.get(old, ()):
                        cells.setdefault(old, []).append(path)
            leaving = {path for cell in cells.values() for path in cell}
            staying = [path for path in paths if path not in leaving]
            if not cells:
                continue
            if not staying and (category in self.taken or self.is_known[category]):
                for old, cell in cells.items():
                    stranded.setdefault(old, []).extend(cell)
                continue
            if not staying:  # it is free: the first of those that leave may have it
                old = next(iter(cells))
                staying = cells.pop(old)
                self._take(old, category)
            homeless = [old for old in cells if old not in self.home]
            if homeless:
                self._share_out(staying, [cells[old] for old in homeless])
            if cells:
                self.after.split(category, parts=[staying, *cells.values()])
                made = [part["id"] for part in self._last_edit()["parts"]]
                for old, number in zip(cells, made[1:], strict=True):
                    self._take(old, number)
        return stranded

    def _take(self, old: int, category: int) -> None:
        """A category that is the old one, or a further piece of it."""
        self.taken.add(category)
        if old in self.home:
            self.joins.setdefault(old, []).append(category)
        else:
            self.home[old] = category

    def _share_out(self, staying: list[str], cells: Sequence[list[str]]) -> None:
        """Images that were not there before join the nearest of the parts into which their category is split."""
        fresh = [path for path in staying if path not in self.old_path]
        if not fresh or len(fresh) == len(staying) or self.embedding is None:
            return
        from .split import nearest_part

        row_of = {member.path: row for row, member in enumerate(self.after.found_members)}
        parts = [[path for path in staying if path in self.old_path], *cells]
        rows = [[row_of[path] for path in part] for part in parts]
        for path, part in zip(fresh, nearest_part(self.embedding(), [row_of[p] for p in fresh], rows), strict=True):
            if part > 0:
                staying.remove(path)
                cells[part - 1].append(path)

    def _junk(self) -> None:
        """Junk by image; and a category of which nothing is left but what was junk with its whole category."""
        by_image = {path for path, before in self.old_path.items() if self.decisions.status.get(before) == "junk"}
        with_category = {path for path in by_image if self.old_path[path] in self.decisions.junk_with_category}
        for category, paths in self.inside.items():
            seen = {path for path in paths if path in self.old_path}
            if category in self.taken or not seen or not seen <= with_category:
                continue
            name = self.after.corrections().names[category]
            self.after.junk(category=category)
            by_image -= seen
            if len(seen) < len(paths):
                self.sentences.append(
                    f"{_images(len(paths) - len(seen))} that nobody has seen yet became junk with '{name}': all others "
                    "in that category had been junk with their whole category."
                )
        if by_image:
            self.after.junk(sorted(by_image))

    def _name(self) -> None:
        for old in sorted(self.decisions.given & self.home.keys()):
            names = self.after.corrections().names
            number, name = self.home[old], self.decisions.names[old]
            if names[number] == name:
                continue
            if self._is_class_since(number):
                self._cannot(old, f"its images are in the known class '{names[number]}' now")
            elif self._free(name):
                self.after.rename(number, name)
            else:
                self._cannot(old, "a known class is called so")

    def _free(self, name: str) -> bool:
        """Take a name from a category that has it by chance; whether it is free now. A known class keeps its own."""
        names = self.after.corrections().names
        for holder, called in names.items():
            if called == name:
                if self.is_known.get(holder, False) and holder not in self.home.values():
                    return False
                self.after.rename(holder, next_name(name, set(names.values())))
        return True

    def _is_class_since(self, category: int) -> bool:
        """Whether a category is that of a class which had no labels before."""
        is_known = self.is_known.get(category, False)
        names = {found.id: found.name for found in self.after.found_categories}
        return is_known and names[category] not in self.decisions.classes

    def _place(self, stranded: Mapping[int, list[str]]) -> None:
        """Put images that a person decided about, or that came into their category by merging, where that is now."""
        right: list[str] = []
        wrong: dict[int, list[str]] = {}  # by old category
        state = self.after.corrections()
        for path, before in self.old_path.items():
            old = self.decisions.shown[before]
            is_at_home = self.home.get(old) == state.category_of(path)
            if self.decisions.status.get(before) in DECIDED:
                if is_at_home:
                    right.append(path)
                else:
                    wrong.setdefault(old, []).append(path)
            elif before in self.decisions.by_merge and old in self.home and not is_at_home:
                wrong.setdefault(old, []).append(path)  # whoever merged said what these images are
        for old, paths in stranded.items():
            wrong.setdefault(old, []).extend(paths)
        if right:
            self.after.accept(right)
        for old, paths in sorted(wrong.items()):
            if old in self.home:
                self.after.move(paths, self.home[old])
            else:
                name = self.decisions.names[old]
                if old in self.decisions.given:
                    self._free(name)
                taken = set(self.after.corrections().names.values())
                self.after.move(paths, next_name(name, taken) if name in taken else name, new=True)
                self.home[old] = self._last_edit()["to"]

    def _last_edit(self) -> Edit:
        return self.after.corrections().in_force[-1]

    # -- what is left ------------------------------------------------------------------------------------------

    def _tell_rest(self) -> None:
        old, state = self.decisions, self.after.corrections()
        images: dict[int, list[str]] = {}  # old category → its images that are still there
        for path, before in self.old_path.items():
            images.setdefault(old.shown[before], []).append(path)
        for number in sorted(old.given | old.merged | old.parts):
            there = images.get(number, [])
            kept = [path for path in there if state.category_of(path) == self.home.get(number)]
            if number not in old.shown.values():
                why = "it has no images"
            elif not there:
                why = "none of its images is there any more"
            elif number not in self.home:
                why = f"its {_images(len(there))} lie in several categories now, or among more of another one"
            elif 2 * len(kept) <= len(there):
                why = f"only {len(kept):,} of its {_images(len(there))} are there, the others are elsewhere now"
            else:
                continue
            if number not in self.home or there:
                self._cannot(number, why)
        here = set(self.old_path.values())
        if gone := [path for path in old.status if path not in here]:
            some = ", ".join(gone[:NAMED])
            more = " …" if len(gone) > NAMED else ""
            self.sentences.append(
                f"what was decided about {_images(len(gone))} is not carried over: not there any more ({some}{more})."
            )

    def _cannot(self, old: int, why: str) -> None:
        decisions, name = self.decisions, self.decisions.names[old]
        carried = "is not carried over"
        if old in self.home and self.after.corrections().names[self.home[old]] == name:
            carried = "is carried over to a few images"
        if old in decisions.given:
            what = f"the name '{name}'"
        elif old in decisions.merged:
            what = f"what was merged into '{name}'"
        else:
            what = f"the part '{name}' of a split"
        self.sentences.append(f"{what} {carried}: {why}.")


def _largest_first(counts: "Counter[tuple[int, int]]") -> list[tuple[tuple[int, int], Any]]:
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))


def _images(count: int) -> str:
    return f"{count:,} image{'' if count == 1 else 's'}"
