"""The page a discovery leaves behind: one HTML file that needs no network and no other file, and can be read without
its script. Names, paths and labels come from other people's file names: the template escapes every one, the script
treats them as text, and the page's own policy forbids requests and every script but that one."""

import base64
import hashlib
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from ...category_count import Count, how_sure, parts_text
from ...comparison import Comparison
from ...runs.records import Finding, PlanRecord, Reliability
from ...text import duration
from ..figures.field_maps import FieldOverlays
from ..kinds import is_unlike
from ..marks import Mark
from ..promise import Promises
from .accuracy import AccuracyTable
from .charts import CHART_HEIGHT, CHART_WIDTH, MAP_HEIGHT, MAP_WIDTH, CountCurve, Dots
from .sheets import Sheet, Tile

FIELD_SIDE = 224  # px of the pictures of primitive fields
# entries of each part that are listed on the page; there are more in skipped.csv, check.csv and assignments.csv
LIMITS = {
    "skipped": 200, "findings": 60, "doubts": 60, "pairs": 20, "glance": 24, "log": 100, "junk": 120, "groups": 60,
}  # fmt: skip


@dataclass(frozen=True)
class ShownImage:
    """One image."""

    caption: str  # its path
    category: str
    confidence: float  # 0…1
    given_label: str | None = None  # what the user had labelled it, if anything
    agrees: bool = True  # whether that label is its category's
    unlike: float = 0.0  # distance to its category; above 1 it is like none of them
    tile: Tile | None = None  # its picture; none if the file has vanished
    status: str = ""  # "moved", "accepted" or "junk" by a person
    model_says: str | None = None  # the category where the model would put a labelled image, if that is another one
    model_confidence: float | None = None  # that it belongs there

    @property
    def is_unlike(self) -> bool:
        """Whether it is unlike every category, and nobody has decided where it belongs."""
        return is_unlike(self.unlike, self.status)


@dataclass(frozen=True)
class CategoryRow:
    """A discovered or known category."""

    name: str
    is_new: bool
    size: int  # images assigned to it, shown or not
    confidence: float  # mean over its images, 0…1
    most: list[ShownImage] = field(default_factory=list)  # its most certain images, best first
    least: list[ShownImage] = field(default_factory=list)  # the least certain ones, the worst last
    others: list[ShownImage] = field(default_factory=list)  # those between them; an even sample if there are too many
    truth: str | None = None  # its commonest true class, if the truth is known
    marks: list[Mark] = field(default_factory=list)  # why it deserves a look
    nearest: list[str] = field(default_factory=list)  # names of the most similar categories
    dots: Dots | None = None  # on the map
    id: int | None = None  # which stays, whatever it is called
    history: str = ""  # what people made of it
    labels: str = ""  # what is to be said about labelled images in it, or of its class
    unlike: float | None = None  # of a group of strangers, which is no category: how unlike every one they are
    ends: tuple[str, str] = ("Most certain", "Least certain")  # what `most` and `least` are

    @property
    def shown(self) -> int:
        return len(self.most) + len(self.least) + len(self.others)

    @property
    def hidden(self) -> int:
        """Images that are neither among the most nor among the least certain ones."""
        return self.size - len(self.most) - len(self.least)


@dataclass(frozen=True)
class MaybeOne:
    """Two categories that may be one."""

    first: str
    second: str
    mixing: float


@dataclass(frozen=True)
class LogLine:
    """One edit in words."""

    number: int
    at: str  # 2026-11-17 09:30
    says: str
    in_force: bool


@dataclass(frozen=True)
class ByHand:
    """All that was corrected."""

    in_force: int  # edits
    counts: list[tuple[str, int]]  # images: ("moved", 3)
    log: list[LogLine]  # the latest first
    junk: list[tuple[ShownImage, str]] = field(default_factory=list)  # images, and why they are junk
    junk_count: int = 0  # of which there may be more than are shown


@dataclass(frozen=True)
class UpdateLine:
    """One update in words."""

    number: int
    at: str  # 2026-11-17 09:30
    came: str
    placed: int  # images
    opened: list[str]  # names of categories
    waiting: int  # images that were not placed then
    note: str = ""  # what confirms the rule, and a better model
    undone: bool = False


@dataclass
class FieldPictures:
    """The primitive fields of a few images, as `figures.field_overlays` draws them."""

    captions: list[str]  # one per image
    drawn: FieldOverlays


@dataclass
class Page:
    """Everything the page shows."""

    title: str
    subtitle: str
    summary: list[tuple[str, str]]  # what is counted, how many: ("images in", "1,204")
    categories: list[CategoryRow]
    command: str  # what the user typed
    version: str  # of newkinds
    run: str = "RUN"  # its folder, as a shell wants it
    notice: str = ""  # what is missing on the page, and why
    promises: Promises = field(default_factory=list)  # what can be promised, and by which evidence
    sheets: list[Sheet] = field(default_factory=list)
    dot_width: float = 6.0  # on the map
    meanings: Mapping[Mark, str] = field(default_factory=dict)
    groups: list[list[str]] = field(default_factory=list)  # names of similar categories, in the order of their tree
    pairs: list[MaybeOne] = field(default_factory=list)
    doubts: list[ShownImage] = field(default_factory=list)  # labelled images that the model would put elsewhere
    unlike: list[ShownImage] = field(default_factory=list)  # images that are like no category, the least alike first
    pool: list[ShownImage] = field(default_factory=list)  # images that are not placed yet
    findings: list[tuple[Finding, ShownImage | None]] = field(default_factory=list)  # of the data check, with the image
    by_hand: ByHand | None = None  # what people corrected
    updates: list[UpdateLine] = field(default_factory=list)  # what came later, the latest first
    accuracy: AccuracyTable | None = None
    count: Count | None = None
    curve: CountCurve | None = None
    plan: PlanRecord | None = None
    reliability: Reliability | None = None
    comparison: Comparison | None = None
    fields: FieldPictures | None = None
    skipped: list[tuple[str, str]] = field(default_factory=list)  # path, reason
    strangers: list[CategoryRow] = field(default_factory=list)  # groups of images like no category, on a page of others
    update: str = ""  # the command that adds the images to the run, if they are others than its own
    is_listed: bool = True  # whether tables of the run list all that the page leaves out


def render(page: Page) -> str:
    """The page as one HTML document.

    >>> write_whole(run / "report.html", render(Page("3 new kinds", "in birds/", ...)))
    """
    new = [row for row in page.categories if row.is_new]
    kinds = {"new": new, "known": [row for row in page.categories if not row.is_new]}
    script = _own_file("page.js")
    html = (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            **kinds,
            # identifiers are made of numbers: names may be anything
            id_of={row.name: f"{kind}-{i}" for kind, rows in kinds.items() for i, row in enumerate(rows, 1)},
            row_of={row.name: row for row in page.categories},
            place_of={name: place for place, name in enumerate(name for group in page.groups for name in group)},
            hue_of={row.name: round(137.508 * i) % 360 for i, row in enumerate(new)},  # the golden angle
            marked={mark: sum(mark in row.marks for row in page.categories) for mark in page.meanings},
            checks=_by_check(page.findings),
            about_all=[finding.sentence for finding, _ in page.findings if not finding.path],
            has_labels=any(
                image.given_label for row in page.categories for image in (*row.most, *row.least, *row.others)
            ),
            largest=max((row.size for row in page.categories), default=0),
            limits=LIMITS,
            sizes={"map": (MAP_WIDTH, MAP_HEIGHT), "chart": (CHART_WIDTH, CHART_HEIGHT)},
            css=Markup(_own_file("page.css")),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii"),
        )
    )
    return _writable(html.strip() + "\n")  # the template begins with its macros


@cache
def _environment() -> Environment:
    """What reads the templates; once, for compiling them takes longer than filling most pages."""
    environment = Environment(
        loader=PackageLoader(__name__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        data_uri=_data_uri,
        base64=_base64,
        bar_width=_bar_width,
        percent=_percent,
        duration=_duration,
        how_sure=how_sure,
        parts=parts_text,
    )
    return environment


def _own_file(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text("utf-8")


def _by_check(findings: list[tuple[Finding, ShownImage | None]]) -> dict[str, list[tuple[Finding, ShownImage | None]]]:
    """Check → what it found in single images."""
    checks: dict[str, list[tuple[Finding, ShownImage | None]]] = {}
    for finding, shown in findings:
        if finding.path:
            checks.setdefault(finding.check, []).append((finding, shown))
    return checks


def _data_uri(image: np.ndarray, side: int = FIELD_SIDE) -> str:
    """A JPEG (H, W, 3) uint8 inside the page, at most `side` pixels; the browser enlarges what is smaller."""
    picture = Image.fromarray(image)
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    jpeg = io.BytesIO()
    picture.save(jpeg, "JPEG", quality=82, subsampling=0, optimize=True)  # colour unsampled: edges stay clean
    return "data:image/jpeg;base64," + _base64(jpeg.getvalue())


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _bar_width(fraction: float) -> str:
    """A CSS length inside 0…100 %; nothing for NaN."""
    return f"{100 * min(max(fraction, 0), 1):.1f}%" if math.isfinite(fraction) else "0"


def _percent(fraction: float | None, decimals: int = 0) -> str:
    return f"{100 * fraction:.{decimals}f} %" if fraction is not None and math.isfinite(fraction) else "–"


def _duration(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)


def _writable(html: str) -> str:
    """Replace what no HTML file may hold: control characters, and bytes of file names that are not UTF-8."""
    html = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "\N{REPLACEMENT CHARACTER}", html)
    return html.encode("utf-8", "backslashreplace").decode("utf-8")
