"""Fill the page from a run."""

import shlex
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..._version import __version__
from ...comparison import Comparison
from ...data.images import BadImage
from ...data.table import Table
from ...runs.protocol import describe_protocol
from ...runs.run import Run
from ...training.embedding import Fields, fields_of
from ...training.model import Model
from ..categories import Discovery
from ..figures.fields import field_overlays
from ..marks import MEANINGS, marks_of
from ..relations import relate
from . import CategoryRow, FieldPictures, MaybeOne, Page, Shown
from .charts import curve, dots
from .evidence import read_calibration, read_findings, read_number, read_plan
from .sheets import Sheet, Tile, draw_sheets

ENDS = 6  # most certain images of a category that are always shown, and as many of the least certain
MOST_PICTURES = 12_000  # of more images, an even sample of each category is shown, and all that are in doubt
MOST_WANTED = 200  # images in doubt of each sort that are shown whatever the sample
ENDS_BYTES = 5_000_000  # of pictures that are always shown; in the page a third more, for they are written as text
PICTURE_BYTES = 15_000_000  # of all pictures
FIELD_IMAGES = 6  # images whose primitive fields are drawn


def page_of(discovery: Discovery, model: Model, table: Table, run: Run, features: Tensor) -> Page:
    """The page of one run: what was found, what it looks like, how it was made; `features` (n, D) are the members'."""
    id_of = {category.name: category.id for category in discovery.categories}
    category = np.array([id_of[member.category] for member in discovery.members], dtype=np.int64)  # (n,)
    with torch.inference_mode():
        embedding = model.embedding(features.to(model.device)).float().cpu().numpy()
    relations = relate(embedding, category, len(discovery.categories), len(model.known))
    names = [c.name for c in discovery.categories]
    findings = read_findings(run)
    images = _Images(discovery, category, model.known, table, {finding.path for finding in findings[:MOST_WANTED]})
    marks = marks_of(discovery.categories, discovery.members, relations.spread)
    truths = _majority_truths(discovery, table)
    dots_of, dot_width = dots(relations.places, category, relations.centres, names)
    rows = [
        CategoryRow(
            c.name, c.is_new, c.size, c.confidence, *images.of_category(c.id), truths.get(c.name),
            marks[c.name], [names[other] for other in relations.nearest(c.id)], dots_of[c.id],
        )
        for c in sorted((c for c in discovery.categories if c.size), key=lambda c: (not c.is_new, -c.size))
    ]  # fmt: skip
    counted = read_number(run)
    recipe, out = shlex.quote(str(run.path("config.yaml"))), shlex.quote(str(run.folder))
    return Page(
        title=f"{len(discovery.new):,} new {'category' if len(discovery.new) == 1 else 'categories'}",
        subtitle=f"and {len(discovery.known):,} known ones, in {len(discovery.members):,} images",
        summary=_summary(discovery),
        categories=rows,
        command=f"newkinds discover --recipe {recipe} --out {out}",
        version=__version__,
        sheets=images.sheets,
        dot_width=dot_width,
        meanings=MEANINGS,
        pairs=[MaybeOne(names[pair.first], names[pair.second], pair.mixing) for pair in relations.pairs],
        doubts=list(map(images.shown, images.doubtful)),
        outliers=list(map(images.shown, images.strange)),
        findings=[(finding, images.at(finding.path)) for finding in findings],
        count=counted,
        curve=None if counted is None else curve(counted),
        plan=read_plan(run),
        calibration=read_calibration(run),
        comparison=Comparison(rows=[], protocol=describe_protocol(run)),
        fields=_field_pictures(discovery, model, table),
        skipped=[(s.path, s.reason) for s in discovery.skipped],
    )


class _Images:
    """The members of a discovery as the page shows them; an image is called by its place among them."""

    def __init__(
        self, discovery: Discovery, category: np.ndarray, known: Sequence[str], table: Table, found: set[str]
    ) -> None:
        self.members = discovery.members
        label_of = dict(enumerate(known))  # the names of categories may have been edited
        self.agrees = [m.given_label in (None, label_of.get(c)) for m, c in zip(self.members, category, strict=True)]
        confidence = np.array([member.confidence for member in self.members])
        doubtful = (place for place, fits in enumerate(self.agrees) if not fits)
        self.doubtful = sorted(doubtful, key=lambda place: -confidence[place])
        unlike = np.array([member.unlike or 0.0 for member in self.members])
        self.strange = [place for place in np.argsort(-unlike, kind="stable").tolist() if unlike[place] > 1]
        self.place_of = {member.path: place for place, member in enumerate(self.members)}

        order = np.lexsort((-confidence, category))  # by category, the most certain first
        groups = np.split(order, np.cumsum(np.bincount(category, minlength=len(discovery.categories)))[:-1])
        flagged = (self.place_of[path] for path in found if path in self.place_of)
        wanted = {*self.doubtful[:MOST_WANTED], *self.strange[:MOST_WANTED], *flagged}
        self.most, self.least, self.others = _chosen(groups, wanted)
        row_of = {path: row for row, path in enumerate(table.paths)}
        self.rows = [row_of[member.path] for member in self.members]
        self.sheets, self.tile_of = self._drawn(table)

    def _drawn(self, table: Table) -> tuple[list[Sheet], dict[int, Tile]]:
        """Sheets of the images that are always shown, which are larger, and of the others; and the tile of each row."""
        ends = [[*most, *least] for most, least in zip(self.most, self.least, strict=True)]
        always, others = (
            [[self.rows[place] for place in group] for group in some if group] for some in (ends, self.others)
        )
        front, front_tiles = draw_sheets(table, always, ENDS_BYTES)
        left = PICTURE_BYTES - sum(len(sheet.jpeg) for sheet in front)
        back, back_tiles = draw_sheets(table, others, left, first=len(front))
        return [*front, *back], front_tiles | back_tiles

    def shown(self, place: int) -> Shown:
        m, tile = self.members[place], self.tile_of.get(self.rows[place])
        return Shown(m.path, m.category, m.confidence, m.given_label, self.agrees[place], m.unlike, tile)

    def at(self, path: str) -> Shown | None:
        return self.shown(self.place_of[path]) if path in self.place_of else None

    def of_category(self, number: int) -> tuple[list[Shown], list[Shown], list[Shown]]:
        """Its most certain images, the least certain ones, and those between."""
        most, least, others = (list(map(self.shown, of[number])) for of in (self.most, self.least, self.others))
        return most, least, others


def _summary(discovery: Discovery) -> list[tuple[str, str]]:
    return [
        ("new categories", f"{len(discovery.new):,}"),
        ("images in new categories", f"{sum(c.size for c in discovery.new):,}"),
        ("known categories", f"{len(discovery.known):,}"),
        ("images assigned", f"{len(discovery.members):,}"),
        ("files skipped", f"{len(discovery.skipped):,}"),
    ]


def _chosen(groups: Sequence[np.ndarray], wanted: set[int]) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """Of images grouped by category, the most certain first: both ends of each group, and those between that are shown.

    All of them, unless there are more than MOST_PICTURES: then those `wanted`, and an even sample of the others.
    """
    filled = sum(len(group) > 0 for group in groups)
    few = max(1, min(ENDS, MOST_PICTURES // max(2 * filled, 1)))
    most = [group[:few].tolist() for group in groups]
    least = [group[few:][-few:].tolist() for group in groups]
    between = [group[few:-few].tolist() for group in groups]
    room = MOST_PICTURES - sum(map(len, most + least))
    every = -(-sum(map(len, between)) // max(room, 1))
    if every > 1:
        between = [[p for i, p in enumerate(group) if i % every == 0 or p in wanted] for group in between]
    return most, least, between


def _majority_truths(discovery: Discovery, table: Table) -> dict[str, str]:
    """Category → its commonest true class and that one's share of it, if the truth is known."""
    if table.truth is None:
        return {}
    truth_of = dict(zip(table.paths, table.truth, strict=True))
    counts: dict[str, Counter[str]] = {}
    for member in discovery.members:
        if (truth := truth_of[member.path]) is not None:
            counts.setdefault(member.category, Counter())[truth] += 1
    return {
        name: f"{truth} ({100 * share / sum(counter.values()):.0f} %)"
        for name, counter in counts.items()
        for truth, share in counter.most_common(1)
    }


def typical_fields(discovery: Discovery, model: Model, table: Table) -> tuple[list[str], Fields] | None:
    """Primitive fields of the most typical images of the largest categories, new ones first, with the images' paths."""
    row_of = {path: row for row, path in enumerate(table.paths)}
    largest = [*discovery.new, *sorted(discovery.known, key=lambda c: -c.size)]
    paths = [category.exemplars[0] for category in largest if category.exemplars][:FIELD_IMAGES]
    try:
        fields = fields_of(model.encoder, table, [row_of[path] for path in paths], model.device) if paths else None
    except BadImage:  # an image has vanished since it was embedded: a page without this picture is better than none
        return None
    return None if fields is None else (paths, fields)


def _field_pictures(discovery: Discovery, model: Model, table: Table) -> FieldPictures | None:
    found = typical_fields(discovery, model, table)
    if found is None:
        return None
    paths, fields = found
    return FieldPictures(paths, field_overlays(list(fields.views), list(fields.shares), fields.grid))
