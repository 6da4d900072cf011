"""How a result came from an earlier one, in files of a run: what refining changed, and what each update brought.

Nothing here needs torch."""

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from typing_extensions import Self

from .directory import UPDATES, RunDirectory
from .records import Record
from .typed_json import value_of

# -- refined.json -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelCounts:
    """How many images have a label."""

    before: int
    after: int


@dataclass(frozen=True)
class CategoryCounts:
    """How many categories there are, and how many of them are known classes."""

    before: int
    after: int
    known_before: int
    known_after: int


@dataclass(frozen=True)
class CategoryChange:
    """One category of the refined run."""

    id: int
    was: int | None  # its id in the run that was refined; None: it was not there
    name: str
    is_new: bool
    labels: int
    before: int  # images
    after: int
    kept: int  # images that were there before and are now


@dataclass(frozen=True)
class ImageChange:
    """An image that is in another category now."""

    path: str
    was: str
    now: str
    confidence: float


@dataclass(frozen=True)
class RefinedRecord(Record):
    """What refining changed; a run in which it is not finished is refined on by the same command."""

    FILE: ClassVar[str] = "refined.json"
    ADVICE: ClassVar[str] = "delete it, and refine again (newkinds refine)"

    source: str  # the run that was refined
    edits: int  # in force
    labels: LabelCounts
    decided: dict[str, int]  # images, by what people said about them
    categories: CategoryCounts
    ids: dict[str, int | None]  # in that run → here; None: gone
    sizes: list[CategoryChange]
    changed: int  # images
    surest_changes: list[ImageChange]
    learnt: list[str] = field(default_factory=list)  # how well it can be trusted, in sentences
    chosen: str = ""
    seconds: float = 0.0
    date: str = ""
    finished: bool = False


# -- updates.json: what came later, one entry for each `newkinds update` ----------------------------------------------


@dataclass(frozen=True)
class OpenedCategory:
    """A category that an update has opened."""

    id: int
    name: str
    size: int  # images, when it was opened
    by_label: bool  # images came with a label that the run did not know; else the rule opened it


@dataclass(frozen=True)
class OpeningEvidence:
    """What the labelled images say about the rule by which categories are opened: known classes were hidden in turn."""

    threshold: float  # silhouette that a group needs
    smallest: int  # images that a group needs
    hidden: int = 0  # classes that were hidden
    found: int = 0  # of which a category was opened
    openings: int = 0
    false: int = 0  # of these: no hidden class, a mixture, or one class for the second time
    sentence: str = ""


@dataclass(frozen=True)
class UpdateRecord:
    """One update: what came, where it went, what was opened."""

    number: int  # `since` of the images that came with it
    at: str  # 2026-11-18T07:30:00Z
    came: int  # images
    placed: dict[str, int]  # id of a category → images that this update put there
    pool: int  # images that are not placed yet, of all updates
    next_id: int  # ids below it are taken for ever
    opened: list[OpenedCategory] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)  # images that were there and are not any more
    changed: list[str] = field(default_factory=list)  # images that show something else now
    renamed: dict[str, str] = field(default_factory=dict)  # path now → path before
    copies: dict[str, str] = field(default_factory=dict)  # a path that was not added → the image that shows the same
    skipped: int = 0  # files that came and cannot be read
    evidence: OpeningEvidence | None = None
    edits: int = 0  # that had been made
    better_model: str = ""  # what `--time` made of it, in a sentence
    seconds: float = 0.0
    earlier: str = ""  # where the result before it is, below the run
    undone: bool = False


@dataclass(frozen=True)
class UpdateHistory(Record):
    """All updates of a run, the first one first; the file is their list."""

    FILE: ClassVar[str] = UPDATES
    ADVICE: ClassVar[str] = "restore it from a copy: it says which ids of categories are taken"

    updates: list[UpdateRecord] = field(default_factory=list)

    @classmethod
    def of_json(cls, content: Any) -> Self:
        return cls(value_of(content, list[UpdateRecord], ""))

    @classmethod
    def of(cls, run: RunDirectory) -> Self:
        """Of a run that may have none."""
        return cls.find(run) or cls()

    @property
    def last(self) -> UpdateRecord | None:
        """The one that is in force and came last."""
        return next((update for update in reversed(self.updates) if not update.undone), None)

    def write(self, run: RunDirectory) -> None:
        run.write_json(self.FILE, [asdict(update) for update in self.updates])
