"""The tables of a discovery in its run directory: what the model found, as it was written."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import NewkindsError, Skipped
from ..runs.directory import RunDirectory
from .edits import POOL, POOL_NAME
from .kinds import Category, Member, category_names

ASSIGNMENT_COLUMNS = (
    "path", "given_label", "category", "category_id", "is_new", "confidence", "unlike",
    "model_category_id", "model_confidence", "since",
)  # fmt: skip
SKIPPED_COLUMNS = ("path", "reason")
NOT_PLACED = Category(POOL, POOL_NAME, False, 0, 0.0, [])


def write_tables(
    categories: Sequence[Category], members: Sequence[Member], skipped: Sequence[Skipped], run: RunDirectory
) -> None:
    """`skipped.csv`, `categories.json` and, last, `assignments.csv`: if that exists, so do the others."""
    write_skipped(skipped, run)
    run.write_json("categories.json", [category._asdict() for category in categories])
    run.write_table("assignments.csv", ASSIGNMENT_COLUMNS, [member_row(member) for member in members])


def member_row(m: Member) -> tuple[Any, ...]:
    """An image as `assignments.csv` has it."""
    new, sure = str(m.is_new).lower(), f"{m.confidence:.4f}"
    elsewhere = "" if m.model_category_id is None else m.model_category_id
    sure_of_that = "" if m.model_confidence is None else f"{m.model_confidence:.4f}"
    answer = (m.path, m.given_label or "", m.category, m.category_id, new, sure, f"{m.unlike:.3f}")
    return *answer, elsewhere, sure_of_that, m.since


def write_skipped(skipped: Sequence[Skipped], run: RunDirectory) -> None:
    run.write_table("skipped.csv", SKIPPED_COLUMNS, [(s.path, s.reason) for s in skipped])


def read_skipped(run: RunDirectory) -> list[Skipped]:
    rows = run.read_table("skipped.csv", SKIPPED_COLUMNS) if run.path("skipped.csv").is_file() else []
    return [Skipped(row["path"], row["reason"]) for row in rows]


class AssignmentRows:
    """The rows of `assignments.csv`. They become members when these are asked for: most edits need only the paths."""

    def __init__(self, run: RunDirectory, categories: Sequence[Category]) -> None:
        columns, self.rows = run.read_rows("assignments.csv")
        self.file, self.category = run.path("assignments.csv"), {category.id: category for category in categories}
        self.column = {name: place for place, name in enumerate(columns)}

    def places(self) -> list[tuple[str, int]]:
        """Path and category of each image."""
        with self._expected():
            path, number = self.column["path"], self.column["category_id"]
            categories = [int(row[number]) for row in self.rows]
            if not set(categories) <= {*self.category, POOL}:
                raise IndexError("a category that is not there")
            return list(zip([row[path] for row in self.rows], categories, strict=True))

    def names(self) -> dict[int, str]:
        """What each category that has images was called when the table was written, by its id."""
        with self._expected():
            name = self.column["category"]
            return {number: row[name] for row, (_, number) in zip(self.rows, self.places(), strict=True)}

    def members(self) -> list[Member]:
        """The images; their categories are called as they are now, not as they were when the table was written."""
        with self._expected():
            label, sure, unlike = (self.column[name] for name in ("given_label", "confidence", "unlike"))
            other, other_sure = (self.column[name] for name in ("model_category_id", "model_confidence"))
            since = self.column.get("since")  # earlier versions have none
            made = []
            for row, (path, number) in zip(self.rows, self.places(), strict=True):
                category = self.category.get(number, NOT_PLACED)
                far = float(row[unlike])
                member = Member(path, row[label] or None, category.name, category.is_new, float(row[sure]), far, number)
                if since is not None:
                    member = member._replace(since=int(row[since]))
                if row[other]:
                    elsewhere = self.category[int(row[other])].id
                    member = member._replace(model_category_id=elsewhere, model_confidence=float(row[other_sure]))
                made.append(member)
            return made

    @contextmanager
    def _expected(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, ValueError, IndexError) as error:
            raise NewkindsError(
                f"{self.file} is damaged or does not fit categories.json ({error}): delete it and run newkinds "
                "discover again."
            ) from None


def read_categories(run: RunDirectory) -> list[Category]:
    """What `categories.json` says; people may have changed the names in it.

    The place in the list is the number that the model has for a category. Those after these came since: the model does
    not know them. Ids stay, whatever the model; those of earlier versions are places.
    """
    file = run.path("categories.json")
    entries = run.read_json("categories.json")
    try:
        made = [
            Category(entry.get("id", place), *(entry[name] for name in Category._fields[1:]))
            for place, entry in enumerate(entries)
        ]
        if not all(isinstance(category.name, str) and category.name for category in made):
            raise TypeError
        if not all(type(category.id) is int and category.id >= 0 for category in made):
            raise TypeError
    except (TypeError, KeyError, AttributeError):
        raise NewkindsError(f"{file} is not a list of categories with names.") from None
    for what in ("name", "id"):
        if len({getattr(category, what) for category in made}) < len(made):
            raise NewkindsError(f"{file} gives two categories the same {what}: make them differ.")
    return made


def categories_of_model(run: RunDirectory, known: Sequence[str], k: int) -> list[tuple[int, str]]:
    """Id and name of each of the k categories that a run's model knows: as `categories.json` has them (people edit the
    names), else the default ones."""
    if not run.path("categories.json").is_file():
        return list(enumerate(category_names(known, k)))
    found = read_categories(run)
    if len(found) < k:
        raise NewkindsError(f"{run.path('categories.json')} has {len(found)} categories, the model has {k}.")
    return [(category.id, category.name) for category in found[:k]]
