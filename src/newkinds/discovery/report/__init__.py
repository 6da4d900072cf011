"""The page a discovery leaves behind: one HTML file that needs no network, no script and no other file. Names, paths
and labels come from other people's file names: the template escapes every one, and the page's own policy forbids
scripts and requests."""

import base64
import io
import math
import re
from dataclasses import dataclass, field
from importlib import resources

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from ...comparison import Comparison
from ..figures import FieldOverlays

THUMBNAIL_SIDE = 128  # pixels of the longer side: sharp at 64 CSS pixels on a phone, about 4 kB
SKIPPED_SHOWN = 200  # the rest is in skipped.csv


@dataclass
class Thumbnail:
    """One image of a category."""

    image: Image.Image | np.ndarray  # an array is (H, W, 3) uint8
    caption: str  # its path
    confidence: float  # 0…1
    given_label: str | None = None  # what the user had labelled it, if anything


@dataclass
class CategoryRow:
    """A discovered or known category with as many of its images as the caller wants shown."""

    name: str
    is_new: bool
    size: int  # images assigned to it, shown or not
    confidence: float  # mean over its images, 0…1
    thumbnails: list[Thumbnail] = field(default_factory=list)
    truth: str | None = None  # its commonest true class, if the truth is known


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
    comparison: Comparison | None = None
    fields: FieldPictures | None = None
    skipped: list[tuple[str, str]] = field(default_factory=list)  # path, reason


def render(page: Page) -> str:
    """The page as one HTML document; every image it was given is inside, at thumbnail size.

    >>> write_whole(run / "report.html", render(Page("3 new kinds", "in birds/", ...)))
    """
    environment = Environment(
        loader=PackageLoader(__name__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(data_uri=_data_uri, bar_width=_bar_width, percent=_percent)
    html = environment.get_template("page.html").render(
        page=page,
        new=[row for row in page.categories if row.is_new],
        known=[row for row in page.categories if not row.is_new],
        largest=max((row.size for row in page.categories), default=0),
        skipped_shown=SKIPPED_SHOWN,
        css=Markup(resources.files(__name__).joinpath("page.css").read_text("utf-8")),
    )
    return _writable(html.strip() + "\n")  # the template begins with its macros


def _data_uri(image: Image.Image | np.ndarray, side: int = THUMBNAIL_SIDE) -> str:
    """A JPEG inside the page, at most `side` pixels; the browser enlarges what is smaller."""
    picture = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    picture = picture.convert("RGB")  # a copy: thumbnail() works in place
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    jpeg = io.BytesIO()
    picture.save(jpeg, "JPEG", quality=82, subsampling=0, optimize=True)  # colour unsampled: edges stay clean
    return "data:image/jpeg;base64," + base64.b64encode(jpeg.getvalue()).decode("ascii")


def _bar_width(fraction: float) -> str:
    """A CSS length inside 0…100 %; nothing for NaN."""
    return f"{100 * min(max(fraction, 0), 1):.1f}%" if math.isfinite(fraction) else "0"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %" if math.isfinite(fraction) else "–"


def _writable(html: str) -> str:
    """Replace what no HTML file may hold: control characters, and bytes of file names that are not UTF-8."""
    html = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "\N{REPLACEMENT CHARACTER}", html)
    return html.encode("utf-8", "backslashreplace").decode("utf-8")
