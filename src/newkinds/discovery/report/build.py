"""Fill the page from a run."""

import shlex
from collections import Counter

from ..._version import __version__
from ...comparison import Comparison
from ...data.images import BadImage
from ...data.table import Table
from ...runs.protocol import describe_protocol
from ...runs.run import Run
from ...training.embedding import Fields, fields_of
from ...training.model import Model
from ..categories import Category, Discovery, Member
from ..figures import field_overlays
from . import CategoryRow, FieldPictures, Page, Thumbnail

THUMBNAILS = 10  # per category
FIELD_IMAGES = 6  # images whose primitive fields are drawn


def page_of(discovery: Discovery, model: Model, table: Table, run: Run) -> Page:
    """The page of one run: what was found, what it looks like, how it was made."""
    row_of = {path: row for row, path in enumerate(table.paths)}
    members = {member.path: member for member in discovery.members}
    shown = sorted((c for c in discovery.categories if c.size), key=lambda c: (not c.is_new, -c.size))
    truths = _majority_truths(discovery, table)
    rows = [
        CategoryRow(c.name, c.is_new, c.size, c.confidence, _thumbnails(c, members, row_of, table), truths.get(c.name))
        for c in shown
    ]
    summary = [
        ("images in", f"{len(discovery.members) + len(discovery.skipped):,}"),
        ("assigned", f"{len(discovery.members):,}"),
        ("skipped", f"{len(discovery.skipped):,}"),
        ("known categories", str(len(discovery.known))),
        ("new categories", str(len(discovery.new))),
        ("images in new categories", f"{sum(c.size for c in discovery.new):,}"),
    ]
    recipe, out = shlex.quote(str(run.path("config.yaml"))), shlex.quote(str(run.folder))
    return Page(
        title=f"{len(discovery.new)} new {'category' if len(discovery.new) == 1 else 'categories'}",
        subtitle=f"and {len(discovery.known)} known ones, in {len(discovery.members):,} images",
        summary=summary,
        categories=rows,
        command=f"newkinds discover --recipe {recipe} --out {out}",
        version=__version__,
        comparison=Comparison(rows=[], protocol=describe_protocol(run)),
        fields=_field_pictures(discovery, model, table),
        skipped=[(s.path, s.reason) for s in discovery.skipped],
    )


def _thumbnails(c: Category, member_of: dict[str, Member], row_of: dict[str, int], table: Table) -> list[Thumbnail]:
    """The category's most typical images; one that has vanished since it was embedded is left out."""
    thumbnails = []
    for path in c.exemplars[:THUMBNAILS]:
        member = member_of[path]
        try:
            image = table.open(row_of[path])
        except BadImage:
            continue
        thumbnails.append(Thumbnail(image, path, member.confidence, member.given_label))
    return thumbnails


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
