"""The page of images that a run was asked about: made of the same parts as its own page, without torch."""

import shlex
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..._version import __version__
from ...data.table import Table
from ...errors import Skipped
from ...runs.directory import RunDirectory
from ...text import plural
from ..categories import Discovery
from ..edits import NO_CATEGORY
from ..kinds import Member
from ..split import read_embedding, unit_means
from ..strangers import group_alike, usual_width
from ..tree import centres_of
from . import CategoryRow, Page
from .page_images import PageImages

NEAREST = 3  # categories that are named for a group of strangers
ALONE = "like no other"
NAMED = 3  # images or folders that the commands on the page name


def page_of_predictions(
    run: RunDirectory, members: Sequence[Member], embedding: NDArray[np.float32], table: Table,
    skipped: Sequence[Skipped], asked: Sequence[str],
) -> Page:  # fmt: skip
    """`members`: the images in the categories that the run gives them; `embedding` (n, P) their unit rows where the
    run's images are compared; `table` opens them; `asked`: the files and folders that the user named."""
    found = Discovery.read(run.folder)
    own = read_embedding(run, len(found.members))
    of = np.array([member.category_id for member in found.members], dtype=np.int64)
    places = [(c.id, c.name, c.is_new) for c in found.categories]
    places += [(number, name, False) for number, name in NO_CATEGORY.items()]
    place_of = {number: place for place, (number, _, _) in enumerate(places)}
    position = np.array([place_of[member.category_id] for member in members], dtype=np.int64)  # (n,)
    typical = np.array([member.confidence for member in members])  # (n,) the higher, the earlier an image is shown
    unlike = np.flatnonzero([member.is_unlike for member in members])
    groups = _named_groups(members, unlike, embedding, usual_width(own, of))
    for place, (_, group) in enumerate(groups, start=len(places)):
        position[group] = place
        typical[group] = -np.arange(len(group))
    pictures = PageImages(members, position, len(places) + len(groups), [None] * len(members), table, rank=typical)
    rows = [
        CategoryRow(name, is_new, len(here), float(np.mean(typical[here])), *pictures.of_category(place), id=number)
        for place, (number, name, is_new) in enumerate(places)
        if len(here := np.flatnonzero(position == place))
    ]
    centres = {found.corrections().names[number]: centre for number, centre in centres_of(own, of).items()}
    strangers = [
        CategoryRow(
            name, True, len(group), 0.0, *pictures.of_category(place),
            nearest=[] if name == ALONE else _nearest(embedding[group], centres),
            unlike=float(np.median([members[row].unlike for row in group])),
            ends=("Least unlike", "Most unlike") if name == ALONE else ("Most typical", "Least typical"),
        )
        for place, (name, group) in enumerate(groups, start=len(places))
    ]  # fmt: skip
    placed = len(members) - len(unlike)
    also = f"and {plural(len(unlike), 'image')} unlike every category, " if len(unlike) else ""
    named = " ".join(map(shlex.quote, asked[:NAMED])) + (" …" if len(asked) > NAMED else "")
    folder = shlex.quote(str(run.folder))
    return Page(
        title=f"{plural(placed, 'image')} in {len(rows):,} {'category' if len(rows) == 1 else 'categories'}",
        subtitle=f"{also}as predicted by {run.folder}",
        summary=[
            ("images in known categories", f"{sum(row.size for row in rows if not row.is_new):,}"),
            ("images in new categories", f"{sum(row.size for row in rows if row.is_new):,}"),
            ("images unlike every category", f"{len(unlike):,}"),
            ("files skipped", f"{len(skipped):,}"),
        ],
        categories=sorted(rows, key=lambda row: (not row.is_new, -row.size)),
        strangers=strangers,
        command=f"newkinds predict {folder} {named} --report …",
        update=f"newkinds update {folder} {named}",
        version=__version__,
        run=folder,
        sheets=pictures.sheets,
        skipped=[(skip.path, skip.reason) for skip in skipped],
        is_listed=False,
    )


def _named_groups(
    members: Sequence[Member], unlike: NDArray[np.int64], embedding: NDArray[np.float32], width: float
) -> list[tuple[str, NDArray[np.int64]]]:
    """Images that are like no category, in groups of those that are like each other; those like none come last."""
    alike = [unlike[group] for group in group_alike(embedding[unlike], width)]
    groups = [(f"strangers {number}", group) for number, group in enumerate(alike, start=1) if len(group) > 1]
    if alone := [group[0] for group in alike if len(group) == 1]:
        groups.append((ALONE, np.array(sorted(alone, key=lambda row: members[row].unlike))))
    return groups


def _nearest(rows: NDArray[np.float32], centres: Mapping[str, NDArray[np.float32]]) -> list[str]:
    """The names of the categories whose centres are most like that of some unit rows (m, P), best first."""
    names = list(centres)
    cosine = np.stack([centres[name] for name in names]) @ unit_means(rows, [range(len(rows))])[0]
    return [names[place] for place in np.argsort(-cosine, kind="stable")[:NEAREST]]
