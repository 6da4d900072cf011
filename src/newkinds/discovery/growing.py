"""Images that came later become members of a run: labelled ones are in their class, others where the model and the
centres of later categories put them, in a category that a rule opens, or in the pool. Present members never move."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..assigners.base import Assignment
from ..assigners.extension import Extension
from ..assigners.opening import OpeningRule, choose_rule, settled_centres, unconfirmed_rule
from ..training.model import Model
from .categories import Discovery, next_name
from .edits import JUNK, POOL, POOL_NAME, Corrections
from .kinds import OUTSIDE, Category, Member, category_of, next_numbered
from .placing import Placer


@dataclass
class GrownCategories:
    """The categories of a run, to which some are added."""

    entries: list[Category]  # in the order of `categories.json`; sizes and exemplars are of before
    next_id: int
    used: set[str]  # names that were ever used
    opened: dict[int, bool] = field(default_factory=dict)  # id → whether by a label

    def add(self, name: str, by_label: bool) -> int:
        """A new category of this name, or the next number of it."""
        if name in self.used:
            name = next_name(name, self.used)
        number = self.next_id
        self.next_id += 1
        self._put(Category(number, name, not by_label, 0, 0.0, []))
        self.opened[number] = by_label
        return number

    def open(self) -> int:
        """A new category that nobody has named."""
        return self.add(next_numbered(self.used), by_label=False)

    def adopt(self, number: int, name: str) -> None:
        """A category that a person has made among those that were found: images were put into it."""
        if number not in {category.id for category in self.entries}:
            names = {category.name for category in self.entries}
            self._put(Category(number, next_name(name, names) if name in names else name, True, 0, 0.0, []))

    def know(self, number: int) -> None:
        """A category has labels from now on."""
        self.entries = [c._replace(is_new=False) if c.id == number else c for c in self.entries]

    def _put(self, category: Category) -> None:
        self.entries.append(category)
        self.used.add(category.name)


@dataclass(frozen=True)
class Grown:
    """What became of the images that came."""

    members: list[Member]  # of the images that were to be placed, in their order
    categories: GrownCategories
    rule: OpeningRule | None  # None: too few images came to open anything


class Growth:
    """Places images that came later.

    >>> Growth(model, found, partial(read_features, run), used, next_id).place(paths, labels, features, since)
    """

    def __init__(self, placer: Placer, found: Discovery, features: Tensor, used: set[str], next_id: int) -> None:
        """`features` (n, D) of the members of `found`; `used`: names that categories had in earlier results."""
        self.placer, self.found, self.features = placer, found, features
        self.model: Model = placer.model
        self.state: Corrections = found.corrections()
        self.class_ids = found.class_ids(self.model.known)
        names = used | names_used(found)
        self.categories = GrownCategories(list(found.found_categories), max(next_id, self.state.next_id), names)
        self.ids: list[int] = placer.ids.tolist()
        self.centres: Tensor = placer.extension.centres  # (len(ids), P)

    @torch.inference_mode()
    def place(self, members: Sequence[Member], features: Tensor) -> Grown:
        """Give `members` a category by their label, or by their features (m, D) alone."""
        if not members:
            return Grown([], self.categories, None)
        rows = self.model.rows(features.to(self.model.device)).float()  # (m, P)
        labels = [None if m.given_label is None else self._class_of(m.given_label) for m in members]
        self._know_classes(rows, labels)
        free = [place for place, label in enumerate(labels) if label is None]
        rule = self._open(rows[free], features[free])
        assignment = self._assigned(features)
        raw = np.array(self.ids)[assignment.category.cpu().numpy()]
        alone = self._as_found(raw, features)
        given = np.array([number if label is None else label for number, label in zip(raw, labels, strict=True)])
        placed = self._as_found(given.astype(np.int64), features)
        sure = self._confidence(rows, assignment, [None if n is None else self.ids.index(n) for n in labels])
        unlike = assignment.unlike
        assert unlike is not None, "a model of a run is calibrated"
        made, entries = [], {category.id: category for category in self.categories.entries}
        for place, member in enumerate(members):
            far, number = round(float(unlike[place]), 3), int(placed[place])
            is_pool = labels[place] is None and far > OUTSIDE
            elsewhere = int(alone[place]) if is_pool or alone[place] != number else None
            category = entries[number]
            made.append(
                member._replace(
                    category=POOL_NAME if is_pool else category.name,
                    category_id=POOL if is_pool else number,
                    is_new=category.is_new and not is_pool,
                    confidence=round(float(sure[place]), 4),
                    unlike=far,
                    model_category_id=elsewhere,
                    model_confidence=None if elsewhere is None else round(float(assignment.confidence[place]), 4),
                )
            )
        return Grown(made, self.categories, rule)

    # -- categories ----------------------------------------------------------------------------------------------------

    def _class_of(self, label: str) -> int:
        """The category of a class: as it was, one that people call so, or a new one."""
        if label not in self.class_ids:
            number = next((n for n, name in self.state.names.items() if name == label), None)
            if number is None:
                number = self.categories.add(label, by_label=True)
            elif number not in self.ids:  # a part of a category that was split
                self.categories.adopt(number, label)
            self.categories.know(number)
            self.class_ids[label] = number
        return self.class_ids[label]

    def _know_classes(self, rows: Tensor, labels: Sequence[int | None]) -> None:
        """Centres (P,) of categories that came with labels."""
        for number in dict.fromkeys(label for label in labels if label is not None and label not in self.ids):
            inside = [place for place, label in enumerate(labels) if label == number]
            self._add_centre(number, rows[inside].mean(dim=0))

    def _add_centre(self, number: int, centre: Tensor) -> None:
        self.ids.append(number)
        self.centres = torch.cat([self.centres, centre[None].to(self.centres)])

    def _open(self, rows: Tensor, features: Tensor) -> OpeningRule | None:
        """Open categories for groups of these rows (m, P) that stand beside all others; their centres settle."""
        rule = self._rule()
        if len(rows) < rule.smallest:
            return None
        space = self.model.space
        assigned = partial(self._assigned, features)
        for centre in settled_centres(rule, rows, self.centres, space, lambda every: assigned(every).category):
            self._add_centre(self.categories.open(), centre)
        return rule

    def _rule(self) -> OpeningRule:
        """When a category may be opened, by what is labelled or decided in the run."""
        ids, whitening = self.placer.ids.tolist(), self.model.space
        rows, columns = self._confirmed(ids)
        if rows:
            of_run = self.model.rows(self.features[rows].to(self.model.device)).float().cpu()
            centres, sizes = self.placer.extension.centres.cpu(), sizes_of(self.found, ids)
            rule = choose_rule(of_run, torch.tensor(columns), centres, sizes, whitening)
            if rule.hidden:
                return rule
        # how alike two images of a category are, by those that were found
        place = {number: column for column, number in enumerate(ids)}
        numbers = [place.get(member.category_id, -1) for member in self.found.found_members]
        inside = [row for row, column in enumerate(numbers) if column >= 0]
        of_run = self.model.rows(self.features[inside].to(self.model.device)).float()
        return unconfirmed_rule(of_run.cpu(), torch.tensor(numbers)[inside], whitening)

    def _confirmed(self, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """As `labelled_columns`, but without images that the model has found in another category than people say: they
        are no part of the centre that they would be taken from."""
        rows, columns = labelled_columns(self.found, self.model.known, ids)
        kept = []
        for row, column in zip(rows, columns, strict=True):
            member = self.found.found_members[row]
            as_found = member.category_id if member.model_category_id is None else member.model_category_id
            if self.state.now(as_found) == ids[column] or column >= self.placer.extension.of_model:
                kept.append((row, column))
        return [row for row, _ in kept], [column for _, column in kept]

    # -- images --------------------------------------------------------------------------------------------------------

    def _assigned(self, features: Tensor, centres: Tensor | None = None) -> Assignment:
        others = (self.centres if centres is None else centres)[self.placer.extension.of_model :]
        return self.model.assign(features, Extension(self.model.calibration, others))

    def _as_found(self, raw: NDArray[np.int64], features: Tensor) -> NDArray[np.int64]:
        """The ids (m,) that stand in the table of what was found: such that people's edits lead from there to where the
        lens sees these images. What merging and junking lead to needs nothing; a part of a split is named itself."""
        lens = self.placer.lens
        embedding = self.placer.embedding(features) if lens.compares else None
        seen, whole = lens.shown(raw, embedding), lens.shown(raw, embedding, junk=False)
        now = np.array([self.state.now(number) for number in raw.tolist()], dtype=np.int64)
        found = np.where(now == seen, raw, whole)
        for number in dict.fromkeys(found.tolist()):
            self.categories.adopt(number, _made_name(self.state, number))
        return found

    def _confidence(self, rows: Tensor, assignment: Assignment, labels: Sequence[int | None]) -> Tensor:
        """(m,) of what was found, or of the class that a label says (`labels`: its place among all centres)."""
        given = torch.tensor([-1 if label is None else label for label in labels], device=rows.device)
        category = torch.where(given >= 0, given, assignment.category)
        return self.model.calibration(
            rows, replace(assignment, category=category), self.model.whitening, self.centres
        ).confidence


def labelled_columns(found: Discovery, known: Sequence[str], ids: Sequence[int]) -> tuple[list[int], list[int]]:
    """The rows of images whose category people have said, by a label, by accepting or by moving, and the place of that
    among `ids`. `known`: the classes that the model knows."""
    state, class_ids = found.corrections(), found.class_ids(known)
    said = {m.path: class_ids[m.given_label] for m in found.found_members if m.given_label is not None}
    said |= {m.path: m.category_id for m in found.members if m.status in ("accepted", "moved")}
    place = {number: column for column, number in enumerate(ids)}
    columns = [place.get(state.now(said.get(member.path, JUNK)), -1) for member in found.found_members]
    rows = [row for row, column in enumerate(columns) if column >= 0]
    return rows, [columns[row] for row in rows]


def sizes_of(found: Discovery, ids: Sequence[int]) -> Tensor:
    """(K,) how many images were found in each category, at least 1."""
    sizes = Counter(member.category_id for member in found.found_members)
    return torch.tensor([max(sizes[number], 1) for number in ids])


def categories_of(entries: Sequence[Category], members: Sequence[Member]) -> list[Category]:
    """The same categories with these members."""
    inside: dict[int, list[Member]] = {category.id: [] for category in entries}
    for member in members:
        if member.category_id != POOL:
            inside[member.category_id].append(member)
    return [category_of(c.id, c.name, c.is_new, inside[c.id]) for c in entries]


def names_used(found: Discovery) -> set[str]:
    """Names that categories of a run have or had, also before they were renamed or undone."""
    state = found.corrections()
    given = {str(edit["name"]) for edit in state.made if "name" in edit}
    given |= {str(part["name"]) for edit in state.made for part in edit.get("parts", ())}
    found_as = {category.name for category in found.found_categories} | set(found.names_as_found().values())
    return given | found_as | set(state.names.values()) | set(state.earlier_names)


def _made_name(state: Corrections, number: int) -> str:
    """What a category was called when a person made it; else as it is called."""
    for edit in state.in_force:
        made: Mapping[int, str] = {part["id"]: part["name"] for part in edit.get("parts", ())}
        if edit["edit"] == "move" and "name" in edit:
            made = {edit["to"]: edit["name"]}
        if number in made:
            return made[number]
    return state.names.get(number, f"#{number}")
