"""The tables of a discovery in its run directory: what the model found, as it was written."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import NewkindsError, Skipped
from ..runs.directory import RunDirectory
from .kinds import Category, Member, category_names

ASSIGNMENT_COLUMNS = (
    "path", "given_label", "category", "category_id", "is_new", "confidence", "unlike",
    "model_category_id", "model_confidence",
)  # fmt: skip
SKIPPED_COLUMNS = ("path", "reason")


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
    return *answer, elsewhere, sure_of_that


def write_skipped(skipped: Sequence[Skipped], run: RunDirectory) -> None:
    run.write_table("skipped.csv", SKIPPED_COLUMNS, [(s.path, s.reason) for s in skipped])


def read_skipped(run: RunDirectory) -> list[Skipped]:
    rows = run.read_table("skipped.csv", SKIPPED_COLUMNS) if run.path("skipped.csv").is_file() else []
    return [Skipped(row["path"], row["reason"]) for row in rows]


class AssignmentRows:
    """The rows of `assignments.csv`. They become members when these are asked for: most edits need only the paths."""

    def __init__(self, run: RunDirectory, categories: Sequence[Category]) -> None:
        columns, self.rows = run.read_rows("assignments.csv")
        self.file, self.categories = run.path("assignments.csv"), categories
        self.column = {name: place for place, name in enumerate(columns)}

    def places(self) -> list[tuple[str, int]]:
        """Path and category of each image."""
        with self._expected():
            path, number = self.column["path"], self.column["category_id"]
            categories = [int(row[number]) for row in self.rows]
            if not set(categories) <= set(range(len(self.categories))):
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
            made = []
            for row, (path, number) in zip(self.rows, self.places(), strict=True):
                category = self.categories[number]
                far = float(row[unlike])
                member = Member(path, row[label] or None, category.name, category.is_new, float(row[sure]), far, number)
                if row[other]:
                    elsewhere = self.categories[int(row[other])].id
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


def read_categories(run: RunDirectory) -> list[dict[str, Any]]:
    """The entries of `categories.json`; people may have changed the names in it."""
    file = run.path("categories.json")
    entries = run.read_json("categories.json")
    try:
        wanted = ("name", "is_new", "size", "confidence", "exemplars")
        made = [{name: entry[name] for name in wanted} for entry in entries]
        if not all(isinstance(entry["name"], str) and entry["name"] for entry in made):
            raise TypeError
    except (TypeError, KeyError):
        raise NewkindsError(f"{file} is not a list of categories with names.") from None
    if len({entry["name"] for entry in made}) < len(made):
        raise NewkindsError(f"{file} gives two categories the same name: make them differ.")
    return made


def read_names(run: RunDirectory, known: Sequence[str], k: int, anew: bool = False) -> list[str]:
    """Category names of a run: those in `categories.json` (people edit them), else the default ones.

    `anew`: the model is going to find other categories, so that there may be more or fewer.
    """
    if not run.path("categories.json").is_file():
        return category_names(known, k)
    names = [entry["name"] for entry in read_categories(run)]
    if len(names) != k and not anew:
        raise NewkindsError(f"{run.path('categories.json')} has {len(names)} categories, the model has {k}.")
    return names
