"""What was discovered: the categories, their members, and how sure each assignment is."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ..data.table import Skipped, Table
from ..errors import NewkindsError
from ..methods.base import Assignment
from ..runs.run import Run
from ..text import text_table
from ..training.embedding import Embedded

ASSIGNMENT_COLUMNS = ("path", "given_label", "category", "is_new", "confidence", "unlike")
SKIPPED_COLUMNS = ("path", "reason")
EXEMPLARS = 12


@dataclass(frozen=True)
class Category:
    """A known class or a discovered one."""

    id: int
    name: str
    is_new: bool
    size: int  # images assigned to it
    confidence: float  # mean over them; 0 if there are none
    exemplars: list[str]  # paths of its most typical images, best first


@dataclass(frozen=True)
class Member:
    """One image: what its label said, and the category the model puts it in.

    Labelled images are assigned too: if the two differ, one of them deserves a look.
    """

    path: str
    given_label: str | None
    category: str
    is_new: bool
    confidence: float  # that it is right
    unlike: float | None = None  # distance to its category; above 1, it is none of these. None: of an old run


@dataclass(frozen=True)
class Discovery:
    """The result of `newkinds.discover`.

    >>> found = newkinds.discover("photos/", out="runs/photos", k=40)
    >>> [(c.name, c.size) for c in found.new]
    """

    run: Path
    categories: list[Category]
    members: list[Member]
    skipped: list[Skipped]

    @property
    def new(self) -> list[Category]:
        """Categories without a label that have members, largest first."""
        return sorted((c for c in self.categories if c.is_new and c.size), key=lambda c: -c.size)

    @property
    def known(self) -> list[Category]:
        return [c for c in self.categories if not c.is_new]


def category_names(known: Sequence[str], k: int) -> list[str]:
    """Names for all categories: the known classes', then new-1, new-2, … (with another word if that is taken).

    >>> category_names(["cat", "dog"], 4)
    ['cat', 'dog', 'new-1', 'new-2']
    """
    word = "new"
    while any(name.startswith(f"{word}-") for name in known):
        word = f"discovered-{word}"
    width = len(str(k - len(known)))
    return [*known, *(f"{word}-{i:0{width}d}" for i in range(1, k - len(known) + 1))]


def gather(
    run: Run, table: Table, embedded: Embedded, assignment: Assignment, names: Sequence[str], known: int
) -> Discovery:
    """Members and categories from an assignment of the embedded images; the first `known` categories are known."""
    category, confidence = assignment.category.cpu().numpy(), assignment.confidence.cpu().numpy()
    members = [
        Member(table.paths[row], table.labels[row], names[c], bool(c >= known), round(float(p), 4), unlike)
        for row, c, p, unlike in zip(embedded.rows, category, confidence, unlike_of(assignment), strict=True)
    ]
    sizes = np.bincount(category, minlength=len(names))
    sums = np.bincount(category, weights=confidence, minlength=len(names))
    exemplars: list[list[str]] = [[] for _ in names]
    for i in np.argsort(-confidence, kind="stable"):
        if len(exemplars[category[i]]) < EXEMPLARS:
            exemplars[category[i]].append(members[i].path)
    categories = [
        Category(i, name, i >= known, int(sizes[i]), round(float(sums[i] / max(sizes[i], 1)), 4), exemplars[i])
        for i, name in enumerate(names)
    ]
    return Discovery(run.folder, categories, members, table.skipped + embedded.skipped)


def unlike_of(assignment: Assignment) -> list[float] | list[None]:
    """How unlike its category each image is, rounded as it is written; None for all if the run does not know."""
    unlike = assignment.unlike
    return [None] * len(assignment.category) if unlike is None else [round(value, 3) for value in unlike.tolist()]


def unlike_text(unlike: float | None) -> str:
    return "" if unlike is None else f"{unlike:.3f}"


def write(discovery: Discovery, run: Run) -> None:
    """`skipped.csv`, `categories.json` and, last, `assignments.csv`: if that exists, so do the others."""
    write_skipped(discovery.skipped, run)
    run.write_json("categories.json", [asdict(category) for category in discovery.categories])
    rows = [
        (m.path, m.given_label or "", m.category, str(m.is_new).lower(), f"{m.confidence:.4f}", unlike_text(m.unlike))
        for m in discovery.members
    ]
    run.write_table("assignments.csv", ASSIGNMENT_COLUMNS, rows)


def write_skipped(skipped: Sequence[Skipped], run: Run) -> None:
    run.write_table("skipped.csv", SKIPPED_COLUMNS, [(s.path, s.reason) for s in skipped])


def read_names(run: Run, known: Sequence[str], k: int) -> list[str]:
    """Category names of a run: those in `categories.json` (people edit them), else the default ones."""
    if not run.path("categories.json").is_file():
        return category_names(known, k)
    try:
        names = [entry["name"] for entry in run.read_json("categories.json")]
        if not all(isinstance(name, str) and name for name in names):
            raise TypeError
    except (TypeError, KeyError):
        raise NewkindsError(f"{run.path('categories.json')} is not a list of categories with names.") from None
    if len(set(names)) < len(names):
        raise NewkindsError(f"{run.path('categories.json')} gives two categories the same name: make them differ.")
    if len(names) != k:
        raise NewkindsError(f"{run.path('categories.json')} has {len(names)} categories, the model has {k}.")
    return names


def summary(discovery: Discovery) -> str:
    """New categories with their sizes, and where to look."""
    rows = [[c.name, str(c.size), f"{c.confidence:.2f}"] for c in discovery.new]
    table = text_table(["new category", "images", "confidence"], rows) if rows else "no new category has members"
    strange = sum((member.unlike or 0) > 1 for member in discovery.members)
    unlike = f"{strange} image{' is' if strange == 1 else 's are'} unlike every category (unlike > 1): see the report\n"
    return (
        f"{table}\n\n{len(discovery.members)} images assigned ({len(discovery.known)} known categories, "
        f"{len(discovery.new)} new), {len(discovery.skipped)} skipped\n"
        f"{unlike if strange else ''}"
        f"look at {discovery.run / 'report.html'}; tables in {discovery.run / 'assignments.csv'}"
    )
