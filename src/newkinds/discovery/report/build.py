"""Fill the page from the files of a run, without torch; and write it."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ..._version import __version__
from ...comparison import Comparison
from ...console import keep_quiet, warn
from ...data import load_table
from ...data.images import BadImage
from ...data.json_lists import COCO, MEGADETECTOR
from ...data.table import Table
from ...errors import NewkindsError
from ...runs.directory import RunDirectory
from ...runs.records import Findings, PlanRecord, Reliability
from ..card import run_card
from ..categories import Discovery
from ..described import Described, read_described
from ..doubts import doubts_of, label_notes
from ..figures.field_maps import field_overlays
from ..kinds import Member
from ..marks import MEANINGS, marks_of
from ..originals import originals, without_replaced
from ..promise import promises_of
from ..relations import relate
from ..split import read_embedding
from ..tree import centres_of, grow_tree
from . import LIMITS, CategoryRow, FieldPictures, MaybeOne, Page, render
from .accuracy import read_accuracy, read_number
from .charts import count_curve, dots
from .edit_history import by_hand, histories, positions, present_labels, update_lines
from .page_images import MOST_WANTED, PageImages

PAGE, CARD = "report.html", "README.md"


NO_PICTURES = "The page has no pictures"
LAST_PICTURES = "report-with-pictures.html"


def write_page(run: RunDirectory, images: str | Path | None = None) -> None:
    """Render `report.html` again; `images`: where the images are now, if they have moved."""
    put_page(run, page_of(run, images))


def put_page(run: RunDirectory, page: Page) -> None:
    """Write `report.html`. If the images have gone, the last page that has pictures is kept beside it."""
    with_pictures = run.path(LAST_PICTURES)
    if page.notice.startswith(NO_PICTURES) and run.path(PAGE).is_file() and not with_pictures.is_file():
        run.write(LAST_PICTURES, run.path(PAGE).read_bytes())
        warn(f"the last page with pictures is kept as {with_pictures}.")
    run.write(PAGE, render(page))


def write_card(run: RunDirectory) -> None:
    """Write `README.md` again."""
    run.write(CARD, run_card(run, read_described(run), Discovery.read(run.folder)))


def page_of(run: RunDirectory, images: str | Path | None = None) -> Page:
    """The page of one run: what was found and corrected, what it looks like, how it was made."""
    discovery, described = Discovery.read(run.folder), read_described(run)
    categories, members = discovery.categories, discovery.members
    table, gone = _images(run, members, images)
    table, replaced = without_replaced(run, table)
    position = np.array(positions(categories, members), dtype=np.int64)  # (n,)
    kept = np.flatnonzero(position >= 0)  # neither junk nor in the pool
    embedding = read_embedding(run, len(members))
    relations = relate(embedding[kept], position[kept], len(categories), len(discovery.known))
    groups = grow_tree(centres_of(embedding, position)).groups()
    findings = Findings.read(run)
    wanted = {finding.path for finding in findings[:MOST_WANTED]}
    labels = present_labels(discovery, described.known)
    doubts = {path: discovery.category(number).name for path, number in doubts_of(discovery).items()}
    pictures = PageImages(members, position, len(categories), labels, table, wanted, doubts)
    names = [category.name for category in categories]
    marks = marks_of(categories, members, labels, relations.spread)
    truths = _majority_truths(members, _truth_of(run, images))
    stories, notes = histories(discovery), label_notes(discovery)
    dots_of, dot_width = dots(relations.places, position[kept], relations.centres, names)
    rows = [
        CategoryRow(
            c.name, c.is_new, c.size, c.confidence, *pictures.of_category(place), truths.get(c.name),
            marks[c.name], [names[other] for other in relations.nearest(place)], dots_of[place],
            c.id, stories.get(c.id, ""), notes.get(c.id, ""),
        )
        for place, c in sorted(enumerate(categories), key=lambda entry: (not entry[1].is_new, -entry[1].size))
        if c.size
    ]  # fmt: skip
    if replaced:
        gone = _of_replaced(replaced)
        warn(gone)
    elif not gone and pictures.missing and table.vectors is None:  # vectors never had pictures
        gone = (
            f"{pictures.missing:,} images could not be read any more; they are shown without a picture. If they have "
            "moved, say where they are now: newkinds report RUN --images FOLDER."
        )
    counted = read_number(run)
    recipe, out = shlex.quote(str(run.path("config.yaml"))), shlex.quote(str(run.folder))
    return Page(
        title=_title(discovery),
        subtitle=_subtitle(discovery, len(kept)),
        summary=_summary(discovery, len(kept)),
        categories=rows,
        command=f"newkinds discover --recipe {recipe} --out {out}",
        version=__version__,
        run=out,
        notice=gone,
        promises=promises_of(discovery),
        sheets=pictures.sheets,
        dot_width=dot_width,
        meanings=MEANINGS,
        groups=[[names[place] for place in group] for group in groups] if len(groups) > 1 else [],
        pairs=[MaybeOne(names[pair.first], names[pair.second], pair.mixing) for pair in relations.pairs],
        doubts=list(map(pictures.image_at, pictures.doubtful)),
        unlike=list(map(pictures.image_at, pictures.unlike)),
        pool=list(map(pictures.image_at, pictures.pool)),
        findings=[(finding, pictures.image_of(finding.path)) for finding in findings],
        by_hand=by_hand(discovery, pictures, LIMITS["junk"]),
        updates=update_lines(run),
        accuracy=read_accuracy(run, discovery),
        count=counted,
        curve=None if counted is None else count_curve(counted),
        plan=PlanRecord.find(run),
        reliability=Reliability.find(run),
        comparison=Comparison(rows=[], protocol=described.protocol),
        fields=_field_pictures(described, discovery),
        skipped=[(s.path, s.reason) for s in discovery.skipped],
    )


def _images(run: RunDirectory, members: Sequence[Member], folder: str | Path | None) -> tuple[Table, str]:
    """The members' images; and why there are none, if their folder is gone: a page without pictures is still a page."""
    try:
        return originals(run, members, folder), ""
    except NewkindsError as error:
        if folder is not None:
            raise
        warn(f"{error} The page is made without pictures.")
        gone = f"{NO_PICTURES}: {error}"
    paths, labels = [member.path for member in members], [member.given_label for member in members]
    return Table(paths, labels, _open_nothing), gone


def _of_replaced(paths: Sequence[str]) -> str:
    """What the page says about images that are not those the run has seen."""
    which = f"{', '.join(paths[:3])}{', …' if len(paths) > 3 else ''}"
    were = "1 image was" if len(paths) == 1 else f"{len(paths):,} images were"
    return (
        f"{were} replaced by another since the run began, and what was found is not about what is there now: {which}. "
        "No picture is shown of these; run newkinds discover again to look at the new ones."
    )


def _open_nothing(row: int) -> Image.Image:
    raise BadImage("the images are gone")


def _title(discovery: Discovery) -> str:
    new = "new " if discovery.known else ""  # without any label nothing is known, and so nothing is new
    return f"{len(discovery.new):,} {new}{'category' if len(discovery.new) == 1 else 'categories'}"


def _subtitle(discovery: Discovery, images: int) -> str:
    if not discovery.known:
        return f"in {images:,} images, none of which has a label"
    return f"and {len(discovery.known):,} known ones, in {images:,} images"


def _summary(discovery: Discovery, assigned: int) -> list[tuple[str, str]]:
    return [
        ("new categories", f"{len(discovery.new):,}"),
        ("images in new categories", f"{sum(c.size for c in discovery.new):,}"),
        ("known categories", f"{len(discovery.known):,}"),
        ("images assigned", f"{assigned:,}"),
        *([("images not placed yet", f"{len(discovery.pool):,}")] if discovery.pool else []),
        ("files skipped", f"{len(discovery.skipped):,}"),
    ]


def _truth_of(run: RunDirectory, folder: str | Path | None) -> dict[str, str | None]:
    """Path → true class, if the data has one of its own."""
    data = run.settings()["data"]
    if data["name"] in ("folder", COCO, MEGADETECTOR) and data.get("known") is None:
        return {}  # labels are all that these say
    if "group_by_time" in data:
        data = {**data, "group_by_time": None}  # photos need not be opened for it
    moved = {} if folder is None else {"root" if "root" in data else "path": str(folder)}
    try:
        with keep_quiet():  # what there is to say about the data was said when the run began
            table = load_table({**data, **moved})
    except NewkindsError:  # the images have moved, or are not there
        return {}
    return {} if table.truth is None else dict(zip(table.paths, table.truth, strict=True))


def _majority_truths(members: Sequence[Member], truth_of: Mapping[str, str | None]) -> dict[str, str]:
    """Category → its commonest true class and that one's share of it, if the truth is known."""
    counts: dict[str, Counter[str]] = {}
    for member in members:
        if (truth := truth_of.get(member.path)) is not None:
            counts.setdefault(member.category, Counter())[truth] += 1
    return {
        name: f"{truth} ({100 * share / sum(counter.values()):.0f} %)"
        for name, counter in counts.items()
        for truth, share in counter.most_common(1)
    }


def _field_pictures(described: Described, discovery: Discovery) -> FieldPictures | None:
    """The primitive fields that were kept, except for images that are junk since then."""
    if (fields := described.fields) is None:
        return None
    junk = {member.path for member in discovery.members if member.status == "junk"}
    fields = fields.of([place for place, path in enumerate(fields.paths) if path not in junk])
    if not fields.paths:
        return None
    return FieldPictures(fields.paths, field_overlays(list(fields.views), list(fields.shares), fields.grid))
